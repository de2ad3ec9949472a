// Launching kernels, and setting memory in stream order. Nothing here waits for the device.
#pragma once

#include <cstddef>

#include "cuda/launch/check.h"
#include "cuda/launch/device.h"

namespace warpalign::cuda {

struct LaunchConfig {
  int blocks;
  int threads;                   // of a block
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block
  cudaStream_t stream = nullptr;
  int cluster = 1;  // blocks of a cluster, sm_90 and later; divides `blocks`; at most 8, or 16 on some
  bool cooperative = false;  // the launch fails unless all blocks are resident at the same time
  // sm_90 and later: the kernel may begin before the previous launch of its stream has ended. It must call
  // the functions of dependent.cuh.
  bool programmatic = false;
};

constexpr std::size_t kSharedBytesOfEveryKernel = 48 * 1024;  // a kernel has to ask for more
constexpr int kClusterOfEveryDevice = 8;                      // a kernel has to ask for more blocks

// Sets `bytes` bytes to the value `byte`.
inline Status set_memory(void* data, int byte, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return {};
  if (PlanLog* const log = PlanLog::current()) {
    log->clear_memory(bytes);
    return {};
  }
  return to_status(cudaMemsetAsync(data, byte, bytes, stream));
}

// Raises a kernel's limits on shared memory and on the size of a cluster where the launch needs it. Shared
// memory is raised to the device's maximum, not to this launch's need: another thread may be about to launch
// the same kernel with more.
template <class... Parameters>
Status allow(void (*kernel)(Parameters...), const LaunchConfig& config) {
  if (config.shared_bytes > kSharedBytesOfEveryKernel) {
    int device = 0;
    if (const Status s = to_status(cudaGetDevice(&device)); !s.ok()) return s;
    const int most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) - kStaticSharedBytes;
    const Status status =
        to_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    if (!status.ok()) return status;
  }
  if (config.cluster > kClusterOfEveryDevice) {
    return to_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }
  return {};
}

// Whether the launch was described, which is all then.
inline bool is_described(const char* kernel, const LaunchConfig& config) {
  PlanLog* const log = PlanLog::current();
  if (log) {
    log->launch(kernel, config.blocks, config.threads, config.shared_bytes, config.cluster,
                config.cooperative);
  }
  return log != nullptr;
}

// Enqueues kernel(arguments...) on the current device. Errors of earlier calls are neither reported nor
// cleared.
template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), const LaunchConfig& config, const Arguments&... arguments) {
  if (is_described("shared kernel", config)) return {};
  if (const Status s = allow(kernel, config); !s.ok()) return s;
  cudaLaunchAttribute attributes[3] = {};
  cudaLaunchConfig_t all = {};
  all.gridDim = dim3(static_cast<unsigned>(config.blocks));
  all.blockDim = dim3(static_cast<unsigned>(config.threads));
  all.dynamicSmemBytes = config.shared_bytes;
  all.stream = config.stream;
  all.attrs = attributes;
  if (config.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[all.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(config.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  if (config.cooperative) {
    cudaLaunchAttribute& cooperative = attributes[all.numAttrs++];
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
  }
  if (config.programmatic) {
    cudaLaunchAttribute& programmatic = attributes[all.numAttrs++];
    programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic.val.programmaticStreamSerializationAllowed = 1;
  }
  return to_status(cudaLaunchKernelEx(&all, kernel, arguments...));
}

// *blocks: the most blocks of this shape that the current device holds at the same time, which a cooperative
// launch may not exceed. config.blocks is not read.
template <class... Parameters>
Status resident_blocks(void (*kernel)(Parameters...), const LaunchConfig& config, int* blocks) {
  *blocks = 0;
  if (plans_for_class()) {
    *blocks = estimated_blocks(config.threads, config.shared_bytes);
    return {};
  }
  if (const Status s = allow(kernel, config); !s.ok()) return s;
  int device = 0;
  if (const Status s = to_status(cudaGetDevice(&device)); !s.ok()) return s;
  int per_multiprocessor = 0;
  const Status status = to_status(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &per_multiprocessor, kernel, config.threads, config.shared_bytes));
  if (status.ok()) *blocks = per_multiprocessor * attribute(cudaDevAttrMultiProcessorCount, device);
  return status;
}

}  // namespace warpalign::cuda
