// The contract of warpalign/recurrent.h: every violation is refused by the argument's name, and nothing is
// written then.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "host_buffer.h"
#include "values.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/recurrent.h"

namespace warpalign::test {
namespace {

// A small valid call.
struct Call {
  LstmProblem problem;
  LstmWeights weights;
  std::vector<float> numbers = std::vector<float>(1000, 0.1f);
  std::vector<std::int32_t> lengths{3, 1}, starts{0, 2, 3, 4};
  std::uint64_t seed = 1;
  HostBuffer y{4096}, grad_x{4096}, tape{1 << 16}, workspace{1 << 20};
  LstmOutputs outputs;
  LstmGradients gradients;
  LstmWeightGradients of_weights;
  LstmIncoming incoming;
  LstmKept kept;
  Workspace given;
  Execution execution;

  Call() {
    problem.steps = 3, problem.batch = 2, problem.input = 4, problem.hidden = 5;
    problem.x = {numbers.data(), {8, 4, 1}};
    weights.ih = weights.hh = weights.hr = numbers.data();
    weights.ln_ih = weights.ln_hh = weights.ln_cell = weights.ln_cell_bias = numbers.data();
    problem.weights = &weights;
    outputs.y = y.data();
    gradients.x = grad_x.data();
    gradients.weights = &of_weights;
    kept = {tape.data(), y.data()};
    given = {workspace.data(), 1 << 20};
  }
  [[nodiscard]] Status forward() const { return lstm(problem, outputs, given, execution); }
  [[nodiscard]] Status backward() const {
    return lstm_backward(problem, kept, incoming, gradients, given, execution);
  }
};

struct Violation {
  std::string argument;
  std::function<void(Call&)> make;
  int batch_index = -1;
};

const float* misaligned(Call& call) {
  return reinterpret_cast<const float*>(reinterpret_cast<const char*>(call.numbers.data()) + 1);
}

std::vector<Violation> violations() {
  return {
      {"execution", [](Call& c) { c.execution.device = static_cast<Device>(7); }},
      {"precision", [](Call& c) { c.execution.precision = static_cast<Precision>(-1); }},
      {"dtype", [](Call& c) { c.problem.dtype = static_cast<DType>(9); }},
      {"cell_dtype", [](Call& c) { c.problem.cell_dtype = DType::kFloat16; }},
      {"steps", [](Call& c) { c.problem.steps = 0; }},
      {"batch", [](Call& c) { c.problem.batch = -1; }},
      {"input", [](Call& c) { c.problem.input = 0; }},
      {"hidden", [](Call& c) { c.problem.hidden = (1 << 28) + 1; }},
      {"hidden", [](Call& c) { c.problem.hidden = 1 << 28, c.problem.steps = 1 << 28; }},
      {"projection", [](Call& c) { c.problem.projection = -1; }},
      {"projection", [](Call& c) { c.problem.projection = 5; }},
      {"layers", [](Call& c) { c.problem.layers = 0; }},
      {"side_streams", [](Call& c) { c.problem.side_streams.count = -1; }},
      {"side_streams", [](Call& c) { c.problem.side_streams.count = 2; }},
      {"lengths",
       [](Call& c) { c.problem.lengths = c.lengths.data(), c.problem.row_starts = c.starts.data(); }},
      {"lengths",
       [](Call& c) {
         c.lengths = {3, 4}, c.problem.lengths = c.lengths.data();
       },
       1},
      {"lengths",
       [](Call& c) {
         c.lengths = {-1, 3}, c.problem.lengths = c.lengths.data();
       },
       0},
      {"packed_rows", [](Call& c) { c.problem.row_starts = c.starts.data(), c.problem.packed_rows = -1; }},
      {"row_starts", [](Call& c) { c.problem.row_starts = c.starts.data(), c.problem.packed_rows = 5; }, 3},
      {"row_starts",
       [](Call& c) { c.starts[0] = 1, c.problem.row_starts = c.starts.data(), c.problem.packed_rows = 4; },
       0},
      {"row_starts",
       [](Call& c) {
         c.starts = {0, 1, 3, 4}, c.problem.row_starts = c.starts.data(), c.problem.packed_rows = 4;
       },
       2},
      {"activation", [](Call& c) { c.problem.activation = static_cast<LstmActivation>(2); }},
      {"hard_slope", [](Call& c) { c.problem.hard_slope = 0; }},
      {"hard_slope", [](Call& c) { c.problem.hard_slope = kInf; }},
      {"hard_offset", [](Call& c) { c.problem.hard_offset = 1; }},
      {"layer_norm_eps", [](Call& c) { c.problem.layer_norm_eps = kNan; }},
      {"dropout", [](Call& c) { c.problem.dropout = 1; }},
      {"weight_dropout", [](Call& c) { c.problem.weight_dropout = -.1; }},
      {"zoneout_hidden", [](Call& c) { c.problem.zoneout_hidden = kNan; }},
      {"zoneout_cell", [](Call& c) { c.problem.zoneout_cell = 1.5; }},
      {"x", [](Call& c) { c.problem.x.data = nullptr; }},
      {"x", [](Call& c) { c.problem.x.data = misaligned(c); }},
      {"x",
       [](Call& c) {
         c.problem.x = {};
         c.problem.x.data = c.numbers.data();
       }},
      {"x", [](Call& c) { c.problem.x.stride[0] = kUnsetStride; }},
      {"x",
       [](Call& c) {
         c.problem.row_starts = c.starts.data(), c.problem.packed_rows = 4;
         c.problem.x.stride[1] = kUnsetStride;
       }},
      {"weights", [](Call& c) { c.problem.weights = nullptr; }},
      {"weight_ih", [](Call& c) { c.weights.ih = nullptr; }},
      {"weight_hh", [](Call& c) { c.weights.hh = nullptr; }},
      {"bias_ih", [](Call& c) { c.weights.bias_ih = misaligned(c); }},
      {"bias_hh", [](Call& c) { c.weights.bias_hh = misaligned(c); }},
      {"weight_hr", [](Call& c) { c.problem.projection = 2, c.weights.hr = nullptr; }},
      {"weight_ln_ih", [](Call& c) { c.problem.layer_norm = true, c.weights.ln_ih = nullptr; }},
      {"weight_ln_hh", [](Call& c) { c.problem.layer_norm = true, c.weights.ln_hh = nullptr; }},
      {"weight_ln_c", [](Call& c) { c.problem.layer_norm = true, c.weights.ln_cell = nullptr; }},
      {"bias_ln_c", [](Call& c) { c.problem.layer_norm = true, c.weights.ln_cell_bias = nullptr; }},
      {"h0", [](Call& c) { c.problem.h0 = misaligned(c); }},
      {"c0", [](Call& c) { c.problem.c0 = misaligned(c); }},
      {"seed", [](Call& c) { c.problem.training = true, c.problem.dropout = .5; }},
      {"workspace", [](Call& c) { c.given = {}; }},
      {"workspace", [](Call& c) { c.given.bytes = 1000; }},
  };
}

TEST(RecurrentApi, RefusesByName) {
  int index = 0;
  for (const Violation& violation : violations()) {
    SCOPED_TRACE(testing::Message() << index++ << " " << violation.argument);
    Call call;
    ASSERT_TRUE(call.forward().ok());
    const Call fresh;
    Call bad;
    violation.make(bad);
    for (const Status& s : {bad.forward(), bad.backward()}) {
      EXPECT_EQ(s.code, StatusCode::kInvalidArgument) << to_string(s);
      EXPECT_EQ(s.argument, violation.argument) << to_string(s);
      EXPECT_EQ(s.batch_index, violation.batch_index) << to_string(s);
    }
    EXPECT_TRUE(bad.y.untouched());
    EXPECT_TRUE(bad.tape.untouched());
  }
}

TEST(RecurrentApi, RefusesOutputs) {
  Call call;
  call.outputs.h_n = call.y.data();
  EXPECT_STREQ(call.forward().argument, "h_n");
  call.outputs.h_n = static_cast<char*>(call.workspace.data()) + 4;
  EXPECT_STREQ(call.forward().argument, "workspace");
  call.outputs.h_n = nullptr;
  call.outputs.tape = static_cast<char*>(call.tape.data()) + 4;
  EXPECT_STREQ(call.forward().argument, "tape");
  call.outputs.tape = call.tape.data(), call.outputs.y = nullptr;
  EXPECT_STREQ(call.forward().argument, "y");
  Call in_place;
  in_place.outputs.tape = in_place.tape.data();
  in_place.problem.h0 = in_place.problem.c0 = in_place.outputs.h_n = in_place.numbers.data();
  EXPECT_STREQ(in_place.forward().argument, "h_n");
  std::swap(in_place.outputs.h_n, in_place.outputs.c_n);
  EXPECT_STREQ(in_place.forward().argument, "c_n");
  EXPECT_TRUE(call.y.untouched());
}

TEST(RecurrentApi, RefusesGradients) {
  const auto refused = [](auto change) {
    Call call;
    call.outputs.tape = call.tape.data();
    EXPECT_TRUE(call.forward().ok());
    EXPECT_TRUE(call.backward().ok()) << to_string(call.backward());
    change(call);
    return std::string(call.backward().argument);
  };
  EXPECT_EQ(refused([](Call& c) { c.kept.tape = nullptr; }), "tape");
  EXPECT_EQ(refused([](Call& c) { c.kept.y = nullptr; }), "y");
  EXPECT_EQ(refused([](Call& c) { c.kept.y = misaligned(c); }), "y");
  EXPECT_EQ(refused([](Call& c) { c.gradients.spent_tape = c.y.data(); }), "spent_tape");
  EXPECT_EQ(refused([](Call& c) { c.incoming.y = misaligned(c); }), "grad_y");
  EXPECT_EQ(refused([](Call& c) { c.incoming.h_n = misaligned(c); }), "grad_h_n");
  EXPECT_EQ(refused([](Call& c) { c.incoming.c_n = misaligned(c); }), "grad_c_n");
  EXPECT_EQ(refused([](Call& c) { c.incoming.h_all = misaligned(c); }), "grad_h_all");
  EXPECT_EQ(refused([](Call& c) { c.incoming.c_all = misaligned(c); }), "grad_c_all");
  EXPECT_EQ(refused([](Call& c) { c.gradients.h0 = c.grad_x.data(); }), "grad_h0");
  EXPECT_EQ(refused([](Call& c) { c.gradients.c0 = c.grad_x.data(); }), "grad_c0");
  EXPECT_EQ(refused([](Call& c) { c.of_weights.ih = c.of_weights.hh = c.y.data(); }), "grad_weight_hh");
}

TEST(RecurrentApi, PacksWeights) {
  Call call;
  EXPECT_TRUE(lstm_pack(call.problem, call.tape.data(), call.execution).ok());
  EXPECT_STREQ(lstm_pack(call.problem, nullptr, call.execution).argument, "packed");
  char* const inside = static_cast<char*>(call.tape.data()) + 4;
  EXPECT_STREQ(lstm_pack(call.problem, inside, call.execution).argument, "packed");
  call.problem.packed_weights = inside;
  EXPECT_STREQ(call.forward().argument, "packed");
  call.problem.packed_weights = call.tape.data();
  EXPECT_TRUE(call.forward().ok());
  call.problem.training = true, call.problem.weight_dropout = .5, call.problem.seed = &call.seed;
  EXPECT_STREQ(call.forward().argument, "packed");
  call.problem.weights = nullptr;
  EXPECT_STREQ(lstm_pack(call.problem, call.tape.data(), call.execution).argument, "weights");
  call.problem.hidden = 0;
  EXPECT_STREQ(lstm_pack(call.problem, call.tape.data(), call.execution).argument, "hidden");
  EXPECT_EQ(lstm_packed_bytes(call.problem, call.execution), 0u);
}

TEST(RecurrentApi, ABuildWithoutCudaSaysSo) {
  Call call;
  call.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(call.forward().code, StatusCode::kUnsupported);
  EXPECT_EQ(call.backward().code, StatusCode::kUnsupported);
  EXPECT_EQ(lstm_pack(call.problem, call.tape.data(), call.execution).code, StatusCode::kUnsupported);
  EXPECT_EQ(lstm_tape_bytes(call.problem, call.execution), 0u);
}

TEST(RecurrentApi, ABuildWithoutCudaHasNoKernel) {
  KernelLaunches kernel{};
  for (const int index : {-1, 0, 1}) EXPECT_FALSE(recurrent_kernel_launches(index, &kernel));
}

TEST(RecurrentApi, AnEmptyBatchWritesNothing) {
  Call call;
  call.problem.batch = 0;
  call.problem.x.data = nullptr;
  call.given = {};
  EXPECT_TRUE(call.forward().ok());
  EXPECT_TRUE(call.y.untouched());
}

}  // namespace
}  // namespace warpalign::test
