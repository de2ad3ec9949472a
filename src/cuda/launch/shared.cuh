// A block's dynamic shared memory.
#pragma once

namespace warpalign::cuda {

// Its first byte, at a multiple of 16. It has LaunchConfig::shared_bytes bytes, which are not initialised.
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char shared[];
  return shared;
}

}  // namespace warpalign::cuda
