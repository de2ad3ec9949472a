// Second order, with all options that have it; float32 and float64 series.
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

std::span<const KernelEntry> dual_kernels() {
  using Makers = PlainMakers<CellDual, AnyReal, Options::kAll, LaidOutRing>;
  using Source = Tiles<CellDual, AnyReal, Options::kAll, Makers>;
  static constexpr KernelEntry kKernels[] = {
      kernel_entry<CellDual, AnyReal, Source, Sweeps::kAsAsked, 1, 1>()};
  return kKernels;
}

}  // namespace warpalign::detail::soft_dtw
