// Sweeps of plain RNN-T: a blank of one frame, a label of none. Lane l is at frame t = s - l at step s.
//
//   forward   alpha(t,u) = alpha(t-1,u) blank(t-1,u) + alpha(t,u-1) label(t,u-1)
//             The smaller share of the sum comes from a division, the larger one is 1 minus it: shares add
//             up to 1 at every node, so that the reverse sweep loses no mass.
//   reverse   gamma(t,u) = gamma(t+1,u) share_blank(t+1,u) + gamma(t,u+1) share_label(t,u+1)
//
// alpha(t,u-1) and gamma(t,u+1) are the neighbouring lane's values of the previous step. A node's two slots
// are read in one access; the blank's slot is used one step after the label's.
//
// Slots before frame 0 and after frame T - 1 of a column are padding. The forward sweep treats arcs from them
// as weights of 0, and writes shares there so that the reverse sweep has no special cases: 0 if nothing may
// flow, 1 where gamma of the end waits for its first step.
#pragma once

#include "transducer/cuda/lattice/near_state.cuh"
#include "transducer/cuda/lattice/strip.cuh"

namespace warpalign::detail::transducer {

template <class Real_>
class PlainSweep {
 public:
  using Real = Real_;
  // Only float32 has groups with 32-bit exponents.
  static constexpr bool kHasNear = sizeof(Real) == 4;

  static WARPALIGN_ANYWHERE constexpr int shared_bytes(const SweepShape&) {
    return kGroup * static_cast<int>(sizeof(NearState<Real>));
  }

  __device__ __forceinline__ PlainSweep(const Strip<Real>& strip, unsigned char* shared)
      : strip_(strip),
        rows_(strip.frames + kStrip - 1),
        near_border_(reinterpret_cast<NearState<Real>*>(shared)),
        // Lanes after the last column read the same memory as that one, and write nothing.
        slots_(reinterpret_cast<Slots*>(strip.slots) + min(strip.utterance.labels - strip.column, 0)) {}

  __device__ __forceinline__ void begin_forward() {
    alpha_ = strip_.column == 0 ? State<Real>::one() : State<Real>::zero();
    base_ = 0;
    blank_before_ = label_share_ = 0;
    if (!strip_.has_left() && strip_.lane < kGroup) near_border_[strip_.lane] = {0, -kDead};
    __syncwarp();
    load(0);
  }

  // Computes steps first ... first + 7. left, right: alpha of the column left of the strip and of its last
  // column, by frame modulo kBorderFrames.
  __device__ __forceinline__ void forward_group(int first, const Border<Real>* left, Border<Real>* right) {
    Real blank[kGroup], label[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      blank[q] = q == 0 ? blank_before_ : next_[q - 1].blank;
      label[q] = next_[q].label;
    }
    blank_before_ = next_[kGroup - 1].blank;
    load(first + kGroup);
    const bool inside = first > kStrip - 1 && first + kGroup <= strip_.frames;
    if (!inside) take_out_padding(first, blank, label);
    if constexpr (kHasNear) {
      if (come_near(first, blank, label, left)) {
        if (inside) {
          near_steps<false>(first, blank, label, right);
        } else {
          near_steps<true>(first, blank, label, right);
        }
        return;
      }
    }
    far_steps(first, blank, label, left, right);
  }

  // alpha of the end, in the lane whose column is U_b.
  [[nodiscard]] __device__ __forceinline__ State<Real> end() const { return alpha_; }
  // Whether there was a NaN that does not reach alpha of the end.
  [[nodiscard]] __device__ __forceinline__ bool invalid() const { return false; }

  // last: the last step, with which the reverse sweep begins.
  __device__ __forceinline__ void begin_reverse(int last) {
    by_blank_ = strip_.is_last ? Real(1) : Real(0);
    by_label_ = label_behind_ = 0;
    load(last - kGroup);
  }

