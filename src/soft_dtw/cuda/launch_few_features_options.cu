#include "soft_dtw/cuda/few_features.cuh"
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"

namespace warpalign::detail::soft_dtw {
namespace {

template <int F, Options kOptions>
using Kernel =
    KernelOf<Cell32, float, FewFeatures<Cell32, float, kOptions == Options::kAll ? 1 : 2, F, kOptions>, 8, 2>;

// Calls act with the kernel of so many features.
template <Options kOptions, class Act>
auto with_features(int features, const Act& act) {
  return features == 1   ? act(Kernel<1, kOptions>{})
         : features == 2 ? act(Kernel<2, kOptions>{})
                         : act(Kernel<kMostFeatures, kOptions>{});
}
template <class Act>
auto with_kernel(Options options, int features, const Act& act) {
  return options == Options::kPaths ? with_features<Options::kPaths>(features, act)
                                    : with_features<Options::kAll>(features, act);
}

}  // namespace

void describe_few_features_options(Request& request) {
  with_kernel(request.options, request.features, [&](auto kernel) { kernel.describe(request); });
}

Status launch_few_features_options(const Params& p, bool gradient, cudaStream_t stream) {
  return with_kernel(p.layout.options, p.layout.features,
                     [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::detail::soft_dtw
