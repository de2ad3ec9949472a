// Data that the blocks of a pair exchange, in scratch memory.
#pragma once

#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/second_order/dual.cuh"

namespace warpalign::detail::soft_dtw {

// One per pair in flight. All counters and bits are initialised to -1.
template <class Cell>
struct PairRecord {
  typename Cell::State last;  // Z[n-1, m-1]
  int range_bits[2];          // maxima of Source::range_bits() over the strips
  int done;                   // number of panels whose forward sweep has ended
  int usable;  // 1: the value is valid, and the reverse sweep may run; 0: it is not; -1: not known yet
  int swept;   // number of panels whose reverse sweep has ended
  int best;    // of a subsequence: the column with the least R in the last row
  double sum;  // of a subsequence: log2 of the sum of Z over the last row
};
static_assert(sizeof(PairRecord<Cell32>) <= kRecordBytes && sizeof(PairRecord<Cell64>) <= kRecordBytes);

// One per strip of a pair. In the forward sweep of a subsequence, `sum` is log2 of the sum of the strip's Z
// in the last row, and `best` the column of the largest one. In the reverse sweep `sum` is the entropy of the
// strip's transitions, in bits.
struct Part {
  double sum;
  int best;
};
static_assert(sizeof(Part) <= kPartBytes);

}  // namespace warpalign::detail::soft_dtw
