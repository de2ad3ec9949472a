// The CUDA path on devices of other sizes than the one at hand; on the CPU alone, where they can be had.
#include <gtest/gtest.h>

#include "device_buffer.h"
#include "simt.h"
#include "soft_dtw/cuda/call/call.h"
#include "tolerance.h"
#include "warpalign/tuning.h"

namespace warpalign::test::soft_dtw {
namespace {

class Devices : public ::testing::Test {
 protected:
  void TearDown() override {
    simt::device = {};
    force_soft_dtw_threshold("panel_bytes", kMeasuredThreshold);
  }
};

template <typename T>
Outputs<T> run(const Batch<T>& batch, Wanted wanted, Precision precision = Precision::kHighest) {
  return run_on<DeviceBuffer>(batch, wanted, Execution::cuda(0, nullptr, precision));
}

// sm_75 has 64 KiB of shared memory per block, sm_86, 89 and 120 have 99.
TEST_F(Devices, LittleSharedMemory) {
  for (int kib : {64, 99}) {
    simt::device.shared_bytes = kib * 1024;
    for (int dim : {0, 9, 70}) {
      Batch<float> single({2, 150, 170, dim}, 0.5, 1);
      expect_close(single, run(single, kEverything));
      single.gamma = 1e-12;  // reruns
      expect_close(single, run(single, kEverything));
      Batch<double> full({2, 170, 150, dim}, 0.5, 2);
      expect_close(full, run(full, kEverything));
      full.options.band = {BandKind::kSakoeChiba, 20, 2.0};
      full.options.step_penalty = 0.3;
      expect_close(full, run(full, kEverything));
      full.gamma = 0;
      expect_close(full, run(full, kEverything));
    }
  }
}

// sm_120: later than any class that was measured, with the matrix units of sm_90 but not its shared memory.
TEST_F(Devices, ALaterArchitectureWithLittleSharedMemory) {
  simt::device = {.multiprocessors = 5, .shared_bytes = 99 * 1024, .compute_capability_major = 12};
  for (const int dim : {0, 2, 20, 70}) {
    const Batch<float> batch({2, 90, 130, dim}, 0.5, 5);
    expect_close(batch, run(batch, kEverything));
  }
  const Batch<float> batch({2, 90, 70, 41}, 1.0, 4);
  const Outputs<float> by_units = run(batch, kGradients, Precision::kHigh);
  simt::device.compute_capability_major = 9;
  EXPECT_TRUE(same_bits(run(batch, kGradients, Precision::kHigh), by_units));
}

// Tensors end where their last number does, and AddressSanitizer sees a byte that is read behind it. Steps of
// odd numbers of features begin at every place of 16 bytes.
TEST_F(Devices, NothingIsReadBehindSeries) {
  for (int dim : {1, 3, 7, 20, 21}) {
    for (const Precision precision : {Precision::kHighest, Precision::kHigh}) {
      const Batch<float> batch({1, 37, 35, dim}, 0.5, 4);
      expect_close(batch, run(batch, kGradients, precision));
    }
  }
}

// The same bits as with more shared memory: the kernel is another one, its arithmetic is not.
TEST_F(Devices, LittleSharedMemoryChangesNoBit) {
  simt::device.compute_capability_major = 7;  // no device with TF32 has so little
  Batch<double> batch({2, 150, 300, 5}, 0.5, 3);
  const Outputs<double> roomy = run(batch, kEverything);
  simt::device.shared_bytes = 64 * 1024;
  EXPECT_TRUE(same_bits(run(batch, kEverything), roomy));
  simt::device.shared_bytes = 227 * 1024;
  const Batch<float> wide({2, 50, 70, 90}, 0.5, 3);
  const Outputs<float> by_more_warps = run(wide, kEverything);
  simt::device.shared_bytes = 64 * 1024;
  EXPECT_TRUE(same_bits(run(wide, kEverything), by_more_warps));
}

// sm_75 has no TF32.
TEST_F(Devices, MatrixUnitsOfOtherDevices) {
  const Batch<float> batch({2, 90, 70, 41}, 1.0, 4);
  const Outputs<float> high = run(batch, kGradients, Precision::kHigh);
  simt::device.compute_capability_major = 7;
  const Outputs<float> exact = run(batch, kGradients);
  EXPECT_FALSE(same_bits(high, exact));
  EXPECT_TRUE(same_bits(run(batch, kGradients, Precision::kHigh), exact));
}

// Few pairs are swept from both ends, which rounds in another order, where there is room for both sweeps and
// nobody asks for the same bits in any batch.
TEST_F(Devices, BothEndsWhereThereIsRoom) {
  for (int dim : {2, 20}) {
    const Batch<float> batch({2, 200, 333, dim}, 1.0, 6);
    Execution one_end = Execution::cuda(0, nullptr);
    one_end.batch_invariant = true;
    simt::device.multiprocessors = 132;
    const Outputs<float> expected = run_on<DeviceBuffer>(batch, kGradients, one_end);
    EXPECT_FALSE(same_bits(run(batch, kGradients), expected));
    simt::device.multiprocessors = 1;
    EXPECT_TRUE(same_bits(run(batch, kGradients), expected));
  }
}

// A panel that holds some of the pairs at a time: the same bits as one that holds all, or each alone. Pairs
// that find no room are computed without one.
TEST_F(Devices, PanelsTakeTurns) {
  Batch<float> batch({5, 70, 150, 70}, 0.5, 8);
  batch.x_lengths = {70, 1, 64, 65, 33};
  batch.y_lengths = {150, 65, 1, 128, 129};
  batch.gammas = {0.5f, 1.0f, 2.0f, 1e-9f, 0.5f};  // one pair is computed again in float64
  batch.fill_padding_with_nan();
  Execution execution = Execution::cuda(0, nullptr);
  execution.batch_invariant = true;
  const Outputs<float> at_once = run_on<DeviceBuffer>(batch, kEverything, execution);
  expect_close(batch, at_once);
  for (const int pairs : {1, 2, 4}) {
    force_soft_dtw_threshold("panel_bytes", pairs * 120000);
    EXPECT_TRUE(same_bits(run_on<DeviceBuffer>(batch, kEverything, execution), at_once)) << pairs;
    expect_close(batch, run(batch, kGradients));
  }
  execution.way = "tiles";
  expect_close(batch, run_on<DeviceBuffer>(batch, kEverything, execution));
}

// Pairs of one call whose squared distances go to a panel at a time on an H200; 0: they are computed in
// tiles.
struct Turns {
  int batch, n, m, dim;
  bool gradient = true;
  int band = 0;  // its radius; 0: none
  bool batch_invariant = false;
  detail::soft_dtw::DeviceTraits device = {132, 227 * 1024};  // an H200

