// Typical devices by compute capability: what a plan is made for where no device is asked.
#pragma once

#include <string>

#include "warpalign/status.h"

namespace warpalign::detail {

struct DeviceClass {
  const char* name;  // compute capability
  const char* example;
  int major;
  int minor;
  int multiprocessors;  // of the example
  int shared_bytes;     // of a block, at most
  int threads;          // of a multiprocessor
};

// From NVIDIA's CUDA C++ programming guide, "Compute capabilities", and data sheets.
inline constexpr DeviceClass kDeviceClasses[] = {
    {"7.5", "T4", 7, 5, 40, 64 << 10, 1024},          {"8.0", "A100", 8, 0, 108, 163 << 10, 2048},
    {"8.6", "RTX 3090", 8, 6, 82, 99 << 10, 1536},    {"8.9", "L40S", 8, 9, 142, 99 << 10, 1536},
    {"9.0", "H100 SXM", 9, 0, 132, 227 << 10, 2048},  {"10.0", "B200", 10, 0, 148, 227 << 10, 2048},
    {"12.0", "RTX 5090", 12, 0, 170, 99 << 10, 1536},
};

// Null where there is none of this name.
inline const DeviceClass* device_class(const std::string& name) {
  for (const DeviceClass& one : kDeviceClasses) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

// ok for an empty name, too: the execution's own device.
inline Status check_device_class(const std::string& name) {
  if (name.empty() || device_class(name)) return {};
  return Status::unsupported("device_class",
                             "expected a compute capability out of 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0");
}

}  // namespace warpalign::detail
