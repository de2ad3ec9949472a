// Neighbourhood graphs of points, and shortest paths in them. Geodesic distances on such graphs are what
// Gromov-Wasserstein transport compares where two sets have no common features.
//
// A graph is a square matrix of edge lengths in compressed rows: the edges of node i are those from
// row_begins[i] to row_begins[i + 1]. An edge of length 0 is an edge. Lengths are >= 0; inf is no edge.
//
// Results on CUDA are those on a host: the same edges, and the same bits of distances in a graph. Lengths of
// edges may differ in the last bit of float64, where the host's instruction set has no fused multiply-add.
// Nothing waits for the device. Values are looked at on the host alone. On CUDA these rules hold: a distance
// that is NaN counts as inf; an edge is none if its length is below 0 or NaN, or if it leads to no node;
// row_begins are held within 0 to edges; from a source that is no node all distances are inf.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

// A graph that a call reads.
struct GraphView {
  DType dtype = DType::kFloat32;             // kFloat32 or kFloat64, of lengths and of distances
  std::int32_t nodes = 0;                    // N, 0 to 2^29
  const std::int64_t* row_begins = nullptr;  // (N + 1), from 0 on, never falling
  const std::int32_t* neighbors = nullptr;   // (edges), 0 to N - 1
  const void* lengths = nullptr;             // (edges), of dtype
  std::int64_t edges = -1;                   // that neighbors and lengths have room for; read on CUDA alone
};

// The points of a graph, and its options.
struct KnnProblem {
  DType dtype = DType::kFloat32;  // kFloat32 or kFloat64
  std::int32_t n = 0;             // N, 1 to 2^29
  std::int32_t dim = 0;           // D, 1 to 2^20
  StridedTensorOf<2> x;           // (N, D), finite, below 2^500 in magnitude
  std::int32_t k = 0;             // neighbours of each point, 0 to N - 1
  bool joins_components = false;  // whether the graph gets edges until it is connected
};

// Contiguous; knn_graph_most_edges() is the most edges that there can be. Edges after the last one are not
// written.
struct KnnOutputs {
  std::int64_t* row_begins = nullptr;  // (N + 1)
  std::int32_t* neighbors = nullptr;   // in rising order within a row
  void* lengths = nullptr;             // of dtype: Euclidean distances
};

// 2 N k edges, and 2 (N - 1) where components are joined.
std::int64_t knn_graph_most_edges(const KnnProblem& problem);

// The undirected graph in which i and j are neighbours where j is among the k points nearest to i, or i
// among those of j. At equal distances the smaller index is nearer. The point itself does not count; other
// points at distance 0 do. With joins_components the shortest edge that leaves each component is added until
// one component is left (Boruvka's algorithm). Distances are computed in float64 from differences. The result
// has the same bits for any number of threads. On CUDA all pairs of points are compared: once for 64
// neighbours, and once in each round of Boruvka's algorithm.
Status knn_graph(const KnnProblem& problem, const KnnOutputs& outputs, Workspace workspace,
                 const Execution& execution);
std::size_t knn_graph_workspace_bytes(const KnnProblem& problem, const Execution& execution);

// The lengths of the shortest paths from each source to every node: distances (sources, N), contiguous, of
// the graph's dtype; inf where there is no path. Edges are followed in the direction of their row. Lengths
// are added in float64. Source: Meyer and Sanders, "Delta-stepping: a parallelizable shortest path
// algorithm", J. Algorithms 2003; a thread does one source after the other. On CUDA a block does, after
// Davidson, Baxter, Garland and Owens, "Work-efficient parallel GPU methods for single-source shortest
// paths", IPDPS 2014. Its workspace is 24 N bytes for each source at work, as far as they do not fit on the
// chip.
Status shortest_paths(const GraphView& graph, const std::int32_t* sources, std::int32_t count,
                      void* distances, Workspace workspace, const Execution& execution);
std::size_t shortest_paths_workspace_bytes(const GraphView& graph, std::int32_t count,
                                           const Execution& execution);

// labels (N): nodes that an edge joins, in either direction, have the same label. Labels count from 0 in the
// order of the components' first nodes; components (1) is their number.
Status connected_components(const GraphView& graph, std::int32_t* labels, std::int32_t* components,
                            const Execution& execution);

// count nodes, 1 to N: `start`, then again and again the node farthest from those chosen (the smallest index
// among equals). chosen (count); distances (count, N), contiguous, of the graph's dtype: from each of them.
// Nodes that no path reaches are farthest.
Status farthest_landmarks(const GraphView& graph, std::int32_t count, std::int32_t start,
                          std::int32_t* chosen, void* distances, Workspace workspace,
                          const Execution& execution);
std::size_t farthest_landmarks_workspace_bytes(const GraphView& graph, const Execution& execution);

}  // namespace warpalign
