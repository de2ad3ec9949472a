// Connectionist temporal classification (CTC): losses and their gradients, posteriors of labels, and best
// alignments.
//
// Utterance b has T frames, U labels y_0 .. y_{U-1}, and logits x[t,c], 0 <= t < T, 0 <= c < C.
//
//   lse[t] = log sum_c exp x[t,c],   lp[t,c] = x[t,c] - lse[t],   p[t,c] = exp lp[t,c]
//   w[t,c] = lp[t,c] - prior[c]
//   w[t,star] = log sum_{c != blank} p[t,c]
//
// With log_probs, x is taken as lp: nothing is normalised, and w[t,star] = log sum_{c != blank} exp x[t,c].
//
// The states of a frame are z = blank, y_0, blank, y_1, ..., y_{U-1}, blank: S = 2 U + 1 of them, z_s = blank
// for even s, z_s = y_{(s-1)/2} for odd s. A path has one state per frame. It begins in state 0 or 1 and ends
// in state S-1 or S-2. From s it goes on to s, to s+1, or to s+2 if s is odd and z_{s+2} != z_s.
//
//   loss = -log sum over paths of exp(sum over t of w[t, z_s(t)])
//   g[t,s] = posterior of being in state s at frame t: sum_s g[t,s] = 1 for every t
//   d loss / d x[t,c] = p[t,c] - sum_{s: z_s = c} g[t,s] - q[t,c] sum_{s: z_s = star} g[t,s]
//   q[t,c] = p[t,c] / sum_{c' != blank} p[t,c'] for c != blank, q[t,blank] = 0
//
// With log_probs the gradient is by x as log-probabilities: the same without the term p[t,c].
//
// T = 0: one empty path, of weight 1, if U = 0 (loss 0), and none otherwise.
//
// Sources: Graves, Fernandez, Gomez, Schmidhuber, "Connectionist temporal classification", ICML 2006, eq.
// 5-16 (alpha, beta, posteriors); label priors: Huang et al., arXiv 2406.02560, eq. 5; a label that any label
// but blank matches: Pratap, Hannun, Synnaeve, Collobert, "Star temporal classification", NeurIPS 2022;
// Viterbi, 1967.
//
// Two calls, as the transducer's. A gradient has the size of the logits, the largest tensor of a training
// step, and must not be passed over twice. If one call gave value and gradient, a front end would have to
// scale the gradient by the upstream one: at 64 x 200 x 5000 logits that reads and writes 512 MB once more.
// So the first call returns losses and keeps the normalisers of the frames and a few columns of alpha, or of
// beta, between which the second call computes again. Nothing is computed more often for that: without a T x
// S table, alpha is computed twice in one call as well, once to the end and once beside beta. A table of
// posteriors between the calls, which the transducer has, would be 4 T (U + 1) bytes: 2 % of the logits at
// C = 5000, U = 40, but 96 times the logits of 12000 frames, 32 classes and 3000 labels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/integers.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

// A batch. Pointers live on the execution's device. "Reals" are float64 for float64 logits, else float32.
struct CtcProblem {
  DType dtype = DType::kFloat32;  // of logits and their gradient; half types are read as they are
  std::int32_t batch = 0;         // B >= 0
  std::int32_t frames = 0;        // T >= 0: no utterance has more
  std::int32_t classes = 0;       // C >= 1
  std::int32_t labels = 0;        // U >= 0: no utterance has more. Flat targets: any upper bound
  // (B, T, C), aligned to its elements, with any strides >= 0. The last one is best 1. Padding (t >= T_b) is
  // never read.
  StridedTensorOf<3> logits;
  // (B,): T_b and U_b. data null: all have T frames, or U labels. Host execution returns an error unless
  // 0 <= T_b <= T and 0 <= U_b <= U. CUDA execution never reads lengths back: it clamps them.
  Integers logit_lengths;
  Integers target_lengths;
  // y_u of utterance b is targets[b * target_stride + u], target_stride >= 0, or -1 for a contiguous (B, U).
  // With flat_targets all labels follow each other, those of utterance b after the sum over a < b of U_a, and
  // target_lengths is needed. A label is in [0, C) and not blank, or it is star. Host execution returns an
  // error for any other label. CUDA execution sets that utterance's loss, gradients and posteriors to NaN,
  // and its alignment to score NaN. Labels from U_b on are never read.
  Integers targets;
  std::int64_t target_stride = -1;
  bool flat_targets = false;
  std::int64_t target_count = 0;  // flat_targets: how many labels targets holds; none beyond is read

  std::int32_t blank = 0;       // its class, in [0, C)
  std::int32_t star = -1;       // -1: none. Else not blank; it may be C or more
  const void* prior = nullptr;  // (C,) reals, contiguous and finite; null: 0
  bool log_probs = false;       // logits are log-probabilities
  bool zero_infinity = false;   // where no path exists, the loss is 0 instead of inf
};

// ---------------------------------------------------------------------------------------------------- loss

