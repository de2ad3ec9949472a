// Layer norm's parameters of one unit.
#pragma once

#include "recurrent/cuda/clusters/cluster_sweep.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// gamma of a thread's unit, of W x, of R h and of c~; beta of c~, and of the gates, which are their biases.
struct UnitNorms {
  float bias[4], scale_x[4], scale_h[4], scale_c = 0, bias_c = 0;

  template <class T>
  __device__ __forceinline__ UnitNorms(const CudaCell<T>& cell, int unit) {
    const bool has_unit = unit < cell.hidden;
    unroll<4>([&](int gate) {
      const int entry = gate * cell.hidden + unit;
      bias[gate] = has_unit ? bias_of(cell, entry) : 0.0f;
      scale_x[gate] = has_unit ? cuda::widen(cell.ln_ih[entry]) : 0.0f;
      scale_h[gate] = has_unit ? cuda::widen(cell.ln_hh[entry]) : 0.0f;
    });
    scale_c = has_unit ? cuda::widen(cell.ln_cell[unit]) : 0.0f;
    bias_c = has_unit ? cuda::widen(cell.ln_cell_bias[unit]) : 0.0f;
  }
  // R h normalised, and what the gates take. x: W x normalised.
  __device__ __forceinline__ void join(const float (&products)[4][kClusterThreads], float mean, float scale,
                                       const float (&x)[4], float (&normal)[4], float (&z)[4]) const {
    unroll<4>([&](int gate) {
      normal[gate] = (products[gate][threadIdx.x] - mean) * scale;
      z[gate] = scale_x[gate] * x[gate] + (scale_h[gate] * normal[gate] + bias[gate]);
    });
  }
};

}  // namespace warpalign::detail::recurrent
