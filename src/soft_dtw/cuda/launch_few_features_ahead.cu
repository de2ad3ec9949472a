#include "soft_dtw/cuda/few_features.cuh"
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"

namespace warpalign::softdtw {
namespace {

constexpr int kHelpers = 2;
template <int F>
using Kernel = KernelOf<Cell32, float, FewFeatures<Cell32, float, 2, F, Options::kNone, kHelpers>,
                        kStripsOfMultiprocessorAhead, 1>;

// Calls act with the kernel of so many features.
template <class Act>
auto with_kernel(int features, const Act& act) {
  return features == 1 ? act(Kernel<1>{}) : features == 2 ? act(Kernel<2>{}) : act(Kernel<kMostFeatures>{});
}

}  // namespace

void describe_few_features_ahead(Request& request) {
  with_kernel(request.features, [&](auto kernel) { kernel.describe(request); });
}

Status launch_few_features_ahead(const Params<float>& p, cudaStream_t stream) {
  return with_kernel(p.layout.features, [&](auto kernel) { return kernel.launch(p, true, stream); });
}

}  // namespace warpalign::softdtw
