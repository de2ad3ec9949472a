// Between the caller's strided tensors and a worker's own memory: series in, gradients out.
#pragma once

#include <cstdint>

#include "soft_dtw/cpu_kernel.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::detail {

template <class Storage>
const Storage* element(const StridedTensor& tensor, int b) {
  return static_cast<const Storage*>(tensor.data) + b * tensor.stride[0];
}

// (length, dim) in any layout to one row of `stride` per feature, padded with the last element; backwards for
// y. Padding is real data, so that lanes beyond an anti-diagonal's end see only costs of true cells.
template <class Storage, class Real>
void pack_series(const StridedTensor& tensor, int b, int length, int dim, bool backwards, std::int64_t stride,
                 Real* to) {
  for (int k = 0; k < dim; ++k, to += stride) {
    const Storage* from = element<Storage>(tensor, b) + k * tensor.stride[2];
    std::int64_t step = tensor.stride[1];
    if (backwards) {
      from += (length - 1) * step;
      step = -step;
    }
    for (int i = 0; i < length; ++i) to[i] = static_cast<Real>(from[i * step]);
    for (std::int64_t i = length; i < stride; ++i) to[i] = to[length - 1];
  }
}

// The way back, times `factor`, to the contiguous (full, dim) of pair b; beyond the true length 0.
template <class Storage, class Real>
void unpack_gradient(const Real* from, std::int64_t stride, int length, int dim, bool backwards, Real factor,
                     int b, int full, void* gradient) {
  if (!gradient) return;
  Storage* to = static_cast<Storage*>(gradient) + static_cast<std::int64_t>(b) * full * dim;
  for (int i = 0; i < length; ++i) {
    const Real* column = from + (backwards ? length - 1 - i : i);
    for (int k = 0; k < dim; ++k) *to++ = static_cast<Storage>(factor * column[k * stride]);
  }
  for (std::int64_t rest = static_cast<std::int64_t>(full - length) * dim; rest > 0; --rest) *to++ = 0;
}

// One value within a pair's true lengths and 0 beyond them, in a contiguous (rows, columns) of pair b.
template <class Storage>
void fill_pair(void* output, int b, int rows, int columns, int true_rows, int true_columns, Storage value) {
  if (!output) return;
  Storage* to = static_cast<Storage*>(output) + static_cast<std::int64_t>(b) * rows * columns;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) *to++ = i < true_rows && j < true_columns ? value : Storage(0);
  }
}

// 0 beyond a pair's true lengths; what is within stays.
template <class Storage>
void zero_padding(void* output, int b, int rows, int columns, int true_rows, int true_columns) {
  if (!output) return;
  Storage* row = static_cast<Storage*>(output) + static_cast<std::int64_t>(b) * rows * columns;
  for (int i = 0; i < rows; ++i, row += columns) {
    for (int j = i < true_rows ? true_columns : 0; j < columns; ++j) row[j] = 0;
  }
}

}  // namespace warpalign::detail
