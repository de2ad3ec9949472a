// Sinkhorn on points with matrix units, Precision::kMedium.
#include "transport/cuda/points/unit_points.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<float> kKernel = entry<SolveKernel<UnitPoints<1>>>();

}  // namespace

const SinkhornKernel<float>& medium_points_kernel() { return kKernel; }

}  // namespace warpalign::detail::transport
