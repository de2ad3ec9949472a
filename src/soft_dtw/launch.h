// The kernels that are instantiated, one translation unit each. p.shape says how they are launched.
#pragma once

#include <cuda_runtime.h>

#include "soft_dtw/params.cuh"
#include "warpalign/status.h"

namespace warpalign::softdtw {

// Cell32 with costs in registers: 1 or kMostFeatures features, 1, 2 or (without gradient) 4 columns per lane.
constexpr int kMostFeatures = 4;
Status launch_few_features(const Params<float>& p, bool gradient, cudaStream_t stream);

// Cell32 with costs in tiles: 1 or 2 columns per lane.
Status launch_tiles(const Params<float>& p, bool gradient, cudaStream_t stream);

// Cell64: 1 column per lane.
Status launch_float64(const Params<double>& p, bool gradient, cudaStream_t stream);
Status launch_float64(const Params<float>& p, bool gradient, cudaStream_t stream);

}  // namespace warpalign::softdtw
