// The CUDA path of the LSTM on devices of other sizes than the one at hand.
#include <gtest/gtest.h>

#include "cuda_fixture.h"
#include "recurrent/problem.h"
#include "simt.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/tuning.h"

namespace warpalign::test {
namespace {

class Devices : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }

  static void check() {
    reference::Lstm p = plain(3, 5, 12, 132);
    p.bidirectional = true;
    check(p);
  }
  static void check(const reference::Lstm& p, DType dtype = DType::kFloat16) {
    const LstmCase given(p, dtype, 1, .5);
    expect_close(given, CudaRunner(given).run(), dtype == DType::kFloat16 ? 0x1p-8 : 5e-6);
  }
};

// A sweep in one launch has no more blocks than are resident; where they are too few it is a launch per step.
TEST_F(Devices, FewAndManyMultiprocessors) {
  for (const int multiprocessors : {1, 4, 20}) {
    simt::device.multiprocessors = multiprocessors;
    check();
  }
}

TEST_F(Devices, WithoutMatrixInstructionsOfThisKind) {
  simt::device.multiprocessors = 20;
  simt::device.compute_capability_major = 7;
  check();
}

// Launches of a kernel and of its counterpart backward.
int launches(const std::string& kernel, DType dtype = DType::kFloat16) {
  int sum = 0;
  KernelLaunches one{};
  for (int index = 0; recurrent_kernel_launches(index, &one); ++index) {
    const std::string name = one.kernel, type = dtype == DType::kFloat16 ? " float16" : " float32";
    if (name == kernel + type) sum += static_cast<int>(one.launches);
    const std::size_t comma = kernel.find(',');
    if (name ==
        kernel.substr(0, comma) + " back" + (comma < kernel.size() ? kernel.substr(comma) : "") + type) {
      sum += static_cast<int>(one.launches);
    }
  }
  return sum;
}

TEST_F(Devices, EveryCaseHasItsKernel) {
  const struct {
    int major, hidden;
    bool ragged;
    const char* kernel;
    bool resets = false;
    DType dtype = DType::kFloat16;
    int launches = 2;
  } cases[] = {{9, 132, false, "clusters of up to 8"},
               {9, 132, true, "clusters of up to 8, lengths"},
               {9, 132, true, "clusters of up to 16, options", true},
               {9, 260, false, "clusters of up to 16"},
               {9, 260, true, "clusters of up to 16, lengths"},
               {9, 260, true, "clusters of up to 16, options", true},
               {8, 136, false, "grid of a tile", false, DType::kFloat16, 1},
               {8, 136, false, "grid", false, DType::kFloat16, 1},  // backward
               {8, 136, true, "grid, options"},
               {8, 140, false, "units, cell"},  // rows are no whole 16 bytes
               {9, 520, false, "grid of a tile", false, DType::kFloat16, 1},
               {9, 128, false, "clusters of up to 4", false, DType::kFloat32},
               {9, 132, false, "step, cell", false, DType::kFloat32},
               {9, 100, true, "step, cell", false, DType::kFloat32},
               {8, 100, false, "step, cell", false, DType::kFloat32},
               {7, 96, false, "block of 96", false, DType::kFloat32},
               {9, 64, true, "block of 96, options", false, DType::kFloat32},
               {9, 64, true, "block of 96, options", true, DType::kFloat32},
               {8, 128, false, "block of 128"},
               {9, 93, true, "block of 96, options"},
               {9, 100, true, "clusters of up to 8, lengths"},
               {9, 100, true, "clusters of up to 16, options", true},
               {7, 64, false, "step, cell"}};
  simt::device.multiprocessors = 40;
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.major << " " << c.hidden << " " << c.ragged);
    simt::device.compute_capability_major = c.major;
    reference::Lstm p = plain(3, 2, 4, c.hidden);
    if (c.ragged) p.lengths = {1, 3};
    if (c.resets) p.resets = {0, 0, 0, 1, 0, 0};
    const int before = launches(c.kernel, c.dtype);
    check(p, c.dtype);
    const bool by_steps = std::string(c.kernel).find(", cell") != std::string::npos;
    EXPECT_EQ(launches(c.kernel, c.dtype) - before, by_steps ? 3 + 4 : c.launches);
  }
  simt::device.compute_capability_major = 9;
  reference::Lstm p = plain(3, 2, 4, 136);
  p.projection = 128;
  const int before = launches("units, projection");
  check(p);
  EXPECT_EQ(launches("units, projection") - before, 3 + 3);
  KernelLaunches none{};
  EXPECT_FALSE(recurrent_kernel_launches(-1, &none));
}

