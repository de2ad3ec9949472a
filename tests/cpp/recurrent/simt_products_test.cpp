// Products that the caller lends to the LSTM's CUDA path: here on the host, which reads the emulator's
// memory.
#include <gtest/gtest.h>

#include <functional>

#include "cuda_fixture.h"
#include "simt.h"

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentProductsCuda : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }
};

struct Lent {
  int calls = 0;
  std::function<void()> meanwhile;  // what happens to the device
  void* stream = nullptr;
  static bool run(void* context, const MatrixProductCall& call) {
    auto& lent = *static_cast<Lent*>(context);
    ++lent.calls;
    if (lent.meanwhile) lent.meanwhile();
    simt::enqueue(lent.stream, [call] {
      detail::visit_dtype(call.dtype, [&](auto type) { multiply<typename decltype(type)::Type>(call); });
    });
    return true;
  }
  template <class T>
  static double value(T v) {
    if constexpr (std::is_floating_point_v<T>) {
      return v;
    } else {
      return static_cast<float>(v);
    }
  }
  template <class T>
  static void multiply(const MatrixProductCall& call) {
    const auto* const a = static_cast<const T*>(call.a);
    const auto* const b = static_cast<const T*>(call.b);
    for (std::int64_t i = 0; i < call.rows; ++i) {
      for (std::int64_t j = 0; j < call.columns; ++j) {
        T& to = static_cast<T*>(call.c)[i * call.c_stride + j];
        double sum = call.add ? value(to) : 0;
        for (std::int64_t k = 0; k < call.depth; ++k) {
          sum += value(a[i * call.a_stride[0] + k * call.a_stride[1]]) *
                 value(b[k * call.b_stride[0] + j * call.b_stride[1]]);
        }
        if constexpr (std::is_floating_point_v<T>) {
          to = static_cast<T>(sum);
        } else {
          to = detail::rounded_to<T>(static_cast<float>(sum));
        }
      }
    }
  }
};

// A batch for which blocks would have to take many turns: a product for each step and direction.
TEST_F(RecurrentProductsCuda, StepsByProducts) {
  simt::device.multiprocessors = 1;
  for (const auto& [dtype, ragged] : {std::pair{DType::kFloat16, false},
                                      {DType::kFloat16, true},
                                      {DType::kFloat32, false},
                                      {DType::kFloat32, true},
                                      {DType::kFloat64, false},
                                      {DType::kFloat64, true}}) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << ragged);
    const double tolerance = dtype == DType::kFloat16   ? 0x1p-8
                             : dtype == DType::kFloat32 ? 5e-6
                                                        : kFloat64Tolerance;
    const int batch = dtype == DType::kFloat16 ? 70 : 130;
    Lstm p = plain(4, batch, 6, dtype == DType::kFloat16 ? 132 : 100);
    p.bidirectional = true;
    if (ragged) {
      for (int b = 0; b < p.batch; ++b) p.lengths.push_back(b % 5);
      p.resets.assign(4 * batch, 0), p.resets[2 * batch + 9] = p.resets[batch + 3] = 1;
      p.zoneout_hidden = .25, p.zoneout_cell = .1;
    }
    const LstmCase given(p, dtype, 21, .5);
    Lent lent;
    Execution execution = Execution::cuda(0, nullptr);
    execution.precision = Precision::kMedium;  // float32 has its forward steps by tiles else
    execution.matrix_product = {&Lent::run, &lent};
    CudaRunner runner(given, execution);
    const LstmRun with = runner.run();
    expect_close(given, with, tolerance);
    // By direction: 4 steps each way; W x; dx, dW and dR, whose part of h0 is another one where each row has
    // it before its first step.
    const int calls = 2 * (4 + 4 + (ragged ? 4 : 5));
    EXPECT_EQ(lent.calls, calls);
    const LstmRun without = runner.run(false);  // no gates are written
    EXPECT_EQ(with.out.y, without.out.y);
    EXPECT_EQ(with.out.c_n, without.out.c_n);
    lent.calls = calls;
    execution.batch_invariant = true;
    expect_close(given, CudaRunner(given, execution).run(), tolerance);
    EXPECT_EQ(lent.calls, calls);
  }
}

// The same with a projection: two products a step. Without a tape h of all steps is kept too.
TEST_F(RecurrentProductsCuda, ProjectedStepsByProducts) {
  simt::device.multiprocessors = 1;
  for (const int projection : {5, 8}) {
    SCOPED_TRACE(projection);
    Lstm p = plain(4, 66, 6, 12);
    p.bidirectional = projection == 5, p.layers = 2;
    p.projection = projection;
    if (projection == 8) p.dropout = .3, p.training = true, p.seed = 5;
    const LstmCase given(p, DType::kFloat16, 21, .5);
    Lent lent;
    Execution execution = Execution::cuda(0, nullptr);
    execution.matrix_product = {&Lent::run, &lent};
    CudaRunner runner(given, execution);
    const LstmRun with = runner.run();
    expect_close(given, with, 0x1p-8);
    // By layer and direction: 2 products of 4 steps each way; W x; dx, dW, dR twice, and dW_hr.
    EXPECT_EQ(lent.calls, 2 * (projection == 5 ? 2 : 1) * (8 + 8 + 6));
    const LstmRun without = runner.run(false);
    EXPECT_EQ(with.out.y, without.out.y);
    EXPECT_EQ(with.out.h_n, without.out.h_n);
    EXPECT_EQ(with.out.h_all, without.out.h_all);
  }
}

