// How the blocks of a group hand dz to each other where they share units: through a ring of the last steps'
// rows. So dz itself may lie where nobody could wait for it, in the gates' place.
//
// The step at `place` has slot place % kRingSteps, with a row for each row of the batch. A slot starts as all
// one-bits, and a reader waits until no word is all ones. A block that has all of dz of the step before knows
// that every block is done with the one before that. So each thread then sets its words of that slot back to
// all ones. Twice in a ring the blocks of a group meet, so that all see what was set back before it is
// written again: a block arrives at one step, and looks for the others half a turn later, when they have long
// arrived.
#pragma once

#include "cuda/memory/remote.cuh"
#include "recurrent/cuda/schedule/memory.cuh"

namespace warpalign::detail::recurrent {

constexpr int kRingTurn = 16;  // steps from one meeting to the next one
constexpr int kRingSteps = 2 * kRingTurn;

// Elements of the ring of a sweep, which has no more slots than steps: none is used again then.
template <class T>
std::size_t ring_entries(const LstmProblem& p) {
  return std::min(p.steps, kRingSteps) * CudaSizes<T>(p).batch * CudaSizes<T>(p).gates_stride;
}

template <class T>
class GradientRing {
 public:
  // lane: where the lane's words lie in a row   blocks: of the group
  __device__ __forceinline__ GradientRing(const CudaCell<T>& cell, Offset lane, int group, int blocks)
      : cell_(cell),
        lane_(lane),
        arrivals_(cell.ring_arrivals + group),
        blocks_(blocks),
        is_reused_(cell.at.steps > kRingSteps) {}

  // Row b of the batch at the step `place`.
  __device__ __forceinline__ const T* at(int place, int b, Offset /*row*/) const { return slot(place, b); }

  // The lane's word of it, which is row `row` of all steps.   exists: the lane has a unit of row b
  // has_row: at this step, too. The word of two steps before is set back: the block has all of dz of the step
  // before.
  __device__ __forceinline__ void put(int place, int b, bool exists, bool has_row, Offset row,
                                      cuda::Word word) const {
    if (has_row) {
      cuda::store_relaxed(reinterpret_cast<cuda::Word*>(slot(place, b) + lane_), word);
      *reinterpret_cast<cuda::Word*>(cell_.dz + row * cell_.gates_stride + lane_) = word;
    }
    if (is_reused_ && place >= 2 && exists) {
      cuda::store_relaxed(reinterpret_cast<cuda::Word*>(slot(place - 2, b) + lane_), cuda::kNotYet);
    }
  }

  // The whole block calls it before each step.
  __device__ __forceinline__ void meet(int place) const {
    if (!is_reused_ || place < kRingTurn || place % (kRingTurn / 2) != 0) return;
    const bool arrives = place % kRingTurn == 0;
    if (arrives) __syncthreads();  // all threads have set back their words
    if (threadIdx.x == 0) {
      if (arrives) {
        __threadfence();
        atomicAdd(arrivals_, 1);
      } else {
        const int expected = place / kRingTurn * blocks_;
        while (cuda::load_acquire(arrivals_) < expected) {
        }
      }
    }
    if (!arrives) __syncthreads();
  }

 private:
  __device__ __forceinline__ T* slot(int place, int b) const {
    const Offset row = static_cast<Offset>(place % kRingSteps) * cell_.at.batch + b;
    return cell_.dz_ring + row * cell_.gates_stride;
  }

  const CudaCell<T>& cell_;
  Offset lane_;
  int* arrivals_;
  int blocks_;
  bool is_reused_;
};

}  // namespace warpalign::detail::recurrent
