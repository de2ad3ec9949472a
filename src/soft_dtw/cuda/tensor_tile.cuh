// What the makers of costs and of gradients on the matrix units share. They make squared distances of float32
// series. The number of features is a multiple of 4, and rows begin at multiples of 16 bytes.
//
// Series are taken relative to an origin, the mean of the strip's columns: x' = x - origin, y' = y - origin.
// Series far from 0 keep their digits this way. Features come in blocks of 16. The instruction sums over
// eight features and wants features t and t + 4 of them in lane t = lane % 4. The order of a sum is free, so
// that lane t gets features 4t to 4t + 3 of a block in one load. Columns come as j and j + 8 for the same
// reason.
//
// In these files g = lane / 4 and t = lane % 4.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/warp.cuh"
#include "soft_dtw/cuda/cost_tile.cuh"

namespace warpalign::detail::soft_dtw {

constexpr int kBlockFeatures = 16;
constexpr int kChunkBlocks = 4;
constexpr int kChunkFeatures = kBlockFeatures * kChunkBlocks;
static_assert(kChunkFeatures == kMostTensorGradientFeatures);

// A float32 as the sum of two TF32 numbers: hi is the TF32 nearest to it. Products of one term use hi alone.
struct Split {
  float hi;
  float lo;
};
__device__ __forceinline__ Split split(float v) {
  const float hi = __int_as_float((__float_as_int(v) + 0x1000) & ~0x1fff);
  return {hi, v - hi};
}

// A fragment of kCount values, split.
template <int kCount>
struct Fragment {
  float hi[kCount];
  float lo[kCount];
  __device__ __forceinline__ void set(int k, Split s) {
    hi[k] = s.hi;
    lo[k] = s.lo;
  }
};
// sum[k] += a[k] b[k], the small terms first. Each term is added to all sums in turn, so that no product
// waits for the one before.
template <int kCount, class A, class B>
__device__ __forceinline__ void multiply(float (&sum)[kCount][4], bool three_terms, const A& a, const B& b) {
  if (three_terms) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) cuda::mma_tf32(sum[k], a(k).lo, b(k).hi);
#pragma unroll
    for (int k = 0; k < kCount; ++k) cuda::mma_tf32(sum[k], a(k).hi, b(k).lo);
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) cuda::mma_tf32(sum[k], a(k).hi, b(k).hi);
}

