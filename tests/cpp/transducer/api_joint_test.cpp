// The contract of warpalign/transducer_joint.h: every violation is refused by its argument's name, and
// nothing is written.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "host_buffer.h"
#include "values.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::test {
namespace {

// Two utterances of 3 frames and 2 labels, V = 5, H = 4, with everything that the calls take.
struct Call {
  std::vector<float> encoder = std::vector<float>(2 * 3 * 4), predictor = std::vector<float>(2 * 3 * 4),
                     weight = std::vector<float>(7 * 4), bias = std::vector<float>(7);
  std::vector<std::int32_t> targets{1, 2, 2, 3}, logit_lengths{3, 2}, target_lengths{2, 1};
  std::vector<float> grad_loss{1, 1};
  TransducerJointProblem p;
  TransducerOutputs out;
  TransducerJointGradient g;
  Workspace workspace;
  Execution execution = Execution::host();
  HostBuffer loss{8}, saved{8192}, memory{1 << 21}, grad_encoder{2 * 3 * 4 * 4},
      grad_predictor{2 * 3 * 4 * 4}, grad_weight{7 * 4 * 4}, grad_bias{7 * 4};

  Call() {
    p.hidden = 4;
    p.labels = 5;
    p.encoder = {encoder.data(), {12, 4, 1}};
    p.predictor = {predictor.data(), {12, 4, 1}};
    p.weight = weight.data();
    p.bias = bias.data();
    TransducerLattice& l = p.lattice;
    l.batch = 2;
    l.frames = 3;
    l.states = 3;
    l.blank = 0;
    l.targets = targets.data();
    l.target_stride = 2;
    l.logit_lengths = logit_lengths.data();
    l.target_lengths = target_lengths.data();
    out = {loss.data(), saved.data()};
    g = {saved.data(),       grad_loss.data(), 1, grad_encoder.data(), grad_predictor.data(),
         grad_weight.data(), grad_bias.data()};
    workspace = {memory.data(), 1 << 21};
  }
  Status run() { return transducer_joint(p, out, workspace, execution); }
  Status run_gradient() { return transducer_joint_gradient(p, g, workspace, execution); }
  [[nodiscard]] bool untouched() const {
    for (const HostBuffer* buffer :
         {&loss, &saved, &grad_encoder, &grad_predictor, &grad_weight, &grad_bias}) {
      if (!buffer->untouched()) return false;
    }
    return true;
  }
};

void expect_refused(const Status& status, const std::string& argument, double value, int batch_index = -1) {
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument) << argument;
  EXPECT_EQ(status.argument, argument);
  EXPECT_STRNE(status.message, "");
  EXPECT_TRUE(std::isnan(value) || status.value == value) << argument << ": " << status.value;
  EXPECT_EQ(status.batch_index, batch_index) << argument;
}

struct Violation {
  const char* argument;
  double value;  // NaN: an address
  std::function<void(Call&)> make;
  int batch_index = -1;
};

const void* odd(const void* data) { return static_cast<const char*>(data) + 1; }
void* odd(void* data) { return static_cast<char*>(data) + 1; }

