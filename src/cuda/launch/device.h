// Plain numbers about the GPU and its memory, for code that lays out a launch. No CUDA syntax, no runtime.
#pragma once

#include <cstddef>
#include <type_traits>

namespace warpalign::cuda {

// a / b rounded up, for a >= 0 and b > 0. A negative a is rounded towards 0, then 1 is added.
template <class T>
constexpr T div_up(T a, std::type_identity_t<T> b) {
  return a / b + (a % b != 0);
}

// Bytes rounded up to a multiple of 256, the alignment of cudaMalloc(), for an array that follows them.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// The most static shared memory (`__shared__` variables) of a kernel that also uses dynamic shared memory
// beyond 48 KiB: launch() allows the rest of a block's share for the dynamic one.
constexpr int kStaticSharedBytes = 256;

// The properties of a device that decide how a call runs. Nothing else looks at a compute capability.
struct DeviceTraits {
  int multiprocessors;
  int shared_bytes_per_block;     // dynamic shared memory of a block, in bytes
  bool has_matrix_units = false;  // mma of 16-bit types and of TF32, and cp.async: 8.0 and later
  bool has_clusters = false;      // with bulk copies and programmatic launches: 9.0 and later
  bool has_warpgroups = false;    // wgmma: 9.0 alone, in a library that was built for sm_90a
  int compute_capability = 0;     // 10 major + minor: for thresholds alone (core/tuning.h)

  friend bool operator==(const DeviceTraits&, const DeviceTraits&) = default;
};

}  // namespace warpalign::cuda
