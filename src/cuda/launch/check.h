// Host side of the CUDA runtime: errors become a Status, and attributes are read from a device.
#pragma once

#include <cuda_runtime.h>

#include "cuda/launch/device.h"
#include "warpalign/status.h"

namespace warpalign::cuda {

// The Status of a runtime function's result. An error is cleared from the runtime, which would otherwise
// report it again to the next caller of cudaGetLastError(). An earlier error of other code stays there.
inline Status to_status(cudaError_t error) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return Status::device_error(cudaGetErrorString(error));
}

// A device's attribute; 0 if the device or the attribute does not exist.
inline int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return to_status(cudaDeviceGetAttribute(&value, which, device)).ok() ? value : 0;
}

// An error unless a device of this ordinal exists and is the calling thread's current one.
inline Status check_device(int ordinal) {
  int current = 0;
  if (const Status s = to_status(cudaGetDevice(&current)); !s.ok()) return s;
  if (ordinal == current) return {};
  int count = 0;
  if (const Status s = to_status(cudaGetDeviceCount(&count)); !s.ok()) return s;
  if (ordinal < 0 || ordinal >= count) {
    return Status::invalid("execution", "a cuda_device that is the ordinal of a CUDA device", ordinal);
  }
  return Status::invalid("execution", "a cuda_device that is the calling thread's current one", ordinal);
}

// Everything that a call asks of a device before it chooses how to run (traits.cu).
DeviceTraits traits_of(int ordinal);

}  // namespace warpalign::cuda
