// The nodes of a band, and a lattice without arcs.
#pragma once

#include <cstdint>

#include "transducer/cuda/pruned/launch_band.h"

namespace warpalign::detail::transducer {

constexpr int kBandThreads = 256;

// A thread takes every gridDim.x * kBandThreads-th node and word. Neighbouring threads write neighbours.
static __global__ void __launch_bounds__(kBandThreads)
    band_kernel(const __grid_constant__ Band band, const __grid_constant__ BandList to, std::int64_t nodes,
                unsigned long long nothing, unsigned long long* words, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBandThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kBandThreads + threadIdx.x;
  if (thread == 0) *to.count = static_cast<std::int32_t>(nodes);
  for (std::int64_t n = thread; n < nodes; n += step) to.list[n] = static_cast<std::int32_t>(band.row(n));
  for (std::int64_t n = thread; n < count; n += step) words[n] = nothing;
}

}  // namespace warpalign::detail::transducer
