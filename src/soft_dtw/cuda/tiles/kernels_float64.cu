// float64, with all options: float64 series, and float32 pairs that Cell32 could not certify.
#include "soft_dtw/cuda/sweep/kernel.cuh"
#include "soft_dtw/cuda/tiles/tiles.cuh"

namespace warpalign::detail::soft_dtw {

std::span<const SweepKernel> float64_kernels() {
  using Makers = PlainMakers<Cell64, AnyReal, Options::kAll, LaidOutRing>;
  using Source = Tiles<Cell64, AnyReal, Options::kAll, Makers>;
  static constexpr SweepKernel kUnit[] = {sweep_kernel<Cell64, AnyReal, Source, Sweeps::kForward, 3, 1>(),
                                          sweep_kernel<Cell64, AnyReal, Source, Sweeps::kBoth, 3, 1>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