// Layers at once, each with its steps' products on its own stream, whose work happens as late as it may.
TEST_F(RecurrentProductsCuda, LayersAtOnceByProducts) {
  simt::device.late_streams = true;
  int places[2];
  void* const streams[] = {&places[0], &places[1]};
  for (const DType dtype : {DType::kFloat16, DType::kFloat64}) {
    SCOPED_TRACE(static_cast<int>(dtype));
    simt::device.multiprocessors = 1;
    Lstm p = plain(37, 66, 6, dtype == DType::kFloat64 ? 68 : 132);  // wider than single blocks
    p.layers = 2;
    const LstmCase given(p, dtype, 23, .5);
    Lent lent;
    Execution execution = Execution::cuda(0, nullptr);
    execution.matrix_product = {&Lent::run, &lent};
    Lent on_streams[2];
    for (int n = 0; n < 2; ++n) on_streams[n].stream = streams[n];
    const MatrixProduct products[] = {{&Lent::run, &on_streams[0]}, {&Lent::run, &on_streams[1]}};
    CudaRunner in_turn(given, execution), at_once(given, execution), without(given, execution);
    at_once.problem().side_streams = {streams, 2, products};
    without.problem().side_streams = {streams, 2};
    for (const bool with_tape : {true, false}) {
      const LstmRun expected = in_turn.run(with_tape);
      EXPECT_EQ(without.run(with_tape).bits, expected.bits);
      EXPECT_EQ(simt::late_work_done(), 0U);
      const LstmRun run = at_once.run(with_tape);
      ASSERT_TRUE(run.status.ok()) << to_string(run.status);
      EXPECT_EQ(run.bits, expected.bits);
      EXPECT_EQ(on_streams[0].calls, with_tape ? 2 * 37 : 3 * 37);  // each step's, forward and back
      EXPECT_GT(simt::late_work_done(), 0U);
      EXPECT_EQ(simt::drop_late_work(), 0U);
    }
  }
}

TEST_F(RecurrentProductsCuda, ProductsAreLent) {
  Lstm p = plain(5, 4, 9, 21);
  p.layers = 2, p.bidirectional = true, p.projection = 10;
  const LstmCase given(p, DType::kFloat64, 9);
  Lent lent;
  Execution execution = Execution::cuda(0, nullptr);
  execution.matrix_product = {&Lent::run, &lent};
  expect_close(given, CudaRunner(given, execution).run(), kFloat64Tolerance);
  EXPECT_EQ(lent.calls, 4 * 6);  // by layer and direction: W x; dx, dW, dR of h and of h0, dW_hr
  execution.batch_invariant = true;
  expect_close(given, CudaRunner(given, execution).run(), kFloat64Tolerance);
  EXPECT_EQ(lent.calls, 4 * 6);
  execution.batch_invariant = false;
  execution.matrix_product.run = [](void*, const MatrixProductCall&) { return false; };
  EXPECT_EQ(CudaRunner(given, execution).run().status.code, StatusCode::kDeviceError);
}

// The device refuses clusters after the host has asked whether they fit, as it may where others share it. The
// same call goes on with launches of steps.
TEST_F(RecurrentProductsCuda, ARefusedLaunchFallsThrough) {
  Lstm p = plain(5, 9, 8, 136);
  p.bidirectional = true, p.layers = 2;
  const LstmCase given(p, DType::kFloat16, 6, .5);
  for (const bool backward : {false, true}) {
    SCOPED_TRACE(backward);
    simt::device = {.multiprocessors = 20};
    Lent lent;
    // Between the sweeps of both layers: W x of the second layer, or gradients of its weights.
    lent.meanwhile = [&] {
      if (lent.calls >= (backward ? 5 : 3)) simt::device.refuses_clusters = true;
    };
    Execution execution = Execution::cuda(0, nullptr);
    execution.matrix_product = {&Lent::run, &lent};
    const unsigned long long before = launches_of("clusters"), by_steps = launches_of("units");
    expect_close(given, CudaRunner(given, execution).run(), 0x1p-8);
    EXPECT_EQ(launches_of("clusters") - before, backward ? 3 : 1);
    // By layer 5 steps, and backward one more, which goes on to h0.
    EXPECT_EQ(launches_of("units") - by_steps, backward ? 6 : 5 + 2 * 6);
  }
}

// Two layers find place beside each other no longer: chunks go on one by one, or with a launch per step.
TEST_F(RecurrentProductsCuda, TwoLayersFindNoPlace) {
  Lstm p = plain(64, 3, 6, 136);
  p.layers = 2;
  const LstmCase given(p, DType::kFloat16, 7, .5);
  const struct {
    bool backward;
    int multiprocessors;  // that are left behind a pass' first launch; a layer's group has 9 blocks, and two
                          // find place on a multiprocessor, though a plan gives each block one of its own
    int launches;         // 3 of a pass, or one and 3 chunks on their own; in turn one of each layer
  } cases[] = {{false, 36, 3 + 3}, {false, 8, 4},    {false, 4, 1},
               {true, 36, 3 + 3},  {true, 8, 3 + 4}, {true, 4, 3 + 1}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.backward << " " << c.multiprocessors);
    simt::device = {.multiprocessors = 36, .compute_capability_major = 8};
    Lent lent;
    lent.meanwhile = [&] {  // W x of the chunks in the second launch, or dx of the chunk in the first one
      if (lent.calls >= (c.backward ? 5 : 2)) simt::device.multiprocessors = c.multiprocessors;
    };
    Execution execution = Execution::cuda(0, nullptr);
    execution.matrix_product = {&Lent::run, &lent};
    const unsigned long long before = launches_of("grid");
    expect_close(given, CudaRunner(given, execution).run(), 0x1p-8);
    EXPECT_EQ(launches_of("grid") - before, c.launches);
  }
}

}  // namespace
}  // namespace warpalign::test
