// The rows pass: for every true frame the log-sum-exp of its logits, in one read, and, if few of many classes
// occur as labels, a table of the logits that the sweep reads. For warpalign/ctc_head.h: of the frames of a
// chunk, and the table has weights of labels.
//
// A warp owns a few neighbouring frames: first some lanes sum each of them, then all lanes copy the logits of
// blank and of the labels while the frame is still in the cache.
#pragma once

#include "ctc/cuda/lattice/params.cuh"

namespace warpalign::detail::ctc {

template <class Element>
struct RowsParams {
  using Real = cuda::Sum<Element>;
  Batch batch;
  const Element* logits;
  int lanes;                 // lanes of a frame: 4 to 32
  cuda::RowSum<Real>* sums;  // (B, T); null: log-probabilities
  // (B, T): log-sum-exp of all classes but blank, or their largest x - prior; null: no star
  Real* stars;
  bool star_is_largest;
  const Real* prior;                 // (C,), or null
  Real* table;                       // (B, T, U + 1): logits of the labels, then blank's; null: none
  std::int64_t first_row, last_row;  // of the B T frames; all: 0 and B T
  std::int64_t origin;               // the element of the strides that logits[0] is
  // (B, T), or null. If they are given, so is `table`, and has logits minus log-sum and prior.
  double* log_sums;
  double* log_sums_of_others;
};

// The natural logarithm of a row's sum; -inf for a row of -inf, NaN for a row with NaN or +inf.
template <class Real>
__device__ __forceinline__ double log_of(const cuda::RowSum<Real>& finished) {
  if (finished.log2_sum == static_cast<Real>(CUDART_INF)) return -CUDART_INF;
  const double sum = static_cast<double>(finished.shift) + static_cast<double>(finished.log2_sum);
  return sum / static_cast<double>(kLog2E<Real>);
}

// shift, and the sum itself instead of its logarithm, of columns first ... last - 1, with any stride.
template <class Element>
__device__ __forceinline__ cuda::RowSum<cuda::Sum<Element>> sum_columns(const Element* row,
                                                                        std::int64_t stride, int first,
                                                                        int last, int lane, int lanes) {
  using Real = cuda::Sum<Element>;
  if (stride == 1) return cuda::sum_row(row + first, last - first, lane, lanes);
  cuda::OnlineSum<Real> sum;
  for (int c = first + lane; c < last; c += lanes) {
    const Real x = static_cast<Real>(cuda::widen(row[c * stride])) * kLog2E<Real>;
    const Real next = max(sum.shift, x);
    sum.sum = fma(sum.sum, cuda::exp2_of(sum.shift - next), cuda::exp2_of(x - next));
    sum.shift = next;
  }
  return sum.join(lanes);
}

// Joins two such sums.
template <class Real>
__device__ __forceinline__ cuda::RowSum<Real> joined(const cuda::RowSum<Real>& a,
                                                     const cuda::RowSum<Real>& b) {
  const Real shift = max(a.shift, b.shift);
  return {shift, a.log2_sum * cuda::exp2_of(a.shift - shift) + b.log2_sum * cuda::exp2_of(b.shift - shift)};
}

constexpr int kRowThreads = 128;

template <class Element>
class Rows {
  using Real = cuda::Sum<Element>;

 public:
  __device__ __forceinline__ explicit Rows(const RowsParams<Element>& p)
      : p_(p), lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize), together_(cuda::kWarpSize / p.lanes) {}

