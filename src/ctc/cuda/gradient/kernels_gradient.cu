// The gradient pass for every type of logits.
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/gradient/gradient.cuh"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kGradient{kKernels, "gradient", cuda::type_name<Element>(), gradient_kernel<Element>};

}  // namespace

template <class Element>
Status launch_gradient(const GradientParams<Element>& params, int warps, cudaStream_t stream) {
  using Real = cuda::Sum<Element>;
  const int most = strips_of(params.segment.batch.labels), strips = warps < most ? warps : most;
  const auto shared =
      static_cast<std::size_t>(gradient_shared_bytes<Real>(strips, params.slots, !params.occupancies));
  const int blocks = params.segment.batch.batch * params.segment.segments;
  return cuda::launch(kGradient<Element>, {blocks, warps * 32, shared, stream}, params);
}

template Status launch_gradient(const GradientParams<float>&, int, cudaStream_t);
template Status launch_gradient(const GradientParams<double>&, int, cudaStream_t);
template Status launch_gradient(const GradientParams<cuda::Float16>&, int, cudaStream_t);
template Status launch_gradient(const GradientParams<cuda::BFloat16>&, int, cudaStream_t);

}  // namespace warpalign::detail::ctc