std::vector<Violation> violations_of_the_problem() {
  return {
      {"execution", 7, [](Call& c) { c.execution.device = static_cast<Device>(7); }},
      {"dtype", 9, [](Call& c) { c.p.dtype = static_cast<DType>(9); }},
      {"band_states", 0,
       [](Call& c) {
         c.p.band = c.targets.data();
         c.p.band_states = 0;
       }},
      {"band_states", 4,
       [](Call& c) {
         c.p.band = c.targets.data();
         c.p.band_states = 4;
       }},
      {"hidden", 0, [](Call& c) { c.p.hidden = 0; }},
      {"workspace_limit", -1, [](Call& c) { c.p.workspace_limit = -1; }},
      {"dropout", 1, [](Call& c) { c.p.dropout = 1; }},
      {"dropout", -0.5, [](Call& c) { c.p.dropout = -0.5; }},
      {"hidden", (1 << 24) + 1, [](Call& c) { c.p.hidden = (1 << 24) + 1; }},
      {"hidden", 1 << 24,
       [](Call& c) {
         c.p.hidden = 1 << 24;
         c.p.labels = 1 << 26;
       }},
      {"labels", 0, [](Call& c) { c.p.labels = 0; }},
      {"blank", 5, [](Call& c) { c.p.lattice.blank = 5; }},
      {"activation", 2, [](Call& c) { c.p.activation = static_cast<Activation>(2); }},
      {"weight", 0, [](Call& c) { c.p.weight = nullptr; }},
      {"weight", kNan, [](Call& c) { c.p.weight = odd(c.p.weight); }},
      {"bias", kNan, [](Call& c) { c.p.bias = odd(c.p.bias); }},
      {"encoder", 0, [](Call& c) { c.p.encoder.data = nullptr; }},
      {"encoder", -4, [](Call& c) { c.p.encoder.stride[1] = -4; }},
      {"encoder", 2, [](Call& c) { c.p.encoder.stride[1] = kUnsetStride; }},
      {"predictor", 2, [](Call& c) { c.p.predictor.stride[0] = kUnsetStride; }},
      {"encoder", 2, [](Call& c) { c.p.encoder.stride[2] = 2; }},
      {"encoder", kNan, [](Call& c) { c.p.encoder.data = odd(c.p.encoder.data); }},
      {"predictor", 0, [](Call& c) { c.p.predictor.data = nullptr; }},
      {"predictor", -1, [](Call& c) { c.p.predictor.stride[0] = -1; }},
      {"predictor", 0, [](Call& c) { c.p.predictor.stride[2] = 0; }},
      {"logit_lengths", 4, [](Call& c) { c.logit_lengths[1] = 4; }, 1},
      {"target_lengths", 3, [](Call& c) { c.target_lengths[0] = 3; }, 0},
      {"targets", 0, [](Call& c) { c.targets[2] = 0; }, 1},
      {"workspace", 64, [](Call& c) { c.workspace.bytes = 64; }},
      {"workspace", 0, [](Call& c) { c.workspace = {}; }},
  };
}

TEST(TransducerJointApi, RefusesWhatTheContractForbids) {
  for (const Violation& violation : violations_of_the_problem()) {
    Call forward, gradient;
    violation.make(forward);
    expect_refused(forward.run(), violation.argument, violation.value, violation.batch_index);
    violation.make(gradient);
    expect_refused(gradient.run_gradient(), violation.argument, violation.value, violation.batch_index);
    EXPECT_TRUE(forward.untouched() && gradient.untouched()) << violation.argument;
  }
}

TEST(TransducerJointApi, RefusesPlacesOfResults) {
  const std::vector<Violation> of_forward{
      {"loss", 0, [](Call& c) { c.out.loss = nullptr; }},
      {"loss", kNan, [](Call& c) { c.out.loss = odd(c.out.loss); }},
      {"saved", kNan, [](Call& c) { c.out.saved = static_cast<char*>(c.out.saved) + 4; }},
      {"saved", kNan, [](Call& c) { c.out.loss = c.out.saved; }},
      {"workspace", kNan, [](Call& c) { c.out.loss = c.workspace.data; }},
  };
  for (const Violation& violation : of_forward) {
    Call call;
    violation.make(call);
    expect_refused(call.run(), violation.argument, violation.value);
    EXPECT_TRUE(call.untouched()) << violation.argument;
  }
  const std::vector<Violation> of_gradient{
      {"saved", 0, [](Call& c) { c.g.saved = nullptr; }},
      {"saved", kNan, [](Call& c) { c.g.saved = odd(c.g.saved); }},
      {"grad_loss", 0, [](Call& c) { c.g.grad_loss = nullptr; }},
      {"grad_loss", kNan, [](Call& c) { c.g.grad_loss = odd(c.g.grad_loss); }},
      {"grad_encoder", kNan, [](Call& c) { c.g.encoder = odd(c.g.encoder); }},
      {"grad_predictor", kNan, [](Call& c) { c.g.predictor = c.g.encoder; }},
      {"grad_weight", kNan, [](Call& c) { c.g.weight = odd(c.g.weight); }},
      {"grad_bias", kNan, [](Call& c) { c.g.bias = c.g.weight; }},
      {"workspace", kNan, [](Call& c) { c.g.bias = c.workspace.data; }},
  };
  for (const Violation& violation : of_gradient) {
    Call call;
    violation.make(call);
    expect_refused(call.run_gradient(), violation.argument, violation.value);
    EXPECT_TRUE(call.untouched()) << violation.argument;
  }
}

