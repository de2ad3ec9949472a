// The reverse sweep of a strip needs the transition weights of the strip's cells, from the last group to the
// first. The forward sweep has stored only states, from which weights are recomputed, in one of two ways:
//
// In two passes. From a segment's stored state, the lanes' states at the start of each group are recomputed
// into shared memory. Then the groups are recomputed with their weights, from the last to the first. The wave
// does this, or helpers do it ahead of the wave and share the segments, if multiprocessors would otherwise
// idle.
//
// In one pass, where shared memory can hold the weights of a whole segment: weigh_segment(). The wave does
// this, or another warp does it ahead of the wave: weigh_strip().
#pragma once

#include "soft_dtw/cuda/sweep/meeting.cuh"

namespace warpalign::detail::soft_dtw {

// Word i of the column on the left of the strip, from the start of group `first` on. The strip has a
// neighbour there. Groups that the neighbour did not send are after row n - 1, where any finite values are
// correct.
template <class Wave>
__device__ __forceinline__ cuda::Word border_word(const Wave& w, int first, int i) {
  using State = typename Wave::State;
  const int group = first + i / Wave::kStateUnits;
  if (Wave::kOptions && !w.from_left.hold(group)) {
    const State dead = Wave::Cell::dead();
    return reinterpret_cast<const cuda::Word*>(&dead)[i % (sizeof(State) / 8)];
  }
  const int handed = min(group, w.from_left.end - 1);
  const auto* from = reinterpret_cast<const cuda::Word*>(w.border_group(w.strip - 1, handed, true));
  return cuda::load_relaxed(from + i % Wave::kStateUnits);
}

template <class Wave>
class Recomputation {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  using Source = typename Wave::Source;
  static constexpr int W = Wave::W;
  static constexpr int kSegment = Source::kSegment;

 public:
  __device__ __forceinline__ Recomputation(const Wave& w, Source& source)
      : w_(w), source_(source), options_(w.step_options()), start_(start_of(w)) {}

  [[nodiscard]] static __device__ __forceinline__ int segments(const Wave& w) {
    return div_up(w.own.end - w.own.first, kSegment);
  }
  [[nodiscard]] static __device__ __forceinline__ int first_group(const Wave& w, int segment) {
    return w.own.first + segment * kSegment;
  }
  [[nodiscard]] static __device__ __forceinline__ int groups(const Wave& w, int segment) {
    return min(kSegment, w.own.end - first_group(w, segment));
  }

  __device__ __forceinline__ void begin(int segment) {
    first_ = first_group(w_, segment);
    count_ = groups(w_, segment);
    __syncwarp();
    if (w_.has_left()) {
      auto* const border = reinterpret_cast<cuda::Word*>(w_.phase_border);
      for (int i = w_.lane; i < count_ * Wave::kStateUnits; i += 32) border[i] = border_word(w_, first_, i);
    } else {
      put_dead_border();
    }
    w_.load(w_.stored_state(segment), z_);
    __syncwarp();
    for (int i = 0; i + 1 < count_; ++i) {
      w_.store(w_.phase_states + i * (W + 1) * 32 + w_.lane, z_);
      GroupWeights<Cell, W> none;
      run<false>(i, none);
    }
  }

  // Two passes: weights of the segment's group i. Calls go from the last group to the first.
  __device__ __forceinline__ void weigh(int i, GroupWeights<Cell, W>& weights) {
    if (i + 1 < count_) w_.load(w_.phase_states + i * (W + 1) * 32 + w_.lane, z_);
    run<true>(i, weights);
  }

  // One pass: ask() starts the loads that begin_asked() of the same segment waits for.
  __device__ __forceinline__ void ask(int segment) {
    w_.load(w_.stored_state(segment), asked_);
    if (!w_.has_left()) return;
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      asked_border_[k] = border_word(w_, first_group(w_, segment), k * 32 + w_.lane);
  }
  __device__ __forceinline__ void begin_asked(int segment) {
    first_ = first_group(w_, segment);
    count_ = groups(w_, segment);
    z_ = asked_;
    __syncwarp();
    if (w_.has_left()) {
#pragma unroll
      for (int k = 0; k < kWords; ++k)
        reinterpret_cast<cuda::Word*>(w_.phase_border)[k * 32 + w_.lane] = asked_border_[k];
    } else {
      put_dead_border();
    }
    __syncwarp();
  }
  [[nodiscard]] __device__ __forceinline__ int groups_in_work() const { return count_; }
  // One pass: weights of group i. Calls go from the first group to the last.
  __device__ __forceinline__ void weigh_next(int i, GroupWeights<Cell, W>& weights) { run<true>(i, weights); }

  // Z in the lane's last column, for the group that was weighed last.
  State out[kGroup];

 private:
  __device__ __forceinline__ void put_dead_border() const {
    for (int i = w_.lane; i < kSegment * kGroup; i += 32) w_.phase_border[i] = Cell::dead();
  }

  static constexpr int kWords =
      div_up(kSegment * Wave::kStateUnits, 32);  // words per lane of a segment's border

