// Costs in tiles: series of any number of features, or cost matrices. Gradients of few strips have
// larger crews; values alone have crews without makers of gradients, whose warps get more registers.
#include "soft_dtw/cuda/sweep/kernel.cuh"
#include "soft_dtw/cuda/tiles/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <class Crew, bool kMeets, Sweeps kSweeps, int kStrips>
constexpr SweepKernel entry() {
  using Makers = PlainMakers<Cell32, float, Options::kNone, FixedRing, Crew>;
  using Source = Tiles<Cell32, float, Options::kNone, Makers, kMeets>;
  return sweep_kernel<Cell32, float, Source, kSweeps, kStrips, 1>();
}

}  // namespace

std::span<const SweepKernel> tiles_kernels() {
  static constexpr SweepKernel kUnit[] = {
      entry<SmallCrew, false, Sweeps::kForward, 4>(), entry<SmallCrew, false, Sweeps::kBoth, 4>(),
      entry<LargeCrew, true, Sweeps::kBoth, 2>(), entry<ForwardCrewOfTwo, true, Sweeps::kForward, 4>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
