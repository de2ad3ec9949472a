// A block's dynamic shared memory.
#pragma once

namespace warpalign::cuda {

// Where it begins, at a multiple of 16 bytes; LaunchConfig::shared_bytes of them. Contents start undefined.
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char shared[];
  return shared;
}

}  // namespace warpalign::cuda
