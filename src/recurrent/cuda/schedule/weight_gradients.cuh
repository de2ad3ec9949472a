// The gradients with respect to one layer's and direction's weights, from dz of all rows or of one chunk
// after the other.
#pragma once

#include "recurrent/cuda/schedule/chunks.cuh"

namespace warpalign::detail::recurrent {

// Rows `first` ... `first` + `count` - 1. adds: to the sums that are there.
struct RowsOfSum {
  Offset first, count;
  bool adds;
};

template <class T>
class WeightGradients {
 public:
  WeightGradients(Queue& queue, const LstmProblem& p, const LstmWeightGradients& to, T* h_before,
                  Sum<T>* parts)
      : queue_(queue), p_(p), to_(to), h_before_(h_before), parts_(parts) {}

  // cell: of all steps. part: of these rows, with their dz. width: of the input's rows.
  void add(const CudaCell<T>& cell, const CudaCell<T>& part, const InputRows<T>& input, Offset width,
           const T* h0, const RowsOfSum& rows) {
    const Offset gates = 4 * static_cast<Offset>(p_.hidden), stride = part.gates_stride;
    if (to_.ih) {
      queue_.multiply(p_.dtype, Extents{gates, width, rows.count}, transposed(part.dz_x, stride),
                      matrix(input.data, input.stride), to_.ih, width, rows.adds);
    }
    if (to_.hh) add_states(cell, part, h0, rows);
    if (to_.hr) {
      queue_.multiply(p_.dtype, Extents{cell.output, p_.hidden, rows.count},
                      transposed(part.dh_new, part.output_stride), matrix(part.m_rows, p_.hidden), to_.hr,
                      p_.hidden, rows.adds);
    }
    const auto sum = [&](const T* a, Offset a_stride, const T* b, Offset b_stride, Offset columns, void* to) {
      if (!to) return;
      const ColumnSumParams<T> params{
          a,        a_stride, b, b_stride, rows.count, static_cast<int>(columns), parts_, static_cast<T*>(to),
          rows.adds};
      queue_.for_each(static_cast<std::size_t>(columns) * kSumParts, kPartSums<T>, params);
      queue_.for_each(static_cast<std::size_t>(columns), kColumnSums<T>, params);
    };
    sum(part.dz, stride, nullptr, 0, gates, to_.bias);
    if (!p_.layer_norm) return;
    sum(part.dz, stride, part.norm_x, gates, gates, to_.ln_ih);
    sum(part.dz, stride, part.norm_h, gates, gates, to_.ln_hh);
    sum(part.dv, p_.hidden, part.norm_c, p_.hidden, p_.hidden, to_.ln_cell);
    sum(part.dv, p_.hidden, nullptr, 0, p_.hidden, to_.ln_cell_bias);
  }

 private:
  // The gradient with respect to R: the sum of dz times h before each step.
  void add_states(const CudaCell<T>& cell, const CudaCell<T>& part, const T* h0, const RowsOfSum& rows) {
    const Offset gates = 4 * static_cast<Offset>(p_.hidden), output = cell.output, stride = part.gates_stride;
    bool adds = rows.adds;
    const auto add = [&](Offset row, Offset count, const T* h, Offset h_stride) {
      queue_.multiply(p_.dtype, Extents{gates, output, count}, transposed(part.dz_h + row * stride, stride),
                      matrix(h, h_stride), to_.hh, output, adds);
      adds = true;
    };
    for_states_before(queue_, p_, cell, h0, rows.first, rows.count, h_before_, add);
    if (!adds) add(0, 0, cell.h_rows, output);  // no row has a state before
  }

  Queue& queue_;
  const LstmProblem& p_;
  const LstmWeightGradients& to_;
  T* h_before_;
  Sum<T>* parts_;
};

}  // namespace warpalign::detail::recurrent
