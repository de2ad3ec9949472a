// Views of tensors that the caller owns.
#pragma once

#include <cstdint>

namespace warpalign {

// A tensor of kRank axes in any strided layout. Element (i, j, ...) lies stride[0] i + stride[1] j + ...
// elements behind data. A stride of 0 broadcasts its axis; a negative one runs backwards from data.
// The operator's problem gives the extents and the element type.
// Every element within the extents must be readable, or, in a ragged batch, every one within the true
// lengths.
template <int kRank>
struct StridedTensorOf {
  static_assert(kRank >= 1);

  const void* data = nullptr;
  std::int64_t stride[kRank] = {};  // in elements

  // The tensor of these extents whose elements follow each other without gaps, the last axis fastest.
  static constexpr StridedTensorOf contiguous(const void* data, const std::int64_t (&extents)[kRank]) {
    StridedTensorOf view{data, {}};
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
