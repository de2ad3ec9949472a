// Hard DTW, with all options. One kernel for each type of the series: their differences are taken in it.
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <class Real, class Ring, Sweeps kSweeps, int kStrips>
constexpr KernelEntry entry() {
  using Cell = CellHard<Real>;
  using Makers = PlainMakers<Cell, Real, Options::kAll, Ring>;
  return kernel_entry<Cell, Real, Tiles<Cell, Real, Options::kAll, Makers>, kSweeps, kStrips, 1>();
}

}  // namespace

std::span<const KernelEntry> hard_kernels() {
  static constexpr KernelEntry kKernels[] = {
      entry<float, FixedRing, Sweeps::kForward, 4>(), entry<float, FixedRing, Sweeps::kBoth, 4>(),
      entry<double, LaidOutRing, Sweeps::kForward, 3>(), entry<double, LaidOutRing, Sweeps::kBoth, 3>()};
  return kKernels;
}

}  // namespace warpalign::detail::soft_dtw
