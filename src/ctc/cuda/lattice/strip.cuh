// A strip of the lattice: a warp owns 32 pairs, and goes through the frames forward or backward.
//
//   forward    pair i = blank before label i, and label i;      the neighbour is pair i - 1
//   backward   pair i = blank before label i, and label i - 1;  the neighbour is pair i + 1
//   blank(t) = (blank + neighbour's label) w[t, blank]
//   label(t) = (label + blank + neighbour's label, if the two labels differ) w[t, label]
//
// where the right side has the states of the previous frame (forward) or the next frame (backward). Both
// directions run the same code, and each pair passes one state to its neighbour. The forward pass starts with
// the value 1 for the missing neighbour of pair 0, the backward pass for that of pair U: a path begins, and
// ends, in a blank or a label.
//
// Weights come from shared memory, where a Fetcher has stored them.
#pragma once

#include "ctc/cuda/lattice/fetch.cuh"

namespace warpalign::detail::ctc {

// Algebra: Sums, or Best.
template <class Algebra, bool kBack>
class Strip {
 public:
  using State = typename Algebra::State;
  using Pair = ctc::Pair<State>;
  using Weight = typename Algebra::Weight;

  // The strip's pairs begin at first_pair.
  __device__ __forceinline__ Strip(const Batch& batch, const Utterance& utterance, int first_pair)
      : lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        first_pair_(first_pair),
        pair_(first_pair + lane_),
        labels_(utterance.labels),
        takes_border_(kBack ? lane_ == kStrip - 1 || pair_ == labels_ : lane_ == 0) {
    const int k = kBack ? pair_ - 1 : pair_;
    skips_ = utterance.label(batch, k) != utterance.label(batch, kBack ? k + 1 : k - 1);
    states_ = {State::zero(), State::zero()};
    before_ = State::zero();
  }

  // Starts before the first frame.
  __device__ __forceinline__ void begin() {
    const bool has_end = kBack ? first_pair_ <= labels_ && labels_ < first_pair_ + kStrip : first_pair_ == 0;
    if (has_end) before_ = State::one();
  }
  // Starts from the states at a boundary, and the edge of the neighbouring strip.
  __device__ __forceinline__ void begin(const Pair* from) {
    if (pair_ <= labels_) states_ = from[pair_];
    const int border = kBack ? first_pair_ + kStrip : first_pair_ - 1;
    if (border >= 0 && border <= labels_) before_ = from[border].label;
  }
  __device__ __forceinline__ void save(Pair* to) const {
    if (pair_ <= labels_) to[pair_] = states_;
  }

  // Records each path's current state as its origin (forward alone).
  __device__ __forceinline__ void mark() {
    Algebra::mark(states_.blank, 2 * pair_);
    Algebra::mark(states_.label, 2 * pair_ + 1);
    Algebra::mark(before_, 2 * first_pair_ - 1);
  }

  // Goes through the first `count` frames of a group.
  //   edges[q]                  the neighbouring strip's edge after frame q, in shared memory; zero if there
  //   is
  //                             no such strip
  //   visit(q, blank, label)    states of frame q without the frame's weights
  //   publish(q, pair)          states after frame q
  template <class Visit, class Publish>
  __device__ __forceinline__ void pass(const WeightGroup<Weight>& weights, const State* edges, int count,
                                       const Visit& visit, const Publish& publish) {
    if (count >= kGroup) {
      Weight by_label[kGroup], by_blank[kGroup];
      State edge[kGroup];
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        by_label[q] = weights.label[q][lane_ + kPlace];
        by_blank[q] = weights.blank[q];
        edge[q] = edges[q];
      }
#pragma unroll
      for (int step = 0; step < kGroup; ++step) {
        const int q = kBack ? kGroup - 1 - step : step;
        pass_frame(q, by_blank[q], by_label[q], edge[q], visit, publish);
      }
    } else {
#pragma unroll 1
      for (int step = 0; step < count; ++step) {
        const int q = kBack ? count - 1 - step : step;
        pass_frame(q, weights.blank[q], weights.label[q][lane_ + kPlace], edges[q], visit, publish);
      }
    }
    states_ = {Algebra::at_group_end(states_.blank), Algebra::at_group_end(states_.label)};
  }

  // Algebra's join of the two final states, after the last frame of a forward pass. Valid in the lane of pair
  // U.
  [[nodiscard]] __device__ __forceinline__ auto end() const {
    return Algebra::end(states_.blank, neighbours(), labels_);
  }
  [[nodiscard]] __device__ __forceinline__ bool has_end() const { return pair_ == labels_; }
  // Whether the neighbouring strip's last edge is NaN. All lanes get the same.
  [[nodiscard]] __device__ __forceinline__ bool edge_is_nan() const {
    return __any_sync(cuda::kFullWarp, takes_border_ && before_.is_nan());
  }

 private:
  static constexpr int kPlace = kBack ? 0 : 1;  // of lane 0's label in a WeightGroup

  template <class Visit, class Publish>
  __device__ __forceinline__ void pass_frame(int q, const Weight& by_blank, const Weight& by_label,
                                             const State& edge, const Visit& visit, const Publish& publish) {
    const State neighbour = neighbours();
    before_ = edge;
    const State to_blank = Algebra::join(states_.blank, neighbour);
    const State to_label = Algebra::join(states_.label, states_.blank, neighbour, skips_);
    visit(q, to_blank, to_label);
    states_ = {Algebra::weighted(to_blank, by_blank), Algebra::weighted(to_label, by_label)};
    if constexpr (Algebra::kMarksFrames) mark();
    publish(q, states_);
  }

  [[nodiscard]] __device__ __forceinline__ State neighbours() const {
    const State neighbour = kBack ? cuda::shuffle_down(states_.label) : cuda::shuffle_up(states_.label);
    return takes_border_ ? before_ : neighbour;
  }

  const int lane_, first_pair_, pair_, labels_;
  const bool takes_border_;
  bool skips_;
  Pair states_;
  State before_;  // the neighbouring strip's edge after the previous frame
};

}  // namespace warpalign::detail::ctc
