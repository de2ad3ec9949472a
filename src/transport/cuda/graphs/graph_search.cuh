// Shortest paths from single nodes. A block owns a search.
//
// Distances are the bits of float64 numbers >= 0, whose order is that of integers, so that they are lowered
// by an atomic minimum. A round relaxes the edges of the nodes in the near queue. A node whose new distance
// is at most the limit joins the next near queue, any other one the far list. When the near queue is empty,
// the limit is raised. A distance is the least of all sums along a path, each rounded in the path's order:
// bitwise identical to the CPU's, for any order of rounds.
//
// Source: Davidson, Baxter, Garland & Owens, "Work-efficient parallel GPU methods for single-source shortest
// paths", IPDPS 2014 (near-far piles).
#pragma once

#include "cuda/launch/launch.cuh"
#include "cuda/launch/shared.cuh"
#include "transport/cuda/graphs/graph_edges.cuh"
#include "transport/cuda/graphs/graph_search.h"

namespace warpalign::detail::transport {

inline constexpr int kLanesOfNode = 8;      // lanes that share a node's edges
inline constexpr int kLengthsOfThread = 4;  // lengths per thread in the sample for the mean

template <class Real>
struct SearchParams {
  GraphEdges<Real> graph;
  SearchLayout layout;
  unsigned char* scratch;  // (blocks, layout.scratch_bytes)
  int count;
  const int* sources;  // (count); null: find landmarks, with one block
  int start;           // the first landmark
  int* chosen;         // (count)
  Real* distances;     // (count, nodes)
};

template <class Real>
class Search {
 public:
  struct Shared {
    unsigned long long least;  // bits of a distance
    double length;
    int lengths;
    int near[3];  // sizes of the queues of this round and the next two
    int far;
    int survivors;
  };
  static_assert(sizeof(Shared) <= cuda::kStaticSharedBytes);

  __device__ __forceinline__ Search(const SearchParams<Real>& p, Shared& shared) : p_(p), shared_(shared) {
    distances_ = at<volatile unsigned long long>(p.layout.distances);
    stamps_ = at<volatile int>(p.layout.stamps);
    far_ = at<volatile int>(p.layout.far);
    near_ = at<volatile int>(p.layout.near);
    find_step();
  }

