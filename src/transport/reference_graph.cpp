#include "transport/reference_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace warpalign::detail::transport::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double distance(const std::vector<double>& points, int dim, int i, int j) {
  double square = 0;
  for (int d = 0; d < dim; ++d) square += std::pow(points[i * dim + d] - points[j * dim + d], 2);
  return std::sqrt(square);
}

}  // namespace

Matrix knn_graph(const std::vector<double>& points, int n, int dim, int k) {
  Matrix graph(static_cast<std::size_t>(n) * n, kInf);
  for (int i = 0; i < n; ++i) {
    std::vector<std::pair<double, int>> others;
    for (int j = 0; j < n; ++j) {
      if (j != i) others.emplace_back(distance(points, dim, i, j), j);
    }
    std::sort(others.begin(), others.end());
    for (int at = 0; at < k; ++at) {
      const auto& [length, j] = others[at];
      graph[i * n + j] = graph[j * n + i] = length;
    }
  }
  return graph;
}

Matrix joined(const Matrix& graph, const std::vector<double>& points, int n, int dim) {
  std::vector<int> component(n);
  std::iota(component.begin(), component.end(), 0);
  const auto join = [&](int i, int j) {
    const int from = component[i], to = component[j];
    for (int& c : component) c = c == from ? to : c;
  };
  struct Edge {
    double length;
    int i, j;
  };
  std::vector<Edge> others;
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) {
      if (graph[i * n + j] < kInf) {
        join(i, j);
      } else {
        others.push_back({distance(points, dim, i, j), i, j});
      }
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Edge& a, const Edge& b) { return a.length < b.length; });
  Matrix result = graph;
  for (const Edge& e : others) {
    if (component[e.i] == component[e.j]) continue;
    join(e.i, e.j);
    result[e.i * n + e.j] = result[e.j * n + e.i] = e.length;
  }
  return result;
}

Matrix shortest_paths(const Matrix& graph, int n) {
  Matrix lengths = graph;
  for (int i = 0; i < n; ++i) lengths[i * n + i] = 0;
  for (int k = 0; k < n; ++k) {
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        lengths[i * n + j] = std::min(lengths[i * n + j], lengths[i * n + k] + lengths[k * n + j]);
      }
    }
  }
  return lengths;
}

}  // namespace warpalign::detail::transport::reference
