// What decoding needs of a frame: blank's log-probability, and the best labels. A warp has a frame, or one
// list of a frame with label scores; its lanes hold the list, entry 32 s + lane in slot s. Columns come in
// order, so that of equal ones the lower class stays ahead; a column that is above the last entry is put into
// its place by all lanes.
#pragma once

#include <math_constants.h>

#include "ctc/cuda/rows/rows.cuh"
#include "warpalign/ctc_decode.h"

namespace warpalign::detail::ctc {

inline constexpr int kTopThreads = 128;
inline constexpr int kTopSlots = (kCtcMostBeams + 1 + cuda::kWarpSize - 1) / cuda::kWarpSize;

// A frame's numbers but its list.
struct FrameEnds {
  double blank;  // lp
  double lse;    // what lp is the logit less by; NaN: a NaN or +inf is among the logits
};

template <class Element>
struct TopParams {
  Batch batch;
  const Element* logits;
  const cuda::Sum<Element>* added;  // (B, lists, C): label scores of a single frame; null: none
  int lists;                        // of a frame
  int count;                        // labels of a list
  // (B, T, lists, count): lp + added of labels, the best first; the labels, -1 behind the last one
  double* weight;
  std::int32_t* label;
  FrameEnds* ends;  // (B, T)
};

// The list of a warp.
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

  // What a number has to be above: that of the last entry.
  [[nodiscard]] __device__ __forceinline__ Real least() const { return least_; }

  // What a slot has to give up goes on to the next one.
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

template <class Element>
__device__ __forceinline__ void find_top(const TopParams<Element>& p, std::int64_t list) {
  using Real = cuda::Sum<Element>;
  const Batch& batch = p.batch;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t row = list / p.lists;
  const int b = static_cast<int>(row / batch.frames), t = static_cast<int>(row % batch.frames);
  if (t >= true_length(batch.logit_lengths, b, batch.frames)) return;
  const Element* const at = p.logits + b * batch.stride[0] + t * batch.stride[1];
  const auto sum = cuda::finished(sum_columns(at, batch.stride[2], 0, batch.classes, lane, cuda::kWarpSize));
  double lse = (static_cast<double>(sum.shift) + static_cast<double>(sum.log2_sum)) * kLn2<double>;
  if (!isnan(lse) && (batch.log_probs || lse == -CUDART_INF)) lse = 0;
  const Real* const added =
      p.added ? p.added + (std::int64_t{b} * p.lists + list % p.lists) * batch.classes : nullptr;
  const auto load = [&](int c) {
    if (c >= batch.classes || c == batch.blank) return -static_cast<Real>(CUDART_INF);
    const Real x = static_cast<Real>(cuda::widen(at[c * batch.stride[2]]));
    return added ? x + added[c] : x;
  };
  TopList<Real> top(p.count, lane);
  Real next = load(lane);
  for (int first = 0; first < batch.classes; first += cuda::kWarpSize) {
    const Real now = next;
    next = load(first + cuda::kWarpSize + lane);
    unsigned better = __ballot_sync(cuda::kFullWarp, now > top.least());
    for (; better != 0; better &= better - 1) {
      const int from = __ffs(better) - 1;
      const Real value = cuda::shuffle(now, from);
      if (value > top.least()) top.insert(value, first + from);
    }
  }
  top.write(p.weight + list * p.count, p.label + list * p.count, lse);
  if (lane == 0 && list % p.lists == 0) {
    const Real x = static_cast<Real>(cuda::widen(at[batch.blank * batch.stride[2]]));
    p.ends[row] = {static_cast<double>(x) - lse, lse};
  }
}

template <class Element>
__global__ void __launch_bounds__(kTopThreads) top_kernel(const __grid_constant__ TopParams<Element> p) {
  const std::int64_t list =
      static_cast<std::int64_t>(blockIdx.x) * (kTopThreads / cuda::kWarpSize) + threadIdx.x / cuda::kWarpSize;
  if (list < static_cast<std::int64_t>(p.batch.batch) * p.batch.frames * p.lists) find_top(p, list);
}

}  // namespace warpalign::detail::ctc
