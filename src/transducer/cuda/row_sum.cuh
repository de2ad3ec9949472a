// The log-sum of a row of logits, by 4 to 32 neighbouring lanes of a warp, in one read.
//
// A lane's columns follow from its place alone, never from where the row lies in memory: sums have the same
// bits for every alignment.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "cuda/half.cuh"
#include "cuda/math.cuh"
#include "cuda/streaming.cuh"
#include "cuda/warp.cuh"
#include "transducer/cuda/layout.h"
#include "transducer/cuda/state.cuh"

namespace warpalign::detail::transducer {

// p_k = 2^(x_k log2(e) - shift - log2_sum). A row of -inf has log2_sum = +inf, so that p = 0.
template <class Real>
struct alignas(2 * sizeof(Real)) RowSum {
  Real shift;  // of the row's largest logit, times log2(e)
  Real log2_sum;
};

__device__ __forceinline__ float minus_infinity(float) { return -CUDART_INF_F; }
__device__ __forceinline__ double minus_infinity(double) { return -CUDART_INF; }
template <class Real>
__device__ __forceinline__ Real minus_infinity() {
  return minus_infinity(Real(0));
}

// log2 of a column's probability.
template <class Real>
__device__ __forceinline__ Real log2_probability(Real x, RowSum<Real> sum) {
  return fma(x, kLog2E<Real>, -sum.shift) - sum.log2_sum;
}

// kRowLoads loads of one lane, as they are in memory. Load j has the columns (lanes j + lane) kPerLoad, + 1
// for half types.
template <class Storage>
class RowChunk {
 public:
  using Real = cuda::Sum<Storage>;
  static constexpr int kPerLoad = 1;

  // All columns are below labels.
  __device__ __forceinline__ void load(const Storage* from, int lane, int lanes) {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) x_[j] = cuda::load_streaming(from + j * lanes + lane);
  }
  // Columns from `labels` on count as -inf.
  __device__ __forceinline__ void load_end(const Storage* from, int lane, int lanes, int labels) {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) {
      x_[j] = minus_infinity<Storage>();
      if (j * lanes + lane < labels) x_[j] = cuda::load_streaming(from + j * lanes + lane);
    }
  }
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) function(j, x_[j]);
  }

 private:
  Storage x_[kRowLoads];
};

// Pairs of half types. A row that begins in the middle of 4 bytes is read in the words around it: lane l's
// pair is the upper half of its word and the lower half of lane l + 1's.
template <class Half>
class HalfChunk {
 public:
  using Real = float;
  static constexpr int kPerLoad = 2;

  __device__ __forceinline__ void load(const Half* from, int lane, int lanes) {
    const bool is_odd = reinterpret_cast<std::uintptr_t>(from) % 4 != 0;
    if (lanes < cuda::kWarpSize && is_odd) return load_end(from, lane, lanes, 2 * lanes * kRowLoads);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(from - is_odd);
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) pairs_[j] = cuda::load_streaming(words + j * lanes + lane);
    if (!is_odd) return;
    // The same for the whole warp: one row has all of its lanes.
    std::uint32_t behind = lane == 0 ? cuda::load_streaming(words + kRowLoads * lanes) : 0;
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) {
      const std::uint32_t first = j + 1 < kRowLoads ? pairs_[(j + 1) % kRowLoads] : behind;
      const std::uint32_t next = cuda::shuffle(lane == 0 ? first : pairs_[j], (lane + 1) % cuda::kWarpSize);
      pairs_[j] = pairs_[j] >> 16 | next << 16;
    }
  }
  __device__ __forceinline__ void load_end(const Half* from, int lane, int lanes, int labels) {
    constexpr std::uint32_t kMinusInfinity = std::is_same_v<Half, cuda::Float16> ? 0xfc00u : 0xff80u;
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) {
      const int column = 2 * (j * lanes + lane);
      const auto* const at = reinterpret_cast<const std::uint16_t*>(from + column);
      std::uint32_t low = kMinusInfinity, high = kMinusInfinity;
      if (column < labels) low = cuda::load_streaming(at);
      if (column + 1 < labels) high = cuda::load_streaming(at + 1);
      pairs_[j] = low | high << 16;
    }
  }
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) {
      float low, high;
      cuda::widen_pair<Half>(pairs_[j], low, high);
      function(2 * j, low);
      function(2 * j + 1, high);
    }
  }

 private:
  std::uint32_t pairs_[kRowLoads];
};
template <>
class RowChunk<cuda::Float16> : public HalfChunk<cuda::Float16> {};
template <>
class RowChunk<cuda::BFloat16> : public HalfChunk<cuda::BFloat16> {};

