// Asks how many clusters a device holds at the same time.
#pragma once

#include "cuda/launch/launch.cuh"

namespace warpalign::cuda {

// *clusters: the most clusters of config.cluster blocks that the current device holds at the same time.
template <class... Parameters>
Status resident_clusters(void (*kernel)(Parameters...), const LaunchConfig& config, int* clusters) {
  *clusters = 0;
  if (plans_for_class()) {
    *clusters = estimated_blocks(config.threads, config.shared_bytes) / config.cluster;
    return {};
  }
  if (const Status s = allow(kernel, config); !s.ok()) return s;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(config.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t all = {};
  all.gridDim = dim3(static_cast<unsigned>(config.cluster));
  all.blockDim = dim3(static_cast<unsigned>(config.threads));
  all.dynamicSmemBytes = config.shared_bytes;
  all.attrs = &attribute;
  all.numAttrs = 1;
  return to_status(cudaOccupancyMaxActiveClusters(clusters, kernel, &all));
}

}  // namespace warpalign::cuda
