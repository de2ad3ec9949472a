// Alignments by a transducer: the best path of every utterance, and how probable each arc is. The lattice,
// its arcs and their weights are those of warpalign/transducer.h.
//
//   score = max over paths of the sum of the path's log weights
//   g_a[t,u] = sum over paths through arc a out of (t, u) of exp(sum of log weights) / the same over all
//   paths
//
// Among paths of equal weight the choice is made from the path's end: a blank is taken before a label, and
// among blanks, or labels, the one of more frames. So labels stand as early as they can. Sums of a path's
// weights are float64.
//
// Sources: Viterbi, "Error bounds for convolutional codes and an asymptotically optimum decoding algorithm",
// 1967; Graves, "Sequence transduction with recurrent neural networks", 2012, section 2.4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/transducer.h"

namespace warpalign {

// The outputs, contiguous, each aligned to its elements; each may be null. None may overlap anything else.
// Reals are float64 for float64 logits, else float32. `rows` are B T (U+1), or packed the N rows of the
// logits, in the logits' order.
//
// No path (T_b = 0, or all weights -inf): score -inf, integers -1, posteriors 0. A NaN or +inf among a true
// node's logits: score NaN, integers -1, and NaN for the posteriors of the utterance's true nodes. Padding
// has integers -1 and posteriors 0.
struct TransducerAlignment {
  void* score = nullptr;  // (B,) reals
  // (B, U), U = states - 1, or with flat_targets (target_count,): of label u + 1, the frame that the path
  // emits it at, and how many frames its arc consumes (0 but for TDT).
  std::int32_t* frames = nullptr;
  std::int32_t* durations = nullptr;
  // (B, T): how many frames the blank consumes that leaves frame t; -1 where no blank does: at frames that an
  // arc skips, and that a TDT label leaves. Packed: (rows,), at the node that the blank leaves.
  std::int32_t* blanks = nullptr;
  // Posteriors of arcs out of a node, real numbers. fastemit does not count.
  //
  //   blank_posteriors      (rows,)            its blank; TDT: all its blanks
  //   label_posteriors      (rows,)            its label; TDT: all its label arcs; 0 where u = U_b
  //   big_blank_posteriors  (durations, rows)  big blank i; not for TDT
  //   duration_posteriors   (durations, rows)  TDT: the arcs of duration d, blank or label
  void* blank_posteriors = nullptr;
  void* label_posteriors = nullptr;
  void* big_blank_posteriors = nullptr;
  void* duration_posteriors = nullptr;
};

// Bytes of workspace that transducer_align() needs. The alignment matters by which of its
// pointers are null.
std::size_t transducer_align_workspace_bytes(const TransducerProblem& problem,
                                             const TransducerAlignment& alignment,
                                             const Execution& execution);

// Checks and effects as transducer()'s: a host execution returns with the results, a CUDA execution enqueues
// work. fastemit, clamp and zero_infinity change nothing.
Status transducer_align(const TransducerProblem& problem, const TransducerAlignment& alignment,
                        Workspace workspace, const Execution& execution);

}  // namespace warpalign
