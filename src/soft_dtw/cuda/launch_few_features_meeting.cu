#include "soft_dtw/cuda/few_features.cuh"
#include "soft_dtw/cuda/kernel.cuh"
#include "soft_dtw/cuda/launch.h"

namespace warpalign::detail::soft_dtw {
namespace {

template <int F, int kHelpers>
using Source = FewFeatures<Cell32, float, 2, F, Options::kNone, true, kHelpers>;
template <int F>
using Kernel = KernelOf<Cell32, float, Source<F, 0>, 8, 2>;
// With two warps, or one, that recompute ahead of each strip's wave.
template <int F>
using KernelAhead = KernelOf<Cell32, float, Source<F, 2>, 4, 1, false>;
template <int F>
using TightKernelAhead = KernelOf<Cell32, float, Source<F, 1>, 8, 1, false>;

// Calls act with the kernel of so many features.
template <int F, class Act>
auto with_helpers(bool ahead, bool tight, const Act& act) {
  return !ahead ? act(Kernel<F>{}) : tight ? act(TightKernelAhead<F>{}) : act(KernelAhead<F>{});
}
template <class Of, class Act>  // of Request or Layout
auto with_kernel(const Of& of, const Act& act) {
  return of.features == 1   ? with_helpers<1>(of.ahead, of.tight, act)
         : of.features == 2 ? with_helpers<2>(of.ahead, of.tight, act)
                            : with_helpers<kMostFeatures>(of.ahead, of.tight, act);
}

}  // namespace

void describe_few_features_meeting(Request& request) {
  with_kernel(request, [&](auto kernel) { kernel.describe(request); });
}

Status launch_few_features_meeting(const Params& p, bool gradient, cudaStream_t stream) {
  return with_kernel(p.layout, [&](auto kernel) { return kernel.launch(p, gradient, stream); });
}

}  // namespace warpalign::detail::soft_dtw
