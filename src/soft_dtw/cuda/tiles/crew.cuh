// The warps that work on a strip with costs in tiles.
#pragma once

#include "soft_dtw/cuda/sweep/segment_weights.cuh"

namespace warpalign::detail::soft_dtw {

// The warps of a strip besides the wave. In the reverse sweep kCosts of them make costs, kGradients make
// gradients, and with Weighing::kAhead one makes weights. In the forward sweep kForwardCosts of them make
// costs, or all makers if there is enough work.
template <CrewKind kKind_, int kCosts_, int kForwardCosts_, int kGradients_, Weighing kWeighing_>
struct Crew {
  static constexpr CrewKind kKind = kKind_;
  static constexpr int kCosts = kCosts_;
  static constexpr int kForwardCosts = kForwardCosts_;
  static constexpr int kGradients = kGradients_;
  static constexpr Weighing kWeighing = kWeighing_;
  static constexpr int kMakers = kCosts + kGradients;  // of costs and gradients
  static constexpr int kHelpers = kMakers + (kWeighing == Weighing::kAhead);
  static_assert(kForwardCosts <= kMakers);
};
using SmallCrew = Crew<CrewKind::kSmall, 1, 2, 2, Weighing::kBySegment>;
using LargeCrew = Crew<CrewKind::kLarge, 2, 4, 4, Weighing::kAhead>;  // for few strips
// For values alone.
using ForwardCrewOfTwo = Crew<CrewKind::kForwardTwo, 2, 2, 0, Weighing::kByGroup>;
// For options whose reverse sweep needs costs or states, and for number types whose weights do not fit into
// shared memory.
using FrugalCrew = Crew<CrewKind::kFrugal, 1, 2, 2, Weighing::kByGroup>;

// An array that may be empty.
template <class T, int kCount>
struct Several {
  T of[kCount];
};
template <class T>
struct Several<T, 0> {};

}  // namespace warpalign::detail::soft_dtw
