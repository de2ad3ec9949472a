// Points, and the pass over all pairs that finds their neighbours.
//
// A warp owns kQueries points. A lane reads kCandidates points of a tile of the others, and computes their
// squared distances in the points' own dtype. Those that may be near enough are computed again in float64, as
// on the CPU: differences in float64, one fused multiply-add per feature, in order. So float32 affects only
// the speed.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "cuda/launch/device.h"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transport {

inline constexpr int kScanThreads = 256;
inline constexpr int kQueries = 4;     // points that a warp owns
inline constexpr int kCandidates = 2;  // points that a lane compares at a time
inline constexpr int kScanTile = kCandidates * cuda::kWarpSize;
inline constexpr int kScanFeatures = 16;  // features in shared memory at a time
inline constexpr int kScanRows = kScanThreads / cuda::kWarpSize * kQueries;  // points of a block

template <class Real>
struct GraphPoints {
  const Real* x;
  std::int64_t stride[2];
  int n;
  int dim;

  [[nodiscard]] __device__ __forceinline__ Real at(int i, int d) const {
    return x[i * stride[0] + d * stride[1]];
  }
  // The squared distance; inf instead of NaN. Bitwise identical with i and j exchanged.
  [[nodiscard]] __device__ __forceinline__ double square(int i, int j) const {
    double sum = 0;
    for (int d = 0; d < dim; ++d) {
      const double difference = static_cast<double>(at(j, d)) - static_cast<double>(at(i, d));
      sum = fma(difference, difference, sum);
    }
    return isnan(sum) ? CUDART_INF : sum;
  }
  // The squared distance in Real above which the float64 one exceeds `square`. The error is at most dim + 2
  // roundings; the added constant covers underflow.
  [[nodiscard]] __device__ __forceinline__ Real limit(double square) const {
    if constexpr (sizeof(Real) == 8) return square;
    return static_cast<Real>(square * (1 + (dim + 4) * 0x1p-23) + 1e-37);
  }
};

// A point that a search has found. The order breaks ties by index.
struct FoundPoint {
  double square;
  int index;
  int unused;  // padding to whole words of 8 bytes, for shuffles

  static __device__ __forceinline__ FoundPoint none() { return {CUDART_INF, 0x7fffffff, 0}; }
  [[nodiscard]] __device__ __forceinline__ bool before(const FoundPoint& other) const {
    return square < other.square || (square == other.square && index < other.index);
  }
};

template <class Real>
struct ScanMemory {
  alignas(16) Real own[kScanFeatures][kScanRows];
  alignas(16) Real others[kScanFeatures][kScanTile];
};

// Called by all threads of the block. Calls report(q, j, near) for the warp's point first + q < n and each
// point j < n, in ascending order of tiles, by all lanes together, each with a different j. near: whether the
// distance is at most limits[q], which report() may change.
template <class Real, class Report>
__device__ __forceinline__ void scan_points(const GraphPoints<Real>& p, ScanMemory<Real>& s,
                                            int first_of_block, Real (&limits)[kQueries],
                                            const Report& report) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, own = thread / 32 * kQueries;
  for (int begin = 0; begin < p.n; begin += kScanTile) {
    Real squares[kQueries][kCandidates] = {};
    for (int feature = 0; feature < p.dim; feature += kScanFeatures) {
      const int features = min(kScanFeatures, p.dim - feature);
      __syncthreads();
      for (int at = thread; at < kScanTile * features; at += kScanThreads) {
        const int point = at / features, d = at % features;
        s.others[d][point] = p.at(min(begin + point, p.n - 1), feature + d);
      }
      if (begin == 0 || p.dim > kScanFeatures) {
        for (int at = thread; at < kScanRows * features; at += kScanThreads) {
          const int point = at / features, d = at % features;
          s.own[d][point] = p.at(min(first_of_block + point, p.n - 1), feature + d);
        }
      }
      __syncthreads();
#pragma unroll 4
      for (int d = 0; d < features; ++d) {
        Real mine[kQueries];
#pragma unroll
        for (int q = 0; q < kQueries; ++q) mine[q] = s.own[d][own + q];
#pragma unroll
        for (int c = 0; c < kCandidates; ++c) {
          const Real other = s.others[d][c * 32 + lane];
#pragma unroll
          for (int q = 0; q < kQueries; ++q) {
            const Real difference = other - mine[q];
            squares[q][c] = fma(difference, difference, squares[q][c]);
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kCandidates; ++c) {
      const int j = begin + c * 32 + lane;
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        const int i = first_of_block + own + q;
        if (i >= p.n) continue;  // uniform in the warp
        report(q, j, j < p.n && j != i && !(squares[q][c] > limits[q]));
      }
    }
  }
}

}  // namespace warpalign::detail::transport
