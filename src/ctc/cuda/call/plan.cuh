// Sizes and offsets of CTC's CUDA path, computed from the problem and the device. ctc_loss() and
// ctc_gradient() compute the same plan.
//
// A block of the gradient pass owns a segment of an utterance's frames. It needs the states at the segment's
// boundaries, and the edges of strips at its frames. If these are little memory (whole_bytes()), ctc_loss()
// saves all of them. Otherwise segments form chunks: ctc_loss() saves the states at the boundaries of chunks,
// about the square root of T of them, and ctc_gradient() sweeps the chunks again, all chunks of a round at
// once, for the states at the boundaries of segments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/arena.h"
#include "core/plan_log.h"
#include "core/ways.h"
#include "ctc/cuda/call/budget.h"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/gradient/params.cuh"
#include "ctc/cuda/lattice/params.cuh"
#include "ctc/saved.h"
#include "ctc/tuning.h"
#include "cuda/launch/launch.cuh"
#include "warpalign/ctc.h"

namespace warpalign::detail::ctc {

// Edges, followed by the counter of tasks. Both are initialised to one-bits if panels wait for each other.
template <class State>
struct Exchange {
  int* ticket = nullptr;
  Edges<State> edges = {};
  std::size_t bytes = 0;  // of edges and counter
};

// The ways of the losses' sweep: it reads the logits themselves, or a table of the labels' logits.
enum class Way { kLogits, kTable };
inline constexpr const char* kWays[] = {"logits", "table"};

// What ctc_loss() keeps for ctc_gradient().
template <class Real>
struct Saved {
  cuda::RowSum<Real>* sums = nullptr;
  Real* stars = nullptr;
  Verdict* verdicts = nullptr;
  std::int64_t* offsets = nullptr;
  Checkpoints<State<Real>> checkpoints = {};
  Exchange<State<Real>> exchange = {};  // between all strips, at all frames, if all states are saved
};

template <class Real>
class Plan {
 public:
  Plan(const CtcProblem& p, const Execution& execution) : p_(p) {
    const cuda::DeviceTraits device = cuda::traits_of(execution.cuda_device);
    multiprocessors_ = device.multiprocessors;
    shared_bytes_ = device.shared_bytes_per_block;
    dense_classes_ = cuda_tuning(device).dense_classes;
    const int root = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(p.frames))));
    const int least = root * static_cast<int>(sizeof(Real) / sizeof(float));
    keeps_whole_ = whole_bytes(p) <= std::min<std::int64_t>(whole_budget, kMostKeptWhole);
    chunk_ = keeps_whole_ ? kSegment : std::max(cuda::div_up(least, kSegment), 1) * kSegment;
    chunks_ = std::max(cuda::div_up(p.frames, chunk_), 1);
    labels_ = std::min(p.labels, std::min(p.frames, p.labels) + 1);
    strips_ = strips_of(labels_);
    panel_strips_ = std::min(strips_, kPanelStrips);
    panels_ = cuda::div_up(strips_, panel_strips_);
    const int named = named_way(execution, kWays);
    is_named_ = named >= 0;
    way_ = is_named_ ? Way(named) : p.classes / 8 > labels_ ? Way::kTable : Way::kLogits;
  }

  [[nodiscard]] int chunk() const { return chunk_; }
  [[nodiscard]] int chunks() const { return chunks_; }
  [[nodiscard]] int labels() const { return labels_; }
  [[nodiscard]] int strips() const { return strips_; }
  [[nodiscard]] int panels() const { return panels_; }
  [[nodiscard]] int panel_strips() const { return panel_strips_; }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }

  [[nodiscard]] Batch batch(const std::int64_t* offsets) const {
    Batch b{};
    b.batch = p_.batch;
    b.frames = p_.frames;
    b.classes = p_.classes;
    b.labels = labels_;
    b.extent = p_.labels;
    b.blank = p_.blank;
    b.star = p_.star;
    b.logit_lengths = p_.logit_lengths;
    b.target_lengths = p_.target_lengths;
    b.targets = p_.targets;
    b.target_stride = p_.flat_targets ? 0 : p_.target_stride < 0 ? p_.labels : p_.target_stride;
    b.offsets = offsets;
    b.target_count = p_.target_count;
    std::copy(p_.logits.stride, p_.logits.stride + 3, b.stride);
    b.log_probs = p_.log_probs;
    return b;
  }

  [[nodiscard]] Saved<Real> save(Arena& arena, bool for_gradient) const {
    const std::size_t rows = static_cast<std::size_t>(p_.batch) * p_.frames;
    Saved<Real> saved;
    if (!p_.log_probs) saved.sums = arena.take<cuda::RowSum<Real>>(rows, "saved: sums of rows");
    if (p_.star >= 0) saved.stars = arena.take<Real>(rows, "saved: stars");
    if (p_.flat_targets)
      saved.offsets = arena.take<std::int64_t>(p_.batch + std::size_t{1}, "saved: offsets of targets");
    if (!for_gradient) return saved;
    saved.verdicts = arena.take<Verdict>(p_.batch, "saved: verdicts");
    saved.checkpoints = {nullptr, chunk_, 1, chunks_ - 1, labels_ + 1, 2};
    saved.checkpoints.data =
        arena.take<Pair<State<Real>>>(saved.checkpoints.size(p_.batch), "saved: states between chunks");
    if (keeps_whole_) {
      saved.exchange = exchange<State<Real>>(arena, {nullptr, 1, 0, p_.frames, strips_ - 1, 2});
    }
    return saved;
  }

  void describe(PlanLog& log) const {
    const char* why = "labels are fewer than an eighth of the classes: a table is small beside the logits";
    if (way_ == Way::kLogits) why = "labels are an eighth of the classes or more";
    log.way(kWays[static_cast<int>(way_)], is_named_ ? "named by Execution::way" : why);
    describe_sizes(log);
  }
  void describe_sizes(PlanLog& log) const {
    log.line("sizes", std::to_string(p_.batch) + " utterances of " + std::to_string(p_.frames) + " frames, " +
                          std::to_string(p_.classes) + " classes, " + std::to_string(labels_) + " labels");
    log.line("sweep", std::to_string(panels_) + " blocks of " + std::to_string(panel_strips_) +
                          " strips an utterance; " + std::to_string(chunks_) + " chunks of " +
                          std::to_string(chunk_) + " frames");
  }

  // Whether the rows pass copies the logits that the sweep reads to a table: if that is small compared with
  // all logits.
  [[nodiscard]] bool has_table() const { return way_ == Way::kTable; }
  [[nodiscard]] Real* table(Arena& arena) const {
    const std::size_t rows = static_cast<std::size_t>(p_.batch) * p_.frames;
    return has_table() ? arena.take<Real>(rows * (labels_ + 1), "table of logits") : nullptr;
  }

  // The exchange between panels of a sweep over whole utterances.
  template <class State>
  [[nodiscard]] Exchange<State> panel_exchange(Arena& arena, int directions) const {
    return exchange<State>(arena, {nullptr, panel_strips_, 0, p_.frames, panels_ - 1, directions});
  }
  // The exchange between all strips of a round's chunks.
  [[nodiscard]] Exchange<State<Real>> strip_exchange(Arena& arena, int first_chunk) const {
    return exchange<State<Real>>(arena,
                                 {nullptr, 1, first_chunk * chunk_, round_chunks() * chunk_, strips_ - 1, 2});
  }

  [[nodiscard]] bool keeps_whole() const { return keeps_whole_; }
  // Whether the gradient needs more states than ctc_loss() has saved.
  [[nodiscard]] bool refills() const { return !keeps_whole_ && (strips_ > 1 || chunk_ > kSegment); }
  // The states at the boundaries of a round's segments.
  [[nodiscard]] Checkpoints<State<Real>> round_checkpoints(Arena& arena, int first_chunk) const {
    const int segments = chunk_ / kSegment;
    Checkpoints<State<Real>> c{nullptr,     kSegment, first_chunk * segments, round_chunks() * segments + 1,
                               labels_ + 1, 2};
    c.data = arena.take<Pair<State<Real>>>(c.size(p_.batch), "states between segments");
    return c;
  }
  // The number of chunks of a round: as many as fit into the budget.
  [[nodiscard]] int round_chunks() const {
    if (!refills()) return chunks_;
    const double pairs = 2.0 * (chunk_ / kSegment) * (labels_ + 1.0) * sizeof(Pair<State<Real>>);
    const double edges = 2.0 * (strips_ - 1) * chunk_ * State<Real>::kWords * sizeof(cuda::Word);
    const double fitting = static_cast<double>(round_budget) / (p_.batch * (pairs + edges));
    return std::clamp(static_cast<int>(std::min(fitting, 1e9)), 1, chunks_);
  }

  [[nodiscard]] Slots slots() const {
    const bool dense = p_.classes <= std::max(dense_classes_, labels_);
    return {dense, (dense ? p_.classes : labels_) + 1, nullptr};
  }
  // The number of occupancies of a segment. They are in shared memory, if they leave most of it to strips, or
  // in the workspace.
  [[nodiscard]] int occupancies() const { return kSegment * slots().width; }
  [[nodiscard]] bool occupancies_are_shared() const {
    return occupancies() <= shared_bytes_ * 2 / 5 / static_cast<int>(sizeof(Real));
  }
  [[nodiscard]] int segments_of_round() const {
    return std::min(round_chunks() * (chunk_ / kSegment), cuda::div_up(p_.frames, kSegment));
  }
  [[nodiscard]] Real* occupancies(Arena& arena) const {
    if (occupancies_are_shared()) return nullptr;
    return arena.take<Real>(static_cast<std::size_t>(p_.batch) * segments_of_round() * occupancies(),
                            "occupancies");
  }
  // The number of warps of a block: the fewest that take the same number of rounds over the strips as the
  // most warps would. In one round there are more, which only sum up and write rows: as many as a
  // multiprocessor has registers for, beside the blocks that its shared memory has room for, and at least 4
  // for rows of many classes.
  // shared_bytes_of(strips): what a block uses.
  template <class SharedBytes>
  [[nodiscard]] int segment_warps(const SharedBytes& shared_bytes_of) const {
    constexpr int kWide = sizeof(Real) / sizeof(float);
    constexpr int kMost = kSegmentWarps / kWide, kOfMultiprocessor = 24 / kWide;
    constexpr int kClassesOfWarp = 64, kRowWarps = 4;
    int warps = cuda::div_up(strips_, cuda::div_up(strips_, kMost));
    if (warps == strips_) {
      const int blocks = std::max(shared_bytes_ / shared_bytes_of(strips_), 1);
      const int of_rows = std::min(p_.classes / kClassesOfWarp, kRowWarps);
      warps = std::clamp(std::max(kOfMultiprocessor / blocks, of_rows), warps, kMost);
    }
    while (warps > 1 && shared_bytes_of(std::min(warps, strips_)) > shared_bytes_) --warps;
    return warps;
  }

 private:
  template <class State>
  Exchange<State> exchange(Arena& arena, Edges<State> edges) const {
    Exchange<State> e;
    e.edges = edges;
    if (edges.count <= 0) return e;
    const std::size_t before = arena.used();
    e.ticket = arena.take<int>(1, "ticket");
    e.edges.data = arena.take<cuda::Word>(edges.words(p_.batch), "edges of strips");
    e.bytes = arena.used() - before;
    return e;
  }

  const CtcProblem& p_;
  Way way_;
  bool is_named_;
  int multiprocessors_, shared_bytes_;
  int dense_classes_;  // CudaTuning's
  int labels_;         // as Batch::labels
  bool keeps_whole_;
  int chunk_, chunks_;  // frames of a chunk, and number of chunks
  int strips_, panel_strips_, panels_;
};

