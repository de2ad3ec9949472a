// Whole sweeps in one launch, of layers so small that one block holds R in its registers. Blocks share the
// rows of the batch and never meet, so that nothing travels between them.
//
// A unit has four neighbouring threads. Products are by multiply-adds (block_lanes.cuh), or on the matrix
// units (block_units.cuh). Each has one order of sums for any number of rows, so that a row has the same bits
// in every batch.
#pragma once

#include "cuda/warp.cuh"
#include "recurrent/cuda/params.cuh"
#include "recurrent/cuda/tile.cuh"

namespace warpalign::detail::recurrent {

constexpr int kUnitThreads = 4;
// Blocks of a multiprocessor: kernels leave registers for so many.
template <class T, int kDepth>
constexpr int kBlocksAtOnce = sizeof(T) <= 4 ? 128 / kDepth : 1;
constexpr int kBlockRowPad = 8;  // elements behind a row in shared memory: keeps banks apart

// Where a direction's sweep takes its states from, and where it leaves them. Rows of h lie h_stride elements
// apart, rows of c and of all that is left H elements. wide: c is of Sum<T>, and not of T.
template <class T>
struct ForwardEnds {
  const T* h;  // before the first step; null: 0
  const void* c;
  const T* h0;  // where a reset begins again; null: 0
  const void* c0;
  T* h_last;
  void* c_last;
  int h_stride;
  bool wide;
};
// The same of gradients. dh0, dc0: what resets have handed to the first states is added to it.
template <class T>
struct BackwardEnds {
  const void *dh, *dc;  // behind the last step; null: 0
  const void* c0;       // c before the first step; null: 0
  void *dh_last, *dc_last;
  Sum<T>*dh0, *dc0;  // null: dh_last and dc_last get the sums
  bool wide_h, wide;
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

template <class T, template <class> class Ends>
struct BlockParams {
  CudaCell<T> cell[2];
  Ends<T> ends[2];
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

// Where a thread's unit is in arrays of rows, place after place. Plain rows lie at one distance, so that
// nothing is multiplied.
template <bool kPlain>
class BlockWalk {
 public:
  // other_stride: from row to row of an array whose rows have an entry of the unit at `unit`.
  template <class T>
  __device__ __forceinline__ BlockWalk(const CudaCell<T>& cell, int place, bool backward, int b, int unit,
                                       Offset other_stride)
      : rows_(rows_of<kPlain>(cell.at)),
        b_(b),
        unit_(unit),
        hidden_(cell.hidden),
        falls_(cell.reverse != backward),
        other_stride_(other_stride) {
    const Offset row = row_of(place), step = (falls_ ? -1 : 1) * static_cast<Offset>(rows_.batch);
    if (!kPlain) return;
    entry_ = row * hidden_ + unit, other_ = row * other_stride + unit;
    step_ = step * hidden_, other_step_ = step * other_stride;
  }
  // Among rows of H entries, at a place `ahead` of this one; and in the other array.
  [[nodiscard]] __device__ __forceinline__ Offset entry(int place, int ahead) const {
    return kPlain ? entry_ + ahead * step_ : row_of(place) * hidden_ + unit_;
  }
  [[nodiscard]] __device__ __forceinline__ Offset other(int place, int ahead) const {
    return kPlain ? other_ + ahead * other_step_ : row_of(place) * other_stride_ + unit_;
  }
  __device__ __forceinline__ void go_on() {
    if (kPlain) entry_ += step_, other_ += other_step_;
  }

 private:
  // Of places that are none: that of step 0.
  [[nodiscard]] __device__ __forceinline__ Offset row_of(int place) const {
    const int t = falls_ ? rows_.steps - 1 - place : place;
    return rows_.first(kPlain || (t >= 0 && t < rows_.steps) ? t : 0) + b_;
  }

  decltype(rows_of<kPlain>(StepRows{})) rows_;
  int b_, unit_, hidden_;
  bool falls_;  // t, from place to place
  Offset other_stride_;
  Offset entry_ = 0, other_ = 0, step_ = 0, other_step_ = 0;
};

}  // namespace warpalign::detail::recurrent
