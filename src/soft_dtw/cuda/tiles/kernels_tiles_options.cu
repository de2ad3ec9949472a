// Costs in tiles, with options.
#include "soft_dtw/cuda/sweep/kernel.cuh"
#include "soft_dtw/cuda/tiles/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <Options kOptions, class Crew, Sweeps kSweeps>
constexpr SweepKernel entry() {
  using Makers = PlainMakers<Cell32, float, kOptions, FixedRing, Crew>;
  return sweep_kernel<Cell32, float, Tiles<Cell32, float, kOptions, Makers>, kSweeps, 4, 1>();
}

}  // namespace

std::span<const SweepKernel> tiles_options_kernels() {
  static constexpr SweepKernel kUnit[] = {entry<Options::kPaths, SmallCrew, Sweeps::kForward>(),
                                          entry<Options::kPaths, SmallCrew, Sweeps::kBoth>(),
                                          entry<Options::kAll, FrugalCrew, Sweeps::kForward>(),
                                          entry<Options::kAll, FrugalCrew, Sweeps::kBoth>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
