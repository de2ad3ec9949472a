// The list of the kernels of steps, and of those before and behind sweeps.
#pragma once

#include "recurrent/cuda/cell/kernel_list.cuh"
#include "recurrent/cuda/schedule/rows.cuh"
#include "recurrent/cuda/schedule/untyped_rows.cuh"
#include "recurrent/cuda/steps/projection_task.cuh"
#include "recurrent/cuda/steps/unit_step.cuh"

namespace warpalign::detail::recurrent {

template <class T>
inline const cuda::Kernel kPack{kKernels, "pack", cuda::type_name<T>(), pack_kernel<T>};
template <class T>
inline const cuda::Kernel kInput{kKernels, "input", cuda::type_name<T>(), input_kernel<T>};
template <class T>
inline const cuda::Kernel kFirstState{kKernels, "first state", cuda::type_name<T>(), first_state_kernel<T>};
template <class T>
inline const cuda::Kernel kLastState{kKernels, "last state", cuda::type_name<T>(), last_state_kernel<T>};
template <class T>
inline const cuda::Kernel kHBefore{kKernels, "h before steps", cuda::type_name<T>(), h_before_kernel<T>};
template <class T>
inline const cuda::Kernel kNormalise{kKernels, "normalise", cuda::type_name<T>(), normalise_kernel<T>};
template <class T>
inline const cuda::Kernel kPartSums{kKernels, "sums of parts", cuda::type_name<T>(), part_sums_kernel<T>};
template <class T>
inline const cuda::Kernel kColumnSums{kKernels, "sums of columns", cuda::type_name<T>(),
                                      column_sums_kernel<T>};
template <class T>
inline const cuda::Kernel kNormalisedCell{kKernels, "step, normalised cell", cuda::type_name<T>(),
                                          normalised_cell_kernel<T>};
template <class T>
inline const cuda::Kernel kNormalisedBackward{kKernels, "step back, normalised cell", cuda::type_name<T>(),
                                              normalised_backward_kernel<T>};

// The names of a task's kernels: a lane's products, and the matrix units' for 16 and for 32 rows of a block,
// then those of one product of TF32. Null: there is none.
struct TaskNames {
  const char *by_lanes, *by_units[2], *by_tf32_units[2];
};
template <class Task>
constexpr TaskNames kTaskNames{};
template <class T>
constexpr TaskNames kTaskNames<CellTask<T>>{
    "step, cell", {"units, cell", "wide units, cell"}, {"units, cell, TF32", nullptr}};
template <class T>
constexpr TaskNames kTaskNames<ProjectionTask<T>>{"step, projection", {"units, projection", nullptr}, {}};
template <class T>
constexpr TaskNames kTaskNames<CarryTask<T>>{"step back, cell",
                                             {"units back, cell", "wide units back, cell"},
                                             {"units back, cell, TF32", "wide units back, cell, TF32"}};
template <class T, class Task>
inline const cuda::Kernel kStep{kKernels, kTaskNames<Task>.by_lanes, cuda::type_name<T>(),
                                step_kernel<T, Task>};

// One product stands for three in float32 where `rounds` is said.
template <class T, class Task>
constexpr const char* unit_name(bool is_wide, bool rounds) {
  if (is_wide && sizeof(T) == 2) return nullptr;  // large batches of 16-bit types have other ways
  return (rounds ? kTaskNames<Task>.by_tf32_units : kTaskNames<Task>.by_units)[is_wide];
}
template <class T, class Task, bool kIsWide, bool kRounds>
inline const cuda::Kernel kUnitStep{
    kKernels, unit_name<T, Task>(kIsWide, kRounds), cuda::type_name<T>(),
    unit_step_kernel<T, Task, kIsWide ? kWideRowTiles : kRowTiles, sizeof(T) == 4 && !kRounds ? 3 : 1>};
template <class T>
struct UnitKernel {
  const cuda::Kernel<StepParams<T>, UnitShare>* kernel;
  bool is_wide;
};
// The kernel for such a step, or the one that comes nearest.
template <class T, class Task>
UnitKernel<T> unit_step(bool is_wide, bool rounds) {
  if constexpr (sizeof(T) == 4) {
    if constexpr (unit_name<T, Task>(true, true) != nullptr) {
      if (is_wide && rounds) return {&kUnitStep<T, Task, true, true>, true};
    }
    if constexpr (unit_name<T, Task>(false, true) != nullptr) {
      if (rounds) return {&kUnitStep<T, Task, false, true>, false};
    }
    if constexpr (unit_name<T, Task>(true, false) != nullptr) {
      if (is_wide) return {&kUnitStep<T, Task, true, false>, true};
    }
  }
  return {&kUnitStep<T, Task, false, false>, false};
}

}  // namespace warpalign::detail::recurrent