  // Computes steps first + 7 ... first. right: the flow into the strip's last column from the right. left:
  // the flow out of its first column. Both by frame modulo kBorderFrames.
  __device__ __forceinline__ void reverse_group(int first, const Real* right, Real* left) {
    Real blank[kGroup], label[kGroup], border[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      blank[q] = next_[q].blank;
      label[q] = q + 1 < kGroup ? next_[q + 1].label : label_behind_;
      border[q] = strip_.has_right() ? right[of_border(first, q + 1)] : Real(0);
    }
    label_behind_ = next_[0].label;
    load(first - kGroup - 1);
    const bool takes_border = strip_.lane == kStrip - 1 || strip_.is_last;
    const bool inside = first > 0 && first + kGroup <= rows_;
#pragma unroll
    for (int q = kGroup - 1; q >= 0; --q) {
      Real from_right = cuda::shuffle_down(by_label_);
      if (takes_border) from_right = border[q];
      const Real gamma = by_blank_ + from_right;
      by_label_ = gamma * label[q];
      if (strip_.exists) store(first, q, {by_blank_, by_label_}, inside);
      if (strip_.lane == 0) left[of_border(first, q)] = by_label_;
      by_blank_ = gamma * blank[q];
    }
  }

 private:
  // A node's slots, in the order of arcs.h's plain table. Row s is of frame s - l; the label's arc ends at
  // step s, the blank's at step s + 1.
  struct alignas(2 * sizeof(Real)) Slots {
    Real blank, label;
  };

  // Loads rows first ... first + 7 for the next group. After the last row gamma of the end waits.
  __device__ __forceinline__ void load(int first) {
    const Slots* const from = slots_ + static_cast<std::int64_t>(first) * kStrip;
    const bool inside = first >= 0 && first + kGroup <= rows_;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      next_[q] = {strip_.is_last ? Real(1) : Real(0), 0};
      if (inside || (first + q >= 0 && first + q < rows_)) next_[q] = from[q * kStrip];
    }
  }
  __device__ __forceinline__ void store(int first, int q, Slots slots, bool inside) const {
    Slots* const to = slots_ + static_cast<std::int64_t>(first) * kStrip;
    if (inside || (first + q >= 0 && first + q < rows_)) to[q * kStrip] = slots;
  }
  // The index in a border of frame first + q, or, for the strip's last lane, of frame first + q + 1 -
  // kBorderFrames. first is a group's first frame.
  [[nodiscard]] __device__ __forceinline__ static int of_border(int first, int q) {
    return q < kGroup ? first % kBorderFrames + q : (first + q) % kBorderFrames;
  }

