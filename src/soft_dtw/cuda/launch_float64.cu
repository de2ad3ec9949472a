#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

template <class In, int kRing, int kStrips>
using Tiled =
    KernelOf<Cell64, In, Tiles<Cell64, In, Options::kAll, PlainMakers<Cell64, In, Options::kAll, kRing>>,
             kStrips, 1>;
template <class In>
using Kernel = EitherKernel<Tiled<In, kRingTiles, 3>, Tiled<In, kLeastRingTiles, 1>>;

void describe_float64(Request& request, bool float32_data, int shared_bytes_per_block) {
  float32_data ? Kernel<float>::describe(request, shared_bytes_per_block)
               : Kernel<double>::describe(request, shared_bytes_per_block);
}

Status launch_float64(const Params<double>& p, bool gradient, cudaStream_t stream) {
  return Kernel<double>::launch(p, gradient, stream);
}
Status launch_float64(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return Kernel<float>::launch(p, gradient, stream);
}

}  // namespace warpalign::detail::soft_dtw
