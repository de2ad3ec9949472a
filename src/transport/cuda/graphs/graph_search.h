// The memory of a block's shortest-path searches: in shared memory as far as it suffices, then in the
// workspace. Sizes and offsets, computed on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/launch/device.h"
#include "transport/tuning.h"

namespace warpalign::detail::transport {

inline constexpr int kMostSearchThreads = 1024;

// An array of a block.
struct SearchArray {
  std::int64_t offset;  // in bytes
  bool on_chip;
};

struct SearchLayout {
  int threads;
  int limit_lengths;               // CudaTuning::search_limit_lengths
  std::int64_t shared_bytes = 0;   // dynamic shared memory of a block
  std::int64_t scratch_bytes = 0;  // of a block
  SearchArray distances;           // (nodes) float64
  SearchArray stamps;              // (nodes) int32
  SearchArray far;                 // (nodes) int32
  SearchArray near;                // (2, nodes) int32
  SearchArray nearest;             // (nodes) float64, for landmarks

  SearchLayout(int nodes, bool landmarks, const cuda::DeviceTraits& limits)
      : threads(std::clamp(cuda::div_up(nodes, 32) * 32, 64, kMostSearchThreads)),
        limit_lengths(cuda_tuning(limits).search_limit_lengths) {
    const auto take = [&](std::int64_t bytes) -> SearchArray {
      bytes = static_cast<std::int64_t>(cuda::aligned(static_cast<std::size_t>(bytes)));
      const bool on_chip = shared_bytes + bytes <= limits.shared_bytes_per_block;
      std::int64_t& used = on_chip ? shared_bytes : scratch_bytes;
      used += bytes;
      return {used - bytes, on_chip};
    };
    const std::int64_t n = nodes;
    distances = take(8 * n);
    stamps = take(4 * n);
    far = take(4 * n);
    near = take(8 * n);
    nearest = take(landmarks ? 8 * n : 0);
  }
};

}  // namespace warpalign::detail::transport
