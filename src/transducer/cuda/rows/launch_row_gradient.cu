// The gradient pass for every type of logits.
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/launch.h"

namespace warpalign::detail::transducer {
namespace {

template <class Storage>
const cuda::Kernel kRowGradient{kKernels, "gradient", cuda::type_name<Storage>(),
                                row_gradient_kernel<Storage>};

}  // namespace

template <class Storage>
Status launch_row_gradient(const GradientParams<Storage>& params, int blocks, cudaStream_t stream) {
  return cuda::launch(kRowGradient<Storage>, {blocks, kGradientThreads, 0, stream}, params);
}

template Status launch_row_gradient(const GradientParams<float>&, int, cudaStream_t);
template Status launch_row_gradient(const GradientParams<double>&, int, cudaStream_t);
template Status launch_row_gradient(const GradientParams<cuda::Float16>&, int, cudaStream_t);
template Status launch_row_gradient(const GradientParams<cuda::BFloat16>&, int, cudaStream_t);

}  // namespace warpalign::detail::transducer
