// Makes the entry of a kernel, where it is compiled.
#pragma once

#include "cuda/launch.cuh"
#include "transport/cuda/kernels.h"
#include "transport/cuda/results.cuh"

namespace warpalign::detail::transport {

template <class Costs>
cuda::LaunchConfig launch_config(const SolveLayout& layout, cudaStream_t stream) {
  cuda::LaunchConfig config{layout.teams * layout.team_blocks, layout.threads, Costs::shared_bytes(layout),
                            stream};
  config.cooperative = layout.team_blocks > 1;
  return config;
}

template <class Costs, void (*kKernel)(SolveParams<typename Costs::Real>) = sinkhorn_kernel<Costs>>
constexpr SinkhornKernel<typename Costs::Real> entry(RowShape shape = {}) {
  using Real = typename Costs::Real;
  return {shape,
          [](const SolveLayout& layout, int* blocks) {
            return cuda::resident_blocks(kKernel, launch_config<Costs>(layout, nullptr), blocks);
          },
          [](const SolveParams<Real>& params, cudaStream_t stream) {
            return cuda::launch(kKernel, launch_config<Costs>(params.layout, stream), params);
          }};
}

}  // namespace warpalign::detail::transport
