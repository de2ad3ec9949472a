// Decoding of CTC's frames: greedy search, and prefix beam search.
//
// A prefix is a sequence of labels. A path of frames 0 .. t-1 spells it when equal neighbours become one and
// blanks are left out (warpalign/ctc.h). With lp of that header, for a prefix l and its last label e:
//
//   blank[l]  log of the sum over the paths of l that end in blank,   label[l]  of those that end in e
//   total[l] = log(exp blank[l] + exp label[l]);   the empty prefix begins with blank 0, label -inf
//
// and a frame makes of all prefixes, with added[l,c] from a language model or 0,
//
//   blank'[l]    = total[l] + lp[t,blank]
//   label'[l]    = log(exp(label[l] + lp[t,e]) + exp(from[l^,e] + lp[t,e] + added[l^,e]))
//   from[l,c]    = blank[l] if c is l's last label, else total[l]
//
// where l^ is l without its last label. Greedy search takes the best class of every frame.
//
// Beam search keeps the K prefixes of greatest total after each frame, and leaves out those that are more
// than `threshold` below the best. Equal ones: a prefix that was there before comes first, in its order; then
// new ones, by the place of l^, then by the class's value, then by the class. A prefix of total -inf does not
// exist. A beam that holds all prefixes is exact: total is minus ctc_loss() of the labels.
//
// Prefixes are the same if their lengths and 64-bit hashes are: different ones have the same hash once in
// 2^64 pairs.
//
// Sources: Graves et al., ICML 2006, section 3.2 (best path); Hannun, Maas, Jurafsky, Ng, "First-pass large
// vocabulary continuous speech recognition using bi-directional recurrent DNNs", arXiv 1408.2873, algorithm 1
// (prefix beam search).
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/ctc.h"
#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign {

inline constexpr std::int32_t kCtcMostBeams = 128;
inline constexpr std::int32_t kCtcMostScoredBeams = 64;  // with label scores

// Of a CtcProblem decoding reads dtype, batch, frames, classes, logits, logit_lengths, blank and log_probs.
// A NaN or +inf among the logits of a true frame makes the utterance's score NaN: it has no labels.

// ------------------------------------------------------------------------------------------ greedy search

// Where a stream of greedy search stands. A stream begins with {0, -1, 0}.
struct CtcWalk {
  double score;             // sum over the frames of the best class's lp
  std::int32_t last_class;  // of the last frame; -1: none
  std::int32_t frames;      // so far
};

// The best class of a frame is the lowest of those of greatest value. A frame of -inf alone counts as blank,
// and its lp is -inf.
struct CtcGreedy {
  const CtcWalk* before = nullptr;  // (B,), or null: all streams begin
  CtcWalk* after = nullptr;         // (B,), out; it may not overlap before
  // (B, T), out: the labels found, and the frame of the stream at which each one begins; -1 behind the last
  std::int64_t* tokens = nullptr;
  std::int64_t* token_frames = nullptr;
  std::int64_t* lengths = nullptr;  // (B,), out
};

std::size_t ctc_greedy_workspace_bytes(const CtcProblem& problem, const CtcGreedy& greedy,
                                       const Execution& execution);

// Host execution: results are there on return. CUDA execution: work is enqueued on execution.stream and
// nothing is allocated or waited for. On any status but ok nothing has been written.
Status ctc_greedy(const CtcProblem& problem, const CtcGreedy& greedy, Workspace workspace,
                  const Execution& execution);

// -------------------------------------------------------------------------------------------- beam search

// A prefix that the search has kept.
struct CtcHypothesis {
  double total;  // -inf: there is none; NaN: so has the utterance's score become
  double blank, label;
  double best_blank, best_label;        // of the best path alone, by its last class
  std::uint64_t hash, parent_hash;      // of the labels; of all but the last one
  std::int32_t node_blank, node_label;  // the best paths' labels; -1: none
  std::int32_t last;                    // label; -1: none
  std::int32_t length;
};

// A label of a best path. Node t K + k of an utterance was made for place k at frame t of the stream: so a
// node says the frame at which its label begins.
struct CtcNode {
  std::int32_t parent;  // the label before; -1: none
  std::int32_t token;
};

struct CtcBeam {
  std::int32_t beams = 1;  // K, 1 to kCtcMostBeams
  double threshold = 0;    // above 0; inf: none
  // (B, K), the best first, or null: all streams begin. frames_before (B,): frames of each stream so far, or
  // null: 0.
  const CtcHypothesis* before = nullptr;
  const std::int32_t* frames_before = nullptr;
  // (B, K, C) reals, contiguous, or null: added[l,c] of each place, finite or -inf. Then frames is at
  // most 1, and K at most kCtcMostScoredBeams.
  const void* label_scores = nullptr;
  // (B, capacity, K), capacity K < 2^31: nodes of frames so far, to which the call adds. Host execution
  // returns an error where frames_before + T_b is above capacity; CUDA execution makes that score NaN.
  CtcNode* nodes = nullptr;
  std::int32_t capacity = 0;
  CtcHypothesis* after = nullptr;        // (B, K), out
  std::int32_t* frames_after = nullptr;  // (B,), out, or null
  // (B, K), out, or null. The place that each prefix comes from, and the label that the call's last frame
  // added to it, or -1. With frames of at most 1 both say what a language model has to do.
  std::int32_t* source = nullptr;
  std::int32_t* label = nullptr;
};

std::size_t ctc_beam_workspace_bytes(const CtcProblem& problem, const CtcBeam& beam,
                                     const Execution& execution);
Status ctc_beam(const CtcProblem& problem, const CtcBeam& beam, Workspace workspace,
                const Execution& execution);

// Labels of the first n_best hypotheses of each utterance.
struct CtcBeamLabels {
  std::int32_t batch = 0, beams = 1, n_best = 1;  // n_best: 1 to beams
  const CtcHypothesis* hypotheses = nullptr;      // (B, K)
  const CtcNode* nodes = nullptr;                 // (B, capacity, K)
  std::int32_t capacity = 0;
  std::int32_t longest = 0;  // extent of the outputs; labels from there on are left out
  // (B, n_best, longest), out: labels, and the frame of the stream at which the best path begins each; -1
  // behind the last one
  std::int64_t* tokens = nullptr;
  std::int64_t* token_frames = nullptr;
  std::int64_t* lengths = nullptr;  // (B, n_best), out; 0 for a hypothesis that does not exist
  double* scores = nullptr;         // (B, n_best), out: total
};

Status ctc_beam_labels(const CtcBeamLabels& labels, const Execution& execution);

}  // namespace warpalign
