// Launches of sweeps in single blocks, which files of their own compile.
#pragma once

#include "recurrent/cuda/blocks/block_sweep.cuh"
#include "recurrent/cuda/schedule/memory.cuh"
#include "recurrent/cuda/schedule/queue.cuh"

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

// Enqueues these steps of a layer's sweep, of one direction or of two. many_rows: a block has four rows of
// the batch where there is such a kernel, and not one.
template <class T>
void launch_blocks(Queue& queue, const LstmProblem& p, bool backward, bool many_rows,
                   const BlockParams<T>& params);

}  // namespace warpalign::detail::recurrent
