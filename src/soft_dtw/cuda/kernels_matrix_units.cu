// Costs in tiles, costs and gradients made by the matrix units: sm_80 and later. Only with features that are
// kept in shared memory there are gradients, and sweeps from both ends.
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/tensor_costs.cuh"
#include "soft_dtw/cuda/tensor_gradients.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <class Crew_, bool kKept>
struct TensorMakers {
  static constexpr CostSource kSource = CostSource::kMatrixUnits;
  using Crew = Crew_;
  using Ring = FixedRing;
  using Memory = TensorTiles<kKept, Crew>;
  using Costs = TensorCosts<kKept, Memory>;
  using Gradients = TensorGradients<Memory, Crew::kGradients>;
};

template <class Crew, bool kMeets, Sweeps kSweeps, int kStrips, bool kKept = true>
constexpr KernelEntry entry() {
  using Source = Tiles<Cell32, float, Options::kNone, TensorMakers<Crew, kKept>, kMeets>;
  return kernel_entry<Cell32, float, Source, kSweeps, kStrips, 1>();
}

}  // namespace

std::span<const KernelEntry> matrix_units_kernels() {
  static constexpr KernelEntry kKernels[] = {entry<SmallCrew, false, Sweeps::kForward, 4>(),
                                             entry<SmallCrew, false, Sweeps::kBoth, 4>(),
                                             entry<LargeCrew, false, Sweeps::kBoth, 2>(),
                                             entry<LargeCrew, true, Sweeps::kBoth, 2>(),
                                             entry<ForwardCrewOfTwo, true, Sweeps::kForward, 4>(),
                                             entry<ForwardCrewOfThree, false, Sweeps::kForward, 4, false>()};
  return kKernels;
}

}  // namespace warpalign::detail::soft_dtw
