#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

template <int kRing>
using Tiled =
    KernelOf<CellDual, AnyReal,
             Tiles<CellDual, AnyReal, Options::kAll, PlainMakers<CellDual, AnyReal, Options::kAll, kRing>>, 1,
             1>;
using Kernel = EitherKernel<Tiled<kRingTiles>, Tiled<kLeastRingTiles>>;

void describe_dual(Request& request, int shared_bytes_per_block) {
  Kernel::describe(request, shared_bytes_per_block);
}

Status launch_dual(const Params& p, bool gradient, cudaStream_t stream) {
  return Kernel::launch(p, gradient, stream);
}

}  // namespace warpalign::detail::soft_dtw
