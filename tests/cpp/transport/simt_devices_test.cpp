// The CUDA path on devices of other sizes than the one at hand; on the CPU alone, where they can be had.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/half.h"
#include "cuda/threads/messages.h"
#include "device_buffer.h"
#include "graphs.h"
#include "simt.h"
#include "testing.h"
#include "transport/cuda/points/step_share.cuh"
#include "warpalign/gromov_anchors.h"
#include "warpalign/kernel_launches.h"

namespace warpalign::test {
namespace {

class Devices : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }

  static void check(int n = 120, int m = 1700, int iterations = 3, const char* way = nullptr) {
    std::vector<double> cost = normal(static_cast<std::size_t>(n) * m, 1);
    for (double& c : cost) c = c * c;
    const std::vector<double> a = weights(n, 2), b = weights(m, 3);
    const SinkhornOptions options{.epsilon = 0.3, .iterations = iterations};
    Execution execution = Execution::cuda(0, nullptr);
    execution.way = way;
    expect_close<float>(solve_on<float, DeviceBuffer>(cost, a, b, options, 0, execution),
                        detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
  }
  static Status run(const SinkhornProblem& p, const SinkhornOutputs& out) {
    const Execution execution = Execution::cuda(0, nullptr);
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const DeviceBuffer workspace(bytes);
    return sinkhorn(p, out, {workspace.data(), bytes}, execution);
  }
};

// A team has as many blocks as are resident, and no more: nobody waits for a block that cannot begin.
TEST_F(Devices, FewAndManyMultiprocessors) {
  for (const int multiprocessors : {1, 2, 5}) {
    simt::device.multiprocessors = multiprocessors;
    simt::device.resident = 1;
    check();
  }
}

// A block's column sums go to memory every 128 rows.
TEST_F(Devices, LongRowsOfOneBlock) {
  simt::device.multiprocessors = simt::device.resident = 1;
  check(131, 6147, 2);
  check(2100, 200, 2);  // too many for the sums of short_rows.cuh
}

// Blocks of a cluster send each other messages in all iterations: none falls back on passes over the costs.
// Widths that are no multiple of four have columns that do not exist. A row has no finite cost.
TEST_F(Devices, KeptRowsStayInTheirLoop) {
  constexpr int kN = 150, kIterations = 20;
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = "kept_rows";
  for (const int m : {397, 398, 399, 400}) {
    for (const bool is_infinite : {false, true}) {
      SCOPED_TRACE(testing::Message() << m << " columns" << (is_infinite ? ", infinite costs" : ""));
      std::vector<double> cost = normal(static_cast<std::size_t>(kN) * m, 4);
      for (double& c : cost) c = c * c;
      for (int j = 0; is_infinite && j < m; ++j) cost[5 * m + j] = std::numeric_limits<double>::infinity();
      const SinkhornOptions options{.epsilon = 0.5, .iterations = kIterations};
      cuda::messages = 0;
      solve_on<float, DeviceBuffer>(cost, weights(kN, 2), weights(m, 3), options, 0, execution);
      // Two blocks at least tell two blocks 400 sums, four in a message. Half an iteration is not in the
      // loop.
      EXPECT_GE(cuda::messages, (kIterations - 1) * 2 * 2 * 100);
    }
  }
}

// Blocks of a problem whose exponentials are kept are a cluster, or exchange sums in global memory: on
// devices without clusters, and nine blocks, which are more than a cluster has.
TEST_F(Devices, KeptRowsOfSeveralBlocks) {
  check(150, 400, 6, "kept_rows");
  simt::device.compute_capability_major = 8;
  check(150, 400, 6, "kept_rows");
  simt::device = {};
  simt::device.multiprocessors = 12;
  simt::device.shared_bytes = 80 * 1024;
  check(180, 400, 6, "kept_rows");
}

// One block, and more blocks than a warp has lanes, which join the blocks' sums.
TEST_F(Devices, LongKeptRowsOfOneAndOfManyBlocks) {
  simt::device.multiprocessors = simt::device.resident = 1;
  check(50, 700, 6, "kept_rows");
  simt::device = {};
  simt::device.multiprocessors = 40;
  check(300, 1000, 6, "kept_rows");
}

TEST_F(Devices, TooLittleSharedMemory) {
  simt::device.shared_bytes = 16 * 1024;
  const DeviceBuffer cost(std::vector<float>(2000, 1.0F)), value(sizeof(float));
  SinkhornProblem p;
  p.batch = 1;
  p.n = 1;
  p.m = 2000;
  p.cost = {cost.data(), {2000, 2000, 1}};
  SinkhornOutputs out;
  out.value = value.data();
  const Status status = run(p, out);
  EXPECT_EQ(status.code, StatusCode::kUnsupported) << status.message;
}

// Passes of longer rows over costs of binary16 need more shared memory than an A100 has. Shorter ones do not.
TEST_F(Devices, HalfCostsOfAnA100) {
  simt::device.compute_capability_major = 8;
  simt::device.shared_bytes = 163 * 1024 - 256;
  const std::vector<detail::Float16> stored(20 * 600, detail::rounded_to<detail::Float16>(0.5F));
  const DeviceBuffer cost(stored), value(sizeof(float));
  SinkhornProblem p;
  p.batch = 1;
  p.n = 20;
  p.m = 600;
  p.cost = {cost.data(), {20 * 600, 600, 1}};
  p.half_cost = true;
  p.max_iterations = 10;
  SinkhornOutputs out;
  out.value = value.data();
  ASSERT_TRUE(run(p, out).ok());
  EXPECT_NEAR(value.read<float>(1)[0], 0.5, 1e-6);
}

// Tensors end where their last number does, and AddressSanitizer sees a byte that is read behind it. Points
// of odd dimensions begin at every place of 16 bytes.
TEST_F(Devices, NothingIsReadBehindPoints) {
  for (const int dim : {1, 3, 4, 5, 17}) {
    constexpr int kN = 19, kM = 35;
    const auto size = static_cast<std::size_t>(dim);
    const DeviceBuffer x(as<float>(normal(kN * dim, 1))), y(as<float>(normal(kM * dim, 2)));
    const DeviceBuffer value(sizeof(float)), f(kN * sizeof(float)), g(kM * sizeof(float)),
        grad_x(kN * size * sizeof(float)), grad_y(kM * size * sizeof(float));
    SinkhornProblem p;
    p.batch = 1;
    p.n = kN;
    p.m = kM;
    p.dim = dim;
    p.x = {x.data(), {kN * dim, dim, 1}};
    p.y = {y.data(), {kM * dim, dim, 1}};
    p.max_iterations = 2;
    SinkhornOutputs out;
    out.value = value.data();
    out.f = f.data();
    out.g = g.data();
    out.grad_x = grad_x.data();
    out.grad_y = grad_y.data();
    for (const Precision precision : {Precision::kHighest, Precision::kHigh, Precision::kMedium}) {
      const Execution execution = Execution::cuda(0, nullptr, precision);
      const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
      const DeviceBuffer workspace(bytes);
      const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
      EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
      for (const double v : read<float>(grad_x, kN * dim)) EXPECT_FALSE(std::isnan(v));
    }
  }
}

// Searches of graphs have as much of their memory in a block's share as there is room for. Sources outnumber
// blocks. Blocks that join components wait for each other.
TEST_F(Devices, GraphsInAnyMemory) {
  constexpr int kN = 200;
  const std::vector<double> points = clusters(kN, 3, 5, 2);
  const Graph<float> want = knn<float>(points, kN, 3, 3, true, Execution::host());
  const std::vector<std::int32_t> sources{5, 199, 0, 44, 7, 7, 100};
  const std::vector<float> lengths = paths(want, sources, Execution::host());
  const DeviceBuffer begins(want.begins), neighbors(want.neighbors), edges(want.lengths), places(sources);
  const GraphView view{DType::kFloat32,
                       kN,
                       static_cast<const std::int64_t*>(begins.data()),
                       static_cast<const std::int32_t*>(neighbors.data()),
                       edges.data(),
                       static_cast<std::int64_t>(want.neighbors.size())};
  const Execution execution = Execution::cuda(0, nullptr);
  for (const int shared_bytes : {256, 2600, 4200, 14000}) {
    simt::device.shared_bytes = shared_bytes;
    simt::device.multiprocessors = 2;
    const std::size_t bytes = shortest_paths_workspace_bytes(view, 7, execution);
    EXPECT_EQ(bytes == 0, shared_bytes == 14000);
    const DeviceBuffer distances(lengths.size() * sizeof(float)), workspace(bytes);
    ASSERT_TRUE(shortest_paths(view, static_cast<const std::int32_t*>(places.data()), 7, distances.data(),
                               {workspace.data(), bytes}, execution)
                    .ok());
    EXPECT_EQ(distances.read<float>(lengths.size()), lengths) << shared_bytes;
    const std::size_t more = farthest_landmarks_workspace_bytes(view, execution);
    const DeviceBuffer chosen(3 * sizeof(std::int32_t)), rows(3 * kN * sizeof(float)), memory(more);
    ASSERT_TRUE(farthest_landmarks(view, 3, 5, static_cast<std::int32_t*>(chosen.data()), rows.data(),
                                   {memory.data(), more}, execution)
                    .ok());
    const std::vector<float> found = rows.read<float>(3 * kN);
    EXPECT_EQ(found, paths(want, chosen.read<std::int32_t>(3), Execution::host())) << shared_bytes;
    EXPECT_EQ(*std::max_element(found.begin(), found.begin() + kN), found[chosen.read<std::int32_t>(2)[1]]);
  }
  simt::device = {};
  for (const int multiprocessors : {1, 4}) {
    simt::device.multiprocessors = multiprocessors;
    const Graph<float> got = knn<float, DeviceBuffer>(points, kN, 3, 3, true, execution);
    EXPECT_EQ(got.neighbors, want.neighbors);
    EXPECT_EQ(got.lengths, want.lengths);
  }
}

// True lengths far below the lengths of the tensors: a team has more blocks than there are steps.
TEST_F(Devices, MoreBlocksThanSteps) {
  constexpr int kLength = 1100, kCount = 70, kDim = 3;
  std::vector<double> points[2] = {normal(kLength * kDim, 1), normal(kLength * kDim, 2)};
  const Execution execution = Execution::cuda(0, nullptr);
  const auto solved = [&](int length) {
    const DeviceBuffer x(as<float>(points[0])), y(as<float>(points[1]));
    const DeviceBuffer lengths(std::vector<std::int32_t>{kCount});
    SinkhornProblem p;
    p.batch = 1;
    p.n = p.m = length;
    p.dim = kDim;
    p.x = {x.data(), {length * kDim, kDim, 1}};
    p.y = {y.data(), {length * kDim, kDim, 1}};
    p.a.lengths = p.b.lengths = static_cast<const std::int32_t*>(lengths.data());
    p.max_iterations = 3;
    const DeviceBuffer f(length * sizeof(float)), value(sizeof(float));
    SinkhornOutputs out;
    out.f = f.data();
    out.value = value.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const DeviceBuffer workspace(bytes);
    const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
    EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
    std::vector<double> found = read<float>(f, kCount);
    found.push_back(read<float>(value, 1)[0]);
    return found;
  };
  simt::device.multiprocessors = 40;
  const std::vector<double> of_long = solved(kLength), want = solved(kCount);
  EXPECT_LE(distance(of_long, want), 1e-6 * (1 + largest(want)));
}

// Every step is done once. A tile's parts are 0 ... parts - 1 in the order of their stages, and fit.
TEST(StepShare, PartsOfEveryTile) {
  using detail::transport::StepShare;
  for (const auto& [tiles, stages] :
       {std::pair{1, 1}, {1, 40}, {3, 2}, {7, 5}, {40, 3}, {4, 128}, {12, 375}}) {
    for (const int blocks : {1, 2, 5, 33, 264}) {
      for (const int most : {2, 3, 1000}) {
        const StepShare share(tiles, stages, blocks, most);
        std::vector<int> parts(tiles), done(tiles);
        for (int rank = 0; rank < blocks; ++rank) {
          share.each(rank, [&](int tile, int part, int first, int last) {
            EXPECT_EQ(part, parts[tile]++);
            EXPECT_EQ(first, done[tile]);
            EXPECT_EQ(rank, share.first_rank(tile) + part);
            done[tile] = last;
          });
        }
        EXPECT_EQ(done, std::vector<int>(tiles, stages));
        for (int tile = 0; tile < tiles; ++tile) {
          EXPECT_EQ(parts[tile], share.parts(tile));
          EXPECT_LE(parts[tile], std::min(most, share.most_parts()));
        }
      }
    }
  }
}

TEST(Registry, ListsEveryKernel) {
  // A program has the kernels of the functions that it calls.
  EXPECT_FALSE(anchor_columns({}, {}, Execution::cuda(0, nullptr)).ok());
  EXPECT_FALSE(knn_graph({}, {}, {}, Execution::cuda(0, nullptr)).ok());
  std::set<std::string> names;
  KernelLaunches kernel;
  int count = 0;
  for (; transport_kernel_launches(count, &kernel); ++count) names.insert(kernel.kernel);
  EXPECT_EQ(count, 53);
  EXPECT_EQ(names.size(), 53);
  EXPECT_EQ(names.count("derivatives float64"), 1);
  EXPECT_FALSE(transport_kernel_launches(-1, &kernel));
}

}  // namespace
}  // namespace warpalign::test