  __device__ __forceinline__ void take_out_padding(int first, Real (&blank)[kGroup],
                                                   Real (&label)[kGroup]) const {
    const Real nothing = -static_cast<Real>(CUDART_INF);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      const int t = first + q - strip_.lane;
      // Before frame 0 of column 0, and after the end, a state does not change.
      const bool stays = (strip_.column == 0 && t == 0) || (strip_.is_last && t > strip_.frames);
      if (!strip_.has_blank(t, 1)) blank[q] = stays ? Real(0) : nothing;
      if (!strip_.has_label(t, 0)) label[q] = nothing;
    }
  }

  // The slots of row s - 1: the blank's arc ends at step s, the label's at step s - 1.
  __device__ __forceinline__ void store_shares(int first, int q, Real z_blank, Real z_label, Real sum,
                                               bool inside) {
    const Real smaller = sum > Real(0) ? min(z_blank, z_label) * reciprocal_of(sum) : Real(0);
    const bool blank_is_smaller = z_blank < z_label;
    if (strip_.exists)
      store(first - 1, q, {blank_is_smaller ? smaller : Real(1) - smaller, label_share_}, inside);
    label_share_ = blank_is_smaller ? Real(1) - smaller : smaller;
  }

  __device__ __forceinline__ void far_steps(int first, const Real (&blank)[kGroup],
                                            const Real (&label)[kGroup], const Border<Real>* left,
                                            Border<Real>* right) {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      State<Real> before = shuffle_up(alpha_);
      if (strip_.lane == 0)
        before = strip_.has_left() ? left[of_border(first, q)].state() : State<Real>::zero();
      const State<Real> by_blank = product(alpha_, Weight<Real>::of(blank[q]));
      const State<Real> by_label = product(before, Weight<Real>::of(label[q]));
      const Exponent top = larger(by_blank.exponent, by_label.exponent);
      const Real z_blank = by_blank.mantissa * scale_to<Real>(by_blank.exponent, top);
      const Real z_label = by_label.mantissa * scale_to<Real>(by_label.exponent, top);
      alpha_ = {z_blank + z_label, top};
      store_shares(first, q, z_blank, z_label, alpha_.mantissa, false);
      if (strip_.lane == kStrip - 1 && strip_.has_right()) {
        right[of_border(first, q + 1)] = {alpha_.mantissa, 0, alpha_.exponent};
      }
    }
    alpha_ = normal(alpha_);
  }

  // Computes the exponent relative to base_. Returns whether it is in the range of 32-bit steps.
  __device__ __forceinline__ bool is_near(const State<Real>& s, int& exponent) const {
    const Exponent difference = s.exponent - base_;
    exponent = s.mantissa == Real(0) ? -kDead : static_cast<int>(difference);
    return s.mantissa == Real(0) || (difference > -kFarthest && difference < kFarthest);
  }

  // Whether this group's numbers are in the range of 32-bit steps. Sets base_ and near_border_.
  __device__ __forceinline__ bool come_near(int first, const Real (&blank)[kGroup],
                                            const Real (&label)[kGroup], const Border<Real>* left) {
    Real steepest = 0;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      steepest = steeper(steeper(steepest, blank[q]), label[q]);
    }
    State<Real> border = State<Real>::zero();
    if (strip_.has_left() && strip_.lane < kGroup) border = left[of_border(first, strip_.lane)].state();
    int exponent = 0, border_exponent = 0;
    const auto is_far = [&] {
      return !is_near(alpha_, exponent) || !is_near(border, border_exponent) || !(steepest < Real(kSteepest));
    };
    if (__any_sync(cuda::kFullWarp, is_far())) {
      const unsigned live = __ballot_sync(cuda::kFullWarp, alpha_.mantissa != Real(0));
      const unsigned at_border = __ballot_sync(cuda::kFullWarp, border.mantissa != Real(0));
      base_ = live ? cuda::shuffle(alpha_.exponent, __ffs(static_cast<int>(live)) - 1)
                   : cuda::shuffle(border.exponent, max(__ffs(static_cast<int>(at_border)) - 1, 0));
      if (__any_sync(cuda::kFullWarp, is_far())) return false;
    }
    __syncwarp();
    if (strip_.has_left() && strip_.lane < kGroup)
      near_border_[strip_.lane] = {border.mantissa, border_exponent};
    __syncwarp();
    return true;
  }

  template <bool kEdge>
  __device__ __forceinline__ void near_steps(int first, const Real (&blank)[kGroup],
                                             const Real (&label)[kGroup], Border<Real>* right) {
    NearState<Real> alpha{alpha_.mantissa, 0};
    is_near(alpha_, alpha.exponent);
    NearState<Real> by_blank[kGroup], by_label[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      by_blank[q] = near_weight(blank[q]);
      by_label[q] = near_weight(label[q]);
    }
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      NearState<Real> before = shuffle_up(alpha);
      if (strip_.lane == 0) before = near_border_[q];
      const int blank_exponent = alpha.exponent + by_blank[q].exponent;
      const int label_exponent = before.exponent + by_label[q].exponent;
      const int ahead = label_exponent - blank_exponent;
      const Real z_blank =
          alpha.mantissa * by_blank[q].mantissa * power_of_2(max(min(-ahead, 0), kLeastPower<Real>), Real());
      const Real z_label =
          before.mantissa * by_label[q].mantissa * power_of_2(max(min(ahead, 0), kLeastPower<Real>), Real());
      alpha = {z_blank + z_label, max(blank_exponent, label_exponent)};
      store_shares(first, q, z_blank, z_label, alpha.mantissa, !kEdge);
      if (strip_.lane == kStrip - 1 && strip_.has_right()) {
        right[of_border(first, q + 1)] = {alpha.mantissa, alpha.exponent, base_};
      }
    }
    alpha_ = normal(State<Real>{alpha.mantissa, base_ + alpha.exponent});
  }

  const Strip<Real>& strip_;
  const int rows_;
  NearState<Real>* const near_border_;  // alpha of the column on the left, for a group of 32-bit steps
  Slots* const slots_;                  // this lane's slots in row 0
  State<Real> alpha_{};
  Exponent base_ = 0;
  Real blank_before_ = 0;             // the blank's slot of the row that precedes next_[0]
  Real label_share_ = 0;              // the label's share of the previous step
  Real by_blank_ = 0, by_label_ = 0;  // gamma's flow to the previous frame, and to the previous column
  Real label_behind_ = 0;             // the label's slot of the row that follows next_[7]
  Slots next_[kGroup];
};

}  // namespace warpalign::detail::transducer
