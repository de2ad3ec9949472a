// The launch of a sweep.
#pragma once

#include "ctc/cuda/lattice/sweep.cuh"
#include "cuda/launch/kernel.cuh"

namespace warpalign::detail::ctc {

// If panels wait for each other, sets exchange_bytes bytes at params.ticket to one-bits first.
template <class Kernel, class Params>
Status launch_sweep_kernel(const Kernel& kernel, const Params& params, int multiprocessors,
                           std::size_t exchange_bytes, cudaStream_t stream) {
  constexpr int kResident = 3;  // blocks of a multiprocessor, about as many as registers allow
  const int tasks = params.batch.batch * params.chunks * params.directions * params.panels;
  int blocks = tasks;
  if (params.panels > 1) {
    if (Status s = cuda::set_memory(params.ticket, 0xff, exchange_bytes, stream); !s.ok()) return s;
    blocks = tasks < kResident * multiprocessors ? tasks : kResident * multiprocessors;
  }
  return cuda::launch(kernel, {blocks, 2 * params.panel_strips * 32, 0, stream}, params);
}

}  // namespace warpalign::detail::ctc