TEST(TransducerJointApi, TakesAnEmptyBatch) {
  Call call;
  call.p.lattice.batch = 0;
  call.p.encoder.data = call.p.predictor.data = nullptr;
  call.p.lattice.targets = nullptr;
  call.out = {};
  EXPECT_TRUE(call.run().ok());
  call.g.saved = nullptr;
  call.g.grad_loss = nullptr;
  EXPECT_TRUE(call.run_gradient().ok());
  for (const float g : call.grad_bias.read<float>(5)) EXPECT_EQ(g, 0);
  for (const float g : call.grad_weight.read<float>(5 * 4)) EXPECT_EQ(g, 0);
}

TEST(TransducerJointApi, MakesTheGradientsThatAreWanted) {
  Call all;
  ASSERT_TRUE(all.run().ok());
  ASSERT_TRUE(all.run_gradient().ok());
  for (int wanted = 0; wanted < 4; ++wanted) {
    Call one;
    ASSERT_TRUE(one.run().ok());
    if (wanted != 0) one.g.encoder = nullptr;
    if (wanted != 1) one.g.predictor = nullptr;
    if (wanted != 2) one.g.weight = nullptr;
    if (wanted != 3) one.g.bias = nullptr;
    const std::size_t needed = transducer_joint_gradient_workspace_bytes(one.p, one.g, one.execution);
    EXPECT_LE(needed, transducer_joint_gradient_workspace_bytes(all.p, all.g, all.execution));
    ASSERT_TRUE(one.run_gradient().ok());
    const auto same = [&](const HostBuffer& got, const HostBuffer& expected, int count, bool is_wanted) {
      EXPECT_EQ(!got.untouched(), is_wanted) << wanted;
      if (is_wanted) {
        EXPECT_TRUE(same_bits(got.read<float>(count), expected.read<float>(count))) << wanted;
      }
    };
    same(one.grad_encoder, all.grad_encoder, 24, wanted == 0);
    same(one.grad_predictor, all.grad_predictor, 24, wanted == 1);
    same(one.grad_weight, all.grad_weight, 20, wanted == 2);
    same(one.grad_bias, all.grad_bias, 5, wanted == 3);
  }
}

TEST(TransducerJointApi, SaysThatItHasNoCudaPath) {
  Call call;
  call.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(call.run().code, StatusCode::kUnsupported);
  EXPECT_EQ(call.run_gradient().code, StatusCode::kUnsupported);
  EXPECT_EQ(transducer_joint_workspace_bytes(call.p, call.out, call.execution), 0u);
  EXPECT_TRUE(call.untouched());
}

TEST(TransducerJointApi, WorkspaceIsBounded) {
  Call call;
  call.p.lattice.batch = 16;
  call.p.lattice.frames = 400;
  call.p.lattice.states = 101;
  call.p.hidden = 640;
  call.p.labels = 1024;
  const std::size_t saved = transducer_joint_saved_bytes(call.p, call.execution);
  EXPECT_EQ(saved, (std::size_t{16} * 400 * 101 * 3 + 16 * 192) * 4);
  EXPECT_GE(transducer_joint_most_saved_bytes(call.p, Device::kHost), saved);
  EXPECT_LE(transducer_joint_gradient_workspace_bytes(call.p, call.g, call.execution), std::size_t{40} << 20);
  EXPECT_LE(transducer_joint_workspace_bytes(call.p, call.out, call.execution), std::size_t{8} << 20);
}

}  // namespace
}  // namespace warpalign::test
