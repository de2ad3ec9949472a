// Steps whose products with R are those of the front end, for batches that give a matrix product enough work:
// a product and a kernel by elements for each step. R h is added to W x, and rounded with it; the parts of dh
// are rounded too.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "recurrent/cuda/cell/ways.h"
#include "recurrent/cuda/steps/word_steps.cuh"

namespace warpalign::detail::recurrent {

// Whether there are such steps for a problem. The same for every device, since memory is laid out by it.
template <class T>
bool may_take_products(const LstmProblem& p) {
  if (p.layer_norm || p.row_starts || p.batch < kRowsOfProducts) return false;
  return p.projection == 0 || (sizeof(T) == 2 && is_plain(p));
}
template <class T>
bool takes_products(const Queue& queue, const LstmProblem& p) {
  return may_take_products<T>(p) && queue.execution().matrix_product.run &&
         !queue.execution().batch_invariant;
}

// Whether they are the faster way, where no sweep in one launch serves the call.
template <class T>
bool gains_by_products(const Queue& queue, const LstmProblem& p) {
  if (sizeof(T) == 2 && p.projection == 0) return true;  // then sweeps had too many tiles
  const bool is_tf32 = queue.execution().precision == Precision::kMedium;
  const Offset units = sizeof(T) == 8   ? kUnitsOfFloat64Products
                       : sizeof(T) == 2 ? kUnitsOfProjectedProducts
                       : is_tf32        ? kUnitsOfTf32Products
                                        : kUnitsOfFloat32Products;
  return static_cast<Offset>(p.batch) * p.hidden >= units * queue.device().multiprocessors;
}

// Whether launches per step read R no more often than a sweep does before its first step. But bits must not
// depend on the number of steps where they must not depend on the batch.
inline bool has_few_steps(const Queue& queue, const LstmProblem& p) {
  constexpr int kFewSteps = 3;
  return p.steps < kFewSteps && !queue.execution().batch_invariant;
}

// Whether rows of h of the first `cells` cells can be read and written by so many bytes at a time. y may lie
// anywhere.
template <class T>
bool has_aligned_h(int cells, const StepParams<T>& step, std::size_t bytes) {
  for (int n = 0; n < cells; ++n) {
    if (reinterpret_cast<std::uintptr_t>(step.cell[n].h_rows) % bytes != 0) return false;
  }
  return true;
}
// Whether their results can be written by words.
template <class T>
bool takes_words(int cells, const StepParams<T>& step) {
  for (int n = 0; n < cells; ++n) {
    if (reinterpret_cast<std::uintptr_t>(step.cell[n].h_all) % sizeof(cuda::Word) != 0) return false;
  }
  return has_aligned_h(cells, step, sizeof(cuda::Word));
}

// Element n of the directions' units of all rows. The gates hold W x + R h.
template <class T>
__global__ void __launch_bounds__(kRowThreads) cell_by_elements_kernel(StepParams<T> p) {
  const Offset units = static_cast<Offset>(p.cell[0].at.batch) * p.cell[0].hidden;
  for_elements(p.blocks_of_direction * units, [&](Offset n) {
    const CudaCell<T>& cell = p.cell[n / units];
    const int b = static_cast<int>(n % units / cell.hidden), unit = static_cast<int>(n % cell.hidden);
    CellTask<T>::finish(cell, p.place, b, unit);
  });
}
// The elements of a backward step, from R^T dz of the step swept before.
template <class T>
__global__ void __launch_bounds__(kRowThreads) carry_by_elements_kernel(StepParams<T> p) {
  const Offset units = static_cast<Offset>(p.cell[0].at.batch) * p.cell[0].hidden;
  for_elements(p.blocks_of_direction * units, [&](Offset n) {
    const CudaCell<T>& cell = p.cell[n / units];
    const int b = static_cast<int>(n % units / cell.hidden), unit = static_cast<int>(n % cell.hidden);
    CarryTask<T>::finish(cell, p.place, b, unit,
                         p.place > 0 ? cuda::widen(cell.carried[n % units]) : Sum<T>(0));
  });
}
template <class T>
inline const cuda::Kernel kCellByElements{kKernels, "step by products", cuda::type_name<T>(),
                                          cell_by_elements_kernel<T>};
template <class T>
inline const cuda::Kernel kCarryByElements{kKernels, "step back by products", cuda::type_name<T>(),
                                           carry_by_elements_kernel<T>};

// A step's kernel: by words, or by elements.
template <bool kForward, class T>
void launch_step(Queue& queue, const LstmProblem& p, StepParams<T>& params, bool words) {
  if constexpr (kHasWords<T>) {
    if (words) {
      params.blocks_of_direction = blocks_of_words(params.cell[0]);
      const int blocks = params.blocks_of_direction * directions_of(p);
      return queue.launch(kForward ? kCellByWords<T> : kCarryByWords<T>, blocks, kRowThreads, params);
    }
  }
  params.blocks_of_direction = directions_of(p);
  const Offset units = static_cast<Offset>(p.batch) * p.hidden;
  queue.for_each(static_cast<std::size_t>(directions_of(p) * units),
                 kForward ? kCellByElements<T> : kCarryByElements<T>, params);
}

// These steps of a layer's forward sweep.
template <class T>
void sweep_by_products(Queue& queue, const LstmProblem& p, StepParams<T>& params, Places places) {
  const Offset batch = p.batch, gates = 4 * static_cast<Offset>(p.hidden);
  const bool words = kHasWords<T> && has_words(p, params);
  const int steps = params.cell[0].at.steps;
  for (params.place = places.begin; params.place < places.end; ++params.place) {
    for (int d = 0; d < directions_of(p); ++d) {
      const CudaCell<T>& cell = params.cell[d];
      const Offset t = cell.reverse ? steps - 1 - params.place : params.place;
      queue.multiply({p.dtype,
                      batch,
                      gates,
                      p.hidden,
                      cell.h[params.place % 2],
                      {cell.output_stride, 1},
                      cell.hh,
                      {1, cell.output_stride},
                      cell.gates + t * batch * gates,
                      gates,
                      true});
    }
    launch_step<true>(queue, p, params, words);
  }
}
template <class T>
void sweep_back_by_products(Queue& queue, const LstmProblem& p, StepParams<T>& params, Places places) {
  const Offset batch = p.batch, gates = 4 * static_cast<Offset>(p.hidden);
  const bool words = kHasWords<T> && has_words(p, params);
  const int steps = params.cell[0].at.steps;
  const int end = places.end == steps ? steps + 1 : places.end;  // the last one goes on to h0
  for (params.place = places.begin; params.place < end; ++params.place) {
    for (int d = 0; d < directions_of(p) && params.place > 0; ++d) {
      const CudaCell<T>& cell = params.cell[d];
      const Offset t = cell.reverse ? params.place - 1 : steps - params.place;  // swept before
      queue.multiply({p.dtype,
                      batch,
                      p.hidden,
                      gates,
                      cell.dz + t * batch * cell.gates_stride,
                      {cell.gates_stride, 1},
                      cell.hh_across,
                      {1, cell.gates_stride},
                      cell.carried,
                      p.hidden,
                      false});
    }
    launch_step<false>(queue, p, params, words);
  }
}

}  // namespace warpalign::detail::recurrent
