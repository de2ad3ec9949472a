// Sums over all rows of a batch: gradients by weights, biases and layer norm's parameters.
#pragma once

#include <algorithm>

#include "recurrent/cpu_memory.h"

namespace warpalign::detail::recurrent {

// Scratch of a worker: a block of a's rows, 64 columns wide.
template <class Real>
constexpr std::size_t kReduceScratch = kDepthBlock* kPanel * sizeof(Real);

// c = a^T b, with a of (rows, a_columns), b of (rows, b_columns), c of (a_columns, b_columns); all columns
// are multiples of 16.
template <class Real>
void transposed_product(const CpuKernelsOf<Real>& kernels, const Loops& loops, Index rows, const Real* a,
                        Index a_columns, const Real* b, Index b_columns, Real* c) {
  if (rows == 0) std::fill(c, c + a_columns * b_columns, Real(0));
  loops.run(panels_of(a_columns), [&](Index slice, void* scratch) {
    Real* const block = static_cast<Real*>(scratch);
    const Index first = slice * kPanel, width = std::min<Index>(kPanel, a_columns - first);
    for (Index row = 0; row < rows; row += kDepthBlock) {
      const Index depth = std::min<Index>(kDepthBlock, rows - row);
      for (Index k = 0; k < depth; ++k) {
        std::copy_n(a + (row + k) * a_columns + first, width, block + k * kPanel);
      }
      for (Index column = 0; column < b_columns; column += kPanel) {
        CpuProduct<Real> product{};
        product.a = block, product.a_row = 1, product.a_column = kPanel;
        product.b = b + row * b_columns + column, product.b_row = b_columns;
        product.c = c + first * b_columns + column, product.c_row = b_columns;
        product.rows = width, product.depth = depth;
        product.columns = static_cast<int>(std::min<Index>(kPanel, b_columns - column));
        product.add = row > 0;
        kernels.product(product);
      }
    }
  });
}

// emit(column, sum over all rows of a, or of a times b) for every column of (rows, columns) arrays.
template <class Real, class Emit>
void sum_columns(const Loops& loops, Index rows, Index columns, const Real* a, const Real* b,
                 const Emit& emit) {
  loops.run(columns / kUnits, [&](Index slice, void*) {
    double sum[kUnits] = {};
    for (Index row = 0; row < rows; ++row) {
      const Index at = row * columns + slice * kUnits;
      for (int k = 0; k < kUnits; ++k) sum[k] += b ? static_cast<double>(a[at + k]) * b[at + k] : a[at + k];
    }
    for (int k = 0; k < kUnits; ++k) emit(slice * kUnits + k, static_cast<Real>(sum[k]));
  });
}

}  // namespace warpalign::detail::recurrent
