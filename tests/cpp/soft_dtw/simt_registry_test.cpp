// Every soft-DTW kernel is chosen for some problem, and is right there: one problem for each, through the
// public API, on the CPU. A kernel that no problem reaches fails the test, by its name.
//
// The emulator counts launches in a process, and ctest runs each case in its own: all problems are one case.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "device_buffer.h"
#include "simt.h"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/call/registry.h"
#include "soft_dtw/cuda/call/select.h"
#include "tolerance.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/tuning.h"

namespace warpalign::test::soft_dtw {
namespace {

using detail::soft_dtw::find_kernel;
using detail::soft_dtw::SweepKernel;

class Registry : public ::testing::Test {
 protected:
  void TearDown() override {
    simt::device = {};
    force_soft_dtw_threshold("panel_bytes", kMeasuredThreshold);
  }
};

template <typename T>
void solve(const Batch<T>& batch, Wanted wanted, bool batch_invariant = false) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.batch_invariant = batch_invariant;
  expect_close(batch, run_on<DeviceBuffer>(batch, wanted, execution));
}

// Numbers that float16 holds.
Batch<float> in_halves(Batch<float> batch) {
  for (auto* series : {&batch.x, &batch.y}) {
    for (float& v : series->data) v = static_cast<float>(detail::rounded_to<detail::Float16>(v));
  }
  return batch;
}

// A lane has 1 column of narrow pairs, 4 of wide ones that fill the device where only values are wanted, else
// 2. Sweeps that meet have two helpers per strip on up to 4 strips per multiprocessor, one on up to 8. In a
// band they have two, or start at the first step.
void solve_few_features(int dim) {
  for (Wanted wanted : {kValue, kGradients}) {
    simt::device.multiprocessors = 3;
    solve(Batch<float>({2, 20, 30, dim}, 1.0, 1), wanted);
    solve(Batch<float>({1, 70, 90, dim}, 1.0, 2), wanted, true);
    for (int m : {90, 440}) solve(Batch<float>({1, 65, m, dim}, 1.0, 3), wanted);
    solve(Batch<float>({2, 65, 440, dim}, 1.0, 4), wanted);
    Batch<float> meeting({1, 70, 90, dim}, 1.0, 4);
    meeting.options.band = {BandKind::kSakoeChiba, 20, 2.0};
    solve(meeting, wanted);
    simt::device.multiprocessors = 1;
    solve(Batch<float>({8, 40, 100, dim}, 1.0, 5), wanted);
    Batch<float> banded({2, 40, 70, dim}, 1.0, 6);
    banded.options.band = {BandKind::kSakoeChiba, 20, 2.0};
    solve(banded, wanted);
    Batch<float> other({2, 40, 70, dim}, 1.0, 7);
    other.options.cost_kind = CostKind::kL1;
    solve(other, wanted);
  }
}

// Sweeps over a panel meet, too: two helpers, one, or none. In a band they have two, or none.
void solve_panels() {
  simt::device.multiprocessors = 3;
  for (Wanted wanted : {kValue, kGradients}) {
    solve(Batch<float>({1, 70, 90, 9}, 1.0, 8), wanted);
    solve(Batch<float>({1, 65, 440, 9}, 1.0, 8), wanted);
    solve(Batch<float>({2, 65, 440, 9}, 1.0, 8), wanted);
    Batch<float> banded({1, 200, 440, 9}, 1.0, 8);
    banded.options.band = {BandKind::kSlanted, 20, 2.0};
    solve(banded, wanted);
  }
}

// What goes into a panel and comes out of it: matrices, differences and products, of float32 and of half
// types.
void solve_panels_of_all_kinds() {
  simt::device.multiprocessors = 3;
  const auto banded = [](Batch<float> batch) {
    batch.options.band = {BandKind::kSakoeChiba, 20, 2.0};
    return batch;
  };
  solve(Batch<float>({1, 40, 70, 0}, 1.0, 13), kEverything);
  solve(banded(Batch<float>({1, 40, 70, 0}, 1.0, 14)), kEverything);
  solve(banded(Batch<float>({1, 40, 70, 9}, 1.0, 15)), kGradients);
  solve(Batch<float>({1, 40, 70, 9}, 1.0, 15), kGradients);
  const Batch<float> wide = in_halves(Batch<float>({1, 40, 70, 20}, 1.0, 16));
  const Execution fast = Execution::cuda(0, nullptr, Precision::kHigh);
  expect_close(wide, run_on<DeviceBuffer>(wide, kGradients, fast));
  expect_close(wide, run_on<DeviceBuffer, float, detail::Float16>(wide, kGradients, fast));
  // Few features are widened first.
  const Batch<float> narrow = in_halves(Batch<float>({1, 40, 70, 2}, 1.0, 17));
  expect_close(narrow, run_on<DeviceBuffer, float, detail::Float16>(narrow, kGradients, fast));
}

// Few strips for a multiprocessor have larger crews. Sweeps meet where both have room and 64 steps.
void solve_tiles() {
  for (Wanted wanted : {kValue, kGradients}) {
    simt::device.multiprocessors = 1;
    solve(Batch<float>({1, 40, 160, 9}, 1.0, 8), wanted);
    simt::device.multiprocessors = 3;
    for (int n : {40, 70}) {
      for (int m : {90, 160}) solve(Batch<float>({1, n, m, 9}, 1.0, 8), wanted);
    }
  }
}

void solve_options_in_tiles() {
  for (Wanted wanted : {kValue, kGradients}) {
    Batch<float> banded({1, 40, 70, 9}, 1.0, 9);
    banded.options.step_penalty = 0.3;
    solve(banded, wanted);
    Batch<float> other({1, 40, 70, 9}, 1.0, 10);
    other.options.cost_kind = CostKind::kHuber;
    solve(other, wanted);
  }
}

// Tangents equal to x, none of y: the value's derivative is <grad_x, x>, and 0 for the cosine, which does not
// change with the length of a step.
template <typename T>
void solve_second_order(CostKind cost_kind) {
  Batch<T> batch({1, 20, 30, 3}, 1.0, 11);
  batch.options.cost_kind = cost_kind;
  const Outputs<T> first = run_on<DeviceBuffer>(batch, kGradients, Execution::cuda(0, nullptr));
  expect_close(batch, first);
  double expected = 0;
  for (std::size_t k = 0; k < batch.x.data.size(); ++k) expected += first.grad_x[k] * batch.x.data[k];
  const DeviceBuffer x(batch.x.data), y(batch.y.data), value(sizeof(T));
  const DeviceBuffer grad_x(first.grad_x.size() * sizeof(T));
  SoftDtwProblem problem;
  problem.dtype = kDType<T>;
  problem.cost_kind = cost_kind;
  problem.batch = 1;
  problem.n = 20;
  problem.m = 30;
  problem.dim = 3;
  problem.x = {x.data(), {60, 3, 1}};
  problem.y = {y.data(), {90, 3, 1}};
  SoftDtwTangents tangents;
  tangents.x = problem.x;
  SoftDtwOutputs out;
  out.value = value.data();
  out.grad_x = grad_x.data();
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t bytes = soft_dtw_jvp_workspace_bytes(problem, tangents, out, execution);
  const DeviceBuffer workspace(bytes);
  const Status status = soft_dtw_jvp(problem, tangents, out, {workspace.data(), bytes}, execution);
  ASSERT_TRUE(status.ok()) << status.argument << ": " << status.message;
  EXPECT_NEAR(value.read<T>(1)[0], expected, 1e-5 * std::max(1.0, std::abs(expected)));
}

TEST_F(Registry, EveryKernelIsReachedAndRight) {
  for (int dim : {1, 2, 3}) solve_few_features(dim);
  solve_panels();
  force_soft_dtw_threshold("panel_bytes", 0);
  solve_tiles();
  solve_options_in_tiles();
  for (Wanted wanted : {kValue, kGradients}) {
    solve(Batch<float>({1, 40, 70, 9}, 0.0, 12), wanted);
    solve(Batch<double>({1, 40, 70, 9}, 0.0, 12), wanted);
    solve(Batch<double>({1, 40, 70, 9}, 1.0, 12), wanted);
  }
  for (CostKind cost_kind : {CostKind::kSquaredEuclidean, CostKind::kCosine}) {
    solve_second_order<float>(cost_kind);
    solve_second_order<double>(cost_kind);
  }
  force_soft_dtw_threshold("panel_bytes", kMeasuredThreshold);
  solve_panels_of_all_kinds();
  std::map<std::string, unsigned long long> launches;
  KernelLaunches told{};
  int count = 0;
  for (; soft_dtw_kernel_launches(count, &told); ++count) {
    launches[told.kernel] = told.launches;
    EXPECT_GT(told.launches, 0u) << "no problem reached " << told.kernel;
  }
  EXPECT_EQ(static_cast<int>(launches.size()), count) << "two kernels have one name";
  for (int no_kernel : {count, -1}) EXPECT_FALSE(soft_dtw_kernel_launches(no_kernel, &told)) << no_kernel;
  // What the library says of itself is what the emulator has seen.
  find_kernel([&](const SweepKernel& sweep) {
    const auto* const kernel = reinterpret_cast<const void*>(sweep.kernel->function());
    EXPECT_EQ(launches.at(name_of(sweep.key).text), static_cast<unsigned long long>(simt::launched(kernel)))
        << name_of(sweep.key).text;
    return false;
  });
}

TEST_F(Registry, ASweepHasOneKey) {
  find_kernel([&](const SweepKernel& sweep) {
    EXPECT_EQ(detail::soft_dtw::kernel_of(sweep.key), &sweep) << name_of(sweep.key).text;
    return false;
  });
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
