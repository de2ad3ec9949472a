// Series of at most 4 features, costs in registers: 1, 2 or, for values alone, 4 columns per lane.
#include "soft_dtw/cuda/few_features/few_features.cuh"
#include "soft_dtw/cuda/sweep/kernel.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <int W, int F, Sweeps kSweeps>
constexpr SweepKernel entry() {
  return sweep_kernel<Cell32, float, FewFeatures<Cell32, float, W, F, Options::kNone>, kSweeps, 8, 2>();
}

}  // namespace

std::span<const SweepKernel> few_features_kernels() {
  static constexpr SweepKernel kUnit[] = {
      entry<1, 1, Sweeps::kForward>(), entry<1, 1, Sweeps::kBoth>(),    entry<2, 1, Sweeps::kForward>(),
      entry<2, 1, Sweeps::kBoth>(),    entry<4, 1, Sweeps::kForward>(), entry<1, 2, Sweeps::kForward>(),
      entry<1, 2, Sweeps::kBoth>(),    entry<2, 2, Sweeps::kForward>(), entry<2, 2, Sweeps::kBoth>(),
      entry<4, 2, Sweeps::kForward>(), entry<1, 4, Sweeps::kForward>(), entry<1, 4, Sweeps::kBoth>(),
      entry<2, 4, Sweeps::kForward>(), entry<2, 4, Sweeps::kBoth>(),    entry<4, 4, Sweeps::kForward>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
