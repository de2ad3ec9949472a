#include "soft_dtw/cuda/few_features.cuh"
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"

namespace warpalign::softdtw {
namespace {

template <int F, int kHelpers>
using Source = FewFeatures<Cell32, float, 2, F, Options::kNone, true, kHelpers>;
template <int F>
using Kernel = KernelOf<Cell32, float, Source<F, 0>, 8, 2>;
template <int F>
using KernelAhead = KernelOf<Cell32, float, Source<F, 2>, kStripsOfMultiprocessorAhead, 1>;

// Calls act with the kernel of so many features.
template <int F, class Act>
auto with_helpers(bool ahead, const Act& act) {
  return ahead ? act(KernelAhead<F>{}) : act(Kernel<F>{});
}
template <class Act>
auto with_kernel(bool ahead, int features, const Act& act) {
  return features == 1   ? with_helpers<1>(ahead, act)
         : features == 2 ? with_helpers<2>(ahead, act)
                         : with_helpers<kMostFeatures>(ahead, act);
}

}  // namespace

void describe_few_features_meeting(Request& request) {
  with_kernel(request.ahead, request.features, [&](auto kernel) { kernel.describe(request); });
}

Status launch_few_features_meeting(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return with_kernel(p.layout.ahead, p.layout.features,
                     [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::softdtw
