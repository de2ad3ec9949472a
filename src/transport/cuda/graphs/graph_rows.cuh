// Builds the compressed rows of the graph from nearest points and joints. Threads write edges in any order;
// rows are sorted afterwards.
#pragma once

#include "transport/cuda/graphs/graph_join.cuh"

namespace warpalign::detail::transport {

inline constexpr int kSortedInBlock = 256;  // the most edges of a row that a warp sorts in shared memory
inline constexpr int kRowsOfBlock = kSetThreads / 32;

struct RowsParams {
  int n;
  int k;
  const int* near;               // (n, k)
  const JoinCounters* counters;  // null: no joints
  const cuda::Word* joints;
  int* others;  // (n): number of a row's edges besides its own k; later the number that has been written
  std::int64_t* row_begins;  // (n + 1)
  int* neighbors;
};

// Calls edge(i, j) for every neighbour j of a node i besides its own k. Called by all threads of the grid.
template <class Edge>
__device__ __forceinline__ void for_other_edges(const RowsParams& p, const Edge& edge) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kSetThreads;
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kSetThreads + threadIdx.x;
  for (std::int64_t at = own; at < static_cast<std::int64_t>(p.n) * p.k; at += threads) {
    const int i = static_cast<int>(at / p.k), j = p.near[at];
    const int* const near = p.near + static_cast<std::int64_t>(j) * p.k;
    int known = 0;
    while (known < p.k && near[known] != i) ++known;
    if (known == p.k) edge(j, i);
  }
  const int joints = p.counters ? p.counters->joints : 0;
  for (std::int64_t at = own; at < joints; at += threads) {
    const cuda::Word ends = p.joints[at];
    edge(low_of(ends), high_of(ends));
    edge(high_of(ends), low_of(ends));
  }
}

__global__ void __launch_bounds__(kSetThreads) graph_count_kernel(const __grid_constant__ RowsParams p) {
  for_other_edges(p, [&](int i, int) { atomicAdd(p.others + i, 1); });
}

// One block.
__global__ void __launch_bounds__(kSumThreads) graph_begins_kernel(const __grid_constant__ RowsParams p) {
  sum_before(
      p.n, [&](int i) { return static_cast<std::int64_t>(p.k) + p.others[i]; },
      [&](int i, std::int64_t before) {
        p.row_begins[i] = before;
        if (i < p.n) p.others[i] = 0;
      });
}

__global__ void __launch_bounds__(kSetThreads) graph_edges_kernel(const __grid_constant__ RowsParams p) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kSetThreads;
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kSetThreads + threadIdx.x;
  for (std::int64_t at = own; at < static_cast<std::int64_t>(p.n) * p.k; at += threads) {
    p.neighbors[p.row_begins[at / p.k] + at % p.k] = p.near[at];
  }
  for_other_edges(p,
                  [&](int i, int j) { p.neighbors[p.row_begins[i] + p.k + atomicAdd(p.others + i, 1)] = j; });
}

// Sorts `count` numbers in place, by a warp. Bitonic sort in the form in which all comparisons have the same
// direction: virtual numbers after the end are larger than all others, and never move.
//
// Source: Batcher, "Sorting networks and their applications", AFIPS 1968.
__device__ __forceinline__ void sort_of_warp(int* numbers, int count, int lane) {
  const auto order = [&](int low, int high) {
    if (high >= count) return;
    const int a = numbers[low], b = numbers[high];
    if (a <= b) return;
    numbers[low] = b;
    numbers[high] = a;
  };
  for (int log = 1; 1 << (log - 1) < count; ++log) {
    const int all = 1 << log;  // length of sorted runs
    const int pairs = cuda::div_up(count, all) * (all / 2);
    for (int t = lane; t < pairs; t += 32) {
      const int begin = t >> (log - 1) << log, place = t & (all / 2 - 1);
      order(begin + place, begin + all - 1 - place);
    }
    __syncwarp();
    for (int bit = log - 2; bit >= 0; --bit) {
      for (int t = lane; t < pairs; t += 32) {
        const int low = (t >> bit << (bit + 1)) + (t & ((1 << bit) - 1));
        order(low, low + (1 << bit));
      }
      __syncwarp();
    }
  }
}

template <class Real>
struct SortParams {
  GraphPoints<Real> points;
  const std::int64_t* row_begins;
  int* neighbors;
  Real* lengths;
};

// Sorts the neighbours of rows, and writes lengths. A warp owns a row.
template <class Real>
__global__ void __launch_bounds__(kSetThreads) graph_sort_kernel(const __grid_constant__ SortParams<Real> p) {
  __shared__ int memory[kRowsOfBlock][kSortedInBlock];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int i = static_cast<int>(blockIdx.x) * kRowsOfBlock + warp;
  if (i >= p.points.n) return;
  const std::int64_t begin = p.row_begins[i];
  const int count = static_cast<int>(p.row_begins[i + 1] - begin);
  int* const row = p.neighbors + begin;
  if (count <= kSortedInBlock) {
    for (int e = lane; e < count; e += 32) memory[warp][e] = row[e];
    __syncwarp();
    sort_of_warp(memory[warp], count, lane);
    for (int e = lane; e < count; e += 32) row[e] = memory[warp][e];
  } else {
    sort_of_warp(row, count, lane);
  }
  for (int e = lane; e < count; e += 32) {
    p.lengths[begin + e] = static_cast<Real>(sqrt(p.points.square(i, row[e])));
  }
}

}  // namespace warpalign::detail::transport