// The largest of what one lane has seen, times log2(e), and the sum of 2^(x log2(e) - shift).
template <class Real>
struct OnlineSum {
  // Below every logit that counts, and finite times log2(e).
  static constexpr Real kLeast = static_cast<Real>(std::is_same_v<Real, float> ? -1.7e38 : -1.2e308);
  Real shift = kLeast * kLog2E<Real>;
  Real sum = 0;

  template <class Chunk>
  __device__ __forceinline__ void add(const Chunk& chunk) {
    constexpr int kParts = kRowLoads / 2;
    Real largest[kParts];
#pragma unroll
    for (int k = 0; k < kParts; ++k) largest[k] = kLeast;
    chunk.each([&](int k, Real x) { largest[k % kParts] = max(largest[k % kParts], x); });
#pragma unroll
    for (int k = 1; k < kParts; ++k) largest[0] = max(largest[0], largest[k]);
    const Real next = max(shift, largest[0] * kLog2E<Real>);
    Real part[kParts] = {};
    chunk.each([&](int k, Real x) { part[k % kParts] += exp2_of(fma(x, kLog2E<Real>, -next)); });
    sum = fma(sum, exp2_of(shift - next), (part[0] + part[1]) + (part[2] + part[3]));
    shift = next;
  }

  // Joins what `lanes` neighbouring lanes have. All of them get the same bits.
  __device__ __forceinline__ RowSum<Real> join(int lanes) const {
    Real all = shift;
    for (int bit = 1; bit < lanes; bit *= 2) all = max(all, cuda::shuffle_xor(all, bit));
    Real total = sum * exp2_of(shift - all);
    for (int bit = 1; bit < lanes; bit *= 2) total += cuda::shuffle_xor(total, bit);
    return {all, total};
  }
};
static_assert(kRowLoads == 8);

// shift, and the sum itself in place of its logarithm. A row of no labels is not read. Lanes of a warp that
// have other rows come with their own.
template <class Storage>
__device__ __forceinline__ RowSum<cuda::Sum<Storage>> sum_row(const Storage* row, int labels, int lane,
                                                              int lanes) {
  using Chunk = RowChunk<Storage>;
  const int chunk = lanes * kRowLoads * Chunk::kPerLoad;
  const auto load = [&](Chunk& to, int begin) {
    if (begin + chunk <= labels) {
      to.load(row + begin, lane, lanes);
    } else {
      to.load_end(row + begin, lane, lanes, labels - begin);
    }
  };
  OnlineSum<cuda::Sum<Storage>> sum;
  Chunk now;
  load(now, 0);
  for (int begin = chunk; begin < labels; begin += chunk) {  // the next chunk is on its way
    Chunk next;
    load(next, begin);
    sum.add(now);
    now = next;
  }
  sum.add(now);
  return sum.join(lanes);
}

// From sum_row's form.
template <class Real>
__device__ __forceinline__ RowSum<Real> finished(RowSum<Real> sum) {
  if (sum.log2_sum == Real(0)) return {0, -minus_infinity<Real>()};
  return {sum.shift, static_cast<Real>(log2(sum.log2_sum))};
}

// Of few duration logits, by one lane.
template <class Storage>
__device__ __forceinline__ RowSum<cuda::Sum<Storage>> sum_durations(const Storage* row, int durations) {
  using Real = cuda::Sum<Storage>;
  Real largest = OnlineSum<Real>::kLeast;
  for (int d = 0; d < durations; ++d) largest = max(largest, static_cast<Real>(cuda::widen(row[d])));
  const Real shift = largest * kLog2E<Real>;
  Real sum = 0;
  for (int d = 0; d < durations; ++d) {
    sum += exp2_of(fma(static_cast<Real>(cuda::widen(row[d])), kLog2E<Real>, -shift));
  }
  return finished(RowSum<Real>{shift, sum});
}

}  // namespace warpalign::detail::transducer
