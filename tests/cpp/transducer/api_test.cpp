// The contract of warpalign/transducer.h: every violation is refused by its argument's name, and nothing is
// written.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "testing.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/transducer.h"

namespace warpalign::test {
namespace {

// Two utterances of 3 frames and 2 labels, V = 5, with everything that the calls take.
struct Call {
  std::vector<float> logits = std::vector<float>(2 * 3 * 3 * 5),
                     durations = std::vector<float>(2 * 3 * 3 * 2);
  std::vector<std::int32_t> targets{1, 2, 2, 3}, logit_lengths{3, 2}, target_lengths{2, 1};
  std::vector<float> grad_loss{1, 1};
  TransducerProblem p;
  TransducerOutputs out;
  TransducerGradient g;
  Workspace workspace;
  Execution execution = Execution::host();
  HostBuffer loss{8}, saved{8192}, memory{1 << 16}, grad_logits{2 * 3 * 3 * 5 * 4},
      grad_durations{2 * 3 * 3 * 2 * 4};

  Call() {
    p.labels = 5;
    p.logits = {logits.data(), {45, 15, 5, 1}};
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
    g.saved = saved.data();
    g.grad_loss = grad_loss.data();
    g.logits = grad_logits.data();
    for (int axis = 0; axis < 3; ++axis) g.logits_stride[axis] = p.logits.stride[axis];
    workspace = {memory.data(), 1 << 16};
  }
  void make_tdt() {
    p.lattice.tdt = true;
    p.lattice.durations = 2;
    p.lattice.duration[1] = 1;
    p.duration_logits = {durations.data(), {18, 6, 2, 1}};
    g.duration_logits = grad_durations.data();
    for (int axis = 0; axis < 3; ++axis) g.duration_logits_stride[axis] = p.duration_logits.stride[axis];
  }
  void make_packed() {
    p.packed = true;
    p.packed_rows = 13;
  }
  Status run() { return transducer(p, out, workspace, execution); }
  Status run_gradient() { return transducer_gradient(p, g, workspace, execution); }
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
  double value;  // NaN: NaN itself, or any number
  std::function<void(Call&)> make;
  int batch_index = -1;
};

std::vector<Violation> violations_of_the_problem() {
  const auto tdt = [](auto&& change) {
    return [change](Call& c) {
      c.make_tdt();
      change(c);
    };
  };
  return {
      {"dtype", 9, [](Call& c) { c.p.dtype = static_cast<DType>(9); }},
      {"execution", 7, [](Call& c) { c.execution.device = static_cast<Device>(7); }},
      {"batch", -1, [](Call& c) { c.p.lattice.batch = -1; }},
      {"frames", -1, [](Call& c) { c.p.lattice.frames = -1; }},
      {"frames", (1 << 29) + 1, [](Call& c) { c.p.lattice.frames = (1 << 29) + 1; }},
      {"states", 0, [](Call& c) { c.p.lattice.states = 0; }},
      {"states", (1 << 29) + 1, [](Call& c) { c.p.lattice.states = (1 << 29) + 1; }},
      {"labels", 0, [](Call& c) { c.p.labels = 0; }},
      {"labels", 1 << 29,
       [](Call& c) {
         c.p.labels = 1 << 29;
         c.p.lattice.frames = 1 << 20;
       }},
      {"packed_rows", -1, [](Call& c) { c.p.packed = true, c.p.packed_rows = -1; }},
      {"blank", 5, [](Call& c) { c.p.lattice.blank = 5; }},
      {"blank", -1, [](Call& c) { c.p.lattice.blank = -1; }},
      {"big_blanks", 9, [](Call& c) { c.p.lattice.durations = 9; }},
      {"big_blanks", 1, [](Call& c) { c.p.lattice.durations = 1, c.p.lattice.duration[0] = 1; }},
      {"big_blanks", 65, [](Call& c) { c.p.lattice.durations = 1, c.p.lattice.duration[0] = 65; }},
      {"big_blanks", 5,
       [](Call& c) {
         c.p.lattice.durations = 1, c.p.lattice.duration[0] = 2, c.p.lattice.big_blank_column[0] = 5;
       }},
      {"big_blanks", 0, [](Call& c) { c.p.lattice.durations = 1, c.p.lattice.duration[0] = 2; }},
      {"durations", 0, tdt([](Call& c) { c.p.lattice.durations = 0; })},
      {"durations", 17, tdt([](Call& c) { c.p.lattice.durations = 17; })},
      {"durations", -1, tdt([](Call& c) { c.p.lattice.duration[0] = -1; })},
      {"durations", 0, tdt([](Call& c) { c.p.lattice.duration[1] = 0; })},
      {"durations", 1, tdt([](Call& c) { c.p.lattice.duration[0] = 1; })},
      {"star_id", 4, tdt([](Call& c) { c.p.lattice.star = 4; })},
      {"sigma", kInf, [](Call& c) { c.p.lattice.sigma = kInf; }},
      {"fastemit_lambda", -1, [](Call& c) { c.p.lattice.fastemit = -1; }},
      {"delay_penalty", kNan, [](Call& c) { c.p.lattice.delay = kNan; }},
      {"eos_penalty", -kInf, [](Call& c) { c.p.lattice.eos_penalty = -kInf; }},
      {"star_penalty", 0, [](Call& c) { c.p.lattice.star_penalty = 0; }},
      {"clamp", -1, [](Call& c) { c.p.lattice.clamp = -1; }},
      {"eos_id", -2, [](Call& c) { c.p.lattice.eos = -2; }},
      {"star_id", -2, [](Call& c) { c.p.lattice.star = -2; }},
      {"star_id", 0, [](Call& c) { c.p.lattice.star = 0; }},
      {"star_id", 4, [](Call& c) { c.p.lattice.star = c.p.lattice.eos = 4; }},
      {"logits", 0, [](Call& c) { c.p.logits.data = nullptr; }},
      {"logits", 1, [](Call& c) { c.p.logits.data = reinterpret_cast<const char*>(c.logits.data()) + 1; }},
      {"logits", -5, [](Call& c) { c.p.logits.stride[2] = -5; }},
      {"logits", 0,
       [](Call& c) {
         c.p.logits = {};
         c.p.logits.data = c.logits.data();
       }},
      {"logits", 3,
       [](Call& c) {
         c.make_packed();
         c.p.logits.stride[2] = kUnsetStride;
       }},
      {"duration_logits", 3, tdt([](Call& c) { c.p.duration_logits.stride[0] = kUnsetStride; })},
      {"logits", 2, [](Call& c) { c.p.logits.stride[3] = 2; }},
      {"duration_logits", 0, tdt([](Call& c) { c.p.duration_logits.data = nullptr; })},
      {"duration_logits", 3, tdt([](Call& c) { c.p.duration_logits.stride[3] = 3; })},
      {"targets", 0, [](Call& c) { c.p.lattice.targets = nullptr; }},
      {"targets", -2, [](Call& c) { c.p.lattice.target_stride = -2; }},
      {"targets", 0, [](Call& c) { c.targets[0] = 0; }, 0},
      {"targets", 5, [](Call& c) { c.targets[2] = 5; }, 1},
      {"targets", -1, [](Call& c) { c.targets[1] = -1; }, 0},
      {"targets", 2,
       [](Call& c) {
         c.p.lattice.durations = 1, c.p.lattice.duration[0] = 2, c.p.lattice.big_blank_column[0] = 2;
       },
       0},
      {"targets", 4, [](Call& c) { c.p.lattice.flat_targets = true, c.p.lattice.target_count = 4; }},
      {"logit_lengths", 4, [](Call& c) { c.logit_lengths[1] = 4; }, 1},
      {"logit_lengths", -1, [](Call& c) { c.logit_lengths[0] = -1; }, 0},
      {"target_lengths", 3, [](Call& c) { c.target_lengths[0] = 3; }, 0},
      {"logit_lengths", 0,
       [](Call& c) {
         c.make_packed();
         c.p.lattice.logit_lengths = nullptr;
       }},
      {"target_lengths", 0,
       [](Call& c) {
         c.make_packed();
         c.p.lattice.target_lengths = nullptr;
       }},
      {"logits", 12,
       [](Call& c) {
         c.make_packed();
         c.p.packed_rows = 12;
       }},
  };
}

TEST(TransducerApi, GoodCallsPass) {
  Call c;
  EXPECT_TRUE(c.run().ok());
  EXPECT_TRUE(c.run_gradient().ok());
  Call tdt;
  tdt.make_tdt();
  EXPECT_TRUE(tdt.run().ok());
  EXPECT_TRUE(tdt.run_gradient().ok());
  Call packed;
  packed.make_packed();
  EXPECT_TRUE(packed.run().ok()) << packed.run().message;
  Call in_place;
  in_place.g.logits = in_place.logits.data();
  EXPECT_TRUE(in_place.run().ok());
  EXPECT_TRUE(in_place.run_gradient().ok());
}

TEST(TransducerApi, TargetsAreContiguousUnlessAStrideIsGiven) {
  const auto losses = [](Call& c) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : c.logits) x = normal(random);
    EXPECT_TRUE(c.run().ok());
    return std::vector<float>{static_cast<float*>(c.out.loss)[0], static_cast<float*>(c.out.loss)[1]};
  };
  Call plain, given, wide, same;
  plain.p.lattice.target_stride = TransducerLattice{}.target_stride;
  EXPECT_EQ(losses(plain), losses(given));
  wide.targets = {1, 2, 9, 9, 2, 3};
  wide.p.lattice.targets = wide.targets.data();
  wide.p.lattice.target_stride = 4;
  EXPECT_EQ(losses(wide), losses(given));
  same.p.lattice.target_stride = 0;  // both have the first one's labels
  EXPECT_EQ(losses(same)[0], losses(given)[0]);
  EXPECT_NE(losses(same)[1], losses(given)[1]);
}

