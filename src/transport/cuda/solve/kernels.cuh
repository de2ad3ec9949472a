// The list of transport's kernels, and the functions that make an entry in the file that compiles the kernel.
#pragma once

#include "cuda/launch/cluster_launch.h"
#include "cuda/launch/kernel.cuh"
#include "transport/cuda/solve/kernels.h"
#include "transport/cuda/solve/results.cuh"

namespace warpalign::detail::transport {

inline constinit cuda::KernelList kKernels;

template <class Costs>
cuda::LaunchConfig launch_config(const SolveLayout& layout, cudaStream_t stream) {
  cuda::LaunchConfig config{layout.teams * layout.team_blocks, layout.threads, Costs::shared_bytes(layout),
                            stream};
  config.cluster = layout.cluster;
  config.cooperative = layout.team_blocks > layout.cluster;  // a cluster's blocks run together
  return config;
}

// A kernel by name. With the kernel itself as a template argument, nvcc would not treat it as defined here.
template <class Costs_>
struct SolveKernel {
  using Costs = Costs_;
  static constexpr const char* name() { return Costs::name(); }
  static constexpr auto get() { return sinkhorn_kernel<Costs>; }
};

template <class Kernel>
const cuda::Kernel kCounted{kKernels, Kernel::name(), cuda::type_name<typename Kernel::Costs::Real>(),
                            Kernel::get()};

template <class Kernel>
constexpr SinkhornKernel<typename Kernel::Costs::Real> entry(RowShape shape = {}) {
  using Costs = typename Kernel::Costs;
  using Real = typename Costs::Real;
  return {shape,
          [](const SolveLayout& layout, int* blocks) {
            if (layout.cluster > 1) {
              const Status s =
                  cuda::resident_clusters(Kernel::get(), launch_config<Costs>(layout, nullptr), blocks);
              *blocks *= layout.cluster;
              return s;
            }
            return cuda::resident_blocks(Kernel::get(), launch_config<Costs>(layout, nullptr), blocks);
          },
          [](const SolveParams<Real>& params, cudaStream_t stream) {
            return cuda::launch(kCounted<Kernel>, launch_config<Costs>(params.layout, stream), params);
          },
          [](const SolveLayout& layout) { return Costs::shared_bytes(layout); }};
}

}  // namespace warpalign::detail::transport
