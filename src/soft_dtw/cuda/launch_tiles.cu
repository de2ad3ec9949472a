#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::softdtw {

using Kernel = KernelOf<Cell32, float, Tiles<Cell32, float, Options::kNone>, 4, 1>;

void describe_tiles(Request& request) { Kernel::describe(request); }

Status launch_tiles(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return Kernel::launch(p, gradient, stream);
}

}  // namespace warpalign::softdtw
