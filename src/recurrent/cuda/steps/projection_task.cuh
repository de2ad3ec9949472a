// The projection of a step, both ways: a task of step_kernel() and unit_step_kernel().
#pragma once

#include "recurrent/cuda/steps/backward.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// Forward W_hr m, which becomes h. Backward W_hr^T of the gradient with respect to h~, which is that with
// respect to m = o u(v). A cell of the backward pass is one that has W_hr transposed.
template <class T>
struct ProjectionTask {
  static constexpr const char* kName = "projection";
  static constexpr bool kIsCell = false, kIsBack = false;  // of both passes
  static constexpr int kSplits = 2, kRows = 1;
  __host__ __device__ static bool is_back(const CudaCell<T>& cell) { return cell.hr_across != nullptr; }
  __host__ __device__ static int rows(const CudaCell<T>& cell) {
    return is_back(cell) ? cell.hidden : cell.output;
  }
  __device__ static bool skips(const CudaCell<T>&, int) { return false; }
  __host__ __device__ static int depth(const CudaCell<T>& cell) {
    return is_back(cell) ? cell.output_stride : cell.hidden_stride;
  }
  __device__ static const T* weight(const CudaCell<T>& cell, int row) {
    return (is_back(cell) ? cell.hr_across : cell.hr) + static_cast<Offset>(row) * depth(cell);
  }
  __device__ static const T* factor(const CudaCell<T>& cell, int place, int b) {
    if (!is_back(cell)) return cell.m + static_cast<Offset>(b) * cell.hidden_stride;
    // Rows that are not there give sums that nobody takes.
    const Offset row = cell.at.first(cell.step_back_at(place)) + b, last = cell.at.rows - 1;
    return cell.dh_new + (row < last ? row : last) * cell.output_stride;
  }
  struct Ahead {
    Sum<T> dc;
    Unit<T> unit;  // backward, of cells without layer norm
  };
  __device__ static bool finishes_units(const CudaCell<T>& cell) { return is_back(cell) && !cell.layer_norm; }
  __device__ static void ask(const CudaCell<T>& cell, int place, int b, int unit, Ahead& to) {
    if (!finishes_units(cell)) return;
    const int t = cell.step_back_at(place);
    if (cell.at.holds(t, b)) to.unit = Unit<T>(cell, t, b, unit);
  }
  __device__ static void ask_state(const CudaCell<T>& cell, int, int b, int unit, Ahead& to) {
    if (finishes_units(cell)) to.dc = cell.dc[static_cast<Offset>(b) * cell.hidden + unit];
  }
  __device__ static void finish(const CudaCell<T>& cell, int place, int b, int unit, Sum<T> (&sum)[1],
                                const Ahead& ahead) {
    if (!is_back(cell)) {
      const int t = cell.step_at(place);
      if (cell.at.holds(t, b)) {
        finish_hidden(cell, place, t, b, unit, sum[0]);
      } else {
        skip_hidden(cell, place, t, b, unit);
      }
      return;
    }
    const int t = cell.step_back_at(place);
    if (cell.layer_norm) {
      cell.dm[static_cast<Offset>(b) * cell.hidden + unit] = sum[0];
    } else if (cell.at.holds(t, b)) {
      backward_unit(cell, t, b, unit, ahead.unit, sum[0], ahead.dc);
    } else {
      skip_unit(cell, t, b, unit);
    }
  }
};

}  // namespace warpalign::detail::recurrent
