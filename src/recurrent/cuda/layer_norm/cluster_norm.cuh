// The sweeps on clusters of layers with layer norm, which files of their own compile.
#pragma once

#include "cuda/launch/kernel.cuh"
#include "recurrent/cuda/clusters/cluster_sweep.cuh"

namespace warpalign::detail::recurrent {

// A kernel with the shared memory that it needs.
template <class T>
struct ClusterKernel {
  const cuda::Kernel<ClusterParams<T>>* kernel;
  std::size_t fixed_bytes, tile_bytes;
};

// The kernels. 16-bit types; kernels_norm_*.cu have them.
template <class T>
struct NormSweeps {
  static ClusterKernel<T> of(bool backward);
};

}  // namespace warpalign::detail::recurrent
