// What the tests of graphs share: calls on host memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "host_buffer.h"
#include "values.h"
#include "warpalign/neighbor_graph.h"

namespace warpalign::test {

inline constexpr double kNone = std::numeric_limits<double>::infinity();

template <class Real>
struct Graph {
  std::vector<std::int64_t> begins;
  std::vector<std::int32_t> neighbors;
  std::vector<Real> lengths;

  [[nodiscard]] int nodes() const { return static_cast<int>(begins.size()) - 1; }
  [[nodiscard]] GraphView view() const {
    return {kDType<Real>, nodes(), begins.data(), neighbors.data(), lengths.data()};
  }
  // (N, N); inf: no edge.
  [[nodiscard]] std::vector<double> dense() const {
    const int n = nodes();
    std::vector<double> matrix(static_cast<std::size_t>(n) * n, kNone);
    for (int i = 0; i < n; ++i) {
      for (std::int64_t e = begins[i]; e < begins[i + 1]; ++e) {
        matrix[static_cast<std::size_t>(i) * n + neighbors[e]] = static_cast<double>(lengths[e]);
      }
    }
    return matrix;
  }
};

template <class Real>
Graph<Real> knn(const std::vector<double>& points, int n, int dim, int k, bool joins,
                const Execution& execution) {
  const HostBuffer data(std::vector<Real>(points.begin(), points.end()));
  KnnProblem p;
  p.dtype = kDType<Real>;
  p.n = n;
  p.dim = dim;
  p.x = {data.data(), {dim, 1}};
  p.k = k;
  p.joins_components = joins;
  const std::size_t most = knn_graph_most_edges(p), bytes = knn_graph_workspace_bytes(p, execution);
  const HostBuffer begins((n + 1) * sizeof(std::int64_t)), neighbors(most * sizeof(std::int32_t)),
      lengths(most * sizeof(Real)), workspace(bytes);
  const KnnOutputs out{static_cast<std::int64_t*>(begins.data()),
                       static_cast<std::int32_t*>(neighbors.data()), lengths.data()};
  const Status status = knn_graph(p, out, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << to_string(status);
  Graph<Real> graph{begins.read<std::int64_t>(n + 1), {}, {}};
  graph.neighbors = neighbors.read<std::int32_t>(graph.begins[n]);
  graph.lengths = lengths.read<Real>(graph.begins[n]);
  return graph;
}

template <class Real>
std::vector<Real> paths(const Graph<Real>& graph, const std::vector<std::int32_t>& sources,
                        const Execution& execution) {
  const int count = static_cast<int>(sources.size());
  const std::size_t bytes = shortest_paths_workspace_bytes(graph.view(), count, execution);
  const std::size_t all = sources.size() * graph.nodes();
  const HostBuffer distances(all * sizeof(Real)), workspace(bytes);
  const Status status = shortest_paths(graph.view(), sources.data(), count, distances.data(),
                                       {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << to_string(status);
  return distances.read<Real>(all);
}

}  // namespace warpalign::test
