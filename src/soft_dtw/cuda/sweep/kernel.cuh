// The soft-DTW kernel: forward sweep, value, and optionally the reverse sweep and the gradients, in one
// launch. Nothing of size N M is stored.
//
// With enough pairs, a block takes whole pairs, one after another. With few pairs their panels go to
// different blocks. Tasks are taken from a common counter, in an order in which a task comes after all tasks
// that it waits for. So these have been taken by running blocks, and the kernel ends with any number of
// resident blocks.
#pragma once

#include "cuda/launch/shared.cuh"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/call/registry.h"
#include "soft_dtw/cuda/sweep/forward.cuh"
#include "soft_dtw/cuda/sweep/reverse.cuh"
#include "soft_dtw/cuda/sweep/source.cuh"

namespace warpalign::detail::soft_dtw {

template <Sweeps kSweeps, class Wave>
__device__ void sweep_forward(Wave& wave, typename Wave::Source& source) {
  wave.begin_sweep();
  if (wave.role == 0) {
    forward_strip<kSweeps>(wave, source);
  } else {
    source.help_forward(wave.role - 1);
  }
}

template <class Wave>
__device__ void sweep_reverse(Wave& wave, typename Wave::Source& source) {
  wave.begin_sweep();
  if (wave.role == 0) {
    reverse_strip(wave, source);
  } else {
    source.help_reverse(wave.role - 1);
  }
}

// A block's next task: sweep number `order` of pair b. The forward sweeps of the panels come first, in
// ascending order, then the reverse sweeps in descending order. With sweeps from both ends, panels of both
// alternate.
struct Task {
  int b;
  int order;
  bool exists;  // whether this warp's pair exists; the block has several
};

// Whole pairs, one after the other. Block k of K takes the pairs k, k + K, k + 2 K and so on. If the pairs
// have an order, a block takes the next pair from the common counter at the start of the scratch.
template <class Wave>
class OwnPairs {
 public:
  __device__ OwnPairs(const Wave& wave, int orders)
      : p_(wave.params), slot_(wave.slot), orders_(orders), first_(first_of_block()) {}

  __device__ bool next(Task& task) {
    if (order_ == orders_) {
      order_ = 0;
      first_ += stride();
    }
    if (order_ == 0) {
      if (p_.order) first_ = take();
      if (!find_work()) return false;
    }
    const int place = static_cast<int>(first_) + slot_;
    task = {p_.order && active_ ? p_.order[place] : place, order_++, active_};
    return true;
  }

 private:
  __device__ std::int64_t first_of_block() const {
    return static_cast<std::int64_t>(blockIdx.x) * p_.layout.pairs_per_block;
  }
  __device__ std::int64_t stride() const {
    return static_cast<std::int64_t>(gridDim.x) * p_.layout.pairs_per_block;
  }

  [[nodiscard]] __device__ int take() const {
    __shared__ int taken;
    if (threadIdx.x == 0) taken = atomicAdd(reinterpret_cast<int*>(p_.scratch), p_.layout.pairs_per_block);
    __syncthreads();
    return taken;
  }

  __device__ bool find_work() {
    for (; first_ < p_.batch; first_ += stride()) {
      active_ = first_ + slot_ < p_.batch;
      if constexpr (Wave::Cell::kCertifies) {
        return true;
      } else {
        if (!p_.uncertified) return true;
        // In a rerun most pairs need no work, so the block tests as many pairs as it has threads in one step.
        const std::int64_t ahead = first_ + threadIdx.x * stride();
        bool any = false;
        for (int k = 0; k < p_.layout.pairs_per_block; ++k)
          any |= ahead + k < p_.batch && p_.uncertified[ahead + k];
        if (!__syncthreads_or(any)) {
          first_ += (blockDim.x - 1) * stride();
          continue;
        }
        active_ = active_ && p_.uncertified[first_ + slot_];
        if (__syncthreads_or(active_)) return true;
      }
    }
    return false;
  }

