// What one step of a layer in one launch needs to know. kernels_single.cu chooses its kernel.
#pragma once

#include "recurrent/cuda/schedule/queue.cuh"
#include "recurrent/tuning.h"

namespace warpalign::detail::recurrent {

constexpr int kMostSingleUnitRows = 64;  // of the batch, on the matrix units

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

// Enqueues a layer's step; false: the device has no kernel for so many rows. follows: the preceding launch is
// the layer below's step.
template <class T>
bool run_single_step(Queue& queue, const CudaTuning& tuning, const SingleStepParams<T>& step, bool follows);

}  // namespace warpalign::detail::recurrent
