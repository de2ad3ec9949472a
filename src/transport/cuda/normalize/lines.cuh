// The lines of a matrix in a lane's registers.
//
// A lane has up to 16 elements of row `line` and as many of column `line`: elements first ... first + 4 quads
// - 1 of each. Lanes of equal `line`, neighbours in a warp, have a line's parts. Elements beyond a line's end
// are -inf, or 0 in gradients.
#pragma once

#include <math_constants.h>

#include "cuda/launch/shared.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "cuda/threads/warp.cuh"
#include "transport/cuda/normalize/layout.h"

namespace warpalign::detail::transport {

template <class Real>
struct Line {
  Real x[kLineElements];
};

__device__ __forceinline__ float power_of_two(float t) { return cuda::exp2_fast(t); }
__device__ __forceinline__ double power_of_two(double t) { return exp2(t); }
__device__ __forceinline__ float log_of_two(float v) { return log2f(v); }
__device__ __forceinline__ double log_of_two(double v) { return log2(v); }

// Four numbers of an exchange.
template <class Real>
struct alignas(16) Quad {
  Real x[4];
};

// Where a lane is, and what the lanes of a matrix share.
template <class Real>
class Lanes {
 public:
  // exchange: of this matrix, `lines` numbers a slot.
  __device__ __forceinline__ Lanes(const NormalizeLayout& layout, Real* exchange)
      : lines_(layout.lines), parts_(layout.parts), quads_(layout.quads), exchange_(exchange) {
    const int lane = static_cast<int>(threadIdx.x) % (lines_ * parts_);
    line_ = lane / parts_;
    part_ = lane % parts_;
    first_ = part_ * quads_ * 4;
  }
  [[nodiscard]] __device__ __forceinline__ int line() const { return line_; }
  [[nodiscard]] __device__ __forceinline__ int first() const { return first_; }

  // Calls body(e) for the lane's elements; e is a constant in every copy of the body.
  template <class Body>
  __device__ __forceinline__ void for_elements(const Body& body) const {
#pragma unroll
    for (int quad = 0; quad < kLineElements / 4; ++quad) {
      if (quad < quads_) {
#pragma unroll
        for (int k = 0; k < 4; ++k) body(quad * 4 + k);
      }
    }
  }
  // Adds v(e) over the line, for all lanes that share it.
  template <class Value>
  __device__ __forceinline__ Real sum(const Value& v) const {
    Real sums[4] = {};
    for_elements([&](int e) { sums[e % 4] += v(e); });
    return across((sums[0] + sums[1]) + (sums[2] + sums[3]), [](Real a, Real b) { return a + b; });
  }
  // The largest v(e) of the line, -inf for none; NaN if one is NaN.
  template <class Value>
  __device__ __forceinline__ Real largest(const Value& v) const {
    const auto larger = [](Real a, Real b) { return b > a || isnan(b) ? b : a; };
    Real top = -static_cast<Real>(CUDART_INF);
    for_elements([&](int e) { top = larger(top, v(e)); });
    return across(top, larger);
  }

  // The lane's line has this number; the others find it in slot `slot` after meet().
  __device__ __forceinline__ void tell(int slot, Real v) const {
    if (part_ == 0) exchange_[slot * lines_ + line_] = v;
  }
  [[nodiscard]] __device__ __forceinline__ Real own(int slot) const {
    return exchange_[slot * lines_ + line_];
  }
  // Calls body(e, number of line first + e).
  template <class Body>
  __device__ __forceinline__ void for_told(int slot, const Body& body) const {
    const Real* const from = exchange_ + slot * lines_ + first_;
#pragma unroll
    for (int quad = 0; quad < kLineElements / 4; ++quad) {
      if (quad < quads_) {
        const auto told = reinterpret_cast<const Quad<Real>*>(from)[quad];
#pragma unroll
        for (int k = 0; k < 4; ++k) body(quad * 4 + k, told.x[k]);
      }
    }
  }
  // All lanes of the matrix meet, and see what each has told.
  __device__ __forceinline__ void meet() const {
    if (lines_ * parts_ > cuda::kWarpSize) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

 private:
  template <class Op>
  __device__ __forceinline__ Real across(Real v, const Op& op) const {
    for (int bit = 1; bit < parts_; bit *= 2) v = op(v, cuda::shuffle_xor(v, bit));
    return v;
  }

  const int lines_, parts_, quads_;
  Real* const exchange_;
  int line_, part_, first_;
};

// A matrix in memory of any strides; elements beyond its end, or of a matrix that does not exist, are
// `outside`.
template <class Element>
struct MatrixView {
  using Real = cuda::Sum<Element>;
  const Element* data;  // of this matrix
  std::int64_t row_stride, column_stride;
  int n, m;  // 0, 0: it does not exist

