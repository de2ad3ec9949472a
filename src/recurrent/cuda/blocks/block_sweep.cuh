// Whole sweeps in one launch, of layers so small that one block holds R in its registers. Blocks share the
// rows of the batch and never meet, so that nothing travels between them.
//
// A unit has four neighbouring threads. Products are by multiply-adds (block_lanes.cuh), or on the matrix
// units (block_units.cuh). Each has one order of sums for any number of rows, so that a row has the same bits
// in every batch.
#pragma once

#include "cuda/threads/warp.cuh"
#include "recurrent/cuda/cell/kept.cuh"
#include "recurrent/cuda/cell/params.cuh"
#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

constexpr int kUnitThreads = 4;
// Blocks of a multiprocessor: kernels leave registers for so many.
template <class T, int kDepth>
constexpr int kBlocksAtOnce = sizeof(T) <= 4 ? 128 / kDepth : 1;
constexpr int kBlockRowPad = 8;  // elements after a row in shared memory: keeps banks apart

// Where a direction's sweep takes its states from, and where it leaves them; backward the gradients. Null: 0,
// or not wanted. Rows of c and of gradients lie H elements apart, rows of h h_stride.
template <class T>
struct BlockEnds {
  const void *h, *c;    // before the first step; backward dh and dc after the last one
  const void *h0, *c0;  // where a reset begins again; backward c0 is c before the first step
  void *h_last, *c_last;
  int h_stride;
  bool wide_h, wide;  // backward dh, and c or dc, are of Sum<T>, and not of T
  // Backward: what resets have handed to the first states is added there; null: to h_last and c_last.
  Sum<T>*dh0 = nullptr, *dc0 = nullptr;
};
// Entries of such arrays; of none 0.
template <class T>
__device__ __forceinline__ Sum<T> read_end(const void* states, bool wide, Offset index) {
  if (!states) return 0;
  if (sizeof(T) == 2 && wide) return static_cast<const Sum<T>*>(states)[index];
  return cuda::widen(static_cast<const T*>(states)[index]);
}
template <class T>
__device__ __forceinline__ void write_end(void* states, bool wide, Offset index, Sum<T> v) {
  if (!states) return;
  if (sizeof(T) == 2 && wide) {
    static_cast<Sum<T>*>(states)[index] = v;
  } else {
    static_cast<T*>(states)[index] = cuda::narrow<T>(v);
  }
}

template <class T>
struct BlockParams {
  CudaCell<T> cell[2];
  BlockEnds<T> ends[2];
  int slices;  // blocks of a direction
  Places places;
};

// What a thread has: one unit, and with 4 rows a row of them. Else threads of a unit share its row.
template <int kRows>
struct BlockPlace {
  int direction, part, unit, row, b;

  __device__ __forceinline__ explicit BlockPlace(int slices) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    direction = block / slices;
    part = thread % kUnitThreads;
    unit = thread / kUnitThreads;
    row = kRows == 1 ? 0 : part * kRows / kUnitThreads;
    b = block % slices * kRows + row;
  }
  // Whether this thread is the first one that has its unit and row.
  [[nodiscard]] __device__ __forceinline__ bool is_first() const { return part * kRows % kUnitThreads == 0; }
};

// What options say about a step of a row, asked for ahead as its numbers are.
struct AskedOptions {
  bool exists = false, holds = false, resets = false;  // resets: before a step that the row has
  unsigned kept = 0;                                   // zoneout's bits
  Offset row = 0;                                      // in memory, where it exists
};
template <class T>
__device__ __forceinline__ AskedOptions asked_options(const CudaCell<T>& cell, int t, int b, int unit) {
  const StepRows& rows = cell.at;
  AskedOptions asked;
  asked.exists = rows.has_row(t, b);
  if (!asked.exists) return asked;
  asked.row = rows.first(t) + b, asked.holds = !rows.lengths || t < __ldg(rows.lengths + b);
  if (!asked.holds) return asked;
  asked.resets = rows.resets && __ldg(rows.resets + asked.row);
  if (cell.kept && unit < cell.hidden) {
    asked.kept = __ldg(cell.kept + asked.row * kept_words(cell.hidden) + unit / kKeptUnits);
  }
  return asked;
}

// Where a thread's unit is in arrays of rows, place after place, where all rows have all steps: rows lie at
// one distance, so that nothing is multiplied.
class BlockWalk {
 public:
  // other_stride: from row to row of an array whose rows have an entry of the unit at `unit`.
  template <class T>
  __device__ __forceinline__ BlockWalk(const CudaCell<T>& cell, int place, bool backward, int b, int unit,
                                       Offset other_stride) {
    const bool falls = cell.reverse != backward;  // t, from place to place
    const Offset batch = cell.at.batch, row = (falls ? cell.at.steps - 1 - place : place) * batch + b;
    const Offset step = falls ? -batch : batch;
    entry_ = row * cell.hidden + unit, other_ = row * other_stride + unit;
    step_ = step * cell.hidden, other_step_ = step * other_stride;
  }
  // Among rows of H entries, `ahead` places from here; and in the other array.
  [[nodiscard]] __device__ __forceinline__ Offset entry(int ahead) const { return entry_ + ahead * step_; }
  [[nodiscard]] __device__ __forceinline__ Offset other(int ahead) const {
    return other_ + ahead * other_step_;
  }
  __device__ __forceinline__ void go_on() { entry_ += step_, other_ += other_step_; }

 private:
  Offset entry_, other_, step_, other_step_;
};

}  // namespace warpalign::detail::recurrent