  [[nodiscard]] int pairs_in_panel() const {
    detail::soft_dtw::Call call{};
    call.problem.batch = batch;
    call.problem.n = n;
    call.problem.m = m;
    call.problem.dim = dim;
    call.problem.gamma = 1;
    if (band > 0) call.problem.band = {BandKind::kSakoeChiba, band, 2.0};
    static float somewhere;
    call.out.value = &somewhere;
    if (gradient) call.out.grad_x = call.out.grad_y = &somewhere;
    call.batch_invariant = batch_invariant;
    return detail::soft_dtw::plan_for(call, device).panel_pairs;
  }
};

// Each case has been measured both ways (docs/developer/kernels/soft_dtw.md, "Turns").
TEST_F(Devices, PairsTakeTurnsWhereThatIsFaster) {
  EXPECT_EQ((Turns{32, 1024, 1024, 64}.pairs_in_panel()), 32);  // none waits
  EXPECT_EQ((Turns{32, 1024, 1024, 64, false}.pairs_in_panel()), 32);
  EXPECT_EQ((Turns{32, 2048, 2048, 64}.pairs_in_panel()), 11);
  EXPECT_EQ((Turns{16, 2048, 2048, 64}.pairs_in_panel()), 8);
  EXPECT_EQ((Turns{32, 2048, 2048, 128, false}.pairs_in_panel()), 11);
  EXPECT_EQ((Turns{32, 256, 8192, 16}.pairs_in_panel()), 0);  // few strips are at work at the same time
  EXPECT_EQ((Turns{32, 8192, 256, 16}.pairs_in_panel()), 0);
  EXPECT_EQ((Turns{32, 256, 8192, 16, false}.pairs_in_panel()), 0);
  EXPECT_EQ((Turns{32, 2048, 2048, 64, false}.pairs_in_panel()), 0);
  EXPECT_EQ((Turns{16, 2048, 2048, 64, false}.pairs_in_panel()), 0);
  EXPECT_EQ((Turns{32, 2048, 2048, 64, true, 512}.pairs_in_panel()), 0);
  EXPECT_EQ((Turns{4, 8192, 8192, 16}.pairs_in_panel()), 0);  // a pair's panel is too large
}

// A device of a class that nothing was measured on has the nearest class's thresholds, and a forced threshold
// holds for every device.
TEST_F(Devices, ThresholdsAreOfTheNearestClassUnlessForced) {
  Turns turns{16, 2048, 2048, 64};
  for (const int compute_capability : {75, 80, 89, 90, 120}) {
    turns.device.compute_capability = compute_capability;
    EXPECT_EQ(turns.pairs_in_panel(), 8);
  }
  EXPECT_TRUE(force_soft_dtw_threshold("turn_warps", 100));
  EXPECT_EQ(turns.pairs_in_panel(), 0);
  EXPECT_TRUE(force_soft_dtw_threshold("turn_features", 64));
  EXPECT_EQ(turns.pairs_in_panel(), 8);
  EXPECT_TRUE(force_soft_dtw_threshold("turn_features", kMeasuredThreshold));
  EXPECT_EQ(turns.pairs_in_panel(), 0);
  EXPECT_TRUE(force_soft_dtw_threshold("turn_warps", kMeasuredThreshold));
  EXPECT_EQ(turns.pairs_in_panel(), 8);
}

// Sweeps start from both ends of a pair up to a number of strips.
TEST_F(Devices, AThresholdOfStripsDecidesHowAPairIsSwept) {
  const Batch<float> batch({2, 200, 333, 2}, 1.0, 6);
  Execution one_end = Execution::cuda(0, nullptr);
  one_end.batch_invariant = true;
  const Outputs<float> expected = run_on<DeviceBuffer>(batch, kGradients, one_end);
  EXPECT_TRUE(force_soft_dtw_threshold("meeting_strips", 1000));
  EXPECT_FALSE(same_bits(run(batch, kGradients), expected));
  EXPECT_TRUE(force_soft_dtw_threshold("meeting_strips", 0));
  EXPECT_TRUE(same_bits(run(batch, kGradients), expected));
  EXPECT_TRUE(force_soft_dtw_threshold("meeting_strips", kMeasuredThreshold));
}

// Whether a pair goes to a panel does not depend on the batch where its bits must not.
TEST_F(Devices, TurnsDoNotDecideWhereBitsMustNotDependOnTheBatch) {
  const Turns one{1, 2048, 2048, 64, false, 0, true}, many{32, 2048, 2048, 64, false, 0, true};
  EXPECT_EQ(one.pairs_in_panel(), 1);
  EXPECT_GT(many.pairs_in_panel(), 1);
}

TEST_F(Devices, TooLittleSharedMemoryIsAnError) {
  simt::device.shared_bytes = 48 * 1024;
  float values[2] = {};
  SoftDtwProblem problem;
  problem.batch = problem.n = problem.m = problem.dim = 1;
  problem.x = {values, {1, 1, 1}};
  problem.y = problem.x;
  problem.gamma = 0;
  SoftDtwOutputs out;
  out.value = values + 1;
  const Status status = warpalign::soft_dtw(problem, out, {}, Execution::cuda(0, nullptr));
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_STREQ(status.argument, "execution");
}

// A call on a device that it cannot use needs no workspace, and its error has this message.
void expect_refused(int ordinal, const char* message) {
  float values[2] = {};
  SoftDtwProblem problem;
  problem.batch = problem.n = problem.m = problem.dim = 1;
  problem.x = {values, {1, 1, 1}};
  problem.y = problem.x;
  SoftDtwOutputs out;
  out.value = values + 1;
  const Execution execution = Execution::cuda(ordinal, nullptr);
  EXPECT_EQ(soft_dtw_workspace_bytes(problem, out, execution), 0u);
  const Status status = warpalign::soft_dtw(problem, out, {}, execution);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.argument, "execution");
  EXPECT_STREQ(status.message, message);
  EXPECT_EQ(status.value, ordinal);
}

TEST_F(Devices, ADeviceThatIsNotThereIsNamed) {
  for (int ordinal : {-1, 1, 7})
    expect_refused(ordinal, "a cuda_device that is the ordinal of a CUDA device");
}

TEST_F(Devices, ADeviceThatIsNotCurrentIsNamed) {
  simt::device.count = 2;
  expect_refused(1, "a cuda_device that is the calling thread's current one");
  expect_refused(2, "a cuda_device that is the ordinal of a CUDA device");
}

// Few short strips have a crew of two makers, in a kernel whose sweeps may also start from both ends. Many
// have a small crew, in a kernel whose sweeps may not.
TEST_F(Devices, ACrewOfFewStripsSweepsFromOneEndToo) {
  Execution tiles = Execution::cuda(0, nullptr);
  tiles.way = "tiles";
  const Batch<float> batch({2, 50, 90, 20}, 1.0, 7);
  const Outputs<float> few = run_on<DeviceBuffer>(batch, kValue, tiles);
  expect_close(batch, few);
  expect_close(batch, run_on<DeviceBuffer>(batch, kGradients, tiles));
  simt::device.multiprocessors = 1;
  EXPECT_TRUE(same_bits(run_on<DeviceBuffer>(batch, kValue, tiles), few));
}

// Blocks wait for each other's panels, but for none that has not begun: one resident block is enough.
TEST_F(Devices, AnyNumberOfBlocksAtATime) {
  Batch<float> few({1, 300, 400, 2}, 0.5, 4);
  Batch<float> wide({1, 300, 400, 9}, 0.5, 5);
  wide.options.band = {BandKind::kSakoeChiba, 50, 2.0};
  const Batch<float> many_features({1, 150, 200, 70}, 0.5, 5);
  Batch<float> narrow({2, 700, 600, 1}, 0.5, 6);
  narrow.options.band = {BandKind::kSakoeChiba, 10, 2.0};
  const Batch<float> in_panel({1, 100, 200, 7}, 0.5, 5);
  for (const auto& [multiprocessors, resident] : {std::pair{1, 1}, {2, 3}, {5, 1}, {132, 3}}) {
    simt::device.multiprocessors = multiprocessors;
    simt::device.resident = resident;
    expect_close(in_panel, run(in_panel, kEverything));
    expect_close(few, run(few, kGradients));
    expect_close(wide, run(wide, kEverything));
    expect_close(many_features, run(many_features, kGradients));
    expect_close(many_features, run(many_features, kGradients, Precision::kHigh));
    expect_close(narrow, run(narrow, kGradients));
  }
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
