// The kernels that sweep over pairs. Each is listed once, in the unit that compiles it (kernels_*.cu);
// nothing else names an instantiation. kernel_list.cuh counts their launches, and those of all other kernels.
#pragma once

#include <span>

#include "cuda/launch/kernel_name.h"
#include "soft_dtw/cuda/call/kernel_key.h"
#include "soft_dtw/cuda/call/layout.h"

namespace warpalign::detail::soft_dtw {

struct Params;  // in params.cuh

struct SweepKernel {
  KernelKey key;
  KernelSizes sizes;
  const cuda::Kernel<Params>* kernel;
};

// The kernels of one unit.
std::span<const SweepKernel> few_features_kernels();
std::span<const SweepKernel> few_features_meeting_kernels();
std::span<const SweepKernel> few_features_options_kernels();
std::span<const SweepKernel> panel_kernels();
std::span<const SweepKernel> tiles_kernels();
std::span<const SweepKernel> tiles_options_kernels();
std::span<const SweepKernel> hard_kernels();
std::span<const SweepKernel> float64_kernels();
std::span<const SweepKernel> dual_kernels();

// visit(entry) for every kernel, until a call returns true. Returns the entry of that call, or null.
template <class Visit>
const SweepKernel* find_kernel(const Visit& visit) {
  for (const auto unit : {few_features_kernels(), few_features_meeting_kernels(),
                          few_features_options_kernels(), panel_kernels(), tiles_kernels(),
                          tiles_options_kernels(), hard_kernels(), float64_kernels(), dual_kernels()}) {
    for (const SweepKernel& entry : unit) {
      if (visit(entry)) return &entry;
    }
  }
  return nullptr;
}

// Null if there is no such kernel.
const SweepKernel* kernel_of(const KernelKey& key);

}  // namespace warpalign::detail::soft_dtw
