// The sweep over sums for every type of logits.
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/lattice/launch_sweep.cuh"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kSweep{kKernels, "sweep", cuda::type_name<Element>(),
                          sweep_kernel<Element, Sums<cuda::Sum<Element>>>};

}  // namespace

template <class Element, class Algebra>
Status launch_sweep(const SweepParams<Element, Algebra>& params, int multiprocessors,
                    std::size_t exchange_bytes, cudaStream_t stream) {
  return launch_sweep_kernel(kSweep<Element>, params, multiprocessors, exchange_bytes, stream);
}

template Status launch_sweep(const SweepParams<float, Sums<float>>&, int, std::size_t, cudaStream_t);
template Status launch_sweep(const SweepParams<double, Sums<double>>&, int, std::size_t, cudaStream_t);
template Status launch_sweep(const SweepParams<cuda::Float16, Sums<float>>&, int, std::size_t, cudaStream_t);
template Status launch_sweep(const SweepParams<cuda::BFloat16, Sums<float>>&, int, std::size_t, cudaStream_t);

}  // namespace warpalign::detail::ctc
