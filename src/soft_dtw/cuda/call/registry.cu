#include <cstdio>

#include "soft_dtw/cuda/call/cuda_call.h"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/call/registry.h"

namespace warpalign::detail::soft_dtw {

const SweepKernel* kernel_of(const KernelKey& key) {
  return find_kernel([&](const SweepKernel& entry) { return entry.key == key; });
}

KernelName name_of(const KernelKey& key) {
  constexpr const char* kArithmetics[] = {"float32", "float64", "dual", "hard_float32", "hard_float64"};
  constexpr const char* kSources[] = {"few_features", "tiles", "panel"};
  constexpr const char* kOptions[] = {"", " paths", " all_options"};
  constexpr const char* kSweeps[] = {" values", " gradients", ""};
  constexpr const char* kCrews[] = {"",        " one_helper", " two_helpers", " small",
                                    " frugal", " large",      " forward_two"};
  char counts[40] = "";
  if (key.source == CostSource::kFewFeatures) {
    std::snprintf(counts, sizeof(counts), " features=%d columns=%d", key.features, key.columns_per_lane);
  }
  KernelName name{};
  std::snprintf(name.text, sizeof(name.text), "%s %s%s%s%s%s%s",
                kArithmetics[static_cast<int>(key.arithmetic)], kSources[static_cast<int>(key.source)],
                counts, kOptions[static_cast<int>(key.options)], kCrews[static_cast<int>(key.crew)],
                key.meets ? " meets" : "", kSweeps[static_cast<int>(key.sweeps)]);
  return name;
}

bool kernel_launches_cuda(int index, KernelLaunches& out) { return kKernels.read(index, out); }

}  // namespace warpalign::detail::soft_dtw
