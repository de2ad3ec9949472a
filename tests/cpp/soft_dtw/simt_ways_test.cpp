// Ways by name, and descriptions of plans, of the CUDA path; on the CPU alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "device_buffer.h"
#include "simt.h"
#include "tolerance.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/plan.h"

namespace warpalign::test::soft_dtw {
namespace {

class WaysCuda : public ::testing::Test {
 protected:
  void SetUp() override { simt::device.multiprocessors = 16; }
  void TearDown() override { simt::device = {}; }
};

Execution by(const char* way, bool batch_invariant = false) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = way;
  execution.batch_invariant = batch_invariant;
  return execution;
}

// The status of a call whose memory nobody touches.
Status status_of(const Batch<float>& batch, const Execution& execution, const char* device_class = nullptr) {
  alignas(256) static float memory[64];
  const PlanDescription description(device_class);
  SoftDtwProblem problem;
  problem.batch = batch.shape.batch;
  problem.n = batch.shape.n;
  problem.m = batch.shape.m;
  problem.dim = batch.shape.dim;
  problem.gamma = batch.gamma;
  const std::int64_t dim = batch.shape.dim;
  problem.x = {memory, {problem.n * dim, dim, 1}};
  problem.y = {memory, {problem.m * dim, dim, 1}};
  // Outputs may not overlap: they are far apart.
  const auto place = [](int k) { return reinterpret_cast<void*>(std::uintptr_t{1} << (40 + k)); };
  SoftDtwOutputs out;
  out.value = place(0);
  out.grad_x = place(1);
  out.grad_y = place(2);
  const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, execution);
  return warpalign::soft_dtw(problem, out, {place(3), bytes}, execution);
}

TEST_F(WaysCuda, EveryWayIsRightWhereItServes) {
  const struct {
    int dim;
    std::set<std::string> serve;
  } cases[] = {{3, {"few_features", "few_features_both_ends", "tiles", "tiles_both_ends"}},
               {9, {"tiles", "tiles_both_ends", "panel", "panel_both_ends"}}};
  for (const auto& [dim, serve] : cases) {
    const Batch<float> batch({2, 70, 130, dim}, 0.5, 3);
    for (int k = 0; const char* const way = soft_dtw_way(Device::kCuda, k); ++k) {
      SCOPED_TRACE(std::string(way) + " of " + std::to_string(dim) + " features");
      const Status status = status_of(batch, by(way));
      EXPECT_EQ(status.ok(), serve.contains(way)) << to_string(status);
      if (status.ok()) expect_close(batch, run_on<DeviceBuffer>(batch, kGradients, by(way)));
    }
  }
}

// The band leaves strips before the sweeps meet, within the strip, and in strips that only one sweep visits.
TEST_F(WaysCuda, BothEndsInABand) {
  const int shapes[][2] = {{64, 64}, {70, 300}, {300, 290}, {129, 513}, {400, 65}};
  const Band bands[] = {{BandKind::kSakoeChiba, 0, 2.0},  {BandKind::kSakoeChiba, 9, 2.0},
                        {BandKind::kSakoeChiba, 90, 2.0}, {BandKind::kSlanted, 1, 2.0},
                        {BandKind::kSlanted, 40, 2.0},    {BandKind::kAbsolute, 340, 2.0},
                        {BandKind::kItakura, 0, 1.5},     {BandKind::kNone, 0, 2.0}};
  int turn = 0;
  for (const auto& [n, m] : shapes) {
    for (const Band& band : bands) {
      const int dims[] = {1, 2, 3, 4, 9};
      const int dim = dims[++turn % 5];
      Batch<float> batch({2, n, m, dim}, turn % 3 == 0 ? 0.1 : 1.0, turn);
      batch.options.band = band;
      batch.options.step_penalty = turn % 3 == 1 && band.kind != BandKind::kNone ? 0.0 : 0.4;
      batch.x_lengths = {n, n - turn % 11};  // some too short to be swept from both ends
      batch.y_lengths = {m - turn % 30, m};
      batch.fill_padding_with_nan();
      SCOPED_TRACE(::testing::Message() << n << " x " << m << ", band " << static_cast<int>(band.kind)
                                        << " of radius " << band.radius << ", turn " << turn);
      const Wanted wanted = turn % 6 == 0 ? kValue : kGradients;
      const char* const way = dim == 9 ? "panel_both_ends" : "few_features_both_ends";
      expect_close(batch, run_on<DeviceBuffer>(batch, wanted, by(way)));
    }
  }
}

