// The kernels of a call, but for the sweeps in one launch.
#pragma once

#include "recurrent/cuda/backward.cuh"
#include "recurrent/cuda/forward.cuh"
#include "recurrent/cuda/kernel_list.cuh"
#include "recurrent/cuda/rows.cuh"
#include "recurrent/cuda/unit_step.cuh"

namespace warpalign::detail::recurrent {

template <class T>
inline const cuda::Kernel kPack{kKernels, "pack", cuda::type_name<T>(), pack_kernel<T>};
template <class T>
inline const cuda::Kernel kPackAcross{kKernels, "pack across", cuda::type_name<T>(), pack_across_kernel<T>};
template <class T>
inline const cuda::Kernel kDrop{kKernels, "drop weights", cuda::type_name<T>(), drop_kernel<T>};
template <class T>
inline const cuda::Kernel kInput{kKernels, "input", cuda::type_name<T>(), input_kernel<T>};
template <class T>
inline const cuda::Kernel kFirstState{kKernels, "first state", cuda::type_name<T>(), first_state_kernel<T>};
template <class T>
inline const cuda::Kernel kLastState{kKernels, "last state", cuda::type_name<T>(), last_state_kernel<T>};
template <class T>
inline const cuda::Kernel kFirstGradient{kKernels, "first gradient", cuda::type_name<T>(),
                                         first_gradient_kernel<T>};
template <class T>
inline const cuda::Kernel kLastGradient{kKernels, "last gradient", cuda::type_name<T>(),
                                        last_gradient_kernel<T>};
template <class T>
inline const cuda::Kernel kNextChunk{kKernels, "next chunk", cuda::type_name<T>(), next_chunk_kernel<T>};
template <class T>
inline const cuda::Kernel kChunkLengths{kKernels, "lengths of a chunk", cuda::type_name<T>(),
                                        chunk_lengths_kernel<T>};
template <class T>
inline const cuda::Kernel kHBefore{kKernels, "h before steps", cuda::type_name<T>(), h_before_kernel<T>};
template <class T>
inline const cuda::Kernel kKept{kKernels, "zoneout", cuda::type_name<T>(), kept_kernel<T>};
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

// The names of a task's kernels: a lane's products, and the matrix units' for 16 and for 32 rows of a block,
// then those of one product of TF32.
struct TaskNames {
  const char *by_lanes, *by_units[2], *by_tf32_units[2];
};
template <class Task>
constexpr TaskNames kTaskNames{};
template <class T>
constexpr TaskNames kTaskNames<CellTask<T>>{
    "step, cell", {"units, cell", "wide units, cell"}, {"units, cell, TF32", "wide units, cell, TF32"}};
template <class T>
constexpr TaskNames kTaskNames<RawTask<T>>{
    "step, gates", {"units, gates", "wide units, gates"}, {"units, gates, TF32", "wide units, gates, TF32"}};
template <class T>
constexpr TaskNames kTaskNames<ProjectTask<T>>{"step, projection",
                                               {"units, projection", "wide units, projection"},
                                               {"units, projection, TF32", "wide units, projection, TF32"}};
template <class T>
constexpr TaskNames kTaskNames<CarryTask<T>>{"step back, cell",
                                             {"units back, cell", "wide units back, cell"},
                                             {"units back, cell, TF32", "wide units back, cell, TF32"}};
template <class T>
constexpr TaskNames kTaskNames<PullTask<T>>{
    "step back, projection",
    {"units back, projection", "wide units back, projection"},
    {"units back, projection, TF32", "wide units back, projection, TF32"}};
template <class T, class Task>
inline const cuda::Kernel kStep{kKernels, kTaskNames<Task>.by_lanes, cuda::type_name<T>(),
                                step_kernel<T, Task>};
template <class T, class Task, int kTiles, int kProducts>
inline const cuda::Kernel kUnitStep{
    kKernels,
    (kProducts == 1 && sizeof(T) == 4 ? kTaskNames<Task>.by_tf32_units
                                      : kTaskNames<Task>.by_units)[kTiles == kWideRowTiles],
    cuda::type_name<T>(), unit_step_kernel<T, Task, kTiles, kProducts>};
template <int kProducts, class Task, class T>
const cuda::Kernel<StepParams<T>, UnitShare>& unit_step(bool is_wide) {
  return is_wide ? kUnitStep<T, Task, kWideRowTiles, kProducts> : kUnitStep<T, Task, kRowTiles, kProducts>;
}
// kernels_tf32.cu compiles these.
using Tf32UnitStep = cuda::Kernel<StepParams<float>, UnitShare>;
extern template const Tf32UnitStep& unit_step<1, CellTask<float>, float>(bool is_wide);
extern template const Tf32UnitStep& unit_step<1, RawTask<float>, float>(bool is_wide);
extern template const Tf32UnitStep& unit_step<1, ProjectTask<float>, float>(bool is_wide);
extern template const Tf32UnitStep& unit_step<1, CarryTask<float>, float>(bool is_wide);
extern template const Tf32UnitStep& unit_step<1, PullTask<float>, float>(bool is_wide);

}  // namespace warpalign::detail::recurrent
