#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

template <class In, int kRing>
using Tiled =
    KernelOf<CellDual, In,
             Tiles<CellDual, In, Options::kAll, PlainMakers<CellDual, In, Options::kAll, kRing>>, 1, 1>;
template <class In>
using Kernel = EitherKernel<Tiled<In, kRingTiles>, Tiled<In, kLeastRingTiles>>;

void describe_dual(Request& request, bool float32_data, int shared_bytes_per_block) {
  float32_data ? Kernel<float>::describe(request, shared_bytes_per_block)
               : Kernel<double>::describe(request, shared_bytes_per_block);
}

Status launch_dual(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return Kernel<float>::launch(p, gradient, stream);
}
Status launch_dual(const Params<double>& p, bool gradient, cudaStream_t stream) {
  return Kernel<double>::launch(p, gradient, stream);
}

}  // namespace warpalign::detail::soft_dtw
