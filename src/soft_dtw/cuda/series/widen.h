// Converts series of half types to float32, for kernels that read only that.
#pragma once

#include <cuda_runtime.h>

#include "warpalign/dtype.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign::detail::soft_dtw {

constexpr bool is_half(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

struct HalfSeries {
  DType type;        // kFloat16 or kBFloat16
  StridedTensor x;   // (batch, n, dim)
  StridedTensor y;   // (batch, m, dim)
  float* widened_x;  // the same shapes, contiguous
  float* widened_y;
  int batch;
  int n;
  int m;
  int dim;
  const int* only;  // (batch,): pairs whose element is 0 are skipped; null: none is
};

// Writes widened_x and widened_y.
Status widen_series(const HalfSeries& series, cudaStream_t stream);

}  // namespace warpalign::detail::soft_dtw
