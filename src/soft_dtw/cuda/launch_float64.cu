#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

template <int kRing, int kStrips>
using Tiled =
    KernelOf<Cell64, AnyReal,
             Tiles<Cell64, AnyReal, Options::kAll, PlainMakers<Cell64, AnyReal, Options::kAll, kRing>>,
             kStrips, 1>;
using Kernel = EitherKernel<Tiled<kRingTiles, 3>, Tiled<kLeastRingTiles, 1>>;

void describe_float64(Request& request, int shared_bytes_per_block) {
  Kernel::describe(request, shared_bytes_per_block);
}

Status launch_float64(const Params& p, bool gradient, cudaStream_t stream) {
  return Kernel::launch(p, gradient, stream);
}

}  // namespace warpalign::detail::soft_dtw
