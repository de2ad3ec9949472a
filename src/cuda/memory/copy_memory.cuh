// Copies between arrays in the device's memory, in stream order.
#pragma once

#include <cstddef>

#include "cuda/launch/launch.cuh"

namespace warpalign::cuda {

inline Status copy_memory(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  if (PlanLog* const log = PlanLog::current()) {
    log->copy_memory(bytes);
    return {};
  }
  return to_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

}  // namespace warpalign::cuda
