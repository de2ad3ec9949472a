// The library's own product of matrices, c = a b. A block computes 64 x 64 elements of c, a thread 4 x 4 of
// them in registers. The order of an element's sum depends on the depth alone.
#include <cuda_runtime.h>

#include "core/visit_dtype.h"
#include "cuda/launch/launch.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/products/product.h"

namespace warpalign::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256;

template <class T>
struct Operands {
  const T *a, *b;
  T* c;
  MatrixProductCall call;
};

// Copies 64 rows or columns of 16 terms of an operand to shared memory, as [depth][64]. Neighbouring threads
// read along the axis whose elements are neighbours in memory.
template <class T>
__device__ __forceinline__ void load_part(const T* from, std::int64_t across_stride,
                                          std::int64_t depth_stride, std::int64_t first, std::int64_t across,
                                          std::int64_t k, std::int64_t depth, Sum<T> (*to)[kTile + 1]) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int part = 0; part < kTile * kDepth / kThreads; ++part) {
    const int at = part * kThreads + thread;
    const int i = depth_stride == 1 ? at / kDepth : at % kTile;
    const int j = depth_stride == 1 ? at % kDepth : at / kTile;
    const bool is_inside = first + i < across && k + j < depth;
    to[j][i] = is_inside ? widen(from[(first + i) * across_stride + (k + j) * depth_stride]) : Sum<T>(0);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) product_kernel(Operands<T> p) {
  __shared__ Sum<T> a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const MatrixProductCall& call = p.call;
  const std::int64_t tiles = div_up(call.columns, kTile);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) / tiles * kTile;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) % tiles * kTile;
  const int thread = static_cast<int>(threadIdx.x), i = thread / 16, j = thread % 16;
  Sum<T> sum[4][4] = {};
  for (std::int64_t k = 0; k < call.depth; k += kDepth) {
    load_part(p.a, call.a_stride[0], call.a_stride[1], row, call.rows, k, call.depth, a);
    load_part(p.b, call.b_stride[1], call.b_stride[0], column, call.columns, k, call.depth, b);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      Sum<T> left[4], right[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) left[n] = a[d][i + 16 * n], right[n] = b[d][j + 16 * n];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) sum[m][n] += left[m] * right[n];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const std::int64_t r = row + i + 16 * m, c = column + j + 16 * n;
      if (r >= call.rows || c >= call.columns) continue;
      T& to = p.c[r * call.c_stride + c];
      to = narrow<T>(call.add ? widen(to) + sum[m][n] : sum[m][n]);
    }
  }
}

bool lends_product(const MatrixProductCall& call, const Execution& execution) {
  return execution.matrix_product.run && !execution.batch_invariant && call.depth > 0;
}

}  // namespace

Status multiply(const MatrixProductCall& call, const Execution& execution) {
  if (call.rows == 0 || call.columns == 0 || (call.depth == 0 && call.add)) return {};
  if (PlanLog* const log = PlanLog::current(); log && lends_product(call, execution)) {
    log->product(call.rows, call.columns, call.depth);
    return {};
  }
  if (lends_product(call, execution)) {
    if (execution.matrix_product.run(execution.matrix_product.context, call)) return {};
    return Status::device_error("the product of matrices that execution.matrix_product names has failed");
  }
  return detail::visit_dtype(call.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    const std::int64_t blocks = div_up(call.rows, kTile) * div_up(call.columns, kTile);
    const Operands<T> operands{static_cast<const T*>(call.a), static_cast<const T*>(call.b),
                               static_cast<T*>(call.c), call};
    return launch(product_kernel<T>,
                  {.blocks = static_cast<int>(blocks),
                   .threads = kThreads,
                   .stream = static_cast<cudaStream_t>(execution.stream)},
                  operands);
  });
}

}  // namespace warpalign::cuda
