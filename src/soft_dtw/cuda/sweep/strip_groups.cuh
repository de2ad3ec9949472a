// The groups of steps of a strip, and those whose edge columns it exchanges with its neighbours.
#pragma once

#include "cuda/threads/warp.cuh"
#include "soft_dtw/band.h"
#include "soft_dtw/cuda/call/layout.h"

namespace warpalign::detail::soft_dtw {

// Groups first <= group < end.
struct Groups {
  int first;
  int end;
  [[nodiscard]] __device__ __forceinline__ bool hold(int group) const {
    return group >= first && group < end;
  }
};

// The groups that both strips have, in the numbering of the right one. by: lag() of the left strip.
__device__ __forceinline__ Groups handed_over(Groups left, Groups right, int by) {
  return {max(right.first, left.first - by), min(right.end, left.end - by)};
}

// The first row i in [0, n) for which past(i) holds, or n. past(i) holds for all later rows too. Called by
// the whole warp.
template <class Past>
__device__ int first_row_where(int n, int lane, const Past& past) {
  int low = 0;
  int high = n;
  while (low < high) {
    const int step = div_up(high - low, 32);
    const int row = low + lane * step;
    const unsigned hits = __ballot_sync(cuda::kFullWarp, row >= high || past(row));
    const int hit = hits ? __ffs(hits) - 1 : 32;
    if (hit < 32) high = min(high, low + hit * step);
    low = hit == 0 ? high : low + (hit - 1) * step + 1;
  }
  return low;
}

// The band's columns of a row, both as the sweep counts them: from the last step on if it starts there. Like
// the band's own, neither bound decreases from one row to the next.
template <class Wave>
__device__ __forceinline__ IndexRange columns_in_band(const Wave& w, int row) {
  const auto& pair = w.pair;
  const IndexRange columns = band_columns(w.params.band, pair.true_row(row), pair.n, pair.m);
  return w.from_back ? IndexRange{pair.columns - columns.end, pair.columns - columns.begin} : columns;
}

// The band's rows of a column, both as the sweep counts them. In a sweep from the first step, columns after
// column m - 1 have the rows of that one; in a sweep from the back they have none.
template <class Wave>
__device__ __forceinline__ IndexRange rows_in_band(const Wave& w, int column) {
  const auto& pair = w.pair;
  const int true_column = pair.true_column(column);
  if (w.from_back && true_column >= pair.m) return {0, 0};
  const IndexRange rows = band_rows(w.params.band, min(true_column, pair.m - 1), pair.n, pair.m);
  return w.from_back ? IndexRange{pair.n - rows.end, pair.n - rows.begin} : rows;
}

// The first row in which the band has a cell in this strip's columns, or in later columns.
template <class Wave>
__device__ int first_row_of(const Wave& w, int strip) {
  if (w.params.band.kind == BandKind::kNone) return 0;
  return first_row_where(w.pair.n, w.lane,
                         [&](int i) { return columns_in_band(w, i).end > strip * 32 * Wave::W; });
}

// The number of the strip's groups, whatever the band: those of the pair, or those up to where the two sweeps
// meet.
template <class Wave>
__device__ __forceinline__ int end_of_groups(const Wave& w, int strip) {
  if (!w.meets) return groups_of(w.pair.n);
  const int k = w.from_back ? w.strips - 1 - strip : strip;
  const int before = groups_before_meeting(w.pair.n, w.strips, k);
  return w.from_back ? groups_of_both(w.pair.n, w.strips, k) - before : before;
}

// Of these groups, those in which a lane has cells in the band, or in the row above it, extended to the start
// of a segment.
template <class Wave>
__device__ Groups groups_in_band(const Wave& w, int strip, int* end_row) {
  const int last_column = min((strip + 1) * 32 * Wave::W, w.from_back ? w.pair.columns : w.pair.m) - 1;
  const int first = first_row_of(w, strip);
  const int end =
      first_row_where(w.pair.n, w.lane, [&](int i) { return columns_in_band(w, i).begin > last_column; });
  if (end_row) *end_row = end;
  const int shift = w.shift_of(strip);
  const int least = max(first - 1 + shift, 0) / kGroup;
  const int end_group = min((end + 30 + shift) / kGroup + 1, end_of_groups(w, strip));
  if (first >= end || least >= end_group) return {0, 0};
  return {Wave::Source::first_band_group(least, end_group), end_group};
}

// All groups of the strip: of the pair or of the band, and up to where the two sweeps meet. *end_row, if not
// null, is set to the row after the last one with cells in the strip.
template <class Wave>
__device__ __forceinline__ Groups groups_of_strip(const Wave& w, int strip, int* end_row) {
  if (end_row) *end_row = w.pair.n;
  if constexpr (Wave::kOptions) {
    if (w.params.band.kind != BandKind::kNone) return groups_in_band(w, strip, end_row);
  }
  return {0, end_of_groups(w, strip)};
}

}  // namespace warpalign::detail::soft_dtw
