// What a call of one step without a tape needs to know. kernels_single.cu chooses its kernel.
#pragma once

#include "recurrent/cuda/schedule/memory.cuh"

namespace warpalign::detail::recurrent {

template <class T>
struct SingleStepParams {
  CudaCell<T> cell;
  const T* x;  // (B, I), rows of x_stride elements
  Offset x_stride;
  int input;
  const T *ih, *hh;  // (4H, I), (4H, H)
  const T* h0;       // (B, H); null: 0
  const void* c0;    // (B, H); null: 0
  T* h_n;            // (B, H); null: not wanted
  void* c_n;         // (B, H); null: not wanted
};

// Enqueues a layer's step; false: it has to run in another way. follows: the launch in front is the layer
// below's step.
template <class T>
bool run_single_step(Queue& queue, const LstmProblem& p, const SingleStepParams<T>& step, bool with_tape,
                     bool follows);

}  // namespace warpalign::detail::recurrent