  template <bool kWeights>
  __device__ __forceinline__ void run(int i, GroupWeights<Cell, W>& weights) {
    const int group = first_ + i;
    const State* const border = w_.phase_border + i * kGroup;
    source_.begin_reverse_group(group);
    if (Wave::kAll && w_.params.subsequence) options_.start = w_.lane + w_.shift - group * kGroup;
    const auto ignore = [](int, int, const State&) {};
    if (Wave::kMeets && group == start_.group) {
      run_group<kWeights, true>(w_.lane, source_, options_, start_, border, z_, out, weights, ignore);
    } else {
      run_group<kWeights, false>(w_.lane, source_, options_, start_, border, z_, out, weights, ignore);
    }
  }

  const Wave& w_;
  Source& source_;
  StepOptions<Cell> options_;
  const Start start_;
  Lane<Cell, W> z_;
  int first_;
  int count_;
  Lane<Cell, W> asked_;
  cuda::Word asked_border_[kWords];
};

// A queue of groups' weights from a helper to the wave. Both count the helper's groups from 0.
template <class Real, int W>
struct __align__(16) WeightQueue {
  static constexpr int kDepth = 4;
  static constexpr int kStepBytes = W * sizeof(Weights<Real>);
  struct __align__(kStepBytes < 16 ? kStepBytes : 16) Step {  // one access, or several of 16 bytes
    Weights<Real> of[W];
  };
  Step steps[kDepth][kGroup][32];
  cuda::Ring<kDepth, cuda::kWarpSize> ring;

  // Both are called by the wave's warp, as for the channels.
  __device__ void init(int lane) { ring.init(lane); }
  __device__ void reset(int lane) { ring.reset(lane); }

  __device__ __forceinline__ void put(int n, int lane, const Weights<Real>(&weights)[kGroup][W]) {
    ring.reserve(n);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      Step step;
#pragma unroll
      for (int k = 0; k < W; ++k) step.of[k] = weights[q][k];
      steps[n % kDepth][q][lane] = step;
    }
    ring.publish(n);
  }
  __device__ __forceinline__ void take(int n, int lane, Weights<Real>(&weights)[kGroup][W]) {
    ring.receive(n);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      const Step step = steps[n % kDepth][q][lane];
#pragma unroll
      for (int k = 0; k < W; ++k) weights[q][k] = step.of[k];
    }
    ring.release(n);
  }
};

// The number of groups that the helper of a segment has made before that segment. order: the segment's
// number, counted from the end of the strip.
template <class Wave>
__device__ __forceinline__ int groups_of_helper_before(const Wave& w, int order) {
  constexpr int kHelpers = Wave::Source::kHelpers;
  const int last = Recomputation<Wave>::groups(w, Recomputation<Wave>::segments(w) - 1);
  const int whole = order / kHelpers * Wave::Source::kSegment;
  return order >= kHelpers && order % kHelpers == 0 ? whole - Wave::Source::kSegment + last : whole;
}

// The work of a helper: recomputes every kHelpers-th segment, from the end, and puts its weights into the
// queue.
template <class Wave, class Queue>
__device__ void recompute_strip(const Wave& w, typename Wave::Source& source, Queue& queue, int helper) {
  using Cell = typename Wave::Cell;
  constexpr int kHelpers = Wave::Source::kHelpers;
  source.begin_reverse();
  Recomputation<Wave> recomputed(w, source);
  const int segments = Recomputation<Wave>::segments(w);
  int done = 0;
  for (int order = helper; order < segments; order += kHelpers) {
    const int segment = segments - 1 - order;
    source.begin_reverse_segment(segment, true);
    recomputed.begin(segment);
    for (int i = Recomputation<Wave>::groups(w, segment) - 1; i >= 0; --i, ++done) {
      GroupWeights<Cell, Wave::W> weights;
      recomputed.weigh(i, weights);
      queue.put(done, w.lane, weights);
    }
  }
}

// Makes the weights of a segment, for which ask() has been called, from its first group on, and passes them
// to source.put_weights(). order: the segment's number, counted from the end.
template <class Wave>
__device__ __forceinline__ void weigh_segment(Recomputation<Wave>& recomputed, typename Wave::Source& source,
                                              int order, int segment) {
  recomputed.begin_asked(segment);
  if (Wave::Source::kAsksAhead && segment > 0) recomputed.ask(segment - 1);
  source.begin_reverse_segment(segment, order == 0);
  for (int i = 0; i < recomputed.groups_in_work(); ++i) {
    GroupWeights<typename Wave::Cell, Wave::W> weights;
    recomputed.weigh_next(i, weights);
    source.put_weights(order, i, weights);
  }
}

// The work of a weigher: makes the weights of all segments of a strip, ahead of the wave.
template <class Wave>
__device__ void weigh_strip(const Wave& w, typename Wave::Source& source) {
  source.begin_reverse();
  Recomputation<Wave> recomputed(w, source);
  const int segments = Recomputation<Wave>::segments(w);
  if (segments > 0) recomputed.ask(segments - 1);
  for (int order = 0; order < segments; ++order)
    weigh_segment(recomputed, source, order, segments - 1 - order);
}

}  // namespace warpalign::detail::soft_dtw
