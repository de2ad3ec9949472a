// Costs in a panel, two columns per lane. Sweeps may start from both ends. For gradients of few strips,
// helper warps recompute weights ahead of the wave, as for few features.
#include "soft_dtw/cuda/panel/panel_source.cuh"
#include "soft_dtw/cuda/sweep/kernel.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <int kHelpers, Sweeps kSweeps, int kStrips, int kBlocks, Options kOptions = Options::kNone>
constexpr SweepKernel entry() {
  return sweep_kernel<Cell32, float, PanelCosts<kHelpers, kOptions>, kSweeps, kStrips, kBlocks>();
}

}  // namespace

std::span<const SweepKernel> panel_kernels() {
  static constexpr SweepKernel kUnit[] = {entry<0, Sweeps::kForward, 8, 2>(),
                                          entry<0, Sweeps::kBoth, 8, 2>(),
                                          entry<1, Sweeps::kBoth, 8, 1>(),
                                          entry<2, Sweeps::kBoth, 4, 1>(),
                                          entry<0, Sweeps::kForward, 8, 2, Options::kPaths>(),
                                          entry<0, Sweeps::kBoth, 8, 2, Options::kPaths>(),
                                          entry<2, Sweeps::kBoth, 4, 1, Options::kPaths>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