__device__ __forceinline__ void unpack(const float4& v, float (&to)[4]) {
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// Features f to f + 3 of one time step (f is a multiple of 4), or f and f + 1 (f is even). Features behind
// the last one are 0.
__device__ __forceinline__ void load_features(const float* step, int f, int dim, float (&to)[4]) {
  unpack(f < dim ? __ldg(reinterpret_cast<const float4*>(step + f)) : float4{0, 0, 0, 0}, to);
}
__device__ __forceinline__ void load_features(const float* step, int f, int dim, float (&to)[2]) {
  const float2 v = f < dim ? __ldg(reinterpret_cast<const float2*>(step + f)) : float2{0, 0};
  to[0] = v.x, to[1] = v.y;
}

// What a warp that makes gradients keeps of its features: x of two tiles, and the sums in grad_x so far of
// one tile. The stride lets at most two of the lanes' accesses meet in a bank.
struct TensorGradientRows {
  static constexpr int kStride = 2 * kBlockFeatures + 4;
  float x[2][kTileRows * kStride];
  float before[kTileRows * kStride];
};

// One strip's shared memory. It has the origin, and, for at most kChunkFeatures features, the strip's columns
// of y', split. Kernels with gradients have at most so many features.
struct OriginAlone {
  float origin[kMostTensorFeatures];
};
struct KeptColumns {
  float origin[kChunkFeatures];
  // A unit has 16 bytes: {y'[j,f], y'[j+8,f], y'[j,f+1], y'[j+8,f+1]}, f even. It is one fragment of four
  // values, or two of two. The lowest three bits of a unit's place are combined with those of j. So lanes
  // that read columns g and features 4t meet no bank conflict, nor do lanes that read columns 2t and features
  // 2g.
  float4 hi[16 * kChunkFeatures / 2];
  float4 lo[16 * kChunkFeatures / 2];

  static __device__ __forceinline__ int place(int column, int f) {
    const int pair = column % 8 + column / 16 * 8;
    return pair * (kChunkFeatures / 2) + (f / 2 ^ column % 8);
  }
};

template <bool kKept, class Crew>
struct __align__(16) TensorTiles : StripBarriers<float, FixedRing, Crew> {
  static constexpr int kHelpers = Crew::kMakers;
  std::conditional_t<kKept, KeptColumns, OriginAlone> of_strip;
  Several<TensorGradientRows, Crew::kGradients> rows;
  cuda::Barrier is_prepared;

  __device__ void init(int lane) {
    if (lane == 0) cuda::barrier_init<kHelpers * cuda::kWarpSize>(&is_prepared);
  }
  __device__ void reset(int lane) {
    if (lane == 0) cuda::barrier_reset<kHelpers * cuda::kWarpSize>(&is_prepared);
  }

  // Called by all helpers of the strip, at the start of a sweep. Each lane prepares two features.
  __device__ void prepare(const Params& p, const Pair<float>& pair, int strip, int lane, int helper) {
    const int last = kKept ? kChunkFeatures : div_up(p.dim, kBlockFeatures) * kBlockFeatures;
    for (int f = 2 * (kKept ? lane : helper * 32 + lane); f < last; f += 2 * kHelpers * 32) {
      float origin[2] = {}, v[2];
#pragma unroll 8
      for (int j = 0; j < 32; ++j) {
        load_features(column_of(p, pair, strip * 32 + j), f, p.dim, v);
        origin[0] += v[0] / 32;
        origin[1] += v[1] / 32;
      }
      if (!kKept || helper == 0) {
        of_strip.origin[f] = origin[0];
        of_strip.origin[f + 1] = origin[1];
      }
      if constexpr (kKept) {
#pragma unroll 1
        for (int k = helper; k < 16; k += kHelpers) {
          const int j = k % 8 + k / 8 * 16;
          float w[2];
          load_features(column_of(p, pair, strip * 32 + j), f, p.dim, v);
          load_features(column_of(p, pair, strip * 32 + j + 8), f, p.dim, w);
          const Split a = split(v[0] - origin[0]), b = split(w[0] - origin[0]), c = split(v[1] - origin[1]),
                      d = split(w[1] - origin[1]);
          of_strip.hi[KeptColumns::place(j, f)] = {a.hi, b.hi, c.hi, d.hi};
          of_strip.lo[KeptColumns::place(j, f)] = {a.lo, b.lo, c.lo, d.lo};
        }
      }
    }
    cuda::barrier_arrive(&is_prepared);
    cuda::barrier_wait(&is_prepared, 0);
  }

  // Features f to f + 3 of the origin (f is a multiple of 4), or f and f + 1 (f is even).
  __device__ __forceinline__ void origin(int f, float(&to)[4]) const {
    unpack(*reinterpret_cast<const float4*>(of_strip.origin + f), to);
  }
  __device__ __forceinline__ void origin(int f, float(&to)[2]) const {
    const float2 v = *reinterpret_cast<const float2*>(of_strip.origin + f);
    to[0] = v.x, to[1] = v.y;
  }

  // {y'[j,f], y'[j+8,f], y'[j,f+1], y'[j+8,f+1]}: f is even, and bit 3 of j is 0. j counts the strip's
  // columns.
  __device__ __forceinline__ Fragment<4> columns(const Params& p, const Pair<float>& pair, int column0, int j,
                                                 int f) const {
    Fragment<4> columns;
    if constexpr (kKept) {
      unpack(of_strip.hi[KeptColumns::place(j, f)], columns.hi);
      unpack(of_strip.lo[KeptColumns::place(j, f)], columns.lo);
    } else {
      float from[2], v[2];
      origin(f, from);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        load_features(column_of(p, pair, column0 + j + 8 * k), f, p.dim, v);
        columns.set(k, split(v[0] - from[0]));
        columns.set(2 + k, split(v[1] - from[1]));
      }
    }
    return columns;
  }

 private:
  static __device__ __forceinline__ const float* column_of(const Params& p, const Pair<float>& pair, int j) {
    return pair.y + min(kKept ? pair.true_column(j) : j, pair.m - 1) * p.y_stride[1];
  }
};

}  // namespace warpalign::detail::soft_dtw
