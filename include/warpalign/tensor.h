// Views of tensors that the caller owns.
#pragma once

#include <cstdint>
#include <limits>

namespace warpalign {

// The value of a stride that has not been set. A call whose tensor has data and such a stride is an error.
inline constexpr std::int64_t kUnsetStride = std::numeric_limits<std::int64_t>::min();

// A tensor of kRank axes in any strided layout. Element (i, j, ...) is stride[0] i + stride[1] j + ...
// elements after data. A stride of 0 broadcasts its axis; a negative one runs backwards from data. The
// operator's problem gives the extents and the element type. Every axis that the operator reads needs a
// stride, also where its extent is 1. Every element within the extents must be readable, or, in a ragged
// batch, every one within the true lengths.
template <int kRank>
struct StridedTensorOf {
  static_assert(kRank >= 1);

  const void* data = nullptr;
  std::int64_t stride[kRank];  // in elements

  // No data, and no stride set.
  constexpr StridedTensorOf() {
    for (std::int64_t& one : stride) one = kUnsetStride;
  }

  // A stride for each of the kRank axes: {data, {N * D, D, 1}}.
  template <int kGiven>
  requires(kGiven == kRank) constexpr StridedTensorOf(const void* first,
                                                      const std::int64_t (&strides)[kGiven])
      : data(first) {
    for (int axis = 0; axis < kRank; ++axis) stride[axis] = strides[axis];
  }

  // The tensor of these extents whose elements follow each other without gaps, the last axis fastest.
  static constexpr StridedTensorOf contiguous(const void* data, const std::int64_t (&extents)[kRank]) {
    StridedTensorOf view;
    view.data = data;
    std::int64_t step = 1;
    for (int axis = kRank - 1; axis >= 0; --axis) {
      view.stride[axis] = step;
      step *= extents[axis];
    }
    return view;
  }
};

using StridedTensor = StridedTensorOf<3>;  // a batch of series (B, length, D) or of matrices (B, N, M)

}  // namespace warpalign
