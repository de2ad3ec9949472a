#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::softdtw {

template <class In>
using Kernel = KernelOf<CellHard<In>, In, Tiles<CellHard<In>, In, true>, sizeof(In) == 4 ? 4 : 3, 1>;

void describe_hard(Request& request, bool float32_data) {
  float32_data ? Kernel<float>::describe(request) : Kernel<double>::describe(request);
}

Status launch_hard(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return Kernel<float>::launch(p, gradient, stream);
}
Status launch_hard(const Params<double>& p, bool gradient, cudaStream_t stream) {
  return Kernel<double>::launch(p, gradient, stream);
}

}  // namespace warpalign::softdtw
