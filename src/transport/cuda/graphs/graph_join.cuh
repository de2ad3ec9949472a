// Edges that connect a graph of points, by Boruvka's algorithm: every component's shortest edge to another
// one is added, until there is one component. Edges are ordered by length, then by their smaller and their
// larger end. This order is total, so that shortest edges form no cycle.
//
// Source: Boruvka, "O jistem problemu minimalnim", 1926.
#pragma once

#include "transport/cuda/graphs/graph_points.cuh"
#include "transport/cuda/graphs/graph_sets.cuh"
#include "transport/cuda/solve/team.cuh"

namespace warpalign::detail::transport {

inline constexpr int kMostRounds = 32;  // each round at least halves the number of components

// The two ends of an edge as one number, in the order of edges of equal length.
__device__ __forceinline__ cuda::Word ends_of(int i, int j) {
  return static_cast<cuda::Word>(min(i, j)) << 32 | static_cast<unsigned>(max(i, j));
}
__device__ __forceinline__ int low_of(cuda::Word ends) { return static_cast<int>(ends >> 32); }
__device__ __forceinline__ int high_of(cuda::Word ends) { return static_cast<int>(ends & 0xffffffffu); }

// All 0 before the launch.
struct JoinCounters {
  int arrivals;
  int joints;
  int components[kMostRounds];  // at the start of a round
};

template <class Real>
struct JoinParams {
  GraphPoints<Real> points;
  int k;
  const int* near;  // (n, k)
  JoinCounters* counters;
  int* parent;           // (n)
  int* label;            // (n): the component's smallest point
  double* square;        // (n): squared distance to the nearest point of another component
  int* outside;          // (n): that point
  cuda::Word* shortest;  // by label: bits of the shortest edge's square
  cuda::Word* ends;      // by label: the smallest ends_of() among edges of that length
  cuda::Word* joints;    // (n): results; counters->joints of them
};

// A cooperative launch, with a barrier of the grid between the steps of a round.
template <class Real>
__global__ void __launch_bounds__(kScanThreads)
    graph_join_kernel(const __grid_constant__ JoinParams<Real> p) {
  __shared__ ScanMemory<Real> memory;
  const int n = p.points.n, blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const std::int64_t threads = static_cast<std::int64_t>(blocks) * kScanThreads,
                     own = static_cast<std::int64_t>(block) * kScanThreads + thread;
  Team team(0, block, blocks, &p.counters->arrivals, nullptr);
  for (std::int64_t i = own; i < n; i += threads) p.parent[i] = static_cast<int>(i);
  team.barrier();
  for (std::int64_t at = own; at < static_cast<std::int64_t>(n) * p.k; at += threads) {
    join_sets(p.parent, static_cast<int>(at / p.k), p.near[at]);
  }
  team.barrier();
  for (int round = 0; round < kMostRounds; ++round) {
    int roots = 0;
    for (std::int64_t i = own; i < n; i += threads) {
      const int root = root_of(p.parent, static_cast<int>(i));
      roots += root == i;
      p.label[i] = root;
      p.shortest[i] = p.ends[i] = ~cuda::Word{0};
    }
    if (roots > 0) atomicAdd(&p.counters->components[round], roots);
    team.barrier();
    if (__ldcg(&p.counters->components[round]) == 1) return;

    const int groups = cuda::div_up(n, kScanRows);
    for (int group = block; group < groups; group += blocks) {
      const int first = group * kScanRows + thread / 32 * kQueries;
      FoundPoint nearest[kQueries];
      int labels[kQueries];
      Real limits[kQueries];
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        nearest[q] = FoundPoint::none();
        labels[q] = p.label[min(first + q, n - 1)];
        limits[q] = static_cast<Real>(CUDART_INF);
      }
      scan_points(p.points, memory, group * kScanRows, limits, [&](int q, int j, bool near) {
        if (!near || p.label[j] == labels[q]) return;
        const FoundPoint point{p.points.square(first + q, j), j, 0};
        if (!point.before(nearest[q])) return;
        nearest[q] = point;
        limits[q] = p.points.limit(point.square);
      });
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        const FoundPoint point = cuda::reduce(
            nearest[q], [](const FoundPoint& a, const FoundPoint& b) { return b.before(a) ? b : a; });
        if (lane != 0 || first + q >= n) continue;
        p.square[first + q] = point.square;
        p.outside[first + q] = point.index;
        atomicMin(&p.shortest[labels[q]], static_cast<cuda::Word>(__double_as_longlong(point.square)));
      }
    }
    team.barrier();
    for (std::int64_t i = own; i < n; i += threads) {
      const int label = p.label[i];
      const auto bits = static_cast<cuda::Word>(__double_as_longlong(p.square[i]));
      if (bits == __ldcg(&p.shortest[label]))
        atomicMin(&p.ends[label], ends_of(static_cast<int>(i), p.outside[i]));
    }
    team.barrier();
    for (std::int64_t i = own; i < n; i += threads) {
      if (p.label[i] != i) continue;
      const cuda::Word ends = __ldcg(&p.ends[i]);
      const int low = low_of(ends), high = high_of(ends);
      const int other = p.label[low] == i ? p.label[high] : p.label[low];
      // An edge that is the shortest one of both its components is added only once.
      if (other < i && __ldcg(&p.ends[other]) == ends) continue;
      p.joints[atomicAdd(&p.counters->joints, 1)] = ends;
      join_sets(p.parent, low, high);
    }
    team.barrier();
  }
}

}  // namespace warpalign::detail::transport