  const Params& p_;
  const int slot_;
  const int orders_;
  int order_ = 0;
  std::int64_t first_;
  bool active_ = false;
};

// Panels of all pairs, from the common counter at the start of the scratch: everything that a task waits for
// comes before it in this order.
__device__ inline bool take_ticket(int* counter, int batch, int orders, Task& task) {
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(counter, 1) + 1;
  __syncthreads();
  task = {ticket % batch, ticket / batch, true};
  return ticket / batch < orders;
}

// Counts a panel's forward sweep. Called by one thread. Returns whether it is the last one of the pair.
template <class Wave>
__device__ bool is_last_panel(const Wave& wave) {
  __threadfence();
  const Layout& l = wave.params.layout;
  const bool is_last = atomicAdd(&wave.record->done, 1) + 2 >= l.panels * l.ends();
  __threadfence();
  return is_last;
}

template <class Wave>
__device__ void finish_forward(const Wave& wave) {
  const int usable = finish_value(wave);
  __threadfence();
  atomicExch(&wave.record->usable, usable);
}

// Called by the whole block. The block of the last panel finishes the pair.
template <class Wave>
__device__ void finish_panel(const Wave& wave, bool leads) {
  if constexpr (Wave::kMeets) {
    if (wave.params.layout.meets) {  // and every block has one pair at a time
      __shared__ bool is_last;
      if (leads) is_last = is_last_panel(wave);
      __syncthreads();
      if (!is_last) return;
      if (wave.meets) {
        __threadfence();
        const typename Wave::State all = join_sweeps(wave);
        if (leads) wave.record->last = all;
      }
      if (leads) finish_forward(wave);
      return;
    }
  }
  if (leads && is_last_panel(wave)) finish_forward(wave);
}

// Counts a panel's reverse sweep, if results of all panels are joined. Called by one thread. Returns whether
// it is the last one of the pair.
template <class Wave>
__device__ bool is_last_reverse_panel(const Wave& wave) {
  __threadfence();
  const Layout& l = wave.params.layout;
  const bool is_last = atomicAdd(&wave.record->swept, 1) + 2 >= l.panels * l.ends();
  __threadfence();
  return is_last;
}

// Called by the whole block. If strips add to grad_x one after the other, the last panel's block adds the
// sums of both sweeps.
template <class Wave>
__device__ void join_gradients(const Wave& wave, bool leads) {
  __shared__ bool is_last;
  if (leads) is_last = is_last_reverse_panel(wave);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const int dim = wave.params.dim;
  for (int row = threadIdx.x / 32; row < wave.pair.n; row += blockDim.x / 32) {
    auto* const to = true_grad_x(wave) + static_cast<std::int64_t>(row) * dim;
    const auto* const back = wave.grad_x_from_back + static_cast<std::int64_t>(wave.pair.n - 1 - row) * dim;
    for (int d = wave.lane; d < dim; d += 32) to[d] = __ldcg(to + d) + __ldcg(back + d);
  }
}

template <Sweeps kSweeps, class Wave>
__device__ __forceinline__ void work(Wave& wave) {
  const Params& p = wave.params;
  const int ends = Wave::kMeets ? p.layout.ends() : 1;
  const int sweeps = p.layout.panels * ends;
  const int orders = sweeps_back<kSweeps>(p) ? 2 * sweeps : sweeps;
  OwnPairs<Wave> own(wave, orders);
  for (Task task; p.layout.tickets ? take_ticket(reinterpret_cast<int*>(p.scratch), p.batch, orders, task)
                                   : own.next(task);) {
    const bool is_forward = task.order < sweeps;
    const int place = is_forward ? task.order : 2 * sweeps - 1 - task.order;
    const bool leads = task.exists && wave.role == 0 && wave.warp == 0 && wave.lane == 0;
    if (task.exists) {
      wave.begin_pair(task.b, p.layout.tickets ? task.b : blockIdx.x * p.layout.pairs_per_block + wave.slot,
                      place % ends > 0);
    }
    wave.begin_panel(place / ends);
    typename Wave::Source source(wave);
    if (wave.role == 0) source.begin_panel();
    if (!p.layout.tickets && task.order == 0 && leads) clear_record(wave);
    __syncthreads();
    if (is_forward) {
      if (task.exists && wave.active()) sweep_forward<kSweeps>(wave, source);
      __syncthreads();
      finish_panel(wave, leads);
    } else if constexpr (kSweeps != Sweeps::kForward) {
      if (leads) {
        while (cuda::load_acquire(&wave.record->usable) < 0) {
        }
      }
      __syncthreads();
      const bool usable = task.exists && cuda::load_acquire(&wave.record->usable) == 1;
      if (task.exists && task.order == sweeps + ends - 1) fill_outside(wave, usable);
      if (usable && wave.active()) sweep_reverse(wave, source);
      if constexpr (Wave::kAll) {
        __syncthreads();
        if (usable && leads && p.grad_gamma && is_last_reverse_panel(wave)) finish_grad_gamma(wave);
      }
      if constexpr (Wave::kMeets && Wave::Source::kCarried == 0) {
        __syncthreads();
        if (p.grad_x && usable && wave.meets) join_gradients(wave, leads);
      }
    }
    __syncthreads();
  }
}

template <class Cell, class In, class Source, Sweeps kSweeps, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) soft_dtw_kernel(const __grid_constant__ Params p) {
  Wave<Cell, In, Source> wave(p, cuda::dynamic_shared());
  work<kSweeps>(wave);
}