  [[nodiscard]] __device__ __forceinline__ Real at(int i, int j, Real outside) const {
    return i < n && j < m ? cuda::widen(data[i * row_stride + j * column_stride]) : outside;
  }
};

// log2 P of the lane's row and column. Both copies of an element take the same roundings.
template <class Real>
class LogPlan {
 public:
  // Reads logits, less the largest one of their row; slot is free.
  template <class Element>
  __device__ __forceinline__ LogPlan(const Lanes<Real>& lanes, const MatrixView<Element>& logits, int slot)
      : lanes_(lanes) {
    const Real kNone = -static_cast<Real>(CUDART_INF), kLog2E = static_cast<Real>(1.4426950408889634074);
    lanes.for_elements([&](int e) {
      rows.x[e] = logits.at(lanes.line(), lanes.first() + e, kNone);
      columns.x[e] = logits.at(lanes.first() + e, lanes.line(), kNone);
    });
    Real top = lanes.largest([&](int e) { return rows.x[e]; });
    row_lives_ = top != kNone;
    column_lives_ = lanes.largest([&](int e) { return columns.x[e]; }) != kNone;
    if (!row_lives_) top = 0;
    lanes.tell(slot, top);
    lanes.meet();
    lanes.for_elements([&](int e) { rows.x[e] = (rows.x[e] - top) * kLog2E; });
    lanes.for_told(slot, [&](int e, Real other) { columns.x[e] = (columns.x[e] - other) * kLog2E; });
  }

  // Normalises rows, or columns. The numbers that were added stay in the slot.
  template <bool kRows>
  __device__ __forceinline__ void normalize(int slot) {
    if constexpr (kRows) {
      normalize(rows, row_lives_, columns, slot);
    } else {
      normalize(columns, column_lives_, rows, slot);
    }
  }
  // Takes this back.
  template <bool kRows>
  __device__ __forceinline__ void undo(int slot) {
    if constexpr (kRows) {
      undo(rows, columns, slot);
    } else {
      undo(columns, rows, slot);
    }
  }

  Line<Real> rows, columns;

 private:
  __device__ __forceinline__ void normalize(Line<Real>& mine, bool lives, Line<Real>& others, int slot) {
    const Real shift = shift_of(mine, lives);
    lanes_.tell(slot, shift);
    lanes_.for_elements([&](int e) { mine.x[e] += shift; });
    lanes_.meet();
    lanes_.for_told(slot, [&](int e, Real told) { others.x[e] += told; });
  }

  __device__ __forceinline__ void undo(Line<Real>& mine, Line<Real>& others, int slot) {
    const Real own = lanes_.own(slot);
    lanes_.for_elements([&](int e) { mine.x[e] -= own; });
    lanes_.for_told(slot, [&](int e, Real told) { others.x[e] -= told; });
  }

  // -log2 of the sum of 2^t over a line; 0 for a line of -inf. No t is far above 0: an element of a
  // normalised matrix is at most 1. A sum that is too small to have all of its digits is made relative to the
  // largest element.
  __device__ __forceinline__ Real shift_of(const Line<Real>& t, bool lives) const {
    const Real sum = lanes_.sum([&](int e) { return power_of_two(t.x[e]); });
    Real shift = -log_of_two(sum);
    const bool is_small = lives && sum < static_cast<Real>(0x1p-60);
    if (__any_sync(cuda::kFullWarp, is_small)) {
      const Real top = lanes_.largest([&](int e) { return t.x[e]; });
      const Real relative = lanes_.sum([&](int e) { return power_of_two(t.x[e] - top); });
      if (is_small) shift = -(top + log_of_two(relative));
    }
    return lives ? shift : 0;
  }

  const Lanes<Real>& lanes_;
  bool row_lives_, column_lives_;
};

}  // namespace warpalign::detail::transport
