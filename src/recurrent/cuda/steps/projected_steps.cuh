// Layers with a projection whose steps are two of the front end's products and a kernel by words: R h and
// W_hr m forward, R^T dz and W_hr^T of the gradient by h backward. For rows that have every step: h~ is h
// there, so the products write and read the rows of h, and of the gradients by h, where they belong.
#pragma once

#include "recurrent/cuda/steps/product_steps.cuh"

namespace warpalign::detail::recurrent {

template <class T>
bool takes_projected_products(const Queue& queue, const LstmProblem& p) {
  return p.projection > 0 && p.hidden % kWordUnits == 0 && takes_products<T>(queue, p) &&
         gains_by_products<T>(queue, p);
}
template <class T>
bool takes_projected_products(const Queue& queue, const LstmProblem& p, const StepParams<T>& step) {
  return takes_projected_products<T>(queue, p) && has_words(p, step);
}

// What becomes of rows of h, or of the gradients by them, outside of the products.
enum class ProjectedRows {
  kCopies,    // behind the forward sweep: the other places of h
  kIncoming,  // before the backward sweep: the gradients by h from outside of it
  kFirst,     // behind it: the gradient by h0
};
template <class T>
__global__ void __launch_bounds__(kRowThreads) projected_rows_kernel(CudaCell<T> cell, ProjectedRows which) {
  const int output = cell.output;
  if (which == ProjectedRows::kFirst) {
    for_elements(static_cast<Offset>(cell.at.batch) * output,
                 [&](Offset n) { cell.dh[n] = cuda::widen(cell.carried[n]); });
    return;
  }
  for_elements(cell.at.rows * output, [&](Offset n) {
    const Offset row = n / output;
    const int unit = static_cast<int>(n % output), t = static_cast<int>(row / cell.at.batch);
    const int b = static_cast<int>(row % cell.at.batch);
    if (which == ProjectedRows::kCopies) {
      const T h = cell.h_rows[row * cell.h_stride + unit];
      if (cell.h_all) cell.h_all[n] = h;
      if (t == cell.step_at(cell.at.steps - 1)) {
        h_behind(cell)[static_cast<Offset>(b) * cell.output_stride + unit] = h;
      }
    } else {
      Sum<T> dh = incoming_hidden(cell, t, b, unit);
      if (t == cell.step_back_at(0)) dh += cell.dh[static_cast<Offset>(b) * output + unit];
      cell.dh_new[row * cell.output_stride + unit] = cuda::narrow<T>(dh);
    }
  });
}
template <class T>
inline const cuda::Kernel kProjectedRows{kKernels, "rows of projections", cuda::type_name<T>(),
                                         projected_rows_kernel<T>};

// The forward sweep of a layer.
template <class T>
void sweep_by_projected_products(Queue& queue, const LstmProblem& p, StepParams<T>& params) {
  const Offset batch = p.batch, gates = 4 * static_cast<Offset>(p.hidden);
  const int directions = directions_of(p), steps = params.cell[0].at.steps;
  for (params.place = 0; params.place < steps; ++params.place) {
    const auto row_of = [&](const CudaCell<T>& cell, int place) {
      return (cell.reverse ? steps - 1 - place : place) * batch;
    };
    for (int d = 0; d < directions; ++d) {
      const CudaCell<T>& cell = params.cell[d];
      const bool is_first = params.place == 0;
      queue.multiply({p.dtype,
                      batch,
                      gates,
                      cell.output,
                      is_first ? cell.h[0] : cell.h_rows + row_of(cell, params.place - 1) * cell.h_stride,
                      {is_first ? cell.output_stride : cell.h_stride, 1},
                      cell.hh,
                      {1, cell.output_stride},
                      cell.gates + row_of(cell, params.place) * gates,
                      gates,
                      true});
    }
    launch_step<true>(queue, p, params, true);
    for (int d = 0; d < directions; ++d) {
      const CudaCell<T>& cell = params.cell[d];
      queue.multiply({p.dtype,
                      batch,
                      cell.output,
                      p.hidden,
                      cell.m,
                      {cell.hidden_stride, 1},
                      cell.hr,
                      {1, cell.hidden_stride},
                      cell.h_rows + row_of(cell, params.place) * cell.h_stride,
                      cell.h_stride,
                      false});
    }
  }
  for (int d = 0; d < directions; ++d) {
    const CudaCell<T>& cell = params.cell[d];
    queue.for_each(static_cast<std::size_t>(cell.at.rows) * cell.output, kProjectedRows<T>, cell,
                   ProjectedRows::kCopies);
  }
}
template <class T>
void sweep_back_by_projected_products(Queue& queue, const LstmProblem& p, StepParams<T>& params) {
  const Offset batch = p.batch, gates = 4 * static_cast<Offset>(p.hidden);
  const int directions = directions_of(p), steps = params.cell[0].at.steps;
  for (int d = 0; d < directions; ++d) {
    const CudaCell<T>& cell = params.cell[d];
    queue.for_each(static_cast<std::size_t>(cell.at.rows) * cell.output, kProjectedRows<T>, cell,
                   ProjectedRows::kIncoming);
  }
  for (params.place = 0; params.place <= steps; ++params.place) {
    const bool is_last = params.place == steps;  // on to h0
    for (int d = 0; d < directions; ++d) {
      const CudaCell<T>& cell = params.cell[d];
      const auto row_of = [&](int place) { return (cell.reverse ? place : steps - 1 - place) * batch; };
      T* const fresh = cell.dh_new + row_of(params.place) * cell.output_stride;
      if (params.place > 0) {
        queue.multiply({p.dtype,
                        batch,
                        cell.output,
                        gates,
                        cell.dz + row_of(params.place - 1) * cell.gates_stride,
                        {cell.gates_stride, 1},
                        cell.hh_across,
                        {1, cell.gates_stride},
                        is_last ? cell.carried : fresh,
                        is_last ? cell.output : cell.output_stride,
                        !is_last});
      }
      if (is_last) {
        queue.for_each(static_cast<std::size_t>(batch) * cell.output, kProjectedRows<T>, cell,
                       ProjectedRows::kFirst);
      } else {
        queue.multiply({p.dtype,
                        batch,
                        p.hidden,
                        cell.output,
                        fresh,
                        {cell.output_stride, 1},
                        cell.hr_across,
                        {1, cell.output_stride},
                        cell.carried,
                        p.hidden,
                        false});
      }
    }
    if (!is_last) launch_step<false>(queue, p, params, true);
  }
}

}  // namespace warpalign::detail::recurrent
