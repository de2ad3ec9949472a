// What the tests of graphs share: points, and calls on memory of the host or, for knn(), of a device.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "host_buffer.h"
#include "values.h"
#include "warpalign/neighbor_graph.h"

namespace warpalign::test {

inline constexpr double kNone = std::numeric_limits<double>::infinity();

// Points in clusters, some of them equal. Coordinates are multiples of 1/64: squared distances have no error.
inline std::vector<double> clusters(int n, int dim, int count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution;
  std::vector<double> points(static_cast<std::size_t>(n) * dim);
  for (int i = 0; i < n; ++i) {
    for (int d = 0; d < dim; ++d) {
      const double v = std::round(64 * distribution(engine)) / 64 + 20.0 * ((i % count) >> (d % 3));
      points[i * dim + d] = i % 7 == 3 && i > 0 ? points[(i - 1) * dim + d] : v;
    }
  }
  return points;
}

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

template <class Real, class Buffer = HostBuffer>
Graph<Real> knn(const std::vector<double>& points, int n, int dim, int k, bool joins,
                const Execution& execution) {
  const Buffer data(std::vector<Real>(points.begin(), points.end()));
  KnnProblem p;
  p.dtype = kDType<Real>;
  p.n = n;
  p.dim = dim;
  p.x = {data.data(), {dim, 1}};
  p.k = k;
  p.joins_components = joins;
  const std::size_t most = knn_graph_most_edges(p), bytes = knn_graph_workspace_bytes(p, execution);
  const Buffer begins((n + 1) * sizeof(std::int64_t)), neighbors(most * sizeof(std::int32_t)),
      lengths(most * sizeof(Real)), workspace(bytes);
  const KnnOutputs out{static_cast<std::int64_t*>(begins.data()),
                       static_cast<std::int32_t*>(neighbors.data()), lengths.data()};
  const Status status = knn_graph(p, out, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << to_string(status);
  Graph<Real> graph{begins.template read<std::int64_t>(n + 1), {}, {}};
  graph.neighbors = neighbors.template read<std::int32_t>(graph.begins[n]);
  graph.lengths = lengths.template read<Real>(graph.begins[n]);
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
