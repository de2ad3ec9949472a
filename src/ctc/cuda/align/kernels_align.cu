// The sweep over best paths and the kernels that trace them. One instantiation serves both half types.
#include "ctc/cuda/align/chain.cuh"
#include "ctc/cuda/align/launch.h"
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/lattice/launch_sweep.cuh"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kBest{kKernels, "best paths", stored_name<Element>(),
                         sweep_kernel<Element, Best<cuda::Sum<Element>>>};
template <class Element>
const cuda::Kernel kTrace{kKernels, "trace", stored_name<Element>(), trace_kernel<Element>};
const cuda::Kernel kChain{kKernels, "chain of states at boundaries", nullptr, chain_kernel};

}  // namespace

template <class Element>
Status launch_best(const BestParams<Element>& params, int multiprocessors, std::size_t exchange_bytes,
                   cudaStream_t stream) {
  return launch_sweep_kernel(kBest<Element>, params, multiprocessors, exchange_bytes, stream);
}

template <class Element>
Status launch_trace(const TraceParams<Element>& params, int warps, cudaStream_t stream) {
  const Batch& batch = params.batch;
  const int blocks = cuda::div_up(batch.batch, kChainThreads);
  Status s = cuda::launch(kChain, {blocks, kChainThreads, 0, stream}, batch, params.checkpoints, params.ends,
                          params.pieces, params.states);
  if (!s.ok()) return s;
  const auto shared = static_cast<std::size_t>(trace_shared_bytes(params.piece, warps));
  return cuda::launch(kTrace<Element>, {batch.batch * params.pieces, warps * 32, shared, stream}, params);
}

#define WARPALIGN_ALIGN(Element)                                                           \
  template Status launch_best(const BestParams<Element>&, int, std::size_t, cudaStream_t); \
  template Status launch_trace(const TraceParams<Element>&, int, cudaStream_t)
WARPALIGN_ALIGN(float);
WARPALIGN_ALIGN(double);
WARPALIGN_ALIGN(AnyHalf);
#undef WARPALIGN_ALIGN

}  // namespace warpalign::detail::ctc
