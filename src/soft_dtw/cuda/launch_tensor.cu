#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tensor_costs.cuh"
#include "soft_dtw/cuda/tensor_gradients.cuh"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <class Crew_, bool kKept>
struct TensorMakers {
  using Crew = Crew_;
  static constexpr int kRing = kRingTiles;
  using Memory = TensorTiles<kKept, kRing, Crew>;
  using Costs = TensorCosts<kKept, Memory>;
  using Gradients = TensorGradients<Memory, Crew::kGradients>;
};

template <class Crew, int kStrips, bool kAlone, bool kMeets = false, bool kKept = true>
using Kernel =
    KernelOf<Cell32, float, Tiles<Cell32, float, Options::kNone, TensorMakers<Crew, kKept>, kMeets>, kStrips,
             1, kAlone>;

// Only with columns that are kept there are gradients, and do sweeps meet.
template <bool kMeets, class Act>
auto with_crew(const TiledKernel& kernel, const Act& act) {
  return !kernel.ahead     ? act(Kernel<SmallCrew, kTiledStrips, true, kMeets>{})
         : kernel.gradient ? act(Kernel<LargeCrew, kTiledStripsAhead, false, kMeets>{})
                           : act(Kernel<ForwardCrew<2>, kTiledStrips, true, kMeets>{});
}
template <class Act>
auto with_kernel(const TiledKernel& kernel, const Act& act) {
  return kernel.many_features ? act(Kernel<ForwardCrew<3>, kTiledStrips, true, false, false>{})
         : kernel.meets       ? with_crew<true>(kernel, act)
                              : with_crew<false>(kernel, act);
}
static_assert(kChunkFeatures == kMostTensorGradientFeatures);

}  // namespace

void describe_tensor(Request& request) {
  with_kernel(tiled_kernel(request), [&](auto kernel) { kernel.describe(request); });
}

Status launch_tensor(const Params& p, bool gradient, cudaStream_t stream) {
  return with_kernel(tiled_kernel(p, gradient),
                     [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::detail::soft_dtw
