// The function of cluster_norm.cuh, for a file that compiles it for one element type.
#pragma once

#include "recurrent/cuda/cell/kernel_list.cuh"
#include "recurrent/cuda/layer_norm/cluster_norm.cuh"
#include "recurrent/cuda/layer_norm/cluster_norm_backward.cuh"
#include "recurrent/cuda/layer_norm/cluster_norm_forward.cuh"

namespace warpalign::detail::recurrent {

// One size serves all numbers of blocks: exchanges take most of a step.
template <class T>
inline const cuda::Kernel kClusterNormForward{kKernels, "clusters of up to 16, layer norm",
                                              cuda::type_name<T>(),
                                              cluster_norm_forward_kernel<T, 2 * kMostRanks>};
template <class T>
inline const cuda::Kernel kClusterNormBackward{kKernels, "clusters of up to 16 back, layer norm",
                                               cuda::type_name<T>(),
                                               cluster_norm_backward_kernel<T, kMostRanks / 4>};

template <class T>
ClusterKernel<T> NormSweeps<T>::of(bool backward) {
  constexpr std::size_t kFixed = sizeof(WarpPairs);
  if (backward) {
    return {&kClusterNormBackward<T>, kFixed + sizeof(OwnGradients<T>),
            sizeof(NormBackwardTile<kMostRanks>) + sizeof(TileRows)};
  }
  return {&kClusterNormForward<T>, kFixed, sizeof(NormForwardTile<2 * kMostRanks>) + sizeof(TileRows)};
}

}  // namespace warpalign::detail::recurrent
