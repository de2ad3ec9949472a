// The kernels of a call, but for the sweeps in one launch.
#pragma once

#include "recurrent/cuda/backward.cuh"
#include "recurrent/cuda/forward.cuh"
#include "recurrent/cuda/kernel_list.cuh"
#include "recurrent/cuda/rows.cuh"

namespace warpalign::detail::recurrent {

template <class T>
inline const cuda::Kernel kPack{kKernels, "pack", cuda::type_name<T>(), pack_kernel<T>};
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

template <class Task>
constexpr const char* kTaskName = "";
template <class T>
constexpr const char* kTaskName<CellTask<T>> = "step, cell";
template <class T>
constexpr const char* kTaskName<RawTask<T>> = "step, gates";
template <class T>
constexpr const char* kTaskName<ProjectTask<T>> = "step, projection";
template <class T>
constexpr const char* kTaskName<CarryTask<T>> = "step back, cell";
template <class T>
constexpr const char* kTaskName<PullTask<T>> = "step back, projection";
template <class T, class Task>
inline const cuda::Kernel kStep{kKernels, kTaskName<Task>, cuda::type_name<T>(), step_kernel<T, Task>};

}  // namespace warpalign::detail::recurrent
