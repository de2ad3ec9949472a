// The soft-DTW kernels that exist. Each is listed once, in the unit that compiles it (kernels_*.cu); nothing
// else names an instantiation.
#pragma once

#include <atomic>
#include <span>

#include "soft_dtw/cuda/kernel_key.h"
#include "soft_dtw/cuda/layout.h"

namespace warpalign::detail::soft_dtw {

struct Params;  // params.cuh

struct KernelEntry {
  KernelKey key;
  KernelSizes sizes;
  void (*kernel)(Params);                               // __global__
  mutable std::atomic<unsigned long long> launches{0};  // by this process, that CUDA has taken
};

// The kernels of one unit.
std::span<const KernelEntry> few_features_kernels();
std::span<const KernelEntry> few_features_meeting_kernels();
std::span<const KernelEntry> few_features_options_kernels();
std::span<const KernelEntry> panel_kernels();
std::span<const KernelEntry> tiles_kernels();
std::span<const KernelEntry> tiles_options_kernels();
std::span<const KernelEntry> hard_kernels();
std::span<const KernelEntry> float64_kernels();
std::span<const KernelEntry> dual_kernels();

// visit(entry) for every kernel, until a call returns true. Returns the entry of that call, or null.
template <class Visit>
const KernelEntry* find_kernel(const Visit& visit) {
  for (const auto kernels : {few_features_kernels(), few_features_meeting_kernels(),
                             few_features_options_kernels(), panel_kernels(), tiles_kernels(),
                             tiles_options_kernels(), hard_kernels(), float64_kernels(), dual_kernels()}) {
    for (const KernelEntry& entry : kernels) {
      if (visit(entry)) return &entry;
    }
  }
  return nullptr;
}

// Null where there is no such kernel.
const KernelEntry* kernel_of(const KernelKey& key);

}  // namespace warpalign::detail::soft_dtw
