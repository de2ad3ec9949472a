// The frames' numbers for decoding: the log-probability of blank, and the list of the best labels. A warp
// owns a frame, or, with label scores, one list of a frame. Its lanes hold the list in registers, entry 32 s
// + lane in slot s. A first pass over the row computes the log-sum and a lower bound of the list's entries, a
// second pass the list. Columns are visited in order, so that among equal ones the lower class comes first.
// All lanes together insert a column that is above the last entry.
#pragma once

#include <math_constants.h>

#include <limits>

#include "ctc/cuda/rows/rows.cuh"
#include "warpalign/ctc_decode.h"

namespace warpalign::detail::ctc {

inline constexpr int kTopThreads = 128;
inline constexpr int kTopSlots = (kCtcMostBeams + 1 + cuda::kWarpSize - 1) / cuda::kWarpSize;

// The numbers of a frame apart from its list.
struct FrameEnds {
  double blank;  // lp
  double lse;    // logit - lp; NaN if there is a NaN or +inf among the logits
};

template <class Element>
struct TopParams {
  Batch batch;
  const Element* logits;
  const cuda::Sum<Element>* added;  // (B, lists, C): label scores of a single frame; null: none
  int lists;                        // lists of a frame
  int count;                        // entries of a list
  // (B, T, lists, count): lp + added of the best labels, in descending order; the labels, -1 after the last
  // one
  double* weight;
  std::int32_t* label;
  FrameEnds* ends;  // (B, T)
};

// The list of a warp, in descending order.
template <class Real>
class TopList {
 public:
  __device__ __forceinline__ TopList(int count, int lane) : count_(count), lane_(lane) {
    least_ = -static_cast<Real>(CUDART_INF);
#pragma unroll
    for (int s = 0; s < kTopSlots; ++s) {
      value_[s] = -static_cast<Real>(CUDART_INF);
      label_[s] = -1;
    }
  }

  // The last entry's value. Smaller and equal values do not enter the list.
  [[nodiscard]] __device__ __forceinline__ Real least() const { return least_; }

  // Inserts a label. The last entry of a slot moves to the next slot.
  __device__ __forceinline__ void insert(Real value, int label) {
#pragma unroll
    for (int s = 0; s < kTopSlots; ++s) {
      if (s * cuda::kWarpSize >= count_) continue;
      const Real own = value_[s];
      const int own_label = label_[s];
      const bool is_above = label < 0 || own > value || (own == value && own_label < label);
      const int place = __popc(__ballot_sync(cuda::kFullWarp, is_above));
      const Real value_before = cuda::shuffle_up(own);
      const int label_before = cuda::shuffle_up(own_label);
      const Real now = lane_ > place ? value_before : lane_ == place ? value : own;
      value_[s] = now;
      label_[s] = lane_ > place ? label_before : lane_ == place ? label : own_label;
      if (place < cuda::kWarpSize) {
        value = cuda::shuffle(own, cuda::kWarpSize - 1);
        label = cuda::shuffle(own_label, cuda::kWarpSize - 1);
      }
      if (s == (count_ - 1) / cuda::kWarpSize) {
        least_ = cuda::shuffle(now, (count_ - 1) % cuda::kWarpSize);
      }
    }
  }

  __device__ __forceinline__ void write(double* weight, std::int32_t* label, double lse) const {
#pragma unroll
    for (int s = 0; s < kTopSlots; ++s) {
      const int k = s * cuda::kWarpSize + lane_;
      if (k < count_) {
        weight[k] = static_cast<double>(value_[s]) - lse;
        label[k] = label_[s];
      }
    }
  }

 private:
  const int count_, lane_;
  Real value_[kTopSlots];
  int label_[kTopSlots];
  Real least_;
};

// A frame's row of logits. A lane owns columns lane, lane + 32, ...
template <class Element>
struct FrameRow {
  using Real = cuda::Sum<Element>;
  static constexpr int kAtOnce = 4;  // columns of a lane whose loads are in flight together

  const Element* row;
  std::int64_t stride;
  const Real* added;  // may be null
  int classes, blank, lane;

  // Calls see(first, x, v) for columns first + 32 q + lane: their logits x, and the values v by which labels
  // are ordered. Beyond the last column both are -inf, and v of blank is -inf.
  template <class See>
  __device__ __forceinline__ void each(const See& see) const {
    for (int first = 0; first < classes; first += kAtOnce * cuda::kWarpSize) {
      Real x[kAtOnce], v[kAtOnce];
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const int c = first + q * cuda::kWarpSize + lane;
        x[q] = c < classes ? static_cast<Real>(cuda::widen(row[c * stride])) : -static_cast<Real>(CUDART_INF);
        v[q] = c == blank ? -static_cast<Real>(CUDART_INF) : x[q];
        if (added && c < classes) v[q] += added[c];
      }
      see(first, x, v);
    }
  }
};

// The log-sum of a frame, and a value that at least `count` labels reach.
template <class Real>
struct FrameSum {
  double lse;
  Real reached;
};