  // Called by all threads of the block. An invalid source reaches no node.
  __device__ __forceinline__ void run(int source) {
    for (int i = thread_; i < p_.graph.nodes; i += threads_) {
      distances_[i] = kInfinity;
      stamps_[i] = 0;
    }
    __syncthreads();
    const bool exists = source >= 0 && source < p_.graph.nodes;
    if (thread_ == 0) {
      if (exists) {
        distances_[source] = 0;
        near_[0] = source;
      }
      shared_.near[0] = exists ? 1 : 0;
      shared_.near[1] = shared_.near[2] = shared_.far = 0;
    }
    __syncthreads();
    double limit = step_;
    round_ = 0;
    for (;;) {
      const int count = shared_.near[round_ % 3];
      if (count > 0) {
        hand_on(count, limit);
      } else if (!raise(limit)) {
        return;
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ double distance(int i) const {
    return __longlong_as_double(static_cast<long long>(distances_[i]));
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T* at(const SearchArray& array) const {
    unsigned char* const base = array.on_chip
                                    ? cuda::dynamic_shared()
                                    : p_.scratch + static_cast<int>(blockIdx.x) * p_.layout.scratch_bytes;
    return reinterpret_cast<T*>(base + array.offset);
  }

 private:
  static constexpr unsigned long long kInfinity = 0x7ff0000000000000ull;
  // A node's stamp: 0, then kInFar, then the last round at whose end it was near. Stamps never decrease, so
  // that a node joins the far list at most once in a search, and a near queue at most once in a round.
  static constexpr int kInFar = 1, kFirstRound = 2;

  [[nodiscard]] __device__ __forceinline__ volatile int* queue(int round) const {
    return near_ + (round % 2 == 0 ? 0 : static_cast<std::int64_t>(p_.graph.nodes));
  }
  __device__ __forceinline__ void put(int node) {
    if (atomicMax(const_cast<int*>(stamps_ + node), round_ + kFirstRound) == round_ + kFirstRound) return;
    queue(round_ + 1)[atomicAdd(&shared_.near[(round_ + 1) % 3], 1)] = node;
  }

  // Computes the step of limits, from the mean length of a sample of edges. Results do not depend on it.
  __device__ __forceinline__ void find_step() {
    if (thread_ == 0) {
      shared_.length = 0;
      shared_.lengths = 0;
    }
    __syncthreads();
    const std::int64_t edges = p_.graph.row(p_.graph.nodes - 1).end;
    double sum = 0;
    int count = 0;
    for (int k = 0; k < kLengthsOfThread && edges > 0; ++k) {
      const double length =
          p_.graph.length(edges * (thread_ * kLengthsOfThread + k) / (threads_ * kLengthsOfThread));
      if (!(length < CUDART_INF)) continue;
      sum += length;
      ++count;
    }
    sum = cuda::reduce_sum(sum);
    count = cuda::reduce_sum(count);
    for (int warp = 0; warp < threads_ / 32; ++warp) {
      if (thread_ == warp * 32) {
        shared_.length += sum;
        shared_.lengths += count;
      }
      __syncthreads();
    }
    step_ = shared_.lengths > 0 ? p_.layout.limit_lengths * shared_.length / shared_.lengths : 0;
    if (!(step_ < CUDART_INF)) step_ = 0;
    __syncthreads();
  }

  __device__ __forceinline__ void hand_on(int count, double limit) {
    if (thread_ == 0) shared_.near[(round_ + 2) % 3] = 0;
    const volatile int* const nodes = queue(round_);
    for (int at = thread_ / kLanesOfNode; at < count; at += threads_ / kLanesOfNode) {
      const int node = nodes[at];
      const double from = distance(node);
      const auto [begin, end] = p_.graph.row(node);
      for (std::int64_t e = begin + thread_ % kLanesOfNode; e < end; e += kLanesOfNode) {
        const double length = from + p_.graph.length(e);
        if (!(length < CUDART_INF)) continue;
        const int to = p_.graph.neighbors[e];
        if (!(length < distance(to))) continue;
        const auto bits = static_cast<unsigned long long>(__double_as_longlong(length));
        if (atomicMin(const_cast<unsigned long long*>(distances_ + to), bits) <= bits) continue;
        if (length <= limit) {
          put(to);
        } else if (atomicMax(const_cast<int*>(stamps_ + to), kInFar) == 0) {
          far_[atomicAdd(&shared_.far, 1)] = to;
        }
      }
    }
    __syncthreads();
    ++round_;
  }

  // Raises the limit: nodes of the far list that have not been near yet join this round's near queue, or
  // stay. Returns false if there are none.
  __device__ __forceinline__ bool raise(double& limit) {
    const int count = shared_.far;
    if (thread_ == 0) {
      shared_.least = kInfinity;
      shared_.survivors = 0;
    }
    __syncthreads();
    unsigned long long least = kInfinity;
    for (int k = thread_; k < count; k += threads_) {
      const int node = far_[k];
      if (stamps_[node] == kInFar && distances_[node] < least) least = distances_[node];
    }
    if (least < kInfinity) atomicMin(&shared_.least, least);
    __syncthreads();
    least = shared_.least;
    if (least == kInfinity) return false;
    limit = __longlong_as_double(static_cast<long long>(least)) + step_;
    --round_;  // the near queue after that round is this round's, which is empty
    for (int first = 0; first < count; first += threads_) {
      const int node = first + thread_ < count ? far_[first + thread_] : -1;
      const bool waits = node >= 0 && stamps_[node] == kInFar, stays = waits && distance(node) > limit;
      __syncthreads();  // nodes that stay are written to places that have been read
      if (stays) far_[atomicAdd(&shared_.survivors, 1)] = node;
      if (waits && !stays) put(node);
    }
    ++round_;
    __syncthreads();
    if (thread_ == 0) shared_.far = shared_.survivors;
    __syncthreads();
    return true;
  }

  const SearchParams<Real>& p_;
  Shared& shared_;
  volatile unsigned long long* distances_;
  volatile int* stamps_;
  volatile int* far_;
  volatile int* near_;
  double step_ = 0;
  int round_ = 0;
  const int thread_ = static_cast<int>(threadIdx.x), threads_ = static_cast<int>(blockDim.x);
};

// Finds the node, not a landmark, that is farthest from all landmarks. Among equal distances the smallest
// index wins.
template <class Real>
__device__ __forceinline__ int next_landmark(const Search<Real>& search,
                                             typename Search<Real>::Shared& shared, double* nearest,
                                             int nodes, int landmark, bool first) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  __syncthreads();  // no thread reads the search's results any more
  if (thread == 0) {
    shared.least = ~0ull;
    shared.survivors = 0x7fffffff;
  }
  __syncthreads();
  // The complement of the largest number's bits, whose minimum is taken; landmarks have negative distances.
  unsigned long long least = ~0ull;
  for (int i = thread; i < nodes; i += threads) {
    const double known = first ? CUDART_INF : nearest[i];
    const double now = i == landmark ? -1 : min(known, search.distance(i));
    nearest[i] = now;
    if (now < 0) continue;
    const unsigned long long bits = ~static_cast<unsigned long long>(__double_as_longlong(now));
    if (bits < least) least = bits;
  }
  if (least != ~0ull) atomicMin(&shared.least, least);
  __syncthreads();
  const double most = __longlong_as_double(static_cast<long long>(~shared.least));
  for (int i = thread; i < nodes; i += threads) {
    if (nearest[i] != most) continue;
    atomicMin(&shared.survivors, i);
    break;
  }
  __syncthreads();
  return shared.survivors;
}

// Each block takes one source after the other. For landmarks, one block finds one after the other.
template <class Real>
__global__ void __launch_bounds__(kMostSearchThreads, 1)
    graph_search_kernel(const __grid_constant__ SearchParams<Real> p) {
  __shared__ typename Search<Real>::Shared shared;
  const int nodes = p.graph.nodes, thread = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);
  Search<Real> search(p, shared);
  double* const nearest = search.template at<double>(p.layout.nearest);
  int landmark = p.start;
  for (int k = static_cast<int>(blockIdx.x); k < p.count; k += static_cast<int>(gridDim.x)) {
    search.run(p.sources ? p.sources[k] : landmark);
    Real* const to = p.distances + static_cast<std::int64_t>(k) * nodes;
    for (int i = thread; i < nodes; i += threads) to[i] = static_cast<Real>(search.distance(i));
    if (p.sources) continue;
    if (thread == 0) p.chosen[k] = landmark;
    if (k + 1 < p.count) landmark = next_landmark(search, shared, nearest, nodes, landmark, k == 0);
  }
}

}  // namespace warpalign::detail::transport
