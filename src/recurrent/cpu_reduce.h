// Sums over all rows of a batch: gradients with respect to weights, biases and layer norm's parameters.
#pragma once

#include <algorithm>

#include "recurrent/cpu_memory.h"

namespace warpalign::detail::recurrent {

// Scratch of a worker: a block of a's rows, 64 columns wide.
template <class Real>
constexpr std::size_t kReduceScratch = kDepthBlock* kPanel * sizeof(Real);

// c = a^T b, with a of (rows, c's padded rows), b of (rows, c's columns), which are a multiple of 16. If c is
// gated, a has rows of gates.
template <class Real>
void transposed_product(const CpuKernelsOf<Real>& kernels, const Loops& loops, Index rows, const Real* a,
                        const Matrix& matrix, const Real* b, Real* c) {
  const Index a_columns = matrix.padded_rows(), columns = matrix.columns;
  // A block of b stays in the cache for all of c's rows. With few rows c is what takes time: whole rows then.
  const Index piece = rows > kUnits ? kPanel : columns;
  if (rows == 0) std::fill(c, c + matrix.rows * columns, Real(0));
  loops.run(panels_of(a_columns), [&](Index slice, void* scratch) {
    Real* const block = static_cast<Real*>(scratch);
    const Index first = slice * kPanel, width = std::min<Index>(kPanel, a_columns - first);
    for (Index row = 0; row < rows; row += kDepthBlock) {
      const Index depth = std::min<Index>(kDepthBlock, rows - row);
      for (Index k = 0; k < depth; ++k) {
        std::copy_n(a + (row + k) * a_columns + first, width, block + k * kPanel);
      }
      for (Index column = 0; column < columns; column += piece) {
        CpuProduct<Real> product{};
        product.a_row = 1, product.a_column = kPanel;
        product.b = b + row * columns + column, product.b_row = columns;
        product.c_row = columns;
        product.depth = depth;
        product.columns = static_cast<int>(std::min(piece, columns - column));
        product.add = row > 0;
        for (Index k = 0; k < width; k += matrix.gated ? kUnits : width) {
          product.a = block + k;
          product.c = c + matrix.row_at(first + k) * columns + column;
          product.rows = matrix.gated ? std::min<Index>(kUnits, matrix.hidden() - slice * kUnits) : width;
          kernels.product(product);
        }
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
