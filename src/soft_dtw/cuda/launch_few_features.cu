#include "soft_dtw/cuda/few_features.cuh"
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"

namespace warpalign::detail::soft_dtw {
namespace {

template <int W, int F>
using Kernel = KernelOf<Cell32, float, FewFeatures<Cell32, float, W, F, Options::kNone>, 8, 2>;

// Calls act with the kernel of so many columns per lane and features.
template <int F, class Act>
auto with_columns(int columns, const Act& act) {
  return columns == 1 ? act(Kernel<1, F>{}) : columns == 2 ? act(Kernel<2, F>{}) : act(Kernel<4, F>{});
}
template <class Act>
auto with_kernel(int columns, int features, const Act& act) {
  return features == 1   ? with_columns<1>(columns, act)
         : features == 2 ? with_columns<2>(columns, act)
                         : with_columns<kMostFeatures>(columns, act);
}

}  // namespace

void describe_few_features(Request& request) {
  with_kernel(request.columns_per_lane, request.features, [&](auto kernel) { kernel.describe(request); });
}

Status launch_few_features(const Params& p, bool gradient, cudaStream_t stream) {
  return with_kernel(p.layout.columns_per_lane, p.layout.features,
                     [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::detail::soft_dtw
