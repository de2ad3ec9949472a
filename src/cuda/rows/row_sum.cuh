// The log-sum-exp of a row of logits, by 4 to 32 neighbouring lanes of a warp, in one read of the row.
//
// A lane's columns depend on its number alone and not on the row's address: sums are bitwise identical for
// every alignment.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "core/half.h"
#include "cuda/memory/streaming.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::cuda {

using detail::kLog2E;

// The number of 4-byte words of a row that a lane loads at a time.
inline constexpr int kRowLoads = 8;

__device__ __forceinline__ float exp2_of(float x) { return exp2_fast(x); }
__device__ __forceinline__ double exp2_of(double x) { return exp2(x); }

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

// The elements of a row that one lane loads at a time.
template <class Storage>
class RowChunk {
 public:
  using Real = Sum<Storage>;
  static constexpr int kColumns = kRowLoads;

  // Columns behind its own that load() reads of a row.
  static __device__ __forceinline__ int columns_behind(const Storage* /*row*/) { return 0; }
  // Load j has column j lanes + lane. All columns are below `labels`.
  __device__ __forceinline__ void load(const Storage* from, int lane, int lanes) {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) x_[j] = load_streaming(from + j * lanes + lane);
  }
  // Columns from `labels` on are read as -inf.
  __device__ __forceinline__ void load_end(const Storage* from, int lane, int lanes, int labels) {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) {
      x_[j] = minus_infinity<Storage>();
      if (j * lanes + lane < labels) x_[j] = load_streaming(from + j * lanes + lane);
    }
  }
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) function(j, x_[j]);
  }
  // The largest number, at least `least`; NaN may be ignored.
  [[nodiscard]] __device__ __forceinline__ Real largest(Real least) const {
    Real parts[2] = {least, least};
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) parts[j % 2] = max(parts[j % 2], x_[j]);
    return max(parts[0], parts[1]);
  }

 private:
  Storage x_[kRowLoads];
};

// Half types, 16 bytes at a time. If a row does not begin at a multiple of 16 bytes, a lane reads the two
// aligned blocks of 16 bytes that contain its columns.
template <class Half>
class HalfChunk {
 public:
  using Real = float;
  static constexpr int kColumns = 2 * kRowLoads;

  // Columns behind its own that load() may read of a row.
  static __device__ __forceinline__ int columns_behind(const Half* row) {
    return offset_of(row) == 0 ? 0 : kOfBlock - 1;
  }
  // Load j has columns 8 (j lanes + lane) ... + 7.
  __device__ __forceinline__ void load(const Half* from, int lane, int lanes) {
    const unsigned offset = offset_of(from);
    const Block* const blocks = blocks_around(from) + lane;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) blocks_[j] = load_streaming(blocks + j * lanes);
    if (offset == 0) return;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      blocks_[j] = shifted(blocks_[j], load_streaming(blocks + j * lanes + 1), offset);
    }
  }
  __device__ __forceinline__ void load_end(const Half* from, int lane, int lanes, int labels) {
    const unsigned offset = offset_of(from);
    const Block* const blocks = blocks_around(from);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int block = j * lanes + lane, column = kOfBlock * block;
      blocks_[j] = none();
      if (column + kOfBlock + columns_behind(from) <= labels) {
        blocks_[j] = load_streaming(blocks + block);
        if (offset != 0) blocks_[j] = shifted(blocks_[j], load_streaming(blocks + block + 1), offset);
      } else if (column < labels) {
        blocks_[j] = end_of_row(from + column, labels - column);
      }
    }
  }
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
#pragma unroll
    for (int k = 0; k < kRowLoads; ++k) {
      float low, high;
      widen_pair<Half>(blocks_[k / 4].words[k % 4], low, high);
      function(2 * k, low);
      function(2 * k + 1, high);
    }
  }
  [[nodiscard]] __device__ __forceinline__ Real largest(Real least) const {
    std::uint32_t pair = blocks_[0].words[0];
#pragma unroll
    for (int k = 1; k < kRowLoads; ++k) pair = larger_pair<Half>(pair, blocks_[k / 4].words[k % 4]);
    float low, high;
    widen_pair<Half>(pair, low, high);
    return fmaxf(fmaxf(low, high), least);
  }

 private:
  using Block = Bits128;
  static constexpr int kOfBlock = 8;
  static constexpr int kLoads = kColumns / kOfBlock;
  static constexpr std::uint32_t kNone = std::is_same_v<Half, Float16> ? 0xfc00u : 0xff80u;  // -inf

  // The row's address modulo 16, in bytes.
  static __device__ __forceinline__ unsigned offset_of(const Half* from) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  }
  static __device__ __forceinline__ const Block* blocks_around(const Half* from) {
    return reinterpret_cast<const Block*>(from - offset_of(from) / sizeof(Half));
  }
  static __device__ __forceinline__ Block none() {
    constexpr std::uint32_t kPair = kNone | kNone << 16;
    return {{kPair, kPair, kPair, kPair}};
  }
  // The 16 bytes that begin at byte `offset` of low and continue in high.
  static __device__ __forceinline__ Block shifted(const Block& low, const Block& high, unsigned offset) {
    std::uint32_t words[8];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words[k] = low.words[k];
      words[k + 4] = high.words[k];
    }
