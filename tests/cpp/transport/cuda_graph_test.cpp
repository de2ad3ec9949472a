// Graphs on CUDA next to the host's: the same edges, and the same bits of distances.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "device_buffer.h"
#include "graphs.h"
#include "testing.h"

namespace warpalign::test {
namespace {

class TransportGraphCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

const Execution kCuda = Execution::cuda(0, nullptr);

// A graph on the device, and what is found of it.
template <class Real>
class DeviceGraph {
 public:
  explicit DeviceGraph(const Graph<Real>& graph)
      : nodes_(graph.nodes()),
        begins_(graph.begins),
        neighbors_(graph.neighbors),
        lengths_(graph.lengths),
        view_{kDType<Real>,
              nodes_,
              static_cast<const std::int64_t*>(begins_.data()),
              static_cast<const std::int32_t*>(neighbors_.data()),
              lengths_.data(),
              static_cast<std::int64_t>(graph.neighbors.size())} {}

  [[nodiscard]] std::vector<Real> paths(const std::vector<std::int32_t>& sources) const {
    const int count = static_cast<int>(sources.size());
    const std::size_t bytes = shortest_paths_workspace_bytes(view_, count, kCuda),
                      all = sources.size() * nodes_;
    const DeviceBuffer places(sources), distances(all * sizeof(Real)), workspace(bytes);
    const Status status = shortest_paths(view_, static_cast<const std::int32_t*>(places.data()), count,
                                         distances.data(), {workspace.data(), bytes}, kCuda);
    EXPECT_TRUE(status.ok()) << to_string(status);
    return distances.read<Real>(all);
  }
  [[nodiscard]] std::tuple<std::vector<std::int32_t>, std::vector<Real>> landmarks(int count,
                                                                                   int start) const {
    const std::size_t bytes = farthest_landmarks_workspace_bytes(view_, kCuda),
                      all = static_cast<std::size_t>(count) * nodes_;
    const DeviceBuffer chosen(count * sizeof(std::int32_t)), distances(all * sizeof(Real)), workspace(bytes);
    const Status status = farthest_landmarks(view_, count, start, static_cast<std::int32_t*>(chosen.data()),
                                             distances.data(), {workspace.data(), bytes}, kCuda);
    EXPECT_TRUE(status.ok()) << to_string(status);
    return {chosen.read<std::int32_t>(count), distances.read<Real>(all)};
  }
  // Labels, then how many there are.
  [[nodiscard]] std::vector<std::int32_t> components() const {
    const DeviceBuffer labels(nodes_ * sizeof(std::int32_t)), count(sizeof(std::int32_t));
    const Status status = connected_components(view_, static_cast<std::int32_t*>(labels.data()),
                                               static_cast<std::int32_t*>(count.data()), kCuda);
    EXPECT_TRUE(status.ok()) << to_string(status);
    std::vector<std::int32_t> found = labels.read<std::int32_t>(nodes_);
    found.push_back(count.read<std::int32_t>(1)[0]);
    return found;
  }

