// The costs of the rows that a block keeps exponentials of: float64, float32 or binary16.
#pragma once

#include "cuda/numbers/half.cuh"
#include "transport/cuda/kept/kept_layout.h"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

template <class Real>
struct alignas(16) KeptQuad {
  Real v[4];
};

// Whether four neighbouring columns of every row lie in one piece of memory, from 16 bytes to 16 bytes.
// length: the number of columns in memory.
__device__ __forceinline__ bool are_quads(const void* data, const std::int64_t (&stride)[3], int length) {
  return length % 4 == 0 && stride[2] == 1 && (stride[0] | stride[1]) % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// A block's rows in memory, and how they are read.
template <class Real>
struct KeptCosts {
  const void* data;  // the costs of the block's first row
  std::int64_t stride, column_stride;
  int count;  // columns that exist
  bool is_half, has_quads;

  // first: the block's first row.
  __device__ __forceinline__ KeptCosts(const SolveParams<Real>& p, const Side<Real>& rows,
                                       const Side<Real>& columns, int first)
      : stride(p.cost_stride[1]),
        column_stride(p.cost_stride[2]),
        count(columns.count),
        is_half(sizeof(Real) == 4 && p.half_cost),
        has_quads(!is_half && are_quads(p.cost, p.cost_stride, length_of(p, columns))) {
    const std::int64_t from = first_cost(p, rows) + first * stride;
    data = static_cast<const unsigned char*>(p.cost) + from * (is_half ? 2 : sizeof(Real));
  }

  // Columns j ... j + 3 of the block's n-th row. Those behind the last column have any costs until existing()
  // sets them to 0.
  [[nodiscard]] __device__ __forceinline__ KeptQuad<Real> quad(int n, int j) const {
    const std::int64_t row = n * stride;
    if (has_quads) return *reinterpret_cast<const KeptQuad<Real>*>(static_cast<const Real*>(data) + row + j);
    KeptQuad<Real> costs;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const std::int64_t at = row + max(min(j + c, count - 1), 0) * column_stride;
      costs.v[c] = is_half ? static_cast<Real>(cuda::widen(static_cast<const cuda::Float16*>(data)[at]))
                           : static_cast<const Real*>(data)[at];
    }
    return costs;
  }
  [[nodiscard]] __device__ __forceinline__ KeptQuad<Real> existing(KeptQuad<Real> costs, int j) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (j + c >= count) costs.v[c] = 0;
    }
    return costs;
  }

 private:
  // The number of costs in a row of memory. Rows that a team has made of points are padded.
  [[nodiscard]] static __device__ __forceinline__ int length_of(const SolveParams<Real>& p,
                                                                const Side<Real>& columns) {
    return p.layout.of_points ? kept_stride(columns.p.length) : columns.p.length;
  }
};

}  // namespace warpalign::detail::transport
