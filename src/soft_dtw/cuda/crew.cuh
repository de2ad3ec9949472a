// Who works on a strip where costs come in tiles.
#pragma once

#include "soft_dtw/cuda/segment_weights.cuh"

namespace warpalign::detail::soft_dtw {

// The warps of a strip beside the wave's: so many make costs in the reverse sweep, so many gradients, and
// one, where that is so, weights ahead of the wave. In the forward sweep at least kForwardCosts of them make
// costs.
template <int kCosts_, int kForwardCosts_, int kGradients_, Weighing kWeighing_>
struct Crew {
  static constexpr int kCosts = kCosts_;
  static constexpr int kForwardCosts = kForwardCosts_;
  static constexpr int kGradients = kGradients_;
  static constexpr Weighing kWeighing = kWeighing_;
  static constexpr int kMakers = kCosts + kGradients;  // of costs and gradients
  static constexpr int kHelpers = kMakers + (kWeighing == Weighing::kAhead);
  static_assert(kForwardCosts <= kMakers);
};
using SmallCrew = Crew<1, 2, 2, Weighing::kBySegment>;
using LargeCrew = Crew<2, 4, 4, Weighing::kAhead>;  // of few strips
// Of many features, whose costs and gradients take longer than what the wave does.
using WideCrew = Crew<3, 5, 4, Weighing::kByGroup>;
template <int kCosts>
using ForwardCrew = Crew<kCosts, kCosts, 0, Weighing::kByGroup>;  // of kernels without gradients
// Of options whose reverse sweep asks for costs or states, and of numbers too large to keep two of a cell.
using FrugalCrew = Crew<1, 2, 2, Weighing::kByGroup>;

// Also of none.
template <class T, int kCount>
struct Several {
  T of[kCount];
};
template <class T>
struct Several<T, 0> {};

}  // namespace warpalign::detail::soft_dtw