TEST(TransducerApi, EveryViolationIsRefusedAndNothingIsWritten) {
  for (const Violation& violation : violations_of_the_problem()) {
    SCOPED_TRACE(::testing::Message() << violation.argument << " " << violation.value);
    Call c;
    violation.make(c);
    expect_refused(c.run(), violation.argument, violation.value, violation.batch_index);
    expect_refused(c.run_gradient(), violation.argument, violation.value, violation.batch_index);
    EXPECT_TRUE(c.loss.untouched() && c.saved.untouched() && c.grad_logits.untouched());
  }
}

TEST(TransducerApi, OutputsAndWorkspace) {
  const std::vector<Violation> of_forward = {
      {"loss", 0, [](Call& c) { c.out.loss = nullptr; }},
      {"loss", 2, [](Call& c) { c.out.loss = static_cast<char*>(c.out.loss) + 2; }},
      {"saved", 4, [](Call& c) { c.out.saved = static_cast<char*>(c.out.saved) + 4; }},
      {"saved", 8, [](Call& c) { c.out.loss = c.out.saved; }},
      {"workspace", 8, [](Call& c) { c.workspace.bytes = 8; }},
      {"workspace", 1 << 16, [](Call& c) { c.workspace.data = nullptr; }},
      {"workspace", 1, [](Call& c) { c.workspace.data = static_cast<char*>(c.workspace.data) + 1; }},
  };
  for (const Violation& violation : of_forward) {
    Call c;
    violation.make(c);
    expect_refused(c.run(), violation.argument, violation.value);
  }
  const std::vector<Violation> of_gradient = {
      {"saved", 0, [](Call& c) { c.g.saved = nullptr; }},
      {"saved", 4, [](Call& c) { c.g.saved = static_cast<const char*>(c.g.saved) + 4; }},
      {"grad_loss", 0, [](Call& c) { c.g.grad_loss = nullptr; }},
      {"grad_logits", 0, [](Call& c) { c.g.logits = nullptr; }},
      {"grad_logits", 0, [](Call& c) { c.g.logits_stride[0] = 0; }},
      {"grad_logits", 4, [](Call& c) { c.g.logits_stride[2] = 4; }},
      {"grad_logits", 20, [](Call& c) { c.g.logits = c.logits.data(), c.g.logits_stride[1] = 20; }},
      {"grad_duration_logits", 0,
       [](Call& c) {
         c.make_tdt();
         c.g.duration_logits = nullptr;
       }},
      {"workspace", 0, [](Call& c) { c.workspace.bytes = 0; }},
  };
  for (const Violation& violation : of_gradient) {
    Call c;
    violation.make(c);
    expect_refused(c.run_gradient(), violation.argument, violation.value);
    EXPECT_TRUE(c.grad_logits.untouched()) << violation.argument;
  }
}

TEST(TransducerApi, EmptyProblemsNeedNothing) {
  TransducerProblem p;
  p.labels = 3;
  p.lattice.states = 2;
  EXPECT_TRUE(transducer(p, {}, {}, Execution::host()).ok());
  EXPECT_TRUE(transducer_gradient(p, {}, {}, Execution::host()).ok());
  EXPECT_EQ(transducer_saved_bytes(p, Execution::host()), 0U);
  p.lattice.blank = 3;  // refused: no size
  p.lattice.batch = 4;
  EXPECT_EQ(transducer_workspace_bytes(p, {}, Execution::host()), 0U);
}

TEST(TransducerApi, WithoutACudaPath) {
  Call c;
  c.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(c.run().code, StatusCode::kUnsupported);
  EXPECT_EQ(c.run_gradient().code, StatusCode::kUnsupported);
  EXPECT_STREQ(c.run().argument, "execution");
}

TEST(TransducerApi, WithoutACudaPathThereIsNoKernel) {
  KernelLaunches kernel{};
  for (const int index : {-1, 0, 1}) EXPECT_FALSE(transducer_kernel_launches(index, &kernel));
}

}  // namespace
}  // namespace warpalign::test