// The outputs of the first call. Neither may overlap anything else.
//
// No path (too few frames for the labels, or only paths of weight -inf): loss inf (0 with zero_infinity),
// gradient 0. A logit of -inf is a class that cannot be emitted: gradients stay finite, and a frame of -inf
// alone leaves no path. A NaN or +inf among the logits of a true frame: loss NaN and NaN for the gradients of
// all true frames, for that utterance alone. With log_probs only the entries that states name are looked at.
struct CtcOutputs {
  void* loss = nullptr;  // (B,) reals
  // ctc_saved_bytes() bytes, aligned as a workspace is. Its layout is the device's own. Null: no gradient
  // will be asked for.
  void* saved = nullptr;
};

// Bytes of CtcOutputs::saved. Depends on the problem's sizes and flags alone, not on its pointers.
std::size_t ctc_saved_bytes(const CtcProblem& problem, const Execution& execution);

// No device's ctc_saved_bytes() is more than this. For front ends that allocate before they know the device:
//
//   B (32 T + 16 (2 U + 33) (ceil(sqrt(T)) + 1) + 256)
std::size_t ctc_most_saved_bytes(const CtcProblem& problem);

// Bytes of workspace that ctc_loss() needs. Outputs matter by whether saved is null.
std::size_t ctc_loss_workspace_bytes(const CtcProblem& problem, const CtcOutputs& outputs,
                                     const Execution& execution);

// Computes losses, and the data for ctc_gradient(). Host execution: results are complete on return. CUDA
// execution: work is enqueued on execution.stream and nothing is allocated or waited for. On any status but
// ok nothing has been written.
Status ctc_loss(const CtcProblem& problem, const CtcOutputs& outputs, Workspace workspace,
                const Execution& execution);

// What the second call takes and where it writes.
struct CtcGradient {
  const void* saved = nullptr;  // as ctc_loss() left it, for the same problem on the same device
  // (B,) reals: the gradient by each loss, 0 and below included. grad_loss_stride 0: one for all. Null: 1.
  const void* grad_loss = nullptr;
  std::int64_t grad_loss_stride = 1;
  // (B, T, C) of problem.dtype with its own strides, without overlapping elements: grad_loss[b] times the
  // gradient by the logits, written once, padding as exactly 0. It may be the logits' memory with the logits'
  // strides: in place. Otherwise nothing may overlap. An utterance whose grad_loss is 0 gets 0, whatever its
  // loss is.
  void* logits = nullptr;
  std::int64_t logits_stride[3] = {};
};

std::size_t ctc_gradient_workspace_bytes(const CtcProblem& problem, const CtcGradient& gradient,
                                         const Execution& execution);

// As ctc_loss(): nothing is allocated. saved is read only, so that it serves any number of calls; after a
// gradient in place the logits are gone, and no second call can be made.
Status ctc_gradient(const CtcProblem& problem, const CtcGradient& gradient, Workspace workspace,
                    const Execution& execution);

// ---------------------------------------------------------------------------------------------- posteriors

// Contiguous. No path: posteriors 0. NaN among the logits, as CtcOutputs has it: NaN at true frames and
// labels. Padding (t >= T_b or u >= U_b): 0.
struct CtcPosteriors {
  void* loss = nullptr;    // (B,) reals, or null
  void* labels = nullptr;  // (B, T, U) reals: g[t, 2u+1]. What a frame's labels leave of 1 is blank's
};

std::size_t ctc_posteriors_workspace_bytes(const CtcProblem& problem, const CtcPosteriors& posteriors,
                                           const Execution& execution);

// zero_infinity changes the loss alone.
Status ctc_posteriors(const CtcProblem& problem, const CtcPosteriors& posteriors, Workspace workspace,
                      const Execution& execution);

// ----------------------------------------------------------------------------------------------- alignment

// The best path: of greatest sum over t of w[t, z_s(t)], where w[t,star] = max_{c != blank} w[t,c]. Sums of a
// path's weights are float64, in the order of the frames. Among paths of equal weight the choice is made from
// the end: state S-2 is taken rather than S-1, and back from a state: the same state, then the one before,
// then the one two before. (torchaudio's forced_align does the same but where the state before and the one
// two before are equal and better than the same state: there it takes the same one, which is no best path.)
//
// The outputs, contiguous; each may be null. None may overlap anything else. No path: score -inf; NaN or +inf
// among the logits, as CtcOutputs has it: score NaN. Then, and in the padding, integers are -1 and scores 0.
// T_b = U_b = 0: score 0.
struct CtcAlignment {
  void* score = nullptr;           // (B,) reals: the path's sum of weights
  std::int32_t* labels = nullptr;  // (B, T): z of the path's state: blank, a label, or star
  void* scores = nullptr;          // (B, T) reals: w[t, z] of the path's state
  // (B, U, 2), or with flat_targets (target_count, 2): first and last frame of each label
  std::int32_t* spans = nullptr;
};

std::size_t ctc_align_workspace_bytes(const CtcProblem& problem, const CtcAlignment& alignment,
                                      const Execution& execution);

// zero_infinity changes nothing.
Status ctc_align(const CtcProblem& problem, const CtcAlignment& alignment, Workspace workspace,
                 const Execution& execution);

}  // namespace warpalign