std::string told(int steps, int batch, int hidden, int layers, bool backward, DType dtype) {
  LstmProblem p{};
  p.dtype = p.cell_dtype = dtype, p.steps = steps, p.batch = batch, p.input = 8, p.hidden = hidden;
  p.layers = layers, p.x.stride[0] = batch * 8, p.x.stride[1] = 8, p.x.stride[2] = 1;
  return detail::recurrent::describe_cuda(p, Execution::cuda(0, nullptr), backward);
}
// A plan says in a line how a call runs.
TEST_F(Devices, PlansAreTold) {
  simt::device.multiprocessors = 40;
  EXPECT_EQ(told(1, 2, 64, 1, false, DType::kFloat32), "forward: stream; layers in turn");
  EXPECT_EQ(told(9, 2, 64, 1, false, DType::kFloat32), "forward: blocks; layers in turn");
  EXPECT_EQ(told(9, 2, 132, 1, true, DType::kFloat16).rfind("backward: clusters of 5 blocks", 0), 0U);
  EXPECT_EQ(told(9, 2, 200, 1, true, DType::kFloat32), "backward: steps; layers in turn");
  simt::device = {.multiprocessors = 36, .compute_capability_major = 8};
  const std::string stack = told(64, 2, 136, 2, false, DType::kFloat16);
  EXPECT_EQ(stack.rfind("forward: grid in groups of 9 blocks, 4 of which fit", 0), 0U) << stack;
  EXPECT_NE(stack.find("; two layers at a time, by chunks of 32 steps"), std::string::npos) << stack;
}

// A forced threshold reaches the plan, and plans that were made before are not taken for it.
TEST_F(Devices, AForcedThresholdMovesThePlan) {
  simt::device = {.multiprocessors = 36, .compute_capability_major = 8};
  const auto sweeps_pairs = [] {
    return told(64, 2, 136, 2, false, DType::kFloat16).find("two layers at a time") != std::string::npos;
  };
  EXPECT_TRUE(sweeps_pairs());
  EXPECT_TRUE(force_recurrent_threshold("pair_steps", 65));
  EXPECT_FALSE(sweeps_pairs());
  EXPECT_TRUE(force_recurrent_threshold("pair_steps", kMeasuredThreshold));
  EXPECT_TRUE(sweeps_pairs());
  EXPECT_FALSE(force_recurrent_threshold("pairs", 1));

  const reference::Lstm p = plain(3, 4, 4, 132);
  const auto runs_by = [&](const char* kernel) {
    const int before = launches(kernel, DType::kFloat32);
    check(p, DType::kFloat32);
    return launches(kernel, DType::kFloat32) > before;
  };
  EXPECT_TRUE(runs_by("step, cell"));
  EXPECT_TRUE(force_recurrent_threshold("float_lane_turns", 0));
  EXPECT_TRUE(force_recurrent_threshold("float_unit_rows", 1));
  EXPECT_TRUE(runs_by("units, cell"));
  EXPECT_TRUE(force_recurrent_threshold("float_lane_turns", kMeasuredThreshold));
  EXPECT_TRUE(force_recurrent_threshold("float_unit_rows", kMeasuredThreshold));
  EXPECT_FALSE(runs_by("units, cell"));
  int count = 0;
  Threshold one{};
  for (; recurrent_threshold(count, &one); ++count) EXPECT_EQ(one.forced, kMeasuredThreshold) << one.name;
  EXPECT_EQ(count, 31);
}

// The budget: a kernel that is added takes another one's place, or comes with a measurement of what it gains.
TEST_F(Devices, NumberOfKernels) {
  int count = 0;
  KernelLaunches one{};
  while (recurrent_kernel_launches(count, &one)) ++count;
  EXPECT_EQ(count, 200);
}

