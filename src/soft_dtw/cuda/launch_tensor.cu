#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tensor_costs.cuh"
#include "soft_dtw/cuda/tensor_gradients.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::softdtw {
namespace {

template <bool kKept>
struct TensorMakers {
  static constexpr int kRing = kRingTiles;
  using Memory = TensorTiles<kKept, kRing>;
  using Costs = TensorCosts<kKept, kRing>;
  using Gradients = TensorGradients<kRing>;
  static constexpr bool kHasGradient = kKept;
};

template <bool kKept, bool kMeets>
using Kernel = KernelOf<Cell32, float, Tiles<Cell32, float, Options::kNone, TensorMakers<kKept>, kMeets>,
                        kTiledStripsOfMultiprocessor, 1>;

// Only with columns that are kept do sweeps meet.
template <class Act>
auto with_kernel(int dim, bool meets, const Act& act) {
  return dim > kChunkFeatures ? act(Kernel<false, false>{})
         : meets              ? act(Kernel<true, true>{})
                              : act(Kernel<true, false>{});
}
static_assert(kChunkFeatures == kMostTensorGradientFeatures);

}  // namespace

void describe_tensor(Request& request, int dim) {
  with_kernel(dim, request.meets, [&](auto kernel) { kernel.describe(request); });
}

Status launch_tensor(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return with_kernel(p.dim, p.layout.meets, [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::softdtw
