// The functions of block_call.h, for a file that compiles them for one element type.
#pragma once

#include "recurrent/cuda/blocks/block_backward.cuh"
#include "recurrent/cuda/blocks/block_call.h"
#include "recurrent/cuda/blocks/block_forward.cuh"

namespace warpalign::detail::recurrent {

// Rows of the batch that a block has.
constexpr int kFewRows = 1, kManyRows = 4;

// The names of a kernel and of its counterpart backward.
struct BlockNames {
  const char *forward, *back;
};
template <int kDepth, int kRows, bool kPlain>
constexpr BlockNames kBlockNames{};
template <>
constexpr BlockNames kBlockNames<32, kFewRows, true>{"block of 32", "block of 32 back"};
template <>
constexpr BlockNames kBlockNames<64, kFewRows, true>{"block of 64", "block of 64 back"};
template <>
constexpr BlockNames kBlockNames<96, kFewRows, true>{"block of 96", "block of 96 back"};
template <>
constexpr BlockNames kBlockNames<128, kFewRows, true>{"block of 128", "block of 128 back"};
template <>
constexpr BlockNames kBlockNames<64, kManyRows, true>{"rows of 64", "rows of 64 back"};
template <>
constexpr BlockNames kBlockNames<128, kManyRows, true>{"rows of 128", "rows of 128 back"};
template <>
constexpr BlockNames kBlockNames<96, kFewRows, false>{"block of 96, options", "block of 96 back, options"};

template <class T, int kDepth, int kRows, bool kPlain>
inline const cuda::Kernel kBlockForward{kKernels, kBlockNames<kDepth, kRows, kPlain>.forward,
                                        cuda::type_name<T>(), block_forward_kernel<T, kDepth, kRows, kPlain>};
template <class T, int kDepth, int kRows, bool kPlain>
inline const cuda::Kernel kBlockBackward{kKernels, kBlockNames<kDepth, kRows, kPlain>.back,
                                         cuda::type_name<T>(),
                                         block_backward_kernel<T, kDepth, kRows, kPlain>};

// A pass' kernel, and how many rows of the batch its block has.
template <class T, template <class> class Ends>
struct BlockChoice {
  const cuda::Kernel<BlockParams<T, Ends>>* kernel;
  int rows;
};
template <class T, template <class> class Ends, int kDepth, int kRows = kFewRows, bool kPlain = true>
BlockChoice<T, Ends> block_of() {
  if constexpr (std::is_same_v<Ends<T>, ForwardEnds<T>>) {
    return {&kBlockForward<T, kDepth, kRows, kPlain>, kRows};
  } else {
    return {&kBlockBackward<T, kDepth, kRows, kPlain>, kRows};
  }
}
// The kernels that there are: each of more depth serves fewer units, too, with the same bits. many: blocks of
// a row would be too many to run at once.
template <class T, template <class> class Ends>
BlockChoice<T, Ends> choose_block(const LstmProblem& p, bool many) {
  if constexpr (sizeof(T) <= 4) {
    if (!is_plain(p)) return block_of<T, Ends, 96, kFewRows, false>();
    if (many && p.hidden <= 64) return block_of<T, Ends, 64, kManyRows>();
  }
  if constexpr (sizeof(T) == 2) {
    if (many) return block_of<T, Ends, 128, kManyRows>();
    if (p.hidden > 64) return block_of<T, Ends, 128>();
  }
  if constexpr (sizeof(T) <= 4) {
    if constexpr (sizeof(T) == 4) {
      if (p.hidden > 64) return block_of<T, Ends, 96>();
    }
    if (p.hidden <= 32) return block_of<T, Ends, 32>();
  }
  return block_of<T, Ends, 64>();
}

// A block has whole warps of units.
inline int block_threads(const LstmProblem& p) {
  constexpr int kUnits = cuda::kWarpSize / kUnitThreads;
  return cuda::div_up(p.hidden, kUnits) * cuda::kWarpSize;
}

// Whether a block has many rows: where blocks of few would be too many to run at once.
template <class T>
bool has_many_rows(const Queue& queue, const LstmProblem& p) {
  const int count = queue.device().multiprocessors;
  const bool is_alone = sizeof(T) == 2 && p.hidden >= kUnitsOfLoneBlocks;
  const int most = is_alone ? 1 : kBlocksOfMultiprocessor;
  return static_cast<Offset>(p.batch) * directions_of(p) > most * count;
}

template <class T, template <class> class Ends>
void launch_blocks(Queue& queue, const LstmProblem& p, const CudaCell<T> (&cells)[2],
                   const Ends<T> (&ends)[2], Places places) {
  const auto choice = choose_block<T, Ends>(p, has_many_rows<T>(queue, p));
  const int slices = cuda::div_up(p.batch, choice.rows);
  const BlockParams<T, Ends> params{{cells[0], cells[1]}, {ends[0], ends[1]}, slices, places};
  queue.launch(*choice.kernel, slices * directions_of(p), block_threads(p), params);
}

template <class T>
void BlockSweeps<T>::forward(Queue& queue, const LstmProblem& p, const CudaCell<T> (&cells)[2],
                             const ForwardEnds<T> (&ends)[2], Places places) {
  launch_blocks(queue, p, cells, ends, places);
}
template <class T>
void BlockSweeps<T>::backward(Queue& queue, const LstmProblem& p, const CudaCell<T> (&cells)[2],
                              const BackwardEnds<T> (&ends)[2], Places places) {
  launch_blocks(queue, p, cells, ends, places);
}
}  // namespace warpalign::detail::recurrent
