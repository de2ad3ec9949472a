// Sinkhorn on points with matrix units, Precision::kHigh and Precision::kHighest.
#include "transport/cuda/points/unit_points.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<float> kKernel = entry<SolveKernel<UnitPoints<3>>>();

}  // namespace

const SinkhornKernel<float>& split_points_kernel() { return kKernel; }

}  // namespace warpalign::detail::transport
