// Whole sweeps in one launch, of layers so small that one block holds R in its registers: float32 and
// float64. Blocks share the rows of the batch and never meet, so that nothing travels between them.
//
// A unit has four neighbouring threads. Forward each thread multiplies a quarter of the depth, H, for the
// four gates of the unit. Backward the depth is the 4H gates, and the 16 threads of four units share it: each
// thread has the four gates of every 16th unit. Then the threads exchange their sums, in one order for any
// number of rows. So a row has the same bits in every batch.
#pragma once

#include "cuda/warp.cuh"
#include "recurrent/cuda/params.cuh"
#include "recurrent/cuda/tile.cuh"

namespace warpalign::detail::recurrent {

constexpr int kUnitThreads = 4;
// Blocks of a multiprocessor: kernels leave registers for so many.
template <class T, int kDepth>
constexpr int kBlocksAtOnce = sizeof(T) == 4 ? 128 / kDepth : 1;
constexpr int kBlockRowPad = 8;  // elements behind a row in shared memory: keeps banks apart

// Where a direction's sweep takes its states from, and where it leaves them. Rows of h lie h_stride elements
// apart, rows of c and of all that is left H elements.
template <class T>
struct ForwardEnds {
  const T *h, *c;    // before the first step; null: 0
  const T *h0, *c0;  // where a reset begins again; null: 0
  T *h_last, *c_last;
  int h_stride;
};
// The same of gradients. dh0, dc0: what resets have handed to the first states is added to it.
template <class T>
struct BackwardEnds {
  const T *dh, *dc;  // behind the last step; null: 0
  const T* c0;       // c before the first step; null: 0
  T *dh_last, *dc_last;
  T *dh0, *dc0;  // null: dh_last and dc_last get the sums
};

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

// Sums over kLanes neighbouring lanes: lanes hand on halves of the sums, until each has one. Lanes with the
// upper half of the sums are those with the bit kLanes / 2. Where sums are few, all lanes get the last one.
template <int kLanes, int kCount, class Real, int kAll>
__device__ __forceinline__ void share_sums(Real (&sums)[kAll]) {
  constexpr int kHalf = kLanes / 2;
  const bool is_upper = threadIdx.x & kHalf;
  if constexpr (kCount > 1) {
#pragma unroll
    for (int k = 0; k < kCount / 2; ++k) {
      const Real sent = is_upper ? sums[k] : sums[k + kCount / 2];
      const Real kept = is_upper ? sums[k + kCount / 2] : sums[k];
      sums[k] = kept + cuda::shuffle_xor(sent, kHalf);
    }
  } else {
    sums[0] += cuda::shuffle_xor(sums[0], kHalf);
  }
  if constexpr (kHalf > 1) share_sums<kHalf, (kCount > 1 ? kCount / 2 : 1)>(sums);
}

}  // namespace warpalign::detail::recurrent
