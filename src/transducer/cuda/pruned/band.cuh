// The nodes of a band, and a lattice without arcs.
#pragma once

#include <cstdint>

#include "transducer/cuda/lattice/state.cuh"
#include "transducer/cuda/pruned/launch_band.h"

namespace warpalign::detail::transducer {

constexpr int kBandThreads = 256;

// A thread takes every gridDim.x * kBandThreads-th node and slot. Neighbouring threads write neighbours.
template <class Real>
__global__ void __launch_bounds__(kBandThreads)
    band_kernel(const __grid_constant__ Band band, const __grid_constant__ BandList to, std::int64_t nodes,
                Real* slots, std::int64_t slot_count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBandThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kBandThreads + threadIdx.x;
  if (thread == 0) *to.count = static_cast<std::int32_t>(nodes);
  for (std::int64_t n = thread; n < nodes; n += step) {
    const std::int64_t frame = n / band.width, b = frame / band.frames;
    const int t = static_cast<int>(frame - b * band.frames), k = static_cast<int>(n - frame * band.width);
    to.list[n] = static_cast<std::int32_t>(frame * band.states + band.begin(b, t) + k);
  }
  const Real nothing = -static_cast<Real>(CUDART_INF);
  for (std::int64_t n = thread; n < slot_count; n += step) slots[n] = nothing;
}

}  // namespace warpalign::detail::transducer
