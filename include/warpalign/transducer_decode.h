// Decoding with transducers: RNN-T, multi-blank RNN-T and TDT. A front end runs the predictor network; these
// functions run the joint network, choose arcs and keep the hypotheses. No function waits for a device.
//
// A hypothesis is at frame t of an utterance of T frames, with a predictor row g that depends on its labels
// alone. It takes the arcs of warpalign/transducer.h, by scores x[k] of V labels and z[d] of D durations:
//
//   arc             | weight                    | leads to frame                            | exists if
//   blank           | lp_blank                  | t + 1                                     | not TDT
//   big blank i     | lp_c[i]                   | t + duration[i]                           | not TDT
//   label k         | lp_k                      | t; t + 1 after max_symbols labels in t    | not TDT
//   TDT blank, d    | lp_blank + q_d            | t + duration[d]                           | duration[d] > 0
//   TDT label k, d  | lp_k + q_d                | t + duration[d]; as a label if that is t  | always
//
// lp and q are log-softmax of x and z. A hypothesis has ended when its frame is T or more: blanks and
// durations may lead beyond T, and what they lead beyond is the frame that a stream's next chunk begins with.
// Frames count from the beginning of the chunk.
//
// Sources: Graves, "Sequence transduction with recurrent neural networks", 2012, sections 2.5 and
// 2.6; one launch per label: Bataev et al., arXiv 2406.06220 (label-looping); big blanks: Xu et al., arXiv
// 2211.03541; TDT: Xu et al., arXiv 2304.06795.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/activation.h"
#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"
#include "warpalign/transducer.h"

