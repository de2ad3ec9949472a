// Neighbourhood graphs and shortest paths in float64, direct implementations of their definitions, for tests.
#pragma once

#include <vector>

namespace warpalign::detail::transport::reference {

// lengths[i n + j]: length of the edge from i to j; inf: no edge.
using Matrix = std::vector<double>;

// The graph of points (n, dim): i and j are joined if one is among the k nearest of the other.
Matrix knn_graph(const std::vector<double>& points, int n, int dim, int k);

// The same with the edges of the shortest forest that joins its components (Kruskal's algorithm).
Matrix joined(const Matrix& graph, const std::vector<double>& points, int n, int dim);

// Shortest paths between all pairs (Floyd and Warshall's algorithm).
Matrix shortest_paths(const Matrix& graph, int n);

}  // namespace warpalign::detail::transport::reference
