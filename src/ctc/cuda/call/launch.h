// Launches of CTC's kernels. Each function chooses among the instantiations of its own source file, which is
// in the folder of its kernels.
#pragma once

#include "ctc/cuda/gradient/params.cuh"
#include "ctc/cuda/lattice/sweep.cuh"
#include "ctc/cuda/rows/rows.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::ctc {

// Writes offsets[0 ... B], the first label of each utterance in flat targets.
Status launch_offsets(const Batch& batch, std::int64_t* offsets, cudaStream_t stream);

template <class Element>
Status launch_rows(const RowsParams<Element>& params, cudaStream_t stream);

// multiprocessors: the device's. If panels wait for each other, sets exchange_bytes bytes at params.ticket to
// one-bits first.
template <class Element, class Algebra>
Status launch_sweep(const SweepParams<Element, Algebra>& params, int multiprocessors,
                    std::size_t exchange_bytes, cudaStream_t stream);

// first, next (B, stride): see EqualParams.
Status launch_equal_labels(const Batch& batch, std::int64_t stride, std::int32_t* first, std::int32_t* next,
                           cudaStream_t stream);

template <class Element>
Status launch_gradient(const GradientParams<Element>& params, int warps, cudaStream_t stream);

template <class Element>
Status launch_posteriors(const PosteriorParams<Element>& params, int warps, cudaStream_t stream);

}  // namespace warpalign::detail::ctc
