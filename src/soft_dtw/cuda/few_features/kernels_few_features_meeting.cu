// Series of at most 4 features that are swept from both ends. Each lane has 2 columns. For gradients of few
// strips, helper warps recompute weights ahead of the wave: two for each strip, or one, which takes less
// shared memory and fewer registers, so that more strips fit. Bands and penalties have two helpers or, with
// many strips, sweeps from one end.
#include "soft_dtw/cuda/few_features/few_features.cuh"
#include "soft_dtw/cuda/sweep/kernel.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <int F, int kHelpers, Sweeps kSweeps, int kStrips, int kBlocks, Options kOptions = Options::kNone>
constexpr SweepKernel entry() {
  using Source = FewFeatures<Cell32, float, 2, F, kOptions, true, kHelpers>;
  return sweep_kernel<Cell32, float, Source, kSweeps, kStrips, kBlocks>();
}

}  // namespace

std::span<const SweepKernel> few_features_meeting_kernels() {
  static constexpr SweepKernel kUnit[] = {entry<1, 0, Sweeps::kForward, 8, 2>(),
                                          entry<1, 0, Sweeps::kBoth, 8, 2>(),
                                          entry<1, 1, Sweeps::kBoth, 8, 1>(),
                                          entry<1, 2, Sweeps::kBoth, 4, 1>(),
                                          entry<2, 0, Sweeps::kForward, 8, 2>(),
                                          entry<2, 0, Sweeps::kBoth, 8, 2>(),
                                          entry<2, 1, Sweeps::kBoth, 8, 1>(),
                                          entry<2, 2, Sweeps::kBoth, 4, 1>(),
                                          entry<4, 0, Sweeps::kForward, 8, 2>(),
                                          entry<4, 0, Sweeps::kBoth, 8, 2>(),
                                          entry<4, 1, Sweeps::kBoth, 8, 1>(),
                                          entry<4, 2, Sweeps::kBoth, 4, 1>(),
                                          entry<1, 0, Sweeps::kForward, 8, 2, Options::kPaths>(),
                                          entry<1, 2, Sweeps::kBoth, 4, 1, Options::kPaths>(),
                                          entry<4, 0, Sweeps::kForward, 8, 2, Options::kPaths>(),
                                          entry<4, 2, Sweeps::kBoth, 4, 1, Options::kPaths>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
