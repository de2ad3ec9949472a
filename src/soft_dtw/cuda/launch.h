// The kernels that are instantiated, one translation unit each, and what their layouts need. p.layout says
// how they are launched.
#pragma once

#include <cuda_runtime.h>

#include "soft_dtw/cuda/params.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::soft_dtw {

// Cell32 with costs in registers: 1, 2 or 4 features; 1, 2 or (without gradient) 4 columns per lane.
constexpr int kMostFeatures = 4;
void describe_few_features(Request& request);
Status launch_few_features(const Params& p, bool gradient, cudaStream_t stream);

// Likewise, 2 columns per lane, where sweeps from both ends meet, as far as a multiprocessor can have so many
// strips. With `ahead`, for gradients, warps recompute ahead of the wave: two for a strip, or, with `tight`,
// one.
constexpr int kStripsOfMultiprocessor = 16;
void describe_few_features_meeting(Request& request);
Status launch_few_features_meeting(const Params& p, bool gradient, cudaStream_t stream);

// With the options that request.options and p.layout.options say.
void describe_few_features_options(Request& request);
Status launch_few_features_options(const Params& p, bool gradient, cudaStream_t stream);

// Cell32 with costs in tiles. Kernels differ in whether sweeps from both ends meet, and in what a strip has:
// with `ahead` more warps or, for values alone, registers.
struct TiledKernel {
  bool gradient;
  bool meets;
  bool ahead;
  bool many_features;
};
// So many strips a multiprocessor can have.
constexpr int kTiledStrips = 4;
constexpr int kTiledStripsAhead = 2;
void describe_tiles(Request& request);
Status launch_tiles(const Params& p, bool gradient, cudaStream_t stream);

// Likewise, costs and gradients of series made by the matrix units: sm_80 and later.
constexpr int kMostTensorFeatures = 2048;
constexpr int kMostTensorGradientFeatures = 64;
inline TiledKernel tiled_kernel(const Request& r) {
  return {r.gradient, r.meets, r.ahead, r.dim > kMostTensorGradientFeatures};
}
inline TiledKernel tiled_kernel(const Params& p, bool gradient) {
  return {gradient, p.layout.meets, p.layout.ahead, p.dim > kMostTensorGradientFeatures};
}
void describe_tensor(Request& request);
Status launch_tensor(const Params& p, bool gradient, cudaStream_t stream);

// Cell32 with costs in tiles, and the options that request.options and p.layout.options say.
void describe_options(Request& request);
Status launch_options(const Params& p, bool gradient, cudaStream_t stream);

// CellHard, with all options.
void describe_hard(Request& request, bool float32_data, int shared_bytes_per_block);
Status launch_hard(const Params& p, bool gradient, cudaStream_t stream);

// CellDual, likewise.
void describe_dual(Request& request, int shared_bytes_per_block);
Status launch_dual(const Params& p, bool gradient, cudaStream_t stream);

// Cell64, likewise.
void describe_float64(Request& request, int shared_bytes_per_block);
Status launch_float64(const Params& p, bool gradient, cudaStream_t stream);

}  // namespace warpalign::detail::soft_dtw
