// Transducer losses: RNN-T, multi-blank RNN-T and TDT (token and duration). The first call computes the
// losses and keeps what the second call turns into gradients of the logits.
//
// Utterance b has T frames, U labels y_1 .. y_U, and logits x[t,u,k], 0 <= t < T, 0 <= u <= U, 0 <= k < V.
// TDT also has duration logits z[t,u,d], 0 <= d < D.
//
//   lse[t,u] = log sum_k exp x[t,u,k],   lp_k = x[t,u,k] - lse[t,u],   p_k = exp lp_k
//   q_d = z[t,u,d] - log sum_d exp z[t,u,d],   r_d = exp q_d,   delta(t) = (T-1)/2 - t
//
// A path starts at node (0, 0) and takes arcs until it is at the end. Arcs out of node (t, u):
//
//   arc                        | leads to                                   | log weight
//   blank                      | (t+1, u); the end if t+1 = T and u = U     | lp_blank - sigma
//   big blank i, m = duration  | (t+m, u); the end if t+m = T and u = U     | lp_c[i] - sigma
//   label, u < U               | (t, u+1)                                   | lp_y + label term, y = y_{u+1}
//   TDT blank, duration d > 0  | (t+d, u); the end if t+d = T and u = U     | lp_blank - sigma + q_d
//   TDT label, duration d >= 0 | (t+d, u+1) if t+d < T and u < U            | lp_y + label term + q_d
//
//   label term = -sigma + delay delta(t) + (y = eos ? eos_penalty delta(t) : 0)
//
// An arc exists only if the node that it leads to has a frame < T, or if it leads to the end. With a star
// label (not in TDT) two kinds of arcs are independent of x: a label arc with y_{u+1} = star has the weight
// delay delta(t), and every blank or big blank out of a node with u >= 1 and y_u = star has the weight
// log star_penalty.
//
//   loss = -log sum over paths of exp(sum of the path's log weights)
//   g_k[t,u] = posterior of the arcs with column k out of (t, u), g_{k,d} those with duration d
//   S[t,u] = sum of the posteriors of the arcs out of (t, u) that depend on x
//   d loss / d x[t,u,k] = p_k S - g_k,   d loss / d z[t,u,d] = r_d S - sum_k g_{k,d}
//
// FastEmit multiplies the posteriors of label arcs by 1 + lambda, in the gradients alone. With log_probs,
// x are taken as lp and z as q, and the gradients by them are -g_k and -sum_k g_{k,d}.
//
// Sources: Graves, "Sequence transduction with recurrent neural networks", 2012, section 2.4; multi-blank
// and sigma: Xu et al., arXiv 2211.03541; TDT and omega: Xu et al., arXiv 2304.06795; FastEmit: Yu et al.,
// arXiv 2010.11148, eq. 9-11; delay: Kang et al., arXiv 2211.00490.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

inline constexpr std::int32_t kTransducerBigBlanks = 8;    // at most so many big blanks
inline constexpr std::int32_t kTransducerDurations = 16;   // at most so many TDT durations
inline constexpr std::int32_t kTransducerLongestArc = 64;  // no arc consumes more frames

// The lattice of a batch, for any source of scores. Pointers are to memory of the execution's device.
struct TransducerLattice {
  std::int32_t batch = 0;   // B >= 0
  std::int32_t frames = 0;  // T >= 0: no utterance has more. Packed logits: any upper bound of the true T_b
  std::int32_t states = 1;  // U + 1 >= 1: no utterance has more. Packed logits: any upper bound
  // (B,): T_b and U_b. Null: all have T frames, or U labels; packed logits need both. Host execution returns
  // an error unless 0 <= T_b <= T and 0 <= U_b <= U. CUDA execution never reads lengths back: it clamps them.
  const std::int32_t* logit_lengths = nullptr;
  const std::int32_t* target_lengths = nullptr;
  // y_{u+1} of utterance b is targets[b * target_stride + u]. target_stride -1: targets are a contiguous
  // (B, U), so that it is U = states - 1; 0: all utterances have the same labels. With flat_targets, all
  // labels are contiguous, U_b for utterance b. A label is in [0, V), and not the column of blank or of a big
  // blank; star may be outside [0, V). Host execution returns an error for any other label. CUDA execution
  // sets that utterance's loss and gradients to NaN. Labels after U_b are never read.
  const std::int32_t* targets = nullptr;
  std::int64_t target_stride = -1;
  bool flat_targets = false;
  std::int64_t target_count = 0;  // flat_targets: the number of labels in targets

  bool tdt = false;
  std::int32_t blank = 0;  // its column in [0, V)
  // RNN-T: the number of big blanks, 0 to kTransducerBigBlanks, with durations of 2 to kTransducerLongestArc
  // frames, and their columns c[i] in [0, V), all different and not blank's. TDT: D, 1 to
  // kTransducerDurations, with different durations of 0 to kTransducerLongestArc frames, of which at least
  // one is not 0; big_blank_column is not read.
  std::int32_t durations = 0;
  std::int32_t duration[kTransducerDurations] = {};
  std::int32_t big_blank_column[kTransducerDurations] = {};
  // TDT: (B,) or null. If not 0, the utterance's loss is that of RNN-T on the label logits, without big
  // blanks and with sigma = 0, and the gradient of its duration logits is 0 (omega of the TDT paper).
  const std::uint8_t* without_durations = nullptr;

