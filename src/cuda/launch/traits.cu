#include "cuda/launch/check.h"

namespace warpalign::cuda {

DeviceTraits traits_of(int ordinal) {
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, ordinal);
  const int minor = attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
  return {attribute(cudaDevAttrMultiProcessorCount, ordinal),
          attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal) - kStaticSharedBytes,
          major >= 8,
          major >= 9,
          WARPALIGN_HAS_WARPGROUPS && major == 9,
          10 * major + minor};
}

}  // namespace warpalign::cuda
