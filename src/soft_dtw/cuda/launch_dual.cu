#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::softdtw {

template <class In>
using Kernel = KernelOf<CellDual, In, Tiles<CellDual, In, true>, 1, 1>;

void describe_dual(Request& request, bool float32_data) {
  float32_data ? Kernel<float>::describe(request) : Kernel<double>::describe(request);
}

Status launch_dual(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return Kernel<float>::launch(p, gradient, stream);
}
Status launch_dual(const Params<double>& p, bool gradient, cudaStream_t stream) {
  return Kernel<double>::launch(p, gradient, stream);
}

}  // namespace warpalign::softdtw
