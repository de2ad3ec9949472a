// The k points nearest to each point, by comparing all pairs.
#pragma once

#include "transport/cuda/graphs/graph_points.cuh"

namespace warpalign::detail::transport {

inline constexpr int kNearestOfPass = 64;  // two for each lane of a warp

// The nearest points so far, in order: number r is entry r / 32 of lane r % 32.
class NearestOfWarp {
 public:
  __device__ __forceinline__ NearestOfWarp() {
    for (FoundPoint& entry : entries_) entry = FoundPoint::none();
  }
  // Called by all lanes with the same point.
  __device__ __forceinline__ void insert(const FoundPoint& point, int lane) {
    const int place = __popc(__ballot_sync(cuda::kFullWarp, entries_[0].before(point))) +
                      __popc(__ballot_sync(cuda::kFullWarp, entries_[1].before(point)));
    const FoundPoint carried = cuda::shuffle(entries_[0], 31);
#pragma unroll
    for (int e = 1; e >= 0; --e) {
      FoundPoint moved = cuda::shuffle_up(entries_[e]);
      if (e == 1 && lane == 0) moved = carried;
      if (e * 32 + lane > place) entries_[e] = moved;
      if (e * 32 + lane == place) entries_[e] = point;
    }
  }
  [[nodiscard]] __device__ __forceinline__ FoundPoint number(int at) const {
    const FoundPoint low = cuda::shuffle(entries_[0], at % 32), high = cuda::shuffle(entries_[1], at % 32);
    return at < 32 ? low : high;
  }
  [[nodiscard]] __device__ __forceinline__ int own_index(int entry) const { return entries_[entry].index; }

 private:
  FoundPoint entries_[2];
};

template <class Real>
struct NearestParams {
  GraphPoints<Real> points;
  int k;
  int done;   // number of neighbours from earlier passes
  int* near;  // (n, k) indices, nearest first
};

// A pass finds the next kNearestOfPass of each point's k nearest points. A warp owns kQueries points.
template <class Real>
__global__ void __launch_bounds__(kScanThreads)
    graph_nearest_kernel(const __grid_constant__ NearestParams<Real> p) {
  __shared__ ScanMemory<Real> memory;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int first_of_block = static_cast<int>(blockIdx.x) * kScanRows,
            first = first_of_block + thread / 32 * kQueries;
  const int wanted = min(kNearestOfPass, p.k - p.done);
  NearestOfWarp nearest[kQueries];
  FoundPoint before[kQueries];  // the last one of the earlier passes
  Real limits[kQueries];
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
    before[q] = {-1, -1, 0};
    limits[q] = static_cast<Real>(CUDART_INF);
    const int i = first + q;
    if (p.done == 0 || i >= p.points.n) continue;
    const int last = p.near[static_cast<std::int64_t>(i) * p.k + p.done - 1];
    before[q] = {p.points.square(i, last), last, 0};
  }
  scan_points(p.points, memory, first_of_block, limits, [&](int q, int j, bool near) {
    if (!__any_sync(cuda::kFullWarp, near)) return;
    FoundPoint mine{CUDART_INF, j, 0};
    if (near) mine.square = p.points.square(first + q, j);
    unsigned left = __ballot_sync(cuda::kFullWarp, near && before[q].before(mine));
    if (left == 0) return;
    FoundPoint worst = nearest[q].number(wanted - 1);
    for (; left != 0; left &= left - 1) {
      const FoundPoint point = cuda::shuffle(mine, __ffs(left) - 1);
      if (!point.before(worst)) continue;
      nearest[q].insert(point, lane);
      worst = nearest[q].number(wanted - 1);
    }
    limits[q] = p.points.limit(worst.square);
  });
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
    if (first + q >= p.points.n) continue;
    int* const to = p.near + static_cast<std::int64_t>(first + q) * p.k + p.done;
#pragma unroll
    for (int entry = 0; entry < 2; ++entry) {
      if (entry * 32 + lane < wanted) to[entry * 32 + lane] = nearest[q].own_index(entry);
    }
  }
}

}  // namespace warpalign::detail::transport
