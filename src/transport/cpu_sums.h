// Sums over the columns of a plan on a CPU. Each block of rows has its own, so that the sums' bits do not
// depend on the number of threads; they are joined in the blocks' order.
#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/cpu_side.h"

namespace warpalign::detail::transport {

constexpr int kRowsOfPartialSum = 64;  // rows that are summed in Real before they are added in float64

// `columns` is the number of columns, the same in every call.
template <class Real>
struct CpuColumnSums {
  Real* partial = nullptr;   // (blocks, padded columns): sums of at most kRowsOfPartialSum rows
  double* totals = nullptr;  // (blocks, padded columns): sums of the rows before those

  [[nodiscard]] Real* partial_of(int block, int columns) const {
    return partial + static_cast<std::ptrdiff_t>(block) * padded(columns);
  }
  [[nodiscard]] double* totals_of(int block, int columns) const {
    return totals + static_cast<std::ptrdiff_t>(block) * padded(columns);
  }
  void begin(int block, int columns) const {
    std::fill_n(partial_of(block, columns), padded(columns), Real(0));
    std::fill_n(totals_of(block, columns), padded(columns), 0.0);
  }
  // After partial_of(block) has been given the block's row number `row`, counted from the block's first one.
  void added_row(int block, int row, int columns) const {
    if (row % kRowsOfPartialSum == kRowsOfPartialSum - 1) flush(block, columns);
  }
  // Moves the partial sums to the totals.
  void flush(int block, int columns) const {
    Real* const from = partial_of(block, columns);
    double* const to = totals_of(block, columns);
    for (int j = 0; j < columns; ++j) to[j] += static_cast<double>(from[j]);
    std::fill_n(from, padded(columns), Real(0));
  }
  // Column j's sum over the first `blocks` blocks, all of them flushed.
  [[nodiscard]] double joined(int j, int blocks, int columns) const {
    double sum = 0;
    for (int block = 0; block < blocks; ++block) sum += totals_of(block, columns)[j];
    return sum;
  }
};

}  // namespace warpalign::detail::transport
