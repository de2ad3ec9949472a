// Every violation of neighbor_graph.h's contract is refused with the argument's name.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "graphs.h"

namespace warpalign::test {
namespace {

void expect_refused(const Status& status, const char* argument) {
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.argument, argument);
}

class KnnContract : public testing::Test {
 protected:
  KnnContract() {
    p.n = 3;
    p.dim = 2;
    p.k = 1;
    p.x = {points.data(), {2, 1}};
    out = {begins.data(), neighbors.data(), lengths.data()};
  }
  Status call(const Execution& execution = Execution::host()) {
    const std::size_t bytes = knn_graph_workspace_bytes(p, execution);
    const HostBuffer workspace(bytes);
    return knn_graph(p, out, {bytes ? workspace.data() : nullptr, bytes}, execution);
  }
  std::vector<float> points{0, 0, 1, 0, 5, 5};
  std::vector<std::int64_t> begins = std::vector<std::int64_t>(4);
  std::vector<std::int32_t> neighbors = std::vector<std::int32_t>(10);
  std::vector<float> lengths = std::vector<float>(10);
  KnnProblem p;
  KnnOutputs out;
};

TEST_F(KnnContract, GoodCall) {
  EXPECT_TRUE(call().ok());
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 1, 3, 4}));
}
TEST_F(KnnContract, Extents) {
  p.n = 0;
  expect_refused(call(), "n");
  p.n = 3;
  p.dim = 0;
  expect_refused(call(), "dim");
  p.dim = 2;
  for (const int k : {-1, 3}) {
    p.k = k;
    expect_refused(call(), "k");
  }
}
TEST_F(KnnContract, Values) {
  p.dtype = DType::kFloat16;
  expect_refused(call(), "dtype");
  p.dtype = DType::kFloat32;
  points[3] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(call(), "x");
}
// Squared distances would be infinite, so that no edge were the shortest.
TEST_F(KnnContract, Magnitudes) {
  const std::vector<double> far(points.size(), 0x1p500);
  p.dtype = DType::kFloat64;
  p.x.data = far.data();
  expect_refused(call(), "x");
}
TEST_F(KnnContract, Pointers) {
  p.x.data = nullptr;
  expect_refused(call(), "x");
  p.x.data = reinterpret_cast<const char*>(points.data()) + 1;
  expect_refused(call(), "x");
  p.x = {};
  p.x.data = points.data();
  EXPECT_EQ(
      to_string(call()),
      "x: expected 2 strides, one for each axis (write StridedTensorOf<2>::contiguous(data, extents), or "
      "set `stride`), got 0");
  p.x = {points.data(), {2, 1}};
  out.row_begins = nullptr;
  expect_refused(call(), "row_begins");
  out.row_begins = begins.data();
  out.neighbors = nullptr;
  expect_refused(call(), "neighbors");
  out.neighbors = neighbors.data();
  out.lengths = nullptr;
  expect_refused(call(), "lengths");
  out.lengths = neighbors.data();
  expect_refused(call(), "lengths");
  out.lengths = lengths.data();
  expect_refused(knn_graph(p, out, {}, Execution::host()), "workspace");
}
TEST_F(KnnContract, RunsOnHostsAlone) {
  EXPECT_EQ(call(Execution::cuda(0, nullptr)).code, StatusCode::kUnsupported);
}

class GraphContract : public testing::Test {
 protected:
  Status search(const std::vector<std::int32_t>& sources) {
    const GraphView view = graph.view();
    const int count = static_cast<int>(sources.size());
    const std::size_t bytes = shortest_paths_workspace_bytes(view, count, Execution::host());
    const HostBuffer workspace(bytes);
    return shortest_paths(view, sources.data(), count, distances.data(),
                          {bytes ? workspace.data() : nullptr, bytes}, Execution::host());
  }
  Status landmarks(std::int32_t count, std::int32_t start) {
    const std::size_t bytes = farthest_landmarks_workspace_bytes(graph.view(), Execution::host());
    const HostBuffer workspace(bytes);
    std::vector<std::int32_t> chosen(8);
    return farthest_landmarks(graph.view(), count, start, chosen.data(), distances.data(),
                              {bytes ? workspace.data() : nullptr, bytes}, Execution::host());
  }
  Graph<float> graph{{0, 1, 2}, {1, 0}, {1, 1}};
  std::vector<float> distances = std::vector<float>(16);
};

TEST_F(GraphContract, GoodCalls) {
  EXPECT_TRUE(search({0, 1}).ok());
  EXPECT_TRUE(search({}).ok());
  EXPECT_TRUE(landmarks(2, 1).ok());
  graph = {{0}, {}, {}};
  EXPECT_TRUE(search({}).ok());
}
TEST_F(GraphContract, Edges) {
  graph.begins = {1, 1, 2};
  expect_refused(search({0}), "row_begins");
  graph.begins = {0, 2, 1};
  expect_refused(search({0}), "row_begins");
  graph.begins = {0, 1, 2};
  for (const std::int32_t node : {-1, 2}) {
    graph.neighbors = {1, node};
    expect_refused(search({0}), "neighbors");
  }
  graph.neighbors = {1, 0};
  for (const float length : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    graph.lengths = {1, length};
    expect_refused(search({0}), "lengths");
  }
}
TEST_F(GraphContract, Sources) {
  expect_refused(search({0, 2}), "sources");
  expect_refused(search({-1}), "sources");
  const std::int32_t source = 0;
  const Execution host = Execution::host();
  expect_refused(shortest_paths(graph.view(), &source, -1, distances.data(), {}, host), "count");
  expect_refused(shortest_paths(graph.view(), nullptr, 1, distances.data(), {}, host), "sources");
  expect_refused(shortest_paths(graph.view(), &source, 1, nullptr, {}, host), "distances");
  expect_refused(shortest_paths(graph.view(), &source, 1, distances.data(), {}, host), "workspace");
}
TEST_F(GraphContract, Views) {
  GraphView view = graph.view();
  std::int32_t labels[2], count = 0;
  const auto refuse = [&](const char* argument) {
    expect_refused(connected_components(view, labels, &count, Execution::host()), argument);
    view = graph.view();
  };
  view.dtype = DType::kBFloat16;
  refuse("dtype");
  view.nodes = -1;
  refuse("nodes");
  view.row_begins = nullptr;
  refuse("row_begins");
  view.neighbors = nullptr;
  refuse("neighbors");
  view.lengths = nullptr;
  refuse("lengths");
  expect_refused(connected_components(view, nullptr, &count, Execution::host()), "labels");
  expect_refused(connected_components(view, labels, nullptr, Execution::host()), "components");
  EXPECT_EQ(connected_components(view, labels, &count, Execution::cuda(0, nullptr)).code,
            StatusCode::kUnsupported);
}
TEST_F(GraphContract, Landmarks) {
  expect_refused(landmarks(0, 0), "count");
  expect_refused(landmarks(3, 0), "count");
  expect_refused(landmarks(1, 2), "start");
}

}  // namespace
}  // namespace warpalign::test