namespace warpalign {

inline constexpr std::int32_t kTransducerMostBeams = 32;

// The arcs of a model. A row of scores has V columns of labels, followed for TDT by D columns of durations.
struct TransducerDecoding {
  std::int32_t labels = 0;  // V >= 1
  std::int32_t blank = 0;   // its column in [0, V)
  bool tdt = false;
  // As in TransducerLattice: big blanks with their columns, or D TDT durations.
  std::int32_t durations = 0;
  std::int32_t duration[kTransducerDurations] = {};
  std::int32_t big_blank_column[kTransducerDurations] = {};
  std::int32_t max_symbols = 10;  // >= 1: labels of one frame
};

// Scores from a joint network: row n at frame t of its utterance b has
//
//   scores[c] = bias[c] + sum over j < H of act(encoder[b, t, j] + predictor[n, j]) weight[c, j]
//
// summed in an order that depends on H alone, so that a row's bits do not depend on the batch.
struct TransducerJoint {
  std::int32_t hidden = 0;          // H >= 1
  StridedTensor encoder;            // (B, T, H), the last stride 1
  const void* predictor = nullptr;  // (N, H), contiguous
  const void* weight = nullptr;     // (columns, H), contiguous
  const void* bias = nullptr;       // (columns,) or null
  Activation activation = Activation::kRelu;
};

// Scores of `window` frames for each of N = batch * beams hypotheses.
struct TransducerScores {
  DType dtype = DType::kFloat32;  // kFloat32 or kFloat64: of all real numbers
  std::int32_t batch = 0;         // B
  std::int32_t beams = 1;         // hypotheses of an utterance
  std::int32_t frames = 0;        // T
  std::int32_t window = 1;        // >= 1
  std::int32_t columns = 0;       // >= 1
  // (B,): T_b in [0, T]. Null: all T. Host execution returns an error for others, CUDA execution clamps them.
  const std::int32_t* lengths = nullptr;
  // (N,): the hypothesis' frame, `frame_stride` numbers apart; negative: no scores are computed for it.
  const std::int32_t* frame = nullptr;
  std::int64_t frame_stride = 1;
  TransducerJoint joint;
  // Out: (N, window, columns), contiguous. Rows of frames >= T_b or of no hypothesis are written as 0.
  void* scores = nullptr;
};

std::size_t transducer_scores_workspace_bytes(const TransducerScores& problem, const Execution& execution);

// Host execution: results are there on return. CUDA execution: work is enqueued on execution.stream. On any
// status but ok nothing has been written.
Status transducer_scores(const TransducerScores& problem, Workspace workspace, const Execution& execution);

// The state of an utterance's greedy search, and the result of its last step.
struct TransducerWalk {
  std::int32_t frame;           // t
  std::int32_t symbols;         // number of labels in frame t
  std::int32_t label;           // result of the last step, or -1
  std::int32_t label_frame;     // its frame
  std::int32_t label_duration;  // the frames that its arc consumes; 0 without TDT
};

// One step of greedy search: each utterance walks along blanks to its first label, by the best arc of every
// frame, over at most `window` frames.
//
// The best label or blank is the one of the largest score, and of equal scores the one in the lowest column.
// TDT: its duration is the one of the largest score among those for which the arc exists. NaN counts as -inf.
// A row without a number above -inf counts as a blank of one frame (TDT: of the first duration above 0).
struct TransducerGreedyStep {
  DType dtype = DType::kFloat32;
  std::int32_t batch = 0;
  std::int32_t frames = 0;
  std::int32_t window = 1;
  const std::int32_t* lengths = nullptr;  // as in TransducerScores
  TransducerDecoding decoding;
  // (B, window, columns), contiguous: scores of the frames from each utterance's own on. Null: from joint.
  const void* scores = nullptr;
  TransducerJoint joint;
  const TransducerWalk* walk = nullptr;  // (B,)
  const double* log_prob = nullptr;      // (B,): sum of the weights of the arcs taken so far
  TransducerWalk* next_walk = nullptr;   // (B,), out
  double* next_log_prob = nullptr;       // (B,), out
  std::int64_t* token = nullptr;         // (B,), out, or null: the label, or 0
  bool* found = nullptr;                 // (B,), out, or null: whether a label was found
};

std::size_t transducer_greedy_step_workspace_bytes(const TransducerGreedyStep& problem,
                                                   const Execution& execution);
Status transducer_greedy_step(const TransducerGreedyStep& problem, Workspace workspace,
                              const Execution& execution);

// A hypothesis of beam search. Its labels are the tokens of nodes, from its own back to the first.
struct TransducerHypothesis {
  std::int32_t frame;
  std::int32_t symbols;  // number of labels in this frame
  std::int32_t node;     // -1: no label yet
  std::int32_t length;   // labels
};

struct TransducerNode {
  std::int32_t parent;  // -1: the first label
  std::int32_t token;
  std::int32_t frame;     // counted from the beginning of the stream
  std::int32_t duration;  // frames that the label's arc consumes; 0 without TDT
};

// One step of beam search. An utterance has up to 2 K hypotheses, each at its own frame. The step takes all
// arcs out of those of its earliest frame, if that is below T_b, and leaves the others. Hypotheses of the
// same labels at the same frame become one, with the best one's alignment. The step looks at the K best
// labels of a hypothesis. An arc whose weight is -inf or NaN does not exist.
//
// Places 0 to K - 1 take the K best at later frames, the best first. Places K to 2 K - 1 take the K best that
// are still at this frame, the best first, as far as they are better than K later ones. Equal ones keep the
// order that they came in. The two are not mixed, because a hypothesis that is still at the frame has yet to
// pay for its blank.
//
// Because the earliest go on first, all paths to a frame have been followed before any leaves it, however
// many frames an arc consumes.
struct TransducerBeamStep {
  DType dtype = DType::kFloat32;
  std::int32_t batch = 0;
  std::int32_t beams = 2;                       // 2 K, an even number up to kTransducerMostBeams
  std::int32_t frames = 0;                      // T
  const std::int32_t* lengths = nullptr;        // as in TransducerScores
  const std::int32_t* frames_before = nullptr;  // (B,) or null: added to nodes' frames
  TransducerDecoding decoding;
  bool sum = true;  // a hypothesis that several paths lead to has their sum; else the largest
  const void* scores =
      nullptr;  // (B, 2 K, columns): of hypotheses that have an arc taken; no others are read
  const void* label_scores = nullptr;  // (B, 2 K, V) or null: added to the weights of labels, finite or -inf
  // (B, 2 K). A log-probability of -inf: there is no hypothesis.
  const TransducerHypothesis* hypothesis = nullptr;
  const double* log_prob = nullptr;
  const std::uint64_t* hash = nullptr;  // of the labels; 0 for none
  // (B, capacity) and (B,): each step takes 2 K nodes of every utterance, of which used counts those taken.
  // Host execution returns an error where used + 2 K is above capacity, CUDA execution writes no node then.
  TransducerNode* nodes = nullptr;
  std::int32_t capacity = 0;
  std::int32_t* used = nullptr;
  // (B, 2 K), out
  TransducerHypothesis* next_hypothesis = nullptr;
  double* next_log_prob = nullptr;
  std::uint64_t* next_hash = nullptr;
  std::int32_t* source = nullptr;  // the hypothesis that it comes from, in [0, 2 K)
  std::int32_t* label = nullptr;   // the label that it got, or -1
  std::int32_t* expand = nullptr;  // its frame if the next step takes arcs out of it, or -1
};

std::size_t transducer_beam_step_workspace_bytes(const TransducerBeamStep& problem,
                                                 const Execution& execution);
Status transducer_beam_step(const TransducerBeamStep& problem, Workspace workspace,
                            const Execution& execution);

}  // namespace warpalign