#pragma unroll
    for (int k = 0; k < 6; ++k) words[k] = offset & 8 ? words[k + 2] : words[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) words[k] = offset & 4 ? words[k + 1] : words[k];
    Block result;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      result.words[k] = offset & 2 ? words[k] >> 16 | words[k + 1] << 16 : words[k];
    }
    return result;
  }
  // The last `columns` columns of a row, at most one block of them.
  static __device__ __forceinline__ Block end_of_row(const Half* from, int columns) {
    const auto* const at = reinterpret_cast<const std::uint16_t*>(from);
    Block result = none();
#pragma unroll
    for (int k = 0; k < kOfBlock; ++k) {
      const std::uint32_t one = k < columns ? load_streaming(at + k) : std::uint16_t{kNone};
      const int place = k % 2 * 16;
      result.words[k / 2] = (result.words[k / 2] & ~(0xffffu << place)) | one << place;
    }
    return result;
  }

  Block blocks_[kLoads];
};
template <>
class RowChunk<Float16> : public HalfChunk<Float16> {};
template <>
class RowChunk<BFloat16> : public HalfChunk<BFloat16> {};

// The largest logit x that one lane has read, times log2(e) (shift), and the sum of 2^(x log2(e) - shift).
template <class Real>
struct OnlineSum {
  // Less than every finite logit that contributes to a sum; its product with log2(e) is finite.
  static constexpr Real kLeast = static_cast<Real>(std::is_same_v<Real, float> ? -1.7e38 : -1.2e308);
  Real shift = kLeast * kLog2E<Real>;
  Real sum = 0;

  template <class Chunk>
  __device__ __forceinline__ void add(const Chunk& chunk) {
    constexpr int kParts = kRowLoads / 2;
    const Real next = max(shift, chunk.largest(kLeast) * kLog2E<Real>);
    Real part[kParts] = {};
    chunk.each([&](int k, Real x) { part[k % kParts] += exp2_of(fma(x, kLog2E<Real>, -next)); });
    sum = fma(sum, exp2_of(shift - next), (part[0] + part[1]) + (part[2] + part[3]));
    shift = next;
  }

  // Joins the sums of `lanes` neighbouring lanes. All of them get bitwise identical results.
  __device__ __forceinline__ RowSum<Real> join(int lanes) const {
    Real all = shift;
    for (int bit = 1; bit < lanes; bit *= 2) all = max(all, shuffle_xor(all, bit));
    Real total = sum * exp2_of(shift - all);
    for (int bit = 1; bit < lanes; bit *= 2) total += shuffle_xor(total, bit);
    return {all, total};
  }
};
static_assert(kRowLoads == 8);

// A row's shift, and the sum itself instead of its logarithm. A row of no labels is not read. All lanes of
// the warp call this, each group of `lanes` lanes with its own row.
template <class Storage>
__device__ __forceinline__ RowSum<Sum<Storage>> sum_row(const Storage* row, int labels, int lane, int lanes) {
  using Chunk = RowChunk<Storage>;
  const int chunk = lanes * Chunk::kColumns;
  const auto load = [&](Chunk& to, int begin) {
    if (begin + chunk + Chunk::columns_behind(row) <= labels) {
      to.load(row + begin, lane, lanes);
    } else {
      to.load_end(row + begin, lane, lanes, labels - begin);
    }
  };
  OnlineSum<Sum<Storage>> sum;
  Chunk now;
  load(now, 0);
  for (int begin = chunk; begin < labels; begin += chunk) {  // the next chunk is loaded meanwhile
    Chunk next;
    load(next, begin);
    sum.add(now);
    now = next;
  }
  sum.add(now);
  return sum.join(lanes);
}

// Takes the logarithm of the result of sum_row().
template <class Real>
__device__ __forceinline__ RowSum<Real> finished(RowSum<Real> sum) {
  if (sum.log2_sum == Real(0)) return {0, -minus_infinity<Real>()};
  return {sum.shift, static_cast<Real>(log2(sum.log2_sum))};
}

}  // namespace warpalign::cuda
