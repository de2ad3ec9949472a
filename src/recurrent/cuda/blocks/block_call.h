// Which calls run as sweeps in single blocks, and their launch.
#pragma once

#include "recurrent/cuda/blocks/block_sweep.cuh"
#include "recurrent/cuda/schedule/memory.cuh"

namespace warpalign::detail::recurrent {

// The most units whose R the registers of a block hold; and of calls with options, which need more of them.
// None in float64, whose calls with options take a launch per step.
template <class T>
constexpr int kMostBlockHidden = sizeof(T) == 2   ? 128
                                 : sizeof(T) == 4 ? 96
                                                  : 64;
template <class T>
constexpr int kMostBlockHiddenOfOptions = sizeof(T) <= 4 ? 96 : 0;

// Blocks of a small sweep, or of a step's kernel, that a multiprocessor works on at once.
constexpr int kBlocksOfMultiprocessor = 2;

// Whether a layer sweeps in single blocks on the current device: all calls do whose layers are so small.
template <class T>
bool sweeps_in_blocks(const LstmProblem& p) {
  const int most = is_plain(p) ? kMostBlockHidden<T> : kMostBlockHiddenOfOptions<T>;
  if (p.hidden > most || p.layer_norm || p.projection > 0) return false;
  return sizeof(T) > 2 || current_device().has_matrix_units;
}

template <class T>
struct BlockSweeps {
  // Enqueues these steps of a layer's sweep, of one direction or of two.
  static void forward(Queue& queue, const LstmProblem& p, const CudaCell<T> (&cells)[2],
                      const ForwardEnds<T> (&ends)[2], Places places);
  static void backward(Queue& queue, const LstmProblem& p, const CudaCell<T> (&cells)[2],
                       const BackwardEnds<T> (&ends)[2], Places places);
};

}  // namespace warpalign::detail::recurrent