// The source of a strip's weights if it is the logits themselves.
template <class Element>
Emissions<Element> emissions_of(const CtcProblem& p, const Batch& batch,
                                const Saved<cuda::Sum<Element>>& saved) {
  Emissions<Element> from{};
  from.data = static_cast<const Element*>(p.logits.data);
  std::copy(batch.stride, batch.stride + 3, from.stride);
  from.sums = saved.sums;
  from.stars = saved.stars;
  from.prior = static_cast<const cuda::Sum<Element>*>(p.prior);
  return from;
}

// The lanes of the rows pass that read a frame.
template <class Element>
int lanes_of_row(const CtcProblem& p) {
  int lanes = 4;
  while (lanes < cuda::kWarpSize && lanes * cuda::RowChunk<Element>::kColumns < p.classes) lanes *= 2;
  return lanes;
}

// The rows pass that makes saved.sums and saved.stars.
template <class Element>
RowsParams<Element> rows_of(const CtcProblem& p, const Batch& batch, const Saved<cuda::Sum<Element>>& saved) {
  RowsParams<Element> rows{};
  rows.batch = batch;
  rows.logits = static_cast<const Element*>(p.logits.data);
  rows.last_row = static_cast<std::int64_t>(p.batch) * p.frames;
  rows.lanes = lanes_of_row<Element>(p);
  rows.sums = saved.sums;
  rows.stars = saved.stars;
  return rows;
}

// The launches before a sweep: offsets of flat targets, into batch.offsets, and the rows pass.
template <class Element>
Status enqueue_rows(const RowsParams<Element>& rows, cudaStream_t stream) {
  if (rows.batch.offsets) {
    auto* const offsets = const_cast<std::int64_t*>(rows.batch.offsets);  // NOLINT: memory of the workspace
    if (Status s = launch_offsets(rows.batch, offsets, stream); !s.ok()) return s;
  }
  return rows.sums || rows.stars || rows.table ? launch_rows(rows, stream) : Status{};
}

}  // namespace warpalign::detail::ctc
