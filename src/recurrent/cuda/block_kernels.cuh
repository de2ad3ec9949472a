// The functions of block_call.h, for a file that compiles them for one element type.
#pragma once

#include "recurrent/cuda/block_backward.cuh"
#include "recurrent/cuda/block_call.h"
#include "recurrent/cuda/block_forward.cuh"

namespace warpalign::detail::recurrent {

// Rows of the batch that a block has.
constexpr int kFewRows = 1, kManyRows = 4;

// By depth / 32 - 1, whether rows are many, and whether calls have options.
constexpr const char* kBlockNames[4][2][2] = {
    {{"block of 32", "block of 32, options"}, {"rows of 32", "rows of 32, options"}},
    {{"block of 64", "block of 64, options"}, {"rows of 64", "rows of 64, options"}},
    {{"block of 96", "block of 96, options"}, {"rows of 96", "rows of 96, options"}},
    {{"block of 128", "block of 128, options"}, {"rows of 128", "rows of 128, options"}}};
constexpr const char* kBlockNamesBack[4][2][2] = {
    {{"block of 32 back", "block of 32 back, options"}, {"rows of 32 back", "rows of 32 back, options"}},
    {{"block of 64 back", "block of 64 back, options"}, {"rows of 64 back", "rows of 64 back, options"}},
    {{"block of 96 back", "block of 96 back, options"}, {"rows of 96 back", "rows of 96 back, options"}},
    {{"block of 128 back", "block of 128 back, options"}, {"rows of 128 back", "rows of 128 back, options"}}};

template <class T, int kDepth, int kRows, bool kPlain>
inline const cuda::Kernel kBlockForward{kKernels, kBlockNames[kDepth / 32 - 1][kRows == kManyRows][!kPlain],
                                        cuda::type_name<T>(), block_forward_kernel<T, kDepth, kRows, kPlain>};
template <class T, int kDepth, int kRows, bool kPlain>
inline const cuda::Kernel kBlockBackward{
    kKernels, kBlockNamesBack[kDepth / 32 - 1][kRows == kManyRows][!kPlain], cuda::type_name<T>(),
    block_backward_kernel<T, kDepth, kRows, kPlain>};

template <class T, template <class> class Ends>
using BlockKernel = cuda::Kernel<BlockParams<T, Ends>>;

template <class T, template <class> class Ends, int kDepth, int kRows, bool kPlain>
const BlockKernel<T, Ends>& block_kernel() {
  if constexpr (std::is_same_v<Ends<T>, ForwardEnds<T>>) {
    return kBlockForward<T, kDepth, kRows, kPlain>;
  } else {
    return kBlockBackward<T, kDepth, kRows, kPlain>;
  }
}
template <class T, template <class> class Ends, int kDepth, int kRows>
const BlockKernel<T, Ends>& block_kernel(bool is_plain) {
  if constexpr (kDepth <= kMostBlockHiddenOfOptions<T>) {
    if (!is_plain) return block_kernel<T, Ends, kDepth, kRows, false>();
  }
  return block_kernel<T, Ends, kDepth, kRows, true>();
}
template <class T, template <class> class Ends, int kRows>
const BlockKernel<T, Ends>& block_kernel(const LstmProblem& p) {
  if constexpr (sizeof(T) == 2) {
    if (p.hidden > 96) return block_kernel<T, Ends, 128, kRows>(is_plain(p));
  }
  if constexpr (sizeof(T) <= 4) {
    if (p.hidden > 64) return block_kernel<T, Ends, 96, kRows>(is_plain(p));
  }
  if (p.hidden > 32) return block_kernel<T, Ends, 64, kRows>(is_plain(p));
  return block_kernel<T, Ends, 32, kRows>(is_plain(p));
}

// A block has whole warps of units.
inline int block_threads(const LstmProblem& p) {
  constexpr int kUnits = cuda::kWarpSize / kUnitThreads;
  return cuda::div_up(p.hidden, kUnits) * cuda::kWarpSize;
}

// Whether a block has many rows: where blocks of few would be too many to run at once.
template <class T>
bool has_many_rows(const Queue& queue, const LstmProblem& p) {
  const int count = cuda::attribute(cudaDevAttrMultiProcessorCount, queue.execution().cuda_device);
  const bool is_alone = sizeof(T) == 2 && p.hidden >= kUnitsOfLoneBlocks;
  const int most = is_alone ? 1 : kBlocksOfMultiprocessor;
  return static_cast<Offset>(p.batch) * directions_of(p) > most * count;
}

template <class T, template <class> class Ends>
void launch_blocks(Queue& queue, const LstmProblem& p, const CudaCell<T> (&cells)[2],
                   const Ends<T> (&ends)[2], Places places) {
  const bool many = has_many_rows<T>(queue, p);
  const int slices = cuda::div_up(p.batch, many ? kManyRows : kFewRows);
  const BlockParams<T, Ends> params{{cells[0], cells[1]}, {ends[0], ends[1]}, slices, places};
  queue.launch(many ? block_kernel<T, Ends, kManyRows>(p) : block_kernel<T, Ends, kFewRows>(p),
               slices * directions_of(p), block_threads(p), params);
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