// The n-th largest of the warp's numbers, of which each lane has kOwn.
template <int kOwn, class Real>
__device__ __forceinline__ Real nth_largest(const Real (&own)[kOwn], int n, int lane) {
  int before[kOwn] = {};
#pragma unroll
  for (int k = 0; k < cuda::kWarpSize; ++k) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const Real other = cuda::shuffle(own[j], k);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const bool is_first = k < lane || (k == lane && j < i);
        before[i] += static_cast<int>(other > own[i]) | (static_cast<int>(other == own[i]) & is_first);
      }
    }
  }
  Real nth = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const unsigned lanes = __ballot_sync(cuda::kFullWarp, before[i] == n - 1);
    if (lanes != 0) nth = cuda::shuffle(own[i], __ffs(lanes) - 1);
  }
  return nth;
}

// The first pass. Each lane keeps the largest value of each half of its columns. These are values of
// different labels, so that at least `count` labels reach the count-th largest of them.
template <class Element>
__device__ __forceinline__ FrameSum<cuda::Sum<Element>> sum_frame(const FrameRow<Element>& row, int count) {
  using Real = cuda::Sum<Element>;
  constexpr Real kLowest = -std::numeric_limits<Real>::infinity();
  cuda::OnlineSum<Real> sum;
  Real largest[2] = {kLowest, kLowest};
  row.each([&](int, const auto& x, const auto& v) {
    Real top = x[0];
#pragma unroll
    for (int q = 0; q < FrameRow<Element>::kAtOnce; ++q) {
      top = max(top, x[q]);
      largest[q % 2] = max(largest[q % 2], v[q]);
    }
    const Real next = max(sum.shift, top * kLog2E<Real>);
    Real part = 0;
#pragma unroll
    for (int q = 0; q < FrameRow<Element>::kAtOnce; ++q) {
      part += cuda::exp2_of(fma(x[q], kLog2E<Real>, -next));
    }
    sum.sum = fma(sum.sum, cuda::exp2_of(sum.shift - next), part);
    sum.shift = next;
  });
  const auto all = cuda::finished(sum.join(cuda::kWarpSize));
  const double lse = (static_cast<double>(all.shift) + static_cast<double>(all.log2_sum)) * kLn2<double>;
  Real reached = kLowest;
  if (count <= cuda::kWarpSize) {
    const Real one[1] = {max(largest[0], largest[1])};
    reached = nth_largest(one, count, row.lane);
  } else if (count <= 2 * cuda::kWarpSize) {
    reached = nth_largest(largest, count, row.lane);
  }
  return {lse, reached};
}

template <class Element>
__device__ __forceinline__ void find_top(const TopParams<Element>& p, std::int64_t list) {
  using Real = cuda::Sum<Element>;
  const Batch& batch = p.batch;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t place = list / p.lists;
  const int b = static_cast<int>(place / batch.frames), t = static_cast<int>(place % batch.frames);
  if (t >= true_length(batch.logit_lengths, b, batch.frames)) return;
  const FrameRow<Element> row{
      p.logits + b * batch.stride[0] + t * batch.stride[1],
      batch.stride[2],
      p.added ? p.added + (std::int64_t{b} * p.lists + list % p.lists) * batch.classes : nullptr,
      batch.classes,
      batch.blank,
      lane};
  const FrameSum<Real> sum = sum_frame(row, p.count);
  const double lse = !isnan(sum.lse) && (batch.log_probs || sum.lse == -CUDART_INF) ? 0 : sum.lse;
  TopList<Real> top(p.count, lane);
  row.each([&](int first, const auto&, const auto& v) {
#pragma unroll
    for (int q = 0; q < FrameRow<Element>::kAtOnce; ++q) {
      unsigned better = __ballot_sync(cuda::kFullWarp, v[q] >= sum.reached && v[q] > top.least());
      for (; better != 0; better &= better - 1) {
        const int from = __ffs(better) - 1;
        const Real value = cuda::shuffle(v[q], from);
        if (value > top.least()) top.insert(value, first + q * cuda::kWarpSize + from);
      }
    }
  });
  top.write(p.weight + list * p.count, p.label + list * p.count, lse);
  if (lane == 0 && list % p.lists == 0) {
    const Real x = static_cast<Real>(cuda::widen(row.row[batch.blank * batch.stride[2]]));
    p.ends[place] = {static_cast<double>(x) - lse, lse};
  }
}

template <class Element>
__global__ void __launch_bounds__(kTopThreads) top_kernel(const __grid_constant__ TopParams<Element> p) {
  const std::int64_t list =
      static_cast<std::int64_t>(blockIdx.x) * (kTopThreads / cuda::kWarpSize) + threadIdx.x / cuda::kWarpSize;
  if (list < static_cast<std::int64_t>(p.batch.batch) * p.batch.frames * p.lists) find_top(p, list);
}

}  // namespace warpalign::detail::ctc
