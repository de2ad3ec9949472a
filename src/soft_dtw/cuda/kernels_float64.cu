// float64, with all options: float64 series, and float32 pairs that Cell32 could not certify.
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

std::span<const KernelEntry> float64_kernels() {
  using Makers = PlainMakers<Cell64, AnyReal, Options::kAll, LaidOutRing>;
  using Source = Tiles<Cell64, AnyReal, Options::kAll, Makers>;
  static constexpr KernelEntry kKernels[] = {kernel_entry<Cell64, AnyReal, Source, Sweeps::kForward, 3, 1>(),
                                             kernel_entry<Cell64, AnyReal, Source, Sweeps::kBoth, 3, 1>()};
  return kKernels;
}

}  // namespace warpalign::detail::soft_dtw
