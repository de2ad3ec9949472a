// The cells of a band: one function for all paths, on the host and in CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "warpalign/soft_dtw.h"

#if defined(__CUDACC__)
#define WARPALIGN_ANYWHERE __host__ __device__
#else
#define WARPALIGN_ANYWHERE
#endif

namespace warpalign::detail::soft_dtw {

// Columns (or rows) begin <= j < end; begin >= end: none. Neither begin nor end decreases from one row
// (column) to the next.
struct IndexRange {
  std::int32_t begin;
  std::int32_t end;
};

WARPALIGN_ANYWHERE inline IndexRange clipped(std::int64_t first, std::int64_t last, int m) {
  const std::int64_t begin = first > 0 ? (first < m ? first : m) : 0;
  const std::int64_t end = last < m - 1 ? (last < -1 ? 0 : last + 1) : m;
  return {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)};
}

WARPALIGN_ANYWHERE inline std::int64_t floor_divided(std::int64_t a, std::int64_t b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

// tslearn's parallelogram: with a = max_slope n/m and b = n/(m max_slope), the cells with
//   b j <= i <= a j   and   n-1 - a (m-1-j) <= i <= n-1 - b (m-1-j),
// where tslearn rounds every bound on i to two decimals, so that a bound may be missed by 0.005. The function
// solves these for j. No product is an operand of a sum, so that no compiler can fuse the two, and host and
// device agree.
WARPALIGN_ANYWHERE inline IndexRange itakura_columns(double max_slope, int i, int n, int m) {
  constexpr double kSlack = 0.005;
  const double a = max_slope * (static_cast<double>(n) / m);
  const double b = (1.0 / max_slope) * (static_cast<double>(n) / m);
  const double above = i;            // rows to the first
  const double below = n - 1.0 - i;  // rows to the last
  const double from_start = (above - kSlack) / a;
  const double from_end = (m - 1.0) - (below + kSlack) / b;
  const double to_start = (above + kSlack) / b;
  const double to_end = (m - 1.0) - (below - kSlack) / a;
  const double first = ceil(from_start > from_end ? from_start : from_end);
  const double last = floor(to_start < to_end ? to_start : to_end);
  // With the comparison first, the conversions below cannot overflow int64, for any slope.
  return clipped(first > -1.0 ? (first < m ? static_cast<std::int64_t>(first) : m) : -1,
                 last < m ? (last > -2.0 ? static_cast<std::int64_t>(last) : -2) : m, m);
}

// The columns of row i in an n x m table.
WARPALIGN_ANYWHERE inline IndexRange band_columns(const Band& band, int i, int n, int m) {
  const std::int64_t row = i;
  const std::int64_t radius = band.radius;
  switch (band.kind) {
    case BandKind::kSakoeChiba:
      return clipped(row - radius - (n > m ? n - m : 0), row + radius + (m > n ? m - n : 0), m);
    case BandKind::kAbsolute:
      return clipped(row - radius, row + radius, m);
    case BandKind::kSlanted: {
      if (n == 1) break;  // the only row is the whole diagonal
      const std::int64_t longest = (n > m ? n : m) - 1;
      const std::int64_t width = (radius < longest + 1 ? radius : longest + 1) * longest;
      const std::int64_t centre = row * (m - 1);
      return clipped(-floor_divided(width - centre, n - 1), floor_divided(centre + width, n - 1), m);
    }
    case BandKind::kItakura:
      return itakura_columns(band.max_slope, i, n, m);
    case BandKind::kNone:
      break;
  }
  return {0, m};
}

// The rows begin <= i < end of column j in an n x m table.
WARPALIGN_ANYWHERE inline IndexRange band_rows(const Band& band, int j, int n, int m) {
  if (band.kind != BandKind::kItakura) return band_columns(band, j, m, n);  // the definitions are symmetric
  const auto first_row = [&](const auto& is_past) {
    std::int32_t low = 0;
    for (std::int32_t high = n; low < high;) {
      const std::int32_t middle = low + (high - low) / 2;
      if (is_past(band_columns(band, middle, n, m))) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  };
  return {first_row([&](IndexRange row) { return row.end > j; }),
          first_row([&](IndexRange row) { return row.begin > j; })};
}

// The mean number of a column's rows in the band, of an n x m table: from 64 of its rows, and at least 1.
inline int mean_rows_in_band(const Band& band, int n, int m) {
  if (band.kind == BandKind::kNone) return n;
  constexpr int kSamples = 64;
  std::int64_t cells = 0;
  for (std::int64_t k = 0; k < kSamples; ++k) {
    const IndexRange row = band_columns(band, static_cast<int>((2 * k + 1) * n / (2 * kSamples)), n, m);
    cells += row.end > row.begin ? row.end - row.begin : 0;
  }
  const double rows = static_cast<double>(cells) / kSamples * n / m;
  return rows < 1 ? 1 : rows < n ? static_cast<int>(rows) : n;
}

// Whether the band leaves out no cell of an n x m pair, nor of a shorter one.
inline bool holds_everything(const Band& band, int n, int m) {
  return band.kind != BandKind::kItakura && band.kind != BandKind::kNone &&
         band.radius >= (n > m ? n : m) - 1;
}

// Whether a path from (0, 0) to (n-1, m-1) stays within the band. Neither end of the ranges decreases from
// row to row: either every cell of a row can be reached, or none.
inline bool band_holds_path(const Band& band, int n, int m) {
  if (band.kind == BandKind::kNone || band.kind == BandKind::kSakoeChiba) return true;
  std::int32_t reached = 1;  // columns up to here can be entered from the row before
  IndexRange row{0, 0};
  for (int i = 0; i < n; ++i) {
    row = band_columns(band, i, n, m);
    if (row.begin >= row.end || row.begin >= reached) return false;
    reached = row.end + 1;
  }
  return row.end == m;
}

}  // namespace warpalign::detail::soft_dtw
