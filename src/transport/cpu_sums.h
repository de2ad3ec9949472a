// Column sums of a plan on a CPU. Each block of rows has its own sums, which are joined in the blocks' order,
// so that they do not depend on the number of threads.
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
  double* totals = nullptr;  // (blocks, padded columns): sums of the earlier rows

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
  // Called after row number `row` of the block, counted from its first one, has been added to
  // partial_of(block).
  void added_row(int block, int row, int columns) const {
    if (row % kRowsOfPartialSum == kRowsOfPartialSum - 1) flush(block, columns);
  }
  // Adds the partial sums to the totals, and sets them to 0.
  void flush(int block, int columns) const {
    Real* const from = partial_of(block, columns);
    double* const to = totals_of(block, columns);
    for (int j = 0; j < columns; ++j) to[j] += static_cast<double>(from[j]);
    std::fill_n(from, padded(columns), Real(0));
  }
  // Column j's sum over the first `blocks` blocks, which have been flushed.
  [[nodiscard]] double joined(int j, int blocks, int columns) const {
    double sum = 0;
    for (int block = 0; block < blocks; ++block) sum += totals_of(block, columns)[j];
    return sum;
  }
};

}  // namespace warpalign::detail::transport
