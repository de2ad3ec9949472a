#include "soft_dtw/kernel.cuh"
#include "soft_dtw/launch.h"

namespace warpalign::softdtw {
namespace {

template <int W, int F, bool kGradient>
Status launch_as(const Params<float>& p, cudaStream_t stream) {
  return launch<Cell32, float, FewFeatures<Cell32, float, W, F>, kGradient>(p, stream);
}

template <int F>
Status launch_as(const Params<float>& p, bool gradient, cudaStream_t stream) {
  switch (p.shape.columns_per_lane) {
    case 1:
      return gradient ? launch_as<1, F, true>(p, stream) : launch_as<1, F, false>(p, stream);
    case 2:
      return gradient ? launch_as<2, F, true>(p, stream) : launch_as<2, F, false>(p, stream);
    default:
      return launch_as<4, F, false>(p, stream);
  }
}

}  // namespace

Status launch_few_features(const Params<float>& p, bool gradient, cudaStream_t stream) {
  return p.shape.features == 1 ? launch_as<1>(p, gradient, stream)
                               : launch_as<kMostFeatures>(p, gradient, stream);
}

}  // namespace warpalign::softdtw
