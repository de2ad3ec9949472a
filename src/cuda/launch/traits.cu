#include <algorithm>

#include "core/device_class.h"
#include "cuda/launch/check.h"

namespace warpalign::cuda {
namespace {

using detail::DeviceClass;

// Null: a device is asked.
const DeviceClass* described_class() {
  return plans_for_class() ? detail::device_class(PlanLog::current()->device_class()) : nullptr;
}

DeviceTraits traits(int major, int minor, int multiprocessors, int shared_bytes) {
  return {multiprocessors, shared_bytes - kStaticSharedBytes,      major >= 8,
          major >= 9,      WARPALIGN_HAS_WARPGROUPS && major == 9, 10 * major + minor};
}

}  // namespace

DeviceTraits traits_of(int ordinal) {
  if (const DeviceClass* const one = described_class()) {
    return traits(one->major, one->minor, one->multiprocessors, one->shared_bytes);
  }
  return traits(attribute(cudaDevAttrComputeCapabilityMajor, ordinal),
                attribute(cudaDevAttrComputeCapabilityMinor, ordinal),
                attribute(cudaDevAttrMultiProcessorCount, ordinal),
                attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
}

std::string name_of_device(int ordinal) {
  const DeviceTraits device = traits_of(ordinal);
  const std::string sizes = ", " + std::to_string(device.multiprocessors) + " multiprocessors, " +
                            std::to_string(device.shared_bytes_per_block) +
                            " bytes of shared memory per block";
  if (const DeviceClass* const one = described_class()) {
    return "CUDA " + std::string(one->name) + " (as " + one->example + ")" + sizes;
  }
  return "CUDA " + std::to_string(device.compute_capability / 10) + "." +
         std::to_string(device.compute_capability % 10) + sizes;
}

int estimated_blocks(int threads, std::size_t shared_bytes) {
  const DeviceClass* const one = described_class();
  if (!one) return 0;
  constexpr std::size_t kOfEveryBlock = 1024;  // shared memory that CUDA keeps for itself
  const auto by_memory = static_cast<int>(one->shared_bytes / (shared_bytes + kOfEveryBlock));
  return std::min(std::max(by_memory, 1), std::max(one->threads / threads, 1)) * one->multiprocessors;
}

}  // namespace warpalign::cuda
