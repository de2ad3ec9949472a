#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <class Crew, int kStrips, bool kAlone, bool kMeets = false>
using Kernel = KernelOf<Cell32, float,
                        Tiles<Cell32, float, Options::kNone,
                              PlainMakers<Cell32, float, Options::kNone, kRingTiles, Crew>, kMeets>,
                        kStrips, 1, kAlone>;

template <bool kMeets, class Act>
auto with_crew(const TiledKernel& kernel, const Act& act) {
  return !kernel.ahead     ? act(Kernel<SmallCrew, kTiledStrips, true, kMeets>{})
         : kernel.gradient ? act(Kernel<LargeCrew, kTiledStripsAhead, false, kMeets>{})
                           : act(Kernel<ForwardCrew<2>, kTiledStrips, true, kMeets>{});
}
template <class Act>
auto with_kernel(const TiledKernel& kernel, const Act& act) {
  if (kernel.ahead && kernel.many_features) {
    return kernel.gradient ? act(Kernel<WideCrew, kTiledStripsAhead, false>{})
                           : act(Kernel<ForwardCrew<4>, 3, true>{});
  }
  return kernel.meets ? with_crew<true>(kernel, act) : with_crew<false>(kernel, act);
}

}  // namespace

void describe_tiles(Request& request) {
  with_kernel(tiled_kernel(request), [&](auto kernel) { kernel.describe(request); });
}

Status launch_tiles(const Params& p, bool gradient, cudaStream_t stream) {
  return with_kernel(tiled_kernel(p, gradient),
                     [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::detail::soft_dtw
