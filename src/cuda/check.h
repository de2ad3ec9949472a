// Host side of the CUDA runtime: errors become a Status, and limits are read from the current device.
#pragma once

#include <cuda_runtime.h>

#include "warpalign/status.h"

namespace warpalign::cuda {

inline Status to_status(cudaError_t error) {
  return error == cudaSuccess ? Status{} : Status::device_error(cudaGetErrorString(error));
}

inline int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

}  // namespace warpalign::cuda
