// The interface of a source of costs: the class that makes the costs of a strip's cells, and consumes their E
// in the reverse sweep. The sources are FewFeatures, Tiles and PanelCosts. Each warp of a strip has an
// object of its own; `memory` is the strip's shared memory.
#pragma once

#include <concepts>

#include "soft_dtw/cuda/sweep/recompute.cuh"

namespace warpalign::detail::soft_dtw {

// Constants. They determine the layout, on the host, and the loops of the kernel.
template <class S>
concept DescribesItself = requires {
  { S::kSource } -> std::convertible_to<CostSource>;
  { S::kOptions } -> std::convertible_to<Options>;
  { S::kCrew } -> std::convertible_to<CrewKind>;
  { S::kColumns } -> std::convertible_to<int>;       // W: columns of a lane
  { S::kFeatures } -> std::convertible_to<int>;      // number in registers; 0: costs come in tiles
  { S::kCarried } -> std::convertible_to<int>;       // partial sums of grad_x that travel to the left with E
  { S::kSegment } -> std::convertible_to<int>;       // groups between two stored states
  { S::kRoles } -> std::convertible_to<int>;         // warps of a strip: the wave's, and helpers
  { S::kPhases } -> std::convertible_to<int>;        // warps of a strip that recompute it
  { S::kStartsInWork } -> std::convertible_to<int>;  // groups of a segment whose first states are stored
  { S::kMeets } -> std::convertible_to<bool>;        // sweeps may start from both ends
  { S::kHasGradient } -> std::convertible_to<bool>;
  { S::kTakesWeights } -> std::convertible_to<bool>;  // the wave takes weights from take_weights()
  { S::kWarpBytes } -> std::convertible_to<int>;      // shared memory of a strip, and the least it works with
  { S::kLeastWarpBytes } -> std::convertible_to<int>;
};

// Called by every warp of a strip.
template <class S>
concept HasStripMemory = requires(const Params& p, unsigned char* memory, int lane) {
  { S::warp_bytes(p) } -> std::convertible_to<int>;  // shared memory of a strip in this launch
  S::init(p, memory, lane);                          // by the wave's warp, once in a kernel: barriers
  {
    S::first_band_group(lane, lane)
    } -> std::convertible_to<int>;  // (least, end): where a band's groups begin
};

// Called by the wave's warp of a strip, and in the reverse sweep by helpers that recompute.
template <class S, class Wave>
concept ServesTheWave = requires(S s, const Params& p, int group, int segment, int q, int k, bool flag,
                                 typename Wave::Real e, typename Wave::Real* sums) {
  s.begin_panel();    // before each sweep of a panel: barriers start anew
  s.begin_forward();  // at the start of a strip's forward sweep
  s.begin_forward_segment(segment);
  s.begin_forward_group(group);  // cost() and forbids() now refer to this group
  s.end_forward_group(group);
  s.begin_reverse();
  s.begin_reverse_segment(segment, flag);  // flag: whether it is the sweep's first one
  s.begin_reverse_group(group);
  s.end_reverse_group(group);  // E of the group has been taken
  s.end_reverse();
  { s.cost(q, k) } -> std::convertible_to<typename Wave::Real>;  // step q of the group, column k of the lane
  s.scale();                                                     // the factor of costs
  { s.forbids(q, k) } -> std::convertible_to<bool>;              // whether no path may use that cell
  s.take(q, k, e, sums);       // E of that cell; sums: the partial sums that travel with it
  s.finish_rows(group, sums);  // by the left-most strip: the complete sums of a group
  s.clear_gradients();         // if both sweeps that meet add to them
  { s.range_bits() } -> std::convertible_to<int2>;  // of all costs seen, for largest_cost()
  { S::largest_cost(p, int2{}, 1.0) } -> std::convertible_to<float>;
};

// Called by the other warps of a strip, each with its number.
template <class S>
concept HasHelpers = requires(S s, int helper) {
  s.help_forward(helper);
  s.help_reverse(helper);
};

// Called by the wave's warp, if weights come by whole segments, from other warps or from itself. `order`
// counts segments from the last one.
template <class S, class Wave>
concept HandsOverWeights =
    !S::kTakesWeights || requires(S s, Recomputation<Wave>& recomputed, int order, int segment, int group,
                                  Weights<typename Wave::Real> (&weights)[kGroup][Wave::W]) {
  s.begin_taking(recomputed, order, segment);
  s.take_weights(order, group, group, weights);
};

template <class S, class Wave>
concept SourceOfCosts = DescribesItself<S> && HasStripMemory<S> && ServesTheWave<S, Wave> && HasHelpers<S> &&
    HandsOverWeights<S, Wave>;

}  // namespace warpalign::detail::soft_dtw
