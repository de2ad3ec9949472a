// Converts series of half types to float32, for kernels that read only that.
#pragma once

#include <cuda_runtime.h>

#include "soft_dtw/problem.h"
#include "warpalign/dtype.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign::detail::soft_dtw {

constexpr bool is_half(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

struct HalfSeries {
  // One side of the pairs, padded (batch, length, dim), or packed where offsets is not null.
  struct Side {
    StridedTensor series;
    const std::int64_t* offsets;
    const std::int32_t* lengths;
    int length;
    float* widened;  // the same shape, contiguous
  };
  DType type;  // kFloat16 or kBFloat16
  Side x;
  Side y;
  int batch;
  int dim;
  const int* only;  // (batch,): pairs whose element is 0 are skipped; null: none is

  static HalfSeries of(const SoftDtwProblem& p) {
    return {p.dtype,
            {p.x, p.x_offsets, p.x_lengths, p.n, nullptr},
            {p.y, p.y_offsets, p.y_lengths, p.m, nullptr},
            p.batch,
            p.dim,
            nullptr};
  }
};

// Writes the widened series of both sides.
Status widen_series(const HalfSeries& series, cudaStream_t stream);

}  // namespace warpalign::detail::soft_dtw