template <class Cell>
constexpr Arithmetic kArithmetic = Arithmetic::kFloat32;
template <>
constexpr Arithmetic kArithmetic<Cell64> = Arithmetic::kFloat64;
template <>
constexpr Arithmetic kArithmetic<CellDual> = Arithmetic::kDual;
template <>
constexpr Arithmetic kArithmetic<CellHard<float>> = Arithmetic::kHardFloat32;
template <>
constexpr Arithmetic kArithmetic<CellHard<double>> = Arithmetic::kHardFloat64;

template <class Cell, class Source, Sweeps kSweeps>
constexpr KernelKey kKeyOf{kArithmetic<Cell>, Source::kSource, Source::kOptions, kSweeps,
                           Source::kCrew,     Source::kMeets,  Source::kColumns, Source::kFeatures};

template <class Cell, class In, class Source, Sweeps kSweeps, int kThreads, int kBlocks>
inline const cuda::Kernel kSweep{kKernels, name_of(kKeyOf<Cell, Source, kSweeps>).text, nullptr,
                                 soft_dtw_kernel<Cell, In, Source, kSweeps, kThreads, kBlocks>};

// The registry's entry for the kernel whose blocks have at most kStrips strips, compiled for kBlocks resident
// blocks per multiprocessor.
template <class Cell, class In, class Source, Sweeps kSweeps, int kStrips, int kBlocks>
constexpr SweepKernel sweep_kernel() {
  static_assert(SourceOfCosts<Source, Wave<Cell, In, Source>>);
  static_assert(kStrips <= kMostStrips);
  static_assert(Source::kHasGradient || kSweeps == Sweeps::kForward);
  constexpr int kThreads = 32 * kStrips * Source::kRoles;
  return {kKeyOf<Cell, Source, kSweeps>,
          {{sizeof(typename Cell::State), sizeof(typename Cell::Real)},
           {Source::kCarried, Source::kWarpBytes, Source::kLeastWarpBytes, Source::kSegment, Source::kRoles,
            Source::kPhases, Source::kStartsInWork, Source::kOptions == Options::kAll},
           Source::kColumns,
           kStrips,
           kBlocks},
          &kSweep<Cell, In, Source, kSweeps, kThreads, kBlocks>};
}

}  // namespace warpalign::detail::soft_dtw
