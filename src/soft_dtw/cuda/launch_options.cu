#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/tiles.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

template <Options kOptions, class Crew>
using Kernel =
    KernelOf<Cell32, float,
             Tiles<Cell32, float, kOptions, PlainMakers<Cell32, float, kOptions, kRingTiles, Crew>>,
             kTiledStrips, 1>;

template <class Act>
auto with_kernel(Options options, const Act& act) {
  return options == Options::kPaths ? act(Kernel<Options::kPaths, SmallCrew>{})
                                    : act(Kernel<Options::kAll, FrugalCrew>{});
}

}  // namespace

void describe_options(Request& request) {
  with_kernel(request.options, [&](auto kernel) { kernel.describe(request); });
}

Status launch_options(const Params& p, bool gradient, cudaStream_t stream) {
  return with_kernel(p.layout.options, [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::detail::soft_dtw
