#include "soft_dtw/kernel.cuh"
#include "soft_dtw/launch.h"

namespace warpalign::softdtw {
namespace {

template <class In>
Status launch_as(const Params<In>& p, bool gradient, cudaStream_t stream) {
  return gradient ? launch<Cell64, In, TileSource<Cell64, In, 1>, true>(p, stream)
                  : launch<Cell64, In, TileSource<Cell64, In, 1>, false>(p, stream);
}

}  // namespace

Status launch_float64(const Params<double>& p, bool gradient, cudaStream_t stream) {
  return launch_as(p, gradient, stream);
}
Status launch_float64(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return launch_as(p, gradient, stream);
}

}  // namespace warpalign::softdtw
