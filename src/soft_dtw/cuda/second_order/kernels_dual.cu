// Second order, with all options that have it; float32 and float64 series.
#include "soft_dtw/cuda/sweep/kernel.cuh"
#include "soft_dtw/cuda/tiles/tiles.cuh"

namespace warpalign::detail::soft_dtw {

std::span<const SweepKernel> dual_kernels() {
  using Makers = PlainMakers<CellDual, AnyReal, Options::kAll, LaidOutRing>;
  using Source = Tiles<CellDual, AnyReal, Options::kAll, Makers>;
  static constexpr SweepKernel kUnit[] = {sweep_kernel<CellDual, AnyReal, Source, Sweeps::kAsAsked, 1, 1>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
