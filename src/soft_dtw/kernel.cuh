// The soft-DTW kernel: a block takes pairs of the batch in turn, its warps the strips of a pair's columns.
// Forward sweep, value, and, if wanted, the reverse sweep and the gradients, in one launch; nothing of size N
// M is stored.
#pragma once

#include <math_constants.h>

#include "cuda/check.h"
#include "soft_dtw/few_features.cuh"
#include "soft_dtw/forward.cuh"
#include "soft_dtw/reverse.cuh"
#include "soft_dtw/tile.cuh"

namespace warpalign::softdtw {

template <class Cell>
constexpr CellSizes sizes() {
  return {sizeof(typename Cell::State), sizeof(typename Cell::Real)};
}

template <class Cell, class In, class Source, bool kGradient>
__global__ void __launch_bounds__(32 * max_warps(Source::kColumns, sizes<Cell>()))
    soft_dtw_kernel(const __grid_constant__ Params<In> p) {
  extern __shared__ __align__(16) unsigned char shared[];
  Wavefront<Cell, In, Source> wave(p, shared);
  const int slot = threadIdx.x / 32 / p.shape.warps_per_pair;
  const bool leader = threadIdx.x % (32 * p.shape.warps_per_pair) == 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * p.shape.pairs_per_block;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * p.shape.pairs_per_block; first < p.batch;
       first += stride) {
    const std::int64_t b = first + slot;
    const bool rerun = sizeof(typename Cell::Real) == 8 && p.uncertified;
    const bool active = b < p.batch && (!rerun || p.uncertified[b]);
    if (active) wave.start_pair(static_cast<int>(b));
    __syncthreads();
    Source source(p, wave.lane, wave.ring);
    if (active) forward_sweep<kGradient>(wave, source);
    __syncthreads();
    if (active && leader) wave.finish_forward();
    if constexpr (kGradient) {
      if (active) wave.reset_channels();
      __syncthreads();
      if (active) wave.fill_outside();
      if (active && wave.result->usable) reverse_sweep(wave, source);
    }
    __syncthreads();
  }
}

template <class Cell, class In, class Source, bool kGradient>
Status launch(Params<In> p, cudaStream_t stream) {
  p.scale = static_cast<typename Cell::Real>(p.scale);
  const auto kernel = soft_dtw_kernel<Cell, In, Source, kGradient>;
  const LaunchShape& shape = p.shape;
  if (shape.shared_bytes > 48 * 1024) {
    const Status status = cuda::to_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes));
    if (!status.ok()) return status;
  }
  kernel<<<shape.grid, 32 * shape.warps_per_pair * shape.pairs_per_block, shape.shared_bytes, stream>>>(p);
  return cuda::to_status(cudaGetLastError());
}

}  // namespace warpalign::softdtw
