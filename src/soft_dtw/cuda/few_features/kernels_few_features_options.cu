// Series of at most 4 features with options. With all of them there is one column per lane, and one kernel
// for values and gradients.
#include "soft_dtw/cuda/few_features/few_features.cuh"
#include "soft_dtw/cuda/sweep/kernel.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <int F, Options kOptions, Sweeps kSweeps>
constexpr SweepKernel entry() {
  constexpr int kColumns = kOptions == Options::kAll ? 1 : 2;
  return sweep_kernel<Cell32, float, FewFeatures<Cell32, float, kColumns, F, kOptions>, kSweeps, 8, 2>();
}

}  // namespace

std::span<const SweepKernel> few_features_options_kernels() {
  static constexpr SweepKernel kUnit[] = {
      entry<1, Options::kPaths, Sweeps::kForward>(), entry<1, Options::kPaths, Sweeps::kBoth>(),
      entry<1, Options::kAll, Sweeps::kAsAsked>(),   entry<2, Options::kPaths, Sweeps::kForward>(),
      entry<2, Options::kPaths, Sweeps::kBoth>(),    entry<2, Options::kAll, Sweeps::kAsAsked>(),
      entry<4, Options::kPaths, Sweeps::kForward>(), entry<4, Options::kPaths, Sweeps::kBoth>(),
      entry<4, Options::kAll, Sweeps::kAsAsked>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
