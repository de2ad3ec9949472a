// Graphs on a CPU against their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "graphs.h"
#include "testing.h"
#include "transport/reference_graph.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

namespace reference = detail::transport::reference;

std::vector<std::int32_t> all_nodes(int n) {
  std::vector<std::int32_t> nodes(n);
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

template <class Real>
void check_graph(const std::vector<double>& points, int n, int dim, int k, bool joins) {
  SCOPED_TRACE(testing::Message() << n << " points, dim " << dim << ", k " << k << ", joins " << joins);
  std::vector<double> want = reference::knn_graph(points, n, dim, k);
  if (joins) want = reference::joined(want, points, n, dim);
  const Graph<Real> got = knn<Real>(points, n, dim, k, joins, Execution::host());
  for (int i = 0; i < n; ++i) {
    EXPECT_TRUE(
        std::is_sorted(got.neighbors.begin() + got.begins[i], got.neighbors.begin() + got.begins[i + 1]));
  }
  const std::vector<double> edges = got.dense();
  const double tolerance = sizeof(Real) == 4 ? 1e-7 : 1e-14;  // one rounding of the length
  for (std::size_t at = 0; at < edges.size(); ++at) {
    if (want[at] == kNone) {
      ASSERT_EQ(edges[at], kNone) << "edge " << at;
    } else {
      ASSERT_NEAR(edges[at], want[at], tolerance * want[at]) << "edge " << at;
    }
  }
  const std::vector<Real> lengths = paths(got, all_nodes(n), Execution::host());
  const std::vector<double> shortest = reference::shortest_paths(edges, n);
  for (std::size_t at = 0; at < lengths.size(); ++at) {
    if (shortest[at] == kNone) {
      ASSERT_TRUE(std::isinf(lengths[at])) << "pair " << at;
    } else {
      ASSERT_NEAR(static_cast<double>(lengths[at]), shortest[at], tolerance * shortest[at]) << "pair " << at;
    }
  }
}

TEST(GraphCpu, KnnGraphsAndPathsFollowTheirDefinitions) {
  unsigned seed = 0;
  for (const int n : {1, 2, 3, 23, 24, 25, 49, 97, 150}) {
    for (const int dim : {1, 2, 3, 9, 17}) {
      for (const int k : {0, 1, 2, 5}) {
        if (k >= n || ++seed % kThinning != 0) continue;
        for (const bool joins : {false, true}) {
          check_graph<float>(clusters(n, dim, 1 + static_cast<int>(seed % 6), seed), n, dim, k, joins);
          check_graph<double>(clusters(n, dim, 5, seed), n, dim, k, joins);
        }
      }
    }
  }
}

TEST(GraphCpu, MoreEqualPointsThanNeighbors) {
  std::vector<double> points = normal(60 * 2, 1);
  std::fill_n(points.begin(), 2 * 20, 0.5);
  check_graph<float>(points, 60, 2, 5, true);
  const Graph<float> graph = knn<float>(points, 60, 2, 5, false, Execution::host());
  // Node 19's neighbours are the five of smallest index at distance 0, which are edges.
  const std::vector<std::int32_t> row(graph.neighbors.begin() + graph.begins[19],
                                      graph.neighbors.begin() + graph.begins[20]);
  EXPECT_EQ(row, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(graph.lengths[graph.begins[19]], 0.0F);
}

TEST(GraphCpu, EdgesWithDirectionZeroAndInfiniteLengths) {
  // 0 -> 1 -> 2 at length 0; 2 -> 0 at 5; 0 -> 3 is no edge; a long edge 2 -> 4 beside short ones.
  const Graph<double> graph{{0, 2, 3, 5, 5, 6}, {1, 3, 2, 0, 4, 4}, {0.0, kNone, 0.0, 5.0, 1e9, 1e-3}};
  const std::vector<double> got = paths(graph, {0, 2}, Execution::host());
  EXPECT_EQ(got, (std::vector<double>{0, 0, 0, kNone, 1e9, 5, 5, 0, kNone, 1e9}));
  std::vector<std::int32_t> labels(5);
  std::int32_t count = 0;
  ASSERT_TRUE(connected_components(graph.view(), labels.data(), &count, Execution::host()).ok());
  EXPECT_EQ(labels, (std::vector<std::int32_t>{0, 0, 0, 1, 0}));
  EXPECT_EQ(count, 2);
}

// Many sources are searched eight at a time, a single one alone: the bits are the same.
template <class Real>
void check_together(const Graph<Real>& graph, const std::vector<std::int32_t>& sources) {
  const auto n = static_cast<std::size_t>(graph.nodes());
  const std::vector<Real> together = paths(graph, sources, Execution::host());
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const std::vector<Real> alone = paths(graph, {sources[k]}, Execution::host());
    const std::vector<Real> row(together.begin() + k * n, together.begin() + (k + 1) * n);
    ASSERT_EQ(row, alone) << "source " << k;
  }
}

TEST(GraphCpu, SourcesTogetherHaveTheSameBitsAsAlone) {
  Graph<float> graph = knn<float>(clusters(257, 2, 4, 11), 257, 2, 4, false, Execution::host());
  std::vector<std::int32_t> sources = all_nodes(257);
  std::reverse(sources.begin(), sources.end());
  sources.insert(sources.begin() + 100, 13, 8);  // one node, more often than a group has places
  check_together(graph, sources);
  check_together(graph, {7, 200, 8, 9, 60, 10, 61, 130, 11});  // groups of fewer, and single ones
  // Edges in one direction, of length 0, very long and infinite.
  for (std::size_t e = 0; e < graph.lengths.size(); ++e) {
    if (e % 3 == 0) graph.lengths[e] = e % 2 == 0 ? 0.0F : static_cast<float>(kNone);
    if (e % 31 == 0) graph.lengths[e] = 1e7F;
  }
  check_together(graph, all_nodes(257));
}

TEST(GraphCpu, LandmarksAreFarthest) {
  const std::vector<double> points = clusters(90, 2, 3, 5);
  const Graph<float> graph = knn<float>(points, 90, 2, 3, false, Execution::host());
  const std::vector<float> all = paths(graph, all_nodes(90), Execution::host());
  const std::size_t bytes = farthest_landmarks_workspace_bytes(graph.view(), Execution::host());
  const HostBuffer chosen(90 * sizeof(std::int32_t)), distances(90 * 90 * sizeof(float)), workspace(bytes);
  ASSERT_TRUE(farthest_landmarks(graph.view(), 90, 7, static_cast<std::int32_t*>(chosen.data()),
                                 distances.data(), {workspace.data(), bytes}, Execution::host())
                  .ok());
  const std::vector<std::int32_t> landmarks = chosen.read<std::int32_t>(90);
  const std::vector<float> rows = distances.read<float>(90 * 90);
  std::vector<float> nearest(90, static_cast<float>(kNone));
  EXPECT_EQ(landmarks[0], 7);
  for (int k = 0; k < 90; ++k) {
    // float64 distances choose; what float32 makes of them may tie.
    if (k > 0) {
      EXPECT_EQ(nearest[landmarks[k]], *std::max_element(nearest.begin(), nearest.end()));
    }
    for (int i = 0; i < 90; ++i) {
      EXPECT_EQ(rows[k * 90 + i], all[landmarks[k] * 90 + i]);
      nearest[i] = std::min(nearest[i], rows[k * 90 + i]);
    }
    nearest[landmarks[k]] = -1;
  }
  EXPECT_EQ(nearest, std::vector<float>(90, -1));
}

TEST(GraphCpu, TheSameBitsForAnyNumberOfThreads) {
  const std::vector<double> points = clusters(1500, 3, 6, 3);
  const Graph<float> one = knn<float>(points, 1500, 3, 4, true, Execution::host());
  const std::vector<float> lengths = paths(one, {0, 3, 700, 1499}, Execution::host());
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    const Execution execution = Execution::host(pool.parallel_for());
    const Graph<float> many = knn<float>(points, 1500, 3, 4, true, execution);
    EXPECT_EQ(one.begins, many.begins);
    EXPECT_EQ(one.neighbors, many.neighbors);
    EXPECT_EQ(one.lengths, many.lengths);
    EXPECT_EQ(lengths, paths(one, {0, 3, 700, 1499}, execution));
  }
}

}  // namespace
}  // namespace warpalign::test