TEST_F(WaysCuda, AnErrorSaysWhyAndWhichWaysCan) {
  const Batch<float> batch({2, 70, 130, 9}, 0.5, 3);
  const Status few = status_of(batch, by("few_features"));
  EXPECT_EQ(to_string(few),
            "way: few_features cannot serve this call: it takes series of at most 4 features, and makes no "
            "alignment; these ways can: tiles, tiles_both_ends, panel, panel_both_ends");
  const Status ends = status_of(batch, by("panel_both_ends", true));
  EXPECT_EQ(to_string(ends),
            "way: panel_both_ends cannot serve this call: sums from both ends depend on the batch, and "
            "batch_invariant is set; these ways can: tiles, panel");
  const Status unknown = status_of(batch, by("fast"));
  EXPECT_EQ(unknown.code, StatusCode::kUnsupported);
  EXPECT_EQ(to_string(unknown),
            "way: soft_dtw() on CUDA has no way \"fast\"; its ways are few_features, few_features_both_ends, "
            "tiles, tiles_both_ends, panel, panel_both_ends");
  EXPECT_TRUE(status_of(batch, by("")).ok());
}

// Strips of both ends find no room on one multiprocessor.
TEST_F(WaysCuda, BothEndsNeedRoom) {
  simt::device.multiprocessors = 1;
  const Status status = status_of(Batch<float>({2, 300, 1300, 3}, 0.5, 3), by("few_features_both_ends"));
  EXPECT_EQ(to_string(status),
            "way: few_features_both_ends cannot serve this call: the device does not hold all strips of both "
            "sweeps at the same time; these ways can: few_features, tiles");
}

TEST_F(WaysCuda, ADescriptionHasTheMemoryAndTheLaunchesOfARun) {
  const Batch<float> batch({2, 70, 130, 9}, 0.5, 3);
  for (const char* way : {"tiles", "panel"}) {
    SCOPED_TRACE(way);
    std::map<std::string, unsigned long long> before;
    KernelLaunches told{};
    for (int k = 0; soft_dtw_kernel_launches(k, &told); ++k) before[told.kernel] = told.launches;
    expect_close(batch, run_on<DeviceBuffer>(batch, kGradients, by(way)));
    std::string text;
    {
      const PlanDescription description;
      const Outputs<float> nothing = run_on<DeviceBuffer>(batch, kGradients, by(way));
      EXPECT_TRUE(std::isnan(nothing.value[0]));  // nobody has written there
      text = description.text();
    }
    EXPECT_NE(text.find(std::string("way         ") + way + ": named by Execution::way"), std::string::npos)
        << text;
    for (int k = 0; soft_dtw_kernel_launches(k, &told); ++k) {
      const bool ran = told.launches > before[told.kernel];
      EXPECT_EQ(text.find(std::string(told.kernel) + ": grid") != std::string::npos, ran) << told.kernel;
    }
  }
}

TEST_F(WaysCuda, AClassOfDevicesIsPlannedForWithoutADevice) {
  simt::device.count = 0;
  const Batch<float> batch({2, 70, 130, 9}, 0.5, 3);
  EXPECT_FALSE(status_of(batch, by(nullptr)).ok());
  for (const char* one : {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}) {
    EXPECT_TRUE(status_of(batch, by(nullptr), one).ok()) << one;
  }
  const PlanDescription wrong("9.9");
  EXPECT_EQ(wrong.status().code, StatusCode::kUnsupported);
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