// Large batches of float32, forward. Units, rows of the batch and columns end within tiles.
TEST_F(Devices, TilesOfFloat32) {
  const struct {
    int multiprocessors, batch, hidden;
    bool has_more;
    const char* kernel;
  } cases[] = {{16, 130, 100, false, "tiles of 32 rows, cell"},
               {8, 130, 101, true, "tiles of 64 rows, cell"},
               {30, 140, 131, true, "tiles of 64 rows, cell"},
               {40, 128, 132, false, "tiles of 32 rows, cell"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.multiprocessors << " " << c.batch << " " << c.hidden);
    simt::device.multiprocessors = c.multiprocessors;
    reference::Lstm p = plain(3, c.batch, 4, c.hidden);
    p.bidirectional = c.has_more;
    if (c.hidden < 128) p.resets.assign(3 * c.batch, 0), p.resets[c.batch + 5] = 1;  // no clusters then
    for (int b = 0; b < c.batch && c.has_more; ++b) p.lengths.push_back(b % 4);
    const int before = launches(c.kernel, DType::kFloat32);
    check(p, DType::kFloat32);
    EXPECT_EQ(launches(c.kernel, DType::kFloat32) - before, 3);
  }
}

// So much depth that clusters share it.
TEST_F(Devices, ClustersShareTheDepthOfAStep) {
  simt::device.multiprocessors = 40;
  reference::Lstm p = plain(2, 3, 4, 1024);
  p.projection = 24;
  const int before = launches("units, cell");
  check(p);
  EXPECT_EQ(launches("units, cell") - before, 3);  // backward; forward lanes multiply 24 elements
}

TEST_F(Devices, TooLittleSharedMemory) {
  simt::device.shared_bytes = 16 * 1024;
  check();
}

// Tensors end where their last number does, and AddressSanitizer sees a byte that is read behind it. Rows of
// odd lengths begin at every place of 16 bytes.
TEST_F(Devices, NothingIsReadBehindTensors) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    for (const int major : {9, 7}) {
      simt::device.compute_capability_major = major;
      for (const auto& [input, hidden] : {std::pair{5, 7}, {8, 8}, {9, 16}}) {
        reference::Lstm p = plain(2, 3, input, hidden);
        p.bidirectional = hidden == 7;
        p.layer_norm = hidden == 16;
        const LstmCase given(p, dtype, 1, .5);
        expect_close(given, CudaRunner(given).run(), dtype == DType::kFloat16 ? 0x1p-7 : 1e-5);
      }
    }
  }
}

// Layers at once: streams of their own, whose work happens as late as it may. Results have the bits of layers
// in turn. A lost dependency leaves work undone, or reads what is not there yet.
TEST_F(Devices, LayersAtOnce) {
  simt::device.multiprocessors = 40;
  simt::device.late_streams = true;
  int places[3];
  void* const streams[] = {&places[0], &places[1], &places[2]};
  const struct {
    DType dtype;
    int steps, batch, hidden, layers, projection, streams;
    bool has_options;
    std::vector<int> lengths;  // of rows that end in, between, before and behind chunks of 18 steps
  } cases[] = {{DType::kFloat16, 40, 2, 132, 2, 0, 3, false, {}},
               {DType::kFloat16, 37, 3, 132, 3, 0, 3, true, {37, 35, 33}},
               {DType::kFloat16, 37, 11, 132, 3, 0, 3, false, {18, 0, 17, 37, 19, 1, 36, 5, 18, 35, 20}},
               {DType::kFloat16, 120, 2, 24, 2, 0, 2, true, {120, 33}},
               {DType::kFloat32, 120, 2, 24, 2, 0, 2, false, {}},
               {DType::kFloat32, 40, 2, 12, 2, 5, 1, true, {40, 38}}};
  unsigned seed = 30;
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.steps << " " << c.batch << " " << c.hidden);
    reference::Lstm p = plain(c.steps, c.batch, 7, c.hidden);
    p.layers = c.layers, p.projection = c.projection, p.lengths = c.lengths;
    if (c.has_options) {
      p.resets.assign(static_cast<std::size_t>(c.steps) * c.batch, 0);
      p.resets[18 * c.batch] = p.resets[20 * c.batch + 1] = 1;
      p.zoneout_hidden = .25, p.zoneout_cell = .1, p.dropout = .3, p.weight_dropout = .2, p.training = true,
      p.seed = 3;
    }
    const LstmCase given(p, c.dtype, ++seed, .5);
    CudaRunner in_turn(given);
    CudaRunner at_once(given);
    at_once.problem().side_streams = {streams, c.streams};
    for (const bool with_tape : {true, false}) {  // with one, backward too
      const LstmRun expected = in_turn.run(with_tape), run = at_once.run(with_tape);
      ASSERT_TRUE(run.status.ok()) << to_string(run.status);
      EXPECT_EQ(run.bits, expected.bits);
      EXPECT_GT(simt::late_work_done(), 0U);
      EXPECT_EQ(simt::drop_late_work(), 0U);
    }
  }
}

}  // namespace
}  // namespace warpalign::test
