// Ways by name, and descriptions of plans, of sinkhorn()'s CUDA path; on the CPU alone.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "device_buffer.h"
#include "simt.h"
#include "testing.h"
#include "warpalign/plan.h"

namespace warpalign::test {
namespace {

class WaysCuda : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }
};

Execution by(const char* way, Precision precision = Precision::kHighest) {
  Execution execution = Execution::cuda(0, nullptr, precision);
  execution.way = way;
  return execution;
}

template <class Real>
void check_costs(int n, int m, const std::set<std::string>& serve) {
  std::vector<double> cost = normal(static_cast<std::size_t>(n) * m, 1);
  for (double& c : cost) c = c * c;
  const std::vector<double> a = weights(n, 2), b = weights(m, 3);
  const SinkhornOptions options{.epsilon = 0.3, .iterations = 3};
  const SinkhornAnswer expected = detail::transport::reference::sinkhorn(cost, a, b, options);
  for (int k = 0; const char* const way = sinkhorn_way(Device::kCuda, k); ++k) {
    SCOPED_TRACE(std::string(way) + " of " + std::to_string(m) + " columns");
    const Result result = solve_on<Real, DeviceBuffer>(cost, a, b, options, 0, by(way));
    EXPECT_EQ(result.status.ok(), serve.contains(way)) << to_string(result.status);
    if (result.status.ok()) expect_close<Real>(result, expected, options.epsilon);
  }
}

TEST_F(WaysCuda, OfGivenCostsAreRightWhereTheyServe) {
  check_costs<float>(20, 100, {"kept_rows", "warp_rows", "block_rows"});
  check_costs<float>(20, 512, {"kept_rows", "block_rows"});
  check_costs<float>(20, 513, {"kept_rows", "block_rows"});
  check_costs<double>(20, 256, {"kept_rows", "block_rows"});
  check_costs<double>(20, 257, {"kept_rows", "block_rows"});
  check_costs<float>(9, 6145, {"block_rows"});
  check_costs<double>(9, 6200, {"block_rows", "cluster_rows"});
}

// Problems of points, without gradients; one of them is as half_points wants it.
struct Points {
  int n = 70, m = 130, dim = 6, batch = 1, iterations = 5;

  Status value(const Execution& execution, double& to) const {
    const DeviceBuffer x(as<float>(normal(static_cast<std::size_t>(batch) * n * dim, 4)));
    const DeviceBuffer y(as<float>(normal(static_cast<std::size_t>(batch) * m * dim, 5)));
    const DeviceBuffer value(batch * sizeof(float));
    SinkhornProblem p;
    p.batch = batch;
    p.n = n;
    p.m = m;
    p.dim = dim;
    p.x = {x.data(), {std::int64_t{n} * dim, dim, 1}};
    p.y = {y.data(), {std::int64_t{m} * dim, dim, 1}};
    p.epsilon = 2;
    p.max_iterations = iterations;
    p.tolerance = 0;
    SinkhornOutputs out;
    out.value = value.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const DeviceBuffer workspace(bytes);
    const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
    to = value.read<float>(1)[0];
    return status;
  }
};

TEST_F(WaysCuda, OfPointsAreRightWhereTheyServe) {
  const Points points;
  double expected = 0;
  ASSERT_TRUE(points.value(by("points"), expected).ok());
  const std::set<std::string> serve = {"kept_rows", "points", "points_on_units", "half_points",
                                       "half_points_by_warpgroups"};
  for (int k = 0; const char* const way = sinkhorn_way(Device::kCuda, k); ++k) {
    double value = 0;
    const Status status = points.value(by(way, Precision::kMedium), value);
    EXPECT_EQ(status.ok(), serve.contains(way)) << to_string(status);
    if (status.ok()) {
      EXPECT_NEAR(value, expected, 2e-3 * std::abs(expected)) << way;
    }
  }
}

TEST_F(WaysCuda, AnErrorSaysWhyAndWhichWaysCan) {
  double value = 0;
  EXPECT_EQ(to_string(Points{}.value(by("points_on_units"), value)),
            "way: points_on_units cannot serve this call: matrix units take 9 features or more at "
            "Precision::kHighest; these ways can: kept_rows, points");
  EXPECT_EQ(
      to_string(Points{}.value(by("block_rows"), value)),
      "way: block_rows cannot serve this call: it takes a cost matrix, and the problem has points; these "
      "ways can: kept_rows, points");
  EXPECT_EQ(to_string(Points{.dim = 33}.value(by("kept_rows"), value)),
            "way: kept_rows cannot serve this call: it takes points of at most 32 features; these ways can: "
            "points, points_on_units");
  EXPECT_EQ(
      to_string(Points{.m = 6145}.value(by("kept_rows"), value)),
      "way: kept_rows cannot serve this call: it takes rows of at most 6144 costs; these ways can: points");
  EXPECT_EQ(to_string(Points{.m = 513, .dim = 9}.value(by("kept_rows"), value)),
            "way: kept_rows cannot serve this call: with more than 512 points y, or 256 in float64, it takes "
            "at most 8 features; these ways can: points, points_on_units");
  EXPECT_EQ(
      to_string(Points{.n = 5000, .m = 500}.value(by("kept_rows"), value)),
      "way: kept_rows cannot serve this call: shared memory has no room for the exponentials of all pairs; "
      "these ways can: points");
  simt::device.compute_capability_major = 8;
  EXPECT_EQ(
      to_string(Points{}.value(by("half_points_by_warpgroups", Precision::kMedium), value)),
      "way: half_points_by_warpgroups cannot serve this call: the device, or this build, has no products "
      "by warpgroups; these ways can: kept_rows, points, points_on_units, half_points");
}

// Three multiprocessors keep the exponentials of three problems at a time. A problem that waits for others
// keeps them only where it has many iterations.
TEST_F(WaysCuda, ProblemsThatTakeTurnsKeepExponentialsForMoreIterations) {
  const auto keeps = [](const Points& points, bool batch_invariant = false) {
    Execution execution = by("");
    execution.batch_invariant = batch_invariant;
    const PlanDescription description;
    double value = 0;
    EXPECT_TRUE(points.value(execution, value).ok());
    return std::string(description.text()).find("kept_rows") != std::string::npos;
  };
  EXPECT_FALSE(keeps({.n = 40, .m = 530, .dim = 3, .iterations = 7}));
  EXPECT_TRUE(keeps({.n = 40, .m = 530, .dim = 3, .iterations = 8}));
  EXPECT_TRUE(keeps({.n = 40, .m = 530, .dim = 3, .batch = 3, .iterations = 8}));
  EXPECT_FALSE(keeps({.n = 40, .m = 530, .dim = 3, .batch = 4, .iterations = 31}));
  EXPECT_TRUE(keeps({.n = 40, .m = 530, .dim = 3, .batch = 4, .iterations = 32}));
  EXPECT_TRUE(keeps({.n = 40, .m = 530, .dim = 3, .batch = 4, .iterations = 8}, true));
}

// The plan is kept, and found again, by everything that it follows from.
TEST_F(WaysCuda, APlanOfAnotherDeviceIsAnotherPlan) {
  const Points points;
  std::set<std::string> texts;
  for (const int multiprocessors : {3, 5, 3}) {
    simt::device.multiprocessors = multiprocessors;
    const PlanDescription description;
    double value = 0;
    EXPECT_TRUE(points.value(by("points"), value).ok());
    EXPECT_TRUE(std::isnan(value));  // nothing has run
    texts.insert(description.text());
  }
  EXPECT_EQ(texts.size(), 2U);
}

}  // namespace
}  // namespace warpalign::test
