// Costs in tiles, with options.
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <Options kOptions, class Crew, Sweeps kSweeps>
constexpr KernelEntry entry() {
  using Makers = PlainMakers<Cell32, float, kOptions, FixedRing, Crew>;
  return kernel_entry<Cell32, float, Tiles<Cell32, float, kOptions, Makers>, kSweeps, 4, 1>();
}

}  // namespace

std::span<const KernelEntry> tiles_options_kernels() {
  static constexpr KernelEntry kKernels[] = {entry<Options::kPaths, SmallCrew, Sweeps::kForward>(),
                                             entry<Options::kPaths, SmallCrew, Sweeps::kBoth>(),
                                             entry<Options::kAll, FrugalCrew, Sweeps::kForward>(),
                                             entry<Options::kAll, FrugalCrew, Sweeps::kBoth>()};
  return kKernels;
}

}  // namespace warpalign::detail::soft_dtw
