// The function of cluster_norm.cuh, for a file that compiles it for one element type.
#pragma once

#include "recurrent/cuda/cluster_norm.cuh"
#include "recurrent/cuda/cluster_norm_backward.cuh"
#include "recurrent/cuda/cluster_norm_forward.cuh"
#include "recurrent/cuda/kernel_list.cuh"

namespace warpalign::detail::recurrent {

template <class T, int kSteps>
inline const cuda::Kernel kClusterNormForward{
    kKernels, kSteps == 16 ? "clusters of up to 8, layer norm" : "clusters of up to 16, layer norm",
    cuda::type_name<T>(), cluster_norm_forward_kernel<T, kSteps>};
template <class T, int kParts>
inline const cuda::Kernel kClusterNormBackward{
    kKernels, kParts == 2 ? "clusters of up to 8 back, layer norm" : "clusters of up to 16 back, layer norm",
    cuda::type_name<T>(), cluster_norm_backward_kernel<T, kParts>};

template <class T>
ClusterKernel<T> NormSweeps<T>::of(int ranks, bool backward) {
  constexpr int kFew = kMostRanks / 2;
  constexpr std::size_t kFixed = sizeof(WarpPairs), kFixedBack = kFixed + sizeof(OwnGradients);
  if (backward) {
    if (ranks <= kFew) {
      return {&kClusterNormBackward<T, 2>, kFixedBack, sizeof(NormBackwardTile<kFew>) + sizeof(TileRows)};
    }
    return {&kClusterNormBackward<T, 4>, kFixedBack, sizeof(NormBackwardTile<kMostRanks>) + sizeof(TileRows)};
  }
  if (ranks <= kFew) {
    return {&kClusterNormForward<T, 16>, kFixed, sizeof(NormForwardTile<16>) + sizeof(TileRows)};
  }
  return {&kClusterNormForward<T, 32>, kFixed, sizeof(NormForwardTile<32>) + sizeof(TileRows)};
}

}  // namespace warpalign::detail::recurrent
