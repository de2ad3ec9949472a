// Launches of the kernels of alignments.
#pragma once

#include "ctc/cuda/align/trace.cuh"
#include "ctc/cuda/lattice/sweep.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::ctc {

template <class Element>
using BestParams = SweepParams<Element, Best<cuda::Sum<Element>>>;

// See launch_sweep().
template <class Element>
Status launch_best(const BestParams<Element>& params, int multiprocessors, std::size_t exchange_bytes,
                   cudaStream_t stream);

// The chain of states at the boundaries, then all pieces, `warps` warps a block.
template <class Element>
Status launch_trace(const TraceParams<Element>& params, int warps, cudaStream_t stream);

}  // namespace warpalign::detail::ctc
