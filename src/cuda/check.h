// Host side of the CUDA runtime: errors become a Status, and attributes are read from a device.
#pragma once

#include <cuda_runtime.h>

#include "warpalign/status.h"

namespace warpalign::cuda {

// What a runtime function has returned. An error is reported here and nowhere else: the runtime would
// otherwise show it to the next caller of cudaGetLastError(). An earlier error of somebody else's stays.
inline Status to_status(cudaError_t error) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return Status::device_error(cudaGetErrorString(error));
}

// 0 where the device has no such attribute, or does not exist.
inline int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return to_status(cudaDeviceGetAttribute(&value, which, device)).ok() ? value : 0;
}

}  // namespace warpalign::cuda
