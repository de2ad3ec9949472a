// Host side of the CUDA runtime: errors become a Status, and attributes are read from a device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "core/plan_log.h"
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

// The log of this thread's calls, if plans are described and not run.
using detail::PlanLog;
// Whether plans are described for a class of devices, and no device is asked.
inline bool plans_for_class() {
  const PlanLog* const log = PlanLog::current();
  return log && !log->device_class().empty();
}

// An error unless a device of this ordinal exists and is the calling thread's current one.
inline Status check_device(int ordinal) {
  if (plans_for_class()) return {};
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

// Such as "CUDA 9.0, 132 multiprocessors", for descriptions.
std::string name_of_device(int ordinal);

// Blocks of a kernel that a device of the described class holds, as far as threads and shared memory limit
// them. Registers do, too, on a device.
int estimated_blocks(int threads, std::size_t shared_bytes);

}  // namespace warpalign::cuda
