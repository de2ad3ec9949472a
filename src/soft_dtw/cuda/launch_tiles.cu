#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::softdtw {

using Makers = PlainMakers<Cell32, float, Options::kNone, kRingTiles>;
template <bool kMeets>
using Kernel = KernelOf<Cell32, float, Tiles<Cell32, float, Options::kNone, Makers, kMeets>,
                        kTiledStripsOfMultiprocessor, 1>;

void describe_tiles(Request& request) { Kernel<true>::describe(request); }

Status launch_tiles(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return p.layout.meets ? Kernel<true>::launch(p, gradient, stream)
                        : Kernel<false>::launch(p, gradient, stream);
}

}  // namespace warpalign::softdtw