  // Finite. fastemit and star_penalty: fastemit >= 0, star_penalty > 0.
  double sigma = 0.0;
  double fastemit = 0.0;
  double delay = 0.0;
  double eos_penalty = 0.0;
  double star_penalty = 1.0;
  std::int32_t eos = -1;   // -1: none
  std::int32_t star = -1;  // -1: none. Not eos, nor the column of a blank or big blank; not with TDT
  // > 0: every entry of the gradient with respect to x (not z) is clipped to [-clamp, clamp] before it is
  // multiplied by grad_loss. 0: not clipped.
  double clamp = 0.0;
  bool zero_infinity = false;  // if no path exists, the loss is 0 instead of inf
};

// Logits in memory. Data is aligned to the size of its elements.
struct TransducerProblem {
  DType dtype = DType::kFloat32;  // of logits, duration logits and their gradients; half types are read as
                                  // they are and summed in float32
  std::int32_t labels = 0;        // V >= 1
  // (B, T, U+1, V) with any strides >= 0 but the last, which is 1. Packed: (N, V) with stride[2] from row
  // to row; strides 0 and 1 are ignored. Padding is not read.
  StridedTensorOf<4> logits;
  StridedTensorOf<4> duration_logits;  // TDT: (B, T, U+1, D), or packed (N, D), as logits
  // Packed: row (t, u) of utterance b is offset_b + t (U_b + 1) + u, offset_b = sum over a < b of
  // T_a (U_a + 1). Host execution returns an error unless packed_rows is the number of all rows. On CUDA an
  // utterance whose rows exceed packed_rows gets NaN.
  bool packed = false;
  std::int64_t packed_rows = 0;  // N
  bool log_probs = false;        // logits are log-probabilities. Only entries that have arcs are read
  TransducerLattice lattice;
};

// The outputs of the first call, aligned as inputs are. Neither may overlap anything else.
//
// No path (T_b = 0, or all weights -inf): loss inf (0 with zero_infinity) and gradient 0. A NaN or +inf among
// a true node's logits: loss NaN and all its true nodes' gradients NaN, for that utterance alone.
struct TransducerOutputs {
  void* loss = nullptr;  // (B,): float64 for float64 logits, else float32
  // transducer_saved_bytes() bytes, aligned as a workspace is. Its layout depends on the device. Null: no
  // gradient will be computed.
  void* saved = nullptr;
};

// Bytes of TransducerOutputs::saved. Depends on the problem's sizes and types, not on its pointers.
std::size_t transducer_saved_bytes(const TransducerProblem& problem, const Execution& execution);

// An upper bound of every device's transducer_saved_bytes(), for front ends that allocate before the device
// is known.
std::size_t transducer_most_saved_bytes(const TransducerProblem& problem);

// Bytes of workspace that transducer() needs. Of outputs, only whether saved is null is used.
std::size_t transducer_workspace_bytes(const TransducerProblem& problem, const TransducerOutputs& outputs,
                                       const Execution& execution);

// Computes losses, and the data for transducer_gradient(). Host execution: results are complete on return.
// CUDA execution: work is enqueued on execution.stream; nothing is allocated, and nothing waits. If the
// status is not ok, nothing has been written.
Status transducer(const TransducerProblem& problem, const TransducerOutputs& outputs, Workspace workspace,
                  const Execution& execution);

// The arguments and outputs of the second call.
struct TransducerGradient {
  const void* saved = nullptr;  // as transducer() left it, for the same problem on the same device
  // (B,), of the loss's dtype: the upstream gradient of each loss. grad_loss_stride 0: one for all.
  const void* grad_loss = nullptr;
  std::int64_t grad_loss_stride = 1;
  // grad_loss[b] times the gradient with respect to the logits, of problem.dtype and of their shape, with its
  // own strides (packed: row stride last). Every entry is written, padding and packed rows of no utterance as
  // exactly 0. It may be the logits' memory with the logits' strides: in place. Otherwise nothing may
  // overlap. Rows whose S is below 2^-40 (float64: is 0) are written as 0 without their logits being read.
  void* logits = nullptr;
  std::int64_t logits_stride[3] = {};
  void* duration_logits = nullptr;  // TDT
  std::int64_t duration_logits_stride[3] = {};
};

std::size_t transducer_gradient_workspace_bytes(const TransducerProblem& problem,
                                                const TransducerGradient& gradient,
                                                const Execution& execution);

// As transducer(): nothing is allocated. saved is not changed, so that it can be used for any number of
// calls. A gradient in place overwrites the logits, so that no further call is possible.
Status transducer_gradient(const TransducerProblem& problem, const TransducerGradient& gradient,
                           Workspace workspace, const Execution& execution);

}  // namespace warpalign
