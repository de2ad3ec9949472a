// CTC of a network whose last layer is a matrix product, x = h W + b, with many classes: the logits are made
// some frames at a time, and never are in memory as a whole.
//
// The caller multiplies, with a BLAS of its own; the functions below read the logits of some frames, and
// write their gradient over them. For a training step, with the notation of warpalign/ctc.h:
//
//   1. ctc_head_labels()      which labels of an utterance are equal
//   2. for each chunk of frames: logits by a product, then
//      ctc_head_emissions()   log-sums of its frames, and e[t,u], the weights of their labels and of blank
//   3. ctc_posteriors() on ctc_head_emission_problem(): losses and g[t,u], the posteriors of labels; or
//      ctc_loss() on it, without a gradient
//   4. for each chunk, in any order: its logits again, then
//      ctc_head_gradient()    d loss / d x in the memory of the logits; products with it give the gradients
//                             by h and W, its sum over frames that by b
//
//   e[t,u] = w[t,y_u], 0 <= u < U,   e[t,U] = w[t,blank],   w as in warpalign/ctc.h
//   d loss / d x[t,c] = p[t,c] - sum_{u: y_u = c} g[t,u] - [c = blank] (1 - sum_u g[t,u])
//                       - q[t,c] sum_{u: y_u = star} g[t,u]
//
// Between 2 and 4 the caller keeps g, 4 B T U bytes, and the log-sums, 8 B T bytes (16 with a star).
//
// These functions do not read CtcProblem::logits and zero_infinity; log_probs and flat_targets must be false.
// On CUDA they enqueue launches that depend on sizes alone, without allocation: a graph can capture them.
// Results are bitwise identical in every run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/ctc.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign {

// (B, U), contiguous, written by ctc_head_labels(): of label u the first index of a label that equals it, and
// the next one. -1: there is none, because u >= U_b, or because the label is invalid (CUDA alone).
struct CtcHeadLabels {
  std::int32_t* first = nullptr;
  std::int32_t* next = nullptr;
};

Status ctc_head_labels(const CtcProblem& problem, const CtcHeadLabels& labels, const Execution& execution);

// The logits of frames first ... first + count - 1 of the B T, of which b T + t is frame t of utterance b.
struct CtcHeadRows {
  void* logits = nullptr;   // (count, C) of problem.dtype; columns are adjacent
  std::int64_t stride = 0;  // elements from row to row, at least C
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// What is kept of the logits, contiguous. Frames of the padding are not written. A NaN or +inf among a
// frame's logits makes its log-sum and emissions NaN.
struct CtcHeadEmissions {
  double* log_sums = nullptr;            // (B, T): lse[t]
  double* log_sums_of_others = nullptr;  // (B, T): log sum_{c != blank} exp x[t,c]; null without a star
  void* emissions = nullptr;             // (B, T, U + 1) reals: e[t,u]
};

Status ctc_head_emissions(const CtcProblem& problem, const CtcHeadRows& rows, const CtcHeadEmissions& to,
                          const Execution& execution);

// The problem of step 3: its logits are the emissions, its labels their columns.
CtcProblem ctc_head_emission_problem(const CtcProblem& problem, const void* emissions,
                                     const CtcHeadLabels& labels);

// What the gradient is made of. Nothing of it is changed.
struct CtcHeadGradient {
  CtcHeadLabels labels;
  const double* log_sums = nullptr;
  const double* log_sums_of_others = nullptr;
  const void* posteriors = nullptr;  // (B, T, U) reals: g[t,u]
  // (B,) reals. inf says that an utterance has no path: its gradient is 0. NaN makes the gradient of its true
  // frames NaN. So they are those of a problem without zero_infinity.
  const void* loss = nullptr;
  const void* grad_loss = nullptr;  // (B,) reals: the gradient by each loss. Null: 1
  std::int64_t grad_loss_stride = 1;
};

std::size_t ctc_head_gradient_workspace_bytes(const CtcProblem& problem, const CtcHeadRows& rows,
                                              const Execution& execution);

// Writes grad_loss[b] d loss / d x over rows.logits; 0 for frames of the padding, whatever their logits are,
// and for utterances whose grad_loss is 0.
Status ctc_head_gradient(const CtcProblem& problem, const CtcHeadRows& rows, const CtcHeadGradient& gradient,
                         Workspace workspace, const Execution& execution);

}  // namespace warpalign
