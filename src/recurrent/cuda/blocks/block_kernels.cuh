// The function of block_call.h, for a file that compiles it for one element type.
#pragma once

#include <string>

#include "recurrent/cuda/blocks/block_backward.cuh"
#include "recurrent/cuda/blocks/block_call.h"
#include "recurrent/cuda/blocks/block_forward.cuh"

namespace warpalign::detail::recurrent {

// Rows of the batch that a block has.
constexpr int kFewRows = 1, kManyRows = 4;

// Such as "block of 96 back, options", or "rows of 64" of many rows.
inline std::string block_name(int depth, int rows, bool plain, bool backward) {
  return (rows == kFewRows ? "block of " : "rows of ") + std::to_string(depth) + (backward ? " back" : "") +
         (plain ? "" : ", options");
}
template <class T, int kDepth, int kRows, bool kPlain>
inline const cuda::Kernel kBlockForward{kKernels, block_name(kDepth, kRows, kPlain, false).c_str(),
                                        cuda::type_name<T>(), block_forward_kernel<T, kDepth, kRows, kPlain>};
template <class T, int kDepth, int kRows, bool kPlain>
inline const cuda::Kernel kBlockBackward{kKernels, block_name(kDepth, kRows, kPlain, true).c_str(),
                                         cuda::type_name<T>(),
                                         block_backward_kernel<T, kDepth, kRows, kPlain>};

// A pass' kernel, and how many rows of the batch its block has.
template <class T>
struct BlockChoice {
  const cuda::Kernel<BlockParams<T>>* kernel;
  int rows;
};
template <class T, int kDepth, int kRows = kFewRows, bool kPlain = true>
BlockChoice<T> block_of(bool backward) {
  if (backward) return {&kBlockBackward<T, kDepth, kRows, kPlain>, kRows};
  return {&kBlockForward<T, kDepth, kRows, kPlain>, kRows};
}
// The kernels that there are: each of more depth serves fewer units, too, with the same bits. many: a block
// has four rows where there is such a kernel.
template <class T>
BlockChoice<T> choose_block(const LstmProblem& p, bool backward, bool many) {
  if constexpr (sizeof(T) <= 4) {
    if (!is_plain(p)) return block_of<T, 96, kFewRows, false>(backward);
    if (many && p.hidden <= 64) return block_of<T, 64, kManyRows>(backward);
    if (!many && p.hidden <= 32) return block_of<T, 32>(backward);
  }
  if constexpr (sizeof(T) == 2) {
    if (many) return block_of<T, 128, kManyRows>(backward);
    if (p.hidden > 64) return block_of<T, 128>(backward);
  }
  if constexpr (sizeof(T) == 4) {
    if (p.hidden > 64) return block_of<T, 96>(backward);
  }
  return block_of<T, 64>(backward);
}

template <class T>
void launch_blocks(Queue& queue, const LstmProblem& p, bool backward, bool many_rows,
                   const BlockParams<T>& given) {
  BlockParams<T> params = given;
  const auto choice = choose_block<T>(p, backward, many_rows);
  params.slices = cuda::div_up(p.batch, choice.rows);
  constexpr int kUnits = cuda::kWarpSize / kUnitThreads;  // a block has whole warps of them
  queue.launch(*choice.kernel, params.slices * directions_of(p),
               cuda::div_up(p.hidden, kUnits) * cuda::kWarpSize, params);
}

}  // namespace warpalign::detail::recurrent
