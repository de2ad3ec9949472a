// The pass that writes posteriors of labels. One instantiation serves both half types.
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/gradient/posteriors.cuh"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kPosteriors{kKernels, "posteriors", stored_name<Element>(), posteriors_kernel<Element>};

}  // namespace

template <class Element>
Status launch_posteriors(const PosteriorParams<Element>& params, int warps, cudaStream_t stream) {
  const int most = strips_of(params.segment.batch.labels), strips = warps < most ? warps : most;
  const auto shared = static_cast<std::size_t>(posteriors_shared_bytes<cuda::Sum<Element>>(strips));
  const int blocks = params.segment.batch.batch * params.segment.segments;
  return cuda::launch(kPosteriors<Element>, {blocks, warps * 32, shared, stream}, params);
}

template Status launch_posteriors(const PosteriorParams<float>&, int, cudaStream_t);
template Status launch_posteriors(const PosteriorParams<double>&, int, cudaStream_t);
template Status launch_posteriors(const PosteriorParams<AnyHalf>&, int, cudaStream_t);

}  // namespace warpalign::detail::ctc
