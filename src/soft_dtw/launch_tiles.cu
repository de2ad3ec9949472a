#include "soft_dtw/kernel.cuh"
#include "soft_dtw/launch.h"

namespace warpalign::softdtw {
namespace {

template <int W>
Status launch_as(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return gradient ? launch<Cell32, float, TileSource<Cell32, float, W>, true>(p, stream)
                  : launch<Cell32, float, TileSource<Cell32, float, W>, false>(p, stream);
}

}  // namespace

Status launch_tiles(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return p.shape.columns_per_lane == 1 ? launch_as<1>(p, gradient, stream)
                                       : launch_as<2>(p, gradient, stream);
}

}  // namespace warpalign::softdtw
