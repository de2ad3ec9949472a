// The connected components of a graph in compressed rows.
#pragma once

#include "transport/cuda/graphs/graph_edges.cuh"
#include "transport/cuda/graphs/graph_sets.cuh"

namespace warpalign::detail::transport {

// labels (nodes): between the launches, the parents of disjoint sets.
__global__ void __launch_bounds__(kSetThreads) components_start_kernel(int nodes, int* labels) {
  const int i = static_cast<int>(blockIdx.x) * kSetThreads + static_cast<int>(threadIdx.x);
  if (i < nodes) labels[i] = i;
}

template <class Real>
__global__ void __launch_bounds__(kSetThreads)
    components_join_kernel(const __grid_constant__ GraphEdges<Real> graph, int* labels) {
  const int i = static_cast<int>(blockIdx.x) * kSetThreads + static_cast<int>(threadIdx.x);
  if (i >= graph.nodes) return;
  const auto [begin, end] = graph.row(i);
  for (std::int64_t e = begin; e < end; ++e) {
    if (graph.length(e) < CUDART_INF) join_sets(labels, i, graph.neighbors[e]);
  }
}

// One block. While other threads still follow parents, a root's label is stored as a negative number.
__global__ void __launch_bounds__(kSumThreads)
    components_number_kernel(int nodes, int* labels, int* components) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < nodes; i += kSumThreads) labels[i] = root_of(labels, i);
  __syncthreads();
  sum_before(
      nodes, [&](int i) { return labels[i] == i; },
      [&](int i, std::int64_t before) {
        if (i == nodes) {
          *components = static_cast<int>(before);
        } else if (labels[i] == i) {
          labels[i] = ~static_cast<int>(before);
        }
      });
  __syncthreads();
  for (int i = thread; i < nodes; i += kSumThreads) {
    if (const int root = labels[i]; root >= 0) labels[i] = ~labels[root];
  }
  __syncthreads();
  for (int i = thread; i < nodes; i += kSumThreads) {
    if (labels[i] < 0) labels[i] = ~labels[i];
  }
}

}  // namespace warpalign::detail::transport
