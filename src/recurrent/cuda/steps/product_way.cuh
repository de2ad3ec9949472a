// The way of a sweep by products: a lent product and a kernel for each step, for batches that give a matrix
// product enough work. R h is added to W x, and rounded with it; the parts of dh are rounded too.
//
// With a projection a step has two products each way: R h and W_hr m forward, R^T dz and W_hr^T of the
// gradient with respect to h backward. Rows have every step then, h~ is h, and the products write and read
// the rows of h, and of the gradients with respect to h, where they belong.
#pragma once

#include "recurrent/cuda/steps/backward.cuh"
#include "recurrent/cuda/steps/choice.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// Element n of the directions' units of all rows: use(cell, b, unit, n without the directions before).
template <class T, class Use>
__device__ __forceinline__ void for_units(const StepParams<T>& p, const Use& use) {
  const Offset units = static_cast<Offset>(p.cell[0].at.batch) * p.cell[0].hidden;
  for_elements(p.blocks_of_direction * units, [&](Offset n) {
    const CudaCell<T>& cell = p.cell[n / units];
    use(cell, static_cast<int>(n % units / cell.hidden), static_cast<int>(n % cell.hidden), n % units);
  });
}
// The gates hold W x + R h. blocks_of_direction: of these kernels, the number of directions.
template <class T>
__global__ void __launch_bounds__(kRowThreads) cell_by_elements_kernel(StepParams<T> p) {
  for_units(p, [&](const CudaCell<T>& cell, int b, int unit, Offset) {
    CellTask<T>::finish(cell, p.place, b, unit);
  });
}
// A backward step, from R^T dz of the step swept before.
template <class T>
__global__ void __launch_bounds__(kRowThreads) carry_by_elements_kernel(StepParams<T> p) {
  for_units(p, [&](const CudaCell<T>& cell, int b, int unit, Offset n) {
    CarryTask<T>::finish(cell, p.place, b, unit, p.place > 0 ? cuda::widen(cell.carried[n]) : Sum<T>(0));
  });
}
template <class T>
inline const cuda::Kernel kCellByElements{kKernels, "step by products", cuda::type_name<T>(),
                                          cell_by_elements_kernel<T>};
template <class T>
inline const cuda::Kernel kCarryByElements{kKernels, "step back by products", cuda::type_name<T>(),
                                           carry_by_elements_kernel<T>};

// What becomes of rows of h, or of the gradients with respect to them, outside of the products of a layer
// with a projection.
enum class ProjectedRows {
  kCopies,    // after the forward sweep: the other places of h
  kIncoming,  // before the backward sweep: the gradients with respect to h from outside of it
  kFirst,     // after it: the gradient with respect to h0
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

template <class T>
class ProductWay final : public Way<T> {
 public:
  explicit ProductWay(const Question& question) {
    const LstmProblem& p = question.p;
    if (!takes_products<T>(question)) {
      this->refusal =
          "it serves 16 rows and more without layer norm and packed rows, projections in 16-bit types "
          "without options, where the caller lends products and no batch_invariant is asked for";
    }
    this->pays = gains_by_products<T>(question) && choose_tiles<T>(question) == StepTiles::kNone;
    this->needs.carried = true;
    this->needs.h_of_all_steps = p.projection > 0;
    if (p.projection == 0 && p.side_streams.products)
      this->on_streams = {static_cast<double>(question.tuning.step_chunk_start), 16};
  }

  bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const override {
    const bool words = kHasWords<T> && has_words(sweep.p, sweep.step);
    if (sweep.p.projection > 0 && !(sweep.is_whole && sweep.step.cell[0].h_rows && words)) return false;
    if (sweep.backward) {
      backward(queue, sweep, words);
    } else {
      forward(queue, sweep, words);
    }
    return true;
  }

