// The kernels of a call, but for the sweeps in one launch.
#pragma once

#include "recurrent/cuda/kernel_list.cuh"
#include "recurrent/cuda/projection_task.cuh"
#include "recurrent/cuda/rows.cuh"
#include "recurrent/cuda/unit_step.cuh"
#include "recurrent/cuda/untyped_rows.cuh"

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
inline const cuda::Kernel kNormaliseBack{kKernels, "normalise back", cuda::type_name<T>(),
                                         normalise_back_kernel<T>};
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

// The names of a task's kernels: a lane's products, and the matrix units' for 16 and for 32 rows of a block.
struct TaskNames {
  const char *by_lanes, *by_units, *by_wide_units;
};
template <class Task>
constexpr TaskNames kTaskNames{};
template <class T>
constexpr TaskNames kTaskNames<CellTask<T>>{"step, cell", "units, cell", "wide units, cell"};
template <class T>
constexpr TaskNames kTaskNames<ProjectionTask<T>>{"step, projection", "units, projection", nullptr};
template <class T>
constexpr TaskNames kTaskNames<CarryTask<T>>{"step back, cell", "units back, cell", "wide units back, cell"};
template <class T, class Task>
inline const cuda::Kernel kStep{kKernels, kTaskNames<Task>.by_lanes, cuda::type_name<T>(),
                                step_kernel<T, Task>};
template <class T, class Task, int kTiles>
inline const cuda::Kernel kUnitStep{
    kKernels, kTiles == kWideRowTiles ? kTaskNames<Task>.by_wide_units : kTaskNames<Task>.by_units,
    cuda::type_name<T>(), unit_step_kernel<T, Task, kTiles>};
// Whether blocks of 32 rows gain: in float32, whose large batches have no other way.
template <class T, class Task>
constexpr bool kHasWideUnits = sizeof(T) == 4 && kTaskNames<Task>.by_wide_units != nullptr;
template <class T, class Task>
const cuda::Kernel<StepParams<T>, UnitShare>& unit_step(bool is_wide) {
  if constexpr (kHasWideUnits<T, Task>) {
    if (is_wide) return kUnitStep<T, Task, kWideRowTiles>;
  }
  return kUnitStep<T, Task, kRowTiles>;
}

}  // namespace warpalign::detail::recurrent
