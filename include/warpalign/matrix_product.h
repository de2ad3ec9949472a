// MatrixProduct: products of matrices that the caller lends to CUDA executions.
#pragma once

#include <cstdint>

#include "warpalign/dtype.h"

namespace warpalign {

// c = a b, or c += a b. Element (i, j) of a matrix is stride[0] i + stride[1] j elements after its pointer.
// Sums are float32 or wider. No extent is 0.
struct MatrixProductCall {
  DType dtype;  // all three matrices have it
  std::int64_t rows, columns, depth;
  const void* a;  // (rows, depth); one of its strides is 1
  std::int64_t a_stride[2];
  const void* b;  // (depth, columns); one of its strides is 1
  std::int64_t b_stride[2];
  void* c;                // (rows, columns), elements of a row side by side
  std::int64_t c_stride;  // from row to row
  bool add;               // c += a b
};

// run(context, call) enqueues the product on the execution's stream, and says whether it could.
struct MatrixProduct {
  using Run = bool (*)(void* context, const MatrixProductCall& call);

  Run run = nullptr;  // null: the library's own kernel
  void* context = nullptr;
};

}  // namespace warpalign