 private:
  static void forward(Queue& queue, const LayerSweep<T>& sweep, bool words) {
    const LstmProblem& p = sweep.p;
    StepParams<T>& step = sweep.step;
    const Offset batch = p.batch, gates = 4 * static_cast<Offset>(p.hidden);
    const int directions = directions_of(p), steps = step.cell[0].at.steps;
    const auto row_of = [&](const CudaCell<T>& cell, int place) {
      return (cell.reverse ? steps - 1 - place : place) * batch;
    };
    for (step.place = sweep.places.begin; step.place < sweep.places.end; ++step.place) {
      for (int d = 0; d < directions; ++d) {
        const CudaCell<T>& cell = step.cell[d];
        const bool reads_rows = cell.projects && step.place > 0;
        const Factor h =
            reads_rows ? matrix(cell.h_rows + row_of(cell, step.place - 1) * cell.h_stride, cell.h_stride)
                       : matrix(cell.h[step.place % 2], cell.output_stride);
        queue.multiply(p.dtype, Extents{batch, gates, cell.output}, h,
                       transposed(cell.hh, cell.output_stride), cell.gates + row_of(cell, step.place) * gates,
                       gates, true);
      }
      launch<true>(queue, p, step, words);
      for (int d = 0; d < directions && p.projection > 0; ++d) {
        const CudaCell<T>& cell = step.cell[d];
        queue.multiply(p.dtype, Extents{batch, cell.output, p.hidden}, matrix(cell.m, cell.hidden_stride),
                       transposed(cell.hr, cell.hidden_stride),
                       cell.h_rows + row_of(cell, step.place) * cell.h_stride, cell.h_stride);
      }
    }
    for_projected_rows(queue, p, step, ProjectedRows::kCopies);
  }

  static void backward(Queue& queue, const LayerSweep<T>& sweep, bool words) {
    const LstmProblem& p = sweep.p;
    StepParams<T>& step = sweep.step;
    const Offset batch = p.batch, gates = 4 * static_cast<Offset>(p.hidden);
    const int steps = step.cell[0].at.steps;
    const int end = sweep.places.end == steps ? steps + 1 : sweep.places.end;  // the last one goes on to h0
    for_projected_rows(queue, p, step, ProjectedRows::kIncoming);
    for (step.place = sweep.places.begin; step.place < end; ++step.place) {
      const bool is_last = step.place == steps;
      for (int d = 0; d < directions_of(p); ++d) {
        const CudaCell<T>& cell = step.cell[d];
        const auto row_of = [&](int place) { return (cell.reverse ? place : steps - 1 - place) * batch; };
        const bool has_rows = cell.projects && !is_last;
        T* const fresh = has_rows ? cell.dh_new + row_of(step.place) * cell.output_stride : cell.carried;
        const Offset stride = has_rows ? cell.output_stride : cell.output;
        if (step.place > 0) {
          queue.multiply(p.dtype, Extents{batch, cell.output, gates},
                         matrix(cell.dz + row_of(step.place - 1) * cell.gates_stride, cell.gates_stride),
                         transposed(cell.hh_across, cell.gates_stride), fresh, stride, has_rows);
        }
        if (!has_rows) continue;
        queue.multiply(p.dtype, Extents{batch, p.hidden, cell.output}, matrix(fresh, stride),
                       transposed(cell.hr_across, cell.output_stride), cell.carried, p.hidden);
      }
      if (p.projection == 0 || !is_last) launch<false>(queue, p, step, words);
    }
    for_projected_rows(queue, p, step, ProjectedRows::kFirst);
  }

  static void for_projected_rows(Queue& queue, const LstmProblem& p, const StepParams<T>& step,
                                 ProjectedRows which) {
    if constexpr (sizeof(T) == 2) {
      for (int d = 0; d < directions_of(p) && p.projection > 0; ++d) {
        const CudaCell<T>& cell = step.cell[d];
        const Offset rows = which == ProjectedRows::kFirst ? cell.at.batch : cell.at.rows;
        queue.for_each(static_cast<std::size_t>(rows) * cell.output, kProjectedRows<T>, cell, which);
      }
    }
  }
  // A step's kernel: by words, or by elements.
  template <bool kForward>
  static void launch(Queue& queue, const LstmProblem& p, StepParams<T>& step, bool words) {
    if constexpr (kHasWords<T>) {
      if (words) {
        step.blocks_of_direction = blocks_of_words(step.cell[0]);
        const int blocks = step.blocks_of_direction * directions_of(p);
        return queue.launch(kForward ? kCellByWords<T> : kCarryByWords<T>, blocks, kRowThreads, step);
      }
    }
    step.blocks_of_direction = directions_of(p);
    const Offset units = static_cast<Offset>(directions_of(p)) * p.batch * p.hidden;
    queue.for_each(static_cast<std::size_t>(units), kForward ? kCellByElements<T> : kCarryByElements<T>,
                   step);
  }
};

}  // namespace warpalign::detail::recurrent
