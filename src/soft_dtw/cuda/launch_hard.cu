#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {

template <class In, int kRing, int kStrips>
using Tiled =
    KernelOf<CellHard<In>, In,
             Tiles<CellHard<In>, In, Options::kAll, PlainMakers<CellHard<In>, In, Options::kAll, kRing>>,
             kStrips, 1>;
using Kernel32 = Tiled<float, kRingTiles, 4>;
using Kernel64 = EitherKernel<Tiled<double, kRingTiles, 3>, Tiled<double, kLeastRingTiles, 1>>;

void describe_hard(Request& request, bool float32_data, int shared_bytes_per_block) {
  float32_data ? Kernel32::describe(request) : Kernel64::describe(request, shared_bytes_per_block);
}

Status launch_hard(const Params& p, bool gradient, cudaStream_t stream) {
  return p.is_float64 ? Kernel64::launch(p, gradient, stream) : Kernel32::launch(p, gradient, stream);
}

}  // namespace warpalign::detail::soft_dtw
