// The log-sum-exp of a row of logits (cuda/rows/row_sum.cuh), and that of few duration logits.
#pragma once

#include "cuda/rows/row_sum.cuh"
#include "transducer/cuda/call/layout.h"
#include "transducer/cuda/lattice/state.cuh"

namespace warpalign::detail::transducer {

using cuda::finished;
using cuda::log2_probability;
using cuda::minus_infinity;
using cuda::OnlineSum;
using cuda::RowChunk;
using cuda::RowSum;
using cuda::sum_row;
static_assert(cuda::kRowLoads == kRowLoads);

// The sum over few duration logits, by one lane.
template <class Storage>
__device__ __forceinline__ RowSum<cuda::Sum<Storage>> sum_durations(const Storage* row, int durations) {
  using Real = cuda::Sum<Storage>;
  Real largest = OnlineSum<Real>::kLeast;
  for (int d = 0; d < durations; ++d) largest = max(largest, static_cast<Real>(cuda::widen(row[d])));
  const Real shift = largest * kLog2E<Real>;
  Real sum = 0;
  for (int d = 0; d < durations; ++d) {
    sum += exp2_of(fma(static_cast<Real>(cuda::widen(row[d])), kLog2E<Real>, -shift));
  }
  return finished(RowSum<Real>{shift, sum});
}

}  // namespace warpalign::detail::transducer
