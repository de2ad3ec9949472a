// Passes between points rounded to binary16 by warpgroups, for sm_90a alone.
#include "cuda/launch/launch.cuh"
#include "transport/cuda/gromov/half_groups.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

using Pass = cuda::Kernel<HalfParams, int>;
const Pass kPasses[] = {
    {kKernels, "half points by warpgroups, 16 coordinates", nullptr, half_group_pass_kernel<kHalfSteps[0]>},
    {kKernels, "half points by warpgroups, 80 coordinates", nullptr, half_group_pass_kernel<kHalfSteps[1]>},
    {kKernels, "half points by warpgroups, 128 coordinates", nullptr, half_group_pass_kernel<kHalfSteps[2]>},
};

}  // namespace

Status launch_half_group_pass(const HalfParams& params, int kind, int own_side, cudaStream_t stream) {
  const HalfSide& own = params.sides[own_side];
  const int blocks = cuda::div_up(own.length, kHalfGroupPoints) * own.splits;
  return cuda::launch(kPasses[kind],
                      {blocks, kHalfGroupThreads, half_group_shared_bytes(kHalfSteps[kind]), stream}, params,
                      own_side);
}

}  // namespace warpalign::detail::transport
