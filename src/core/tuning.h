// Thresholds as data. An operator's thresholds are in tuning/<operator>.json, by device class, and come from
// there as a generated header, src/<operator>/tuning.h (tools/make_tuning.py): a row for each class, and a
// list of the fields' names. docs/developer/tuning.md tells how they are measured.
#pragma once

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>
#include <span>

#include "warpalign/tuning.h"

namespace warpalign::detail {

// How often a threshold has been forced: plans that were made before are stale (core/plan_cache.h).
inline std::atomic<unsigned> forced_thresholds{0};

// A field of a Row, and the value that a test or a benchmark has set in its place.
template <class Row>
struct TuningField {
  using Member = int Row::*;  // nvcc's host code warns of a plain declaration

  const char* name;
  Member value;
  int forced = kMeasuredThreshold;
};

// The row of the nearest class: the highest one that is not above device_class, else the lowest. Rows are in
// ascending order, and there is one at least.
template <class Row>
constexpr const Row& nearest_row(std::span<const Row> rows, int device_class) {
  std::size_t nearest = 0;
  while (nearest + 1 < rows.size() && rows[nearest + 1].device_class <= device_class) ++nearest;
  return rows[nearest];
}

// That row, with what has been forced.
template <class Row, std::size_t kRows, std::size_t kFields>
Row tuned(const Row (&rows)[kRows], const TuningField<Row> (&fields)[kFields], int device_class) {
  Row row = nearest_row(std::span<const Row>(rows), device_class);
  for (const TuningField<Row>& field : fields) {
    if (field.forced != kMeasuredThreshold) row.*field.value = field.forced;
  }
  return row;
}

// See soft_dtw_threshold(): thresholds of several lists, the lists' one after the other.
template <class... Lists>
bool read_threshold(int index, Threshold* out, const Lists&... lists) {
  bool is_read = false;
  const auto read = [&](const auto& list) {
    if (const int count = static_cast<int>(std::size(list)); index < 0 || index >= count) {
      index -= count;
      return;
    }
    std::snprintf(out->name, sizeof(out->name), "%s", list[index].name);
    out->forced = list[index].forced;
    index = -1;
    is_read = true;
  };
  if (index >= 0) (read(lists), ...);
  return is_read;
}

// See force_soft_dtw_threshold().
template <class... Lists>
bool force_threshold(const char* name, int value, Lists&... lists) {
  bool is_known = false;
  const auto force = [&](auto& list) {
    for (auto& field : list) {
      if (std::strcmp(field.name, name) != 0) continue;
      field.forced = value;
      ++forced_thresholds;
      is_known = true;
    }
  };
  (force(lists), ...);
  return is_known;
}

}  // namespace warpalign::detail
