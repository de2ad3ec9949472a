// Hard DTW, with all options. One kernel for each type of the series, in which differences are computed.
#include "soft_dtw/cuda/sweep/kernel.cuh"
#include "soft_dtw/cuda/tiles/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <class Real, class Ring, Sweeps kSweeps, int kStrips>
constexpr SweepKernel entry() {
  using Cell = CellHard<Real>;
  using Makers = PlainMakers<Cell, Real, Options::kAll, Ring>;
  return sweep_kernel<Cell, Real, Tiles<Cell, Real, Options::kAll, Makers>, kSweeps, kStrips, 1>();
}

}  // namespace

std::span<const SweepKernel> hard_kernels() {
  static constexpr SweepKernel kUnit[] = {
      entry<float, FixedRing, Sweeps::kForward, 4>(), entry<float, FixedRing, Sweeps::kBoth, 4>(),
      entry<double, LaidOutRing, Sweeps::kForward, 3>(), entry<double, LaidOutRing, Sweeps::kBoth, 3>()};
  return kUnit;
}

}  // namespace warpalign::detail::soft_dtw