  // Processes rows first ... first + together - 1 of the B T frames, before last_row.
  __device__ __forceinline__ void run(std::int64_t first) const {
    const Batch& batch = p_.batch;
    const std::int64_t rows = p_.last_row;
    const std::int64_t row = first + lane_ / p_.lanes;
    const int b = static_cast<int>(row / batch.frames), t = static_cast<int>(row % batch.frames);
    const bool exists = row < rows && t < true_length(batch.logit_lengths, row < rows ? b : 0, batch.frames);
    const Element* const at = row_of(b, t);
    const bool leads = exists && lane_ % p_.lanes == 0;
    const bool sums_others = (p_.stars && !p_.star_is_largest) || p_.log_sums_of_others;
    const cuda::RowSum<Real> others = sums_others ? sum_others(exists ? at : nullptr) : cuda::RowSum<Real>{};
    double log_sum = 0;
    if (p_.sums || p_.log_sums) {
      cuda::RowSum<Real> sum;
      if (sums_others) {
        const Real x = exists ? static_cast<Real>(cuda::widen(at[batch.blank * batch.stride[2]])) : Real(0);
        const Real shift = max(x * kLog2E<Real>, cuda::OnlineSum<Real>().shift);
        sum = joined(others, {shift, cuda::exp2_of(fma(x, kLog2E<Real>, -shift))});
      } else {
        sum = sum_columns(exists ? at : nullptr, batch.stride[2], 0, exists ? batch.classes : 0,
                          lane_ % p_.lanes, p_.lanes);
      }
      const cuda::RowSum<Real> all = cuda::finished(sum);
      if (leads && p_.sums) p_.sums[row] = all;
      if (p_.log_sums) log_sum = log_of(all);
      if (leads && p_.log_sums) p_.log_sums[row] = log_sum;
    }
    Real star = (others.shift + log2(others.log2_sum)) * kLn2<Real>;
    if (p_.log_sums_of_others) {
      const double log_sum_of_others = log_of(cuda::finished(others));
      if (leads) p_.log_sums_of_others[row] = log_sum_of_others;
      star = entry(log_sum_of_others, log_sum, Real(0));
    }
    if (p_.stars && p_.star_is_largest) star = largest_of_others(exists ? at : nullptr);
    if (p_.stars && leads) p_.stars[row] = star;
    if (p_.table) copy_frames(first, rows, star, log_sum);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ const Element* row_of(int b, int t) const {
    return p_.logits + (b * p_.batch.stride[0] + t * p_.batch.stride[1] - p_.origin);
  }

  // A weight of the table. Without any class that can be emitted it is -inf.
  [[nodiscard]] static __device__ __forceinline__ Real entry(double x, double log_sum, Real prior) {
    if (log_sum == -CUDART_INF) return -static_cast<Real>(CUDART_INF);
    return static_cast<Real>(x - log_sum - static_cast<double>(prior));
  }
  // What the table has of a class's logit.
  [[nodiscard]] __device__ __forceinline__ Real entry_of(Element x, double log_sum, int label) const {
    const Real value = static_cast<Real>(cuda::widen(x));
    if (!p_.log_sums) return value;
    return entry(static_cast<double>(value), log_sum, p_.prior ? p_.prior[label] : Real(0));
  }

  // The sum over the classes before blank, and those after it.
  __device__ __forceinline__ cuda::RowSum<Real> sum_others(const Element* at) const {
    const Batch& batch = p_.batch;
    const int lane = lane_ % p_.lanes;
    const auto before = sum_columns(at, batch.stride[2], 0, at ? batch.blank : 0, lane, p_.lanes);
    const auto behind =
        sum_columns(at, batch.stride[2], at ? batch.blank + 1 : 0, at ? batch.classes : 0, lane, p_.lanes);
    return joined(before, behind);
  }

  // The largest x - prior of all classes but blank; NaN if one of them is.
  __device__ __forceinline__ Real largest_of_others(const Element* at) const {
    const Batch& batch = p_.batch;
    Real largest = -static_cast<Real>(CUDART_INF), nan = 0;
    for (int c = lane_ % p_.lanes; at && c < batch.classes; c += p_.lanes) {
      if (c == batch.blank) continue;
      const Real x =
          static_cast<Real>(cuda::widen(at[c * batch.stride[2]])) - (p_.prior ? p_.prior[c] : Real(0));
      largest = max(largest, x);
      if (isnan(x)) nan = x;
    }
    for (int bit = 1; bit < p_.lanes; bit *= 2) {
      largest = max(largest, cuda::shuffle_xor(largest, bit));
      nan += cuda::shuffle_xor(nan, bit);
    }
    return largest + nan;
  }

  // Called by all lanes, which copy one frame after the other. star, log_sum: of the frame that the lane has
  // summed.
  __device__ __forceinline__ void copy_frames(std::int64_t first, std::int64_t rows, Real star,
                                              double log_sum) const {
    const Batch& batch = p_.batch;
    for (int r = 0; r < together_; ++r) {
      const Real star_of_row = cuda::shuffle(star, r * p_.lanes);
      const double sum_of_row = p_.log_sums ? cuda::shuffle(log_sum, r * p_.lanes) : 0;
      const std::int64_t row = first + r;
      if (row >= rows) return;
      const int b = static_cast<int>(row / batch.frames), t = static_cast<int>(row % batch.frames);
      const Utterance utterance = utterance_at(batch, b);
      if (t >= utterance.frames) continue;
      const Element* const at = row_of(b, t);
      Real* const to = p_.table + row * (batch.labels + 1);
      constexpr int kTogether = 4;  // loads of a lane on their way
      for (int begin = lane_; begin < utterance.labels; begin += kTogether * cuda::kWarpSize) {
        int label[kTogether];
        Element x[kTogether] = {};
#pragma unroll
        for (int j = 0; j < kTogether; ++j) label[j] = utterance.label(batch, begin + j * cuda::kWarpSize);
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (label[j] >= 0 && label[j] != batch.star) x[j] = at[label[j] * batch.stride[2]];
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (label[j] < 0) continue;
          const bool is_star = label[j] == batch.star;
          to[begin + j * cuda::kWarpSize] = is_star ? star_of_row : entry_of(x[j], sum_of_row, label[j]);
        }
      }
      if (lane_ == 0) {
        to[batch.labels] = entry_of(at[batch.blank * batch.stride[2]], sum_of_row, batch.blank);
      }
    }
  }

  const RowsParams<Element>& p_;
  const int lane_;
  const int together_;  // frames of a warp
};

template <class Element>
__global__ void __launch_bounds__(kRowThreads, sizeof(Element) == 8   ? 3
                                               : sizeof(Element) == 4 ? 9
                                                                      : 8)
    rows_kernel(const __grid_constant__ RowsParams<Element> p) {
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * (kRowThreads / cuda::kWarpSize) + threadIdx.x / cuda::kWarpSize;
  const std::int64_t first = p.first_row + warp * (cuda::kWarpSize / p.lanes);
  if (first < p.last_row) Rows<Element>(p).run(first);
}

}  // namespace warpalign::detail::ctc