 private:
  const int nodes_;
  const DeviceBuffer begins_, neighbors_, lengths_;
  const GraphView view_;
};

template <class Real>
std::vector<std::int32_t> components_of(const Graph<Real>& graph) {
  std::vector<std::int32_t> found(graph.nodes() + 1);
  EXPECT_TRUE(
      connected_components(graph.view(), found.data(), &found[graph.nodes()], Execution::host()).ok());
  return found;
}

template <class Real>
std::tuple<std::vector<std::int32_t>, std::vector<Real>> landmarks_of(const Graph<Real>& graph, int count,
                                                                      int start) {
  const std::size_t bytes = farthest_landmarks_workspace_bytes(graph.view(), Execution::host());
  std::vector<std::int32_t> chosen(count);
  std::vector<Real> distances(static_cast<std::size_t>(count) * graph.nodes());
  const HostBuffer workspace(bytes);
  EXPECT_TRUE(farthest_landmarks(graph.view(), count, start, chosen.data(), distances.data(),
                                 {workspace.data(), bytes}, Execution::host())
                  .ok());
  return {chosen, distances};
}

// More sources than blocks, in no order.
std::vector<std::int32_t> some_nodes(int n) {
  std::vector<std::int32_t> nodes(10);
  for (int k = 0; k < 10; ++k) nodes[k] = k * 37 % n;
  return nodes;
}

template <class Real>
void check_points(int n, int dim, int k, int components, bool joins) {
  SCOPED_TRACE(testing::Message() << n << " points, dim " << dim << ", k " << k << ", joins " << joins);
  const std::vector<double> points = clusters(n, dim, components, n + dim);
  const Graph<Real> want = knn<Real>(points, n, dim, k, joins, Execution::host());
  const Graph<Real> got = knn<Real, DeviceBuffer>(points, n, dim, k, joins, kCuda);
  ASSERT_EQ(got.begins, want.begins);
  ASSERT_EQ(got.neighbors, want.neighbors);
  ASSERT_EQ(got.lengths, want.lengths);
  const DeviceGraph<Real> graph(want);
  ASSERT_EQ(graph.components(), components_of(want));
  ASSERT_EQ(graph.paths(some_nodes(n)), paths(want, some_nodes(n), Execution::host()));
  const int count = std::min(n, 6);
  ASSERT_EQ(graph.landmarks(count, n / 2), landmarks_of(want, count, n / 2));
}

TEST_F(TransportGraphCuda, TheHostsGraphsOfPoints) {
  // Tiles of 64 points, blocks of 32, features 16 at a time, 64 neighbours in a pass.
  for (const auto& [n, dim, k, components] : {std::tuple{1, 1, 0, 1},
                                              {2, 3, 1, 1},
                                              {33, 2, 0, 3},
                                              {63, 17, 5, 4},
                                              {64, 16, 1, 2},
                                              {65, 1, 64, 5},
                                              {130, 33, 3, 6},
                                              {140, 3, 70, 2}}) {
    for (const bool joins : {false, true}) {
      check_points<float>(n, dim, k, components, joins);
      if (n % 2 == 1 || k == 3) check_points<double>(n, dim, k, components, joins);
    }
  }
}

// All points are neighbours of the first one, whose row is longer than what a warp sorts in shared memory.
TEST_F(TransportGraphCuda, AHubAndStrides) {
  constexpr int kN = 300;
  // Every point but the first one has a feature of its own.
  std::vector<double> star(static_cast<std::size_t>(kN) * kN);
  for (int i = 1; i < kN; ++i) star[static_cast<std::size_t>(i) * kN + i] = 8;
  const Graph<float> hub = knn<float, DeviceBuffer>(star, kN, kN, 1, true, kCuda);
  EXPECT_EQ(hub.begins[1], kN - 1);
  for (int j = 1; j < kN; ++j) EXPECT_EQ(hub.neighbors[j - 1], j);
  EXPECT_EQ(hub.lengths, std::vector<float>(2 * (kN - 1), 8.0F));

  const std::vector<double> rows = clusters(kN, 2, 1, 1);
  std::vector<double> columns(2 * kN);
  for (int i = 0; i < 2 * kN; ++i) columns[i % 2 * kN + i / 2] = rows[i];
  const DeviceBuffer data(as<float>(columns));
  KnnProblem p;
  p.n = kN;
  p.dim = 2;
  p.k = 4;
  p.x = {data.data(), {1, kN}};
  const std::size_t most = knn_graph_most_edges(p), bytes = knn_graph_workspace_bytes(p, kCuda);
  const DeviceBuffer begins((kN + 1) * sizeof(std::int64_t)), neighbors(most * sizeof(std::int32_t)),
      lengths(most * sizeof(float)), workspace(bytes);
  ASSERT_TRUE(knn_graph(p,
                        {static_cast<std::int64_t*>(begins.data()),
                         static_cast<std::int32_t*>(neighbors.data()), lengths.data()},
                        {workspace.data(), bytes}, kCuda)
                  .ok());
  const Graph<float> want = knn<float>(rows, kN, 2, 4, false, Execution::host());
  EXPECT_EQ(begins.read<std::int64_t>(kN + 1), want.begins);
  EXPECT_EQ(neighbors.read<std::int32_t>(want.neighbors.size()), want.neighbors);
  EXPECT_EQ(lengths.read<float>(want.lengths.size()), want.lengths);
}

TEST_F(TransportGraphCuda, EdgesWithDirectionZeroAndInfiniteLengths) {
  const Graph<double> graph{{0, 2, 3, 5, 5, 6}, {1, 3, 2, 0, 4, 4}, {0.0, kNone, 0.0, 5.0, 1e9, 1e-3}};
  const DeviceGraph<double> device(graph);
  EXPECT_EQ(device.paths({0, 2}), (std::vector<double>{0, 0, 0, kNone, 1e9, 5, 5, 0, kNone, 1e9}));
  EXPECT_EQ(device.components(), (std::vector<std::int32_t>{0, 0, 0, 1, 0, 2}));
  EXPECT_EQ(device.landmarks(5, 1), landmarks_of(graph, 5, 1));
  const DeviceGraph<float> bare({{0, 0, 0}, {}, {}});
  EXPECT_EQ(bare.components(), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(bare.paths({1}), (std::vector<float>{static_cast<float>(kNone), 0}));
}

// A long path with lengths of 20 orders of magnitude: limits rise often, and far nodes wait for long.
TEST_F(TransportGraphCuda, LengthsOfManyMagnitudes) {
  constexpr int kN = 90;
  Graph<float> graph;
  graph.begins.push_back(0);
  for (int i = 0; i < kN; ++i) {
    for (const int step : {1, 7, 29}) {
      graph.neighbors.push_back((i + step) % kN);
      graph.lengths.push_back(std::ldexp(1.0F + static_cast<float>(i % 5), i * 13 % 67 - 33));
    }
    graph.begins.push_back(static_cast<std::int64_t>(graph.neighbors.size()));
  }
  const DeviceGraph<float> device(graph);
  EXPECT_EQ(device.paths(some_nodes(kN)), paths(graph, some_nodes(kN), Execution::host()));
  EXPECT_EQ(device.landmarks(kN, 3), landmarks_of(graph, kN, 3));
}

// Nobody looks at values on a device. Nothing outside the arrays is touched, and calls end.
TEST_F(TransportGraphCuda, ValuesThatNoGraphHas) {
  const float nan = static_cast<float>(kNan), inf = static_cast<float>(kNone);
  const Graph<float> graph{{-5, 3, 2, 900}, {1, 7, 2, -1, 0}, {1, 1, -1, 1, nan}};
  const DeviceGraph<float> device(graph);
  EXPECT_EQ(device.paths({0, 3, -1}), (std::vector<float>{0, 1, inf, inf, inf, inf, inf, inf, inf}));
  EXPECT_EQ(device.components(), (std::vector<std::int32_t>{0, 0, 1, 2}));
  std::vector<double> points = clusters(40, 2, 1, 1);
  for (int i = 0; i < 40; i += 3) points[2 * i] = kNan;
  for (const bool joins : {false, true}) {
    const Graph<float> found = knn<float, DeviceBuffer>(points, 40, 2, 3, joins, kCuda);
    for (int i = 0; i < 40; ++i) {
      EXPECT_GE(found.begins[i + 1] - found.begins[i], 3);
      for (std::int64_t e = found.begins[i]; e < found.begins[i + 1]; ++e) {
        EXPECT_TRUE(found.neighbors[e] >= 0 && found.neighbors[e] < 40 && found.neighbors[e] != i);
      }
    }
  }
}

TEST_F(TransportGraphCuda, Refusals) {
  const Graph<float> graph{{0, 1, 2}, {1, 0}, {1, 1}};
  std::int32_t labels[2], count = 0;
  const Status status = connected_components(graph.view(), labels, &count, kCuda);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.argument, "edges");
  EXPECT_STREQ(connected_components(graph.view(), labels, &count, Execution::cuda(9, nullptr)).argument,
               "edges");
  KnnProblem p;
  EXPECT_STREQ(knn_graph(p, {}, {}, kCuda).argument, "n");
}

}  // namespace
}  // namespace warpalign::test
