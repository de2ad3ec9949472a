// The contract of warpalign/ctc.h and warpalign/monotonic_alignment.h: every violation is refused by its
// argument's name.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "testing.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/monotonic_alignment.h"

namespace warpalign::test {
namespace {

// Two utterances of 3 frames and 2 labels, C = 5, with every output.
struct Call {
  std::vector<float> logits = std::vector<float>(2 * 3 * 5);
  std::vector<float> prior = std::vector<float>(5);
  std::vector<std::int32_t> targets{1, 2, 2, 3}, frame_counts{3, 2}, label_counts{2, 2};
  CtcProblem p;
  CtcOutputs losses;
  CtcGradient gradient;
  CtcPosteriors posteriors;
  CtcAlignment alignment;
  Workspace workspace;
  Execution execution = Execution::host();
  HostBuffer loss{8}, saved{1 << 14}, grad_logits{120}, labels{48}, score{8}, path{24}, scores{24}, spans{32},
      memory{1 << 16};

  Call() {
    p.batch = 2;
    p.frames = 3;
    p.classes = 5;
    p.labels = 2;
    p.logits = {logits.data(), {15, 5, 1}};
    p.prior = prior.data();
    p.targets = targets.data();
    p.logit_lengths = frame_counts.data();
    p.target_lengths = label_counts.data();
    losses = {loss.data(), saved.data()};
    gradient.saved = saved.data();
    gradient.logits = grad_logits.data();
    for (int axis = 0; axis < 3; ++axis) gradient.logits_stride[axis] = p.logits.stride[axis];
    posteriors = {loss.data(), labels.data()};
    alignment = {score.data(), static_cast<std::int32_t*>(path.data()), scores.data(),
                 static_cast<std::int32_t*>(spans.data())};
    workspace = {memory.data(), 1 << 16};
  }
  Status run_loss() { return ctc_loss(p, losses, workspace, execution); }
  Status run_gradient() { return ctc_gradient(p, gradient, workspace, execution); }
  Status run_posteriors() { return ctc_posteriors(p, posteriors, workspace, execution); }
  Status run_align() { return ctc_align(p, alignment, workspace, execution); }
};

struct Violation {
  const char* argument;
  std::function<void(Call&)> make;
};

void expect_refused(const std::vector<Violation>& violations, Status (Call::*run)()) {
  for (const Violation& violation : violations) {
    SCOPED_TRACE(violation.argument);
    Call c;
    violation.make(c);
    const Status status = (c.*run)();
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.argument), violation.argument);
    EXPECT_TRUE(c.loss.untouched() && c.saved.untouched() && c.grad_logits.untouched() &&
                c.labels.untouched() && c.path.untouched());
  }
}

TEST(CtcApi, GoodCallsPass) {
  Call c;
  EXPECT_TRUE(c.run_loss().ok()) << c.run_loss().message;
  EXPECT_TRUE(c.run_gradient().ok()) << c.run_gradient().message;
  EXPECT_TRUE(c.run_posteriors().ok()) << c.run_posteriors().message;
  EXPECT_TRUE(c.run_align().ok()) << c.run_align().message;
  c.alignment = {};
  EXPECT_TRUE(c.run_align().ok());
  c.gradient.logits = c.logits.data();
  EXPECT_TRUE(c.run_gradient().ok());
  CtcProblem empty;
  empty.classes = 3;
  EXPECT_TRUE(ctc_loss(empty, {}, {}, Execution::host()).ok());
  EXPECT_TRUE(ctc_gradient(empty, {}, {}, Execution::host()).ok());
  EXPECT_TRUE(monotonic_alignment({}, {}, {}, Execution::host()).ok());
}

TEST(CtcApi, EveryViolationOfTheProblemIsRefused) {
  const std::vector<Violation> violations = {
      {"execution", [](Call& c) { c.execution.device = static_cast<Device>(7); }},
      {"precision", [](Call& c) { c.execution.precision = static_cast<Precision>(7); }},
      {"dtype", [](Call& c) { c.p.dtype = static_cast<DType>(9); }},
      {"batch", [](Call& c) { c.p.batch = -1; }},
      {"frames", [](Call& c) { c.p.frames = -1; }},
      {"classes", [](Call& c) { c.p.classes = 0; }},
      {"labels", [](Call& c) { c.p.labels = -1; }},
      {"classes", [](Call& c) { c.p.batch = c.p.frames = c.p.classes = 1 << 20; }},
      {"labels", [](Call& c) { c.p.batch = c.p.frames = c.p.labels = 1 << 20; }},
      {"blank", [](Call& c) { c.p.blank = 5; }},
      {"star", [](Call& c) { c.p.star = -2; }},
      {"star", [](Call& c) { c.p.star = 0; }},
      {"logits", [](Call& c) { c.p.logits.data = nullptr; }},
      {"logits", [](Call& c) { c.p.logits.stride[2] = -1; }},
      {"logits", [](Call& c) { c.p.logits.data = reinterpret_cast<const char*>(c.logits.data()) + 2; }},
      {"targets", [](Call& c) { c.p.targets.data = nullptr; }},
      {"targets", [](Call& c) { c.p.targets.type = static_cast<IntegerType>(5); }},
      {"targets", [](Call& c) { c.p.target_stride = -2; }},
      {"targets", [](Call& c) { c.targets[1] = 0; }},
      {"targets", [](Call& c) { c.targets[1] = 5; }},
      {"targets", [](Call& c) { c.targets[1] = -1; }},
      {"targets",
       [](Call& c) {
         c.p.flat_targets = true;
         c.p.target_count = 3;
       }},
      {"targets",
       [](Call& c) {
         c.p.flat_targets = true;
         c.p.target_count = -1;
       }},
      {"target_lengths",
       [](Call& c) {
         c.p.flat_targets = true;
         c.p.target_count = 4;
         c.p.target_lengths = {};
       }},
      {"logit_lengths", [](Call& c) { c.frame_counts[1] = 4; }},
      {"logit_lengths", [](Call& c) { c.frame_counts[1] = -1; }},
      {"target_lengths", [](Call& c) { c.label_counts[0] = 3; }},
      {"label_prior", [](Call& c) { c.prior[2] = std::numeric_limits<float>::infinity(); }},
      {"label_prior", [](Call& c) { c.p.prior = reinterpret_cast<const char*>(c.prior.data()) + 1; }},
      {"workspace", [](Call& c) { c.workspace.bytes = 8; }},
      {"workspace", [](Call& c) { c.workspace.data = nullptr; }},
  };
  expect_refused(violations, &Call::run_loss);
  expect_refused(violations, &Call::run_posteriors);
  expect_refused(violations, &Call::run_align);
  expect_refused(violations, &Call::run_gradient);
}

TEST(CtcApi, EveryViolationOfTheOutputsIsRefused) {
  expect_refused(
      {
          {"loss", [](Call& c) { c.losses.loss = nullptr; }},
          {"loss", [](Call& c) { c.losses.loss = static_cast<char*>(c.loss.data()) + 1; }},
          {"saved", [](Call& c) { c.losses.saved = static_cast<char*>(c.saved.data()) + 8; }},
          {"workspace", [](Call& c) { c.losses.loss = c.memory.data(); }},
      },
      &Call::run_loss);
  expect_refused(
      {
          {"saved", [](Call& c) { c.gradient.saved = nullptr; }},
          {"saved", [](Call& c) { c.gradient.saved = static_cast<const char*>(c.gradient.saved) + 8; }},
          {"grad_loss", [](Call& c) { c.gradient.grad_loss = static_cast<char*>(c.loss.data()) + 1; }},
          {"grad_logits", [](Call& c) { c.gradient.logits = nullptr; }},
          {"grad_logits", [](Call& c) { c.gradient.logits_stride[1] = 0; }},
          {"grad_logits", [](Call& c) { c.gradient.logits_stride[0] = -1; }},
          {"grad_logits",
           [](Call& c) {
             c.gradient.logits = c.logits.data();
             c.gradient.logits_stride[0] = 20;
           }},
      },
      &Call::run_gradient);
  expect_refused(
      {
          {"posteriors", [](Call& c) { c.posteriors.labels = nullptr; }},
          {"posteriors", [](Call& c) { c.posteriors.loss = static_cast<char*>(c.labels.data()) + 8; }},
          {"workspace", [](Call& c) { c.posteriors.loss = c.memory.data(); }},
      },
      &Call::run_posteriors);
  expect_refused(
      {
          {"score", [](Call& c) { c.alignment.score = static_cast<char*>(c.score.data()) + 2; }},
          {"scores", [](Call& c) { c.alignment.scores = c.alignment.labels; }},
          {"spans", [](Call& c) { c.alignment.spans = c.alignment.labels + 2; }},
          {"workspace", [](Call& c) { c.alignment.score = c.memory.data(); }},
      },
      &Call::run_align);
}

TEST(CtcApi, EveryViolationOfMonotonicAlignmentIsRefused) {
  struct MonotonicCall {
    std::vector<float> scores = std::vector<float>(24);
    std::vector<std::int64_t> texts{3, 2}, frames{4, 4};
    MonotonicAlignmentProblem p;
    HostBuffer durations{24}, path{24}, memory{1 << 14};
    MonotonicAlignment out;
    Workspace workspace{memory.data(), 1 << 14};

    MonotonicCall() {
      p.batch = 2;
      p.positions = 3;
      p.frames = 4;
      p.scores = {scores.data(), {12, 4, 1}};
      p.text_lengths = texts.data();
      p.frame_lengths = frames.data();
      out.durations = static_cast<std::int32_t*>(durations.data());
      out.path = static_cast<std::uint8_t*>(path.data());
    }
  };
  struct Case {
    const char* argument;
    std::function<void(MonotonicCall&)> make;
  };
  const std::vector<Case> cases = {
      {"dtype", [](MonotonicCall& c) { c.p.dtype = static_cast<DType>(9); }},
      {"batch", [](MonotonicCall& c) { c.p.batch = -1; }},
      {"positions", [](MonotonicCall& c) { c.p.positions = -1; }},
      {"frames", [](MonotonicCall& c) { c.p.frames = -1; }},
      {"frames", [](MonotonicCall& c) { c.p.batch = c.p.frames = c.p.positions = 1 << 20; }},
      {"scores", [](MonotonicCall& c) { c.p.scores.data = nullptr; }},
      {"scores", [](MonotonicCall& c) { c.p.scores.stride[0] = -1; }},
      {"text_lengths", [](MonotonicCall& c) { c.texts[0] = 4; }},
      {"frame_lengths", [](MonotonicCall& c) { c.frames[1] = 5; }},
      {"frame_lengths", [](MonotonicCall& c) { c.p.frame_lengths.type = static_cast<IntegerType>(5); }},
      {"path", [](MonotonicCall& c) { c.out.path = static_cast<std::uint8_t*>(c.durations.data()) + 8; }},
      {"workspace", [](MonotonicCall& c) { c.workspace.bytes = 8; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.argument);
    MonotonicCall c;
    one.make(c);
    const Status status = monotonic_alignment(c.p, c.out, c.workspace, Execution::host());
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.argument), one.argument);
    EXPECT_TRUE(c.durations.untouched() && c.path.untouched());
  }
  MonotonicCall good;
  EXPECT_TRUE(monotonic_alignment(good.p, good.out, good.workspace, Execution::host()).ok());
}

TEST(CtcApi, WithoutCudaThereIsNoSizeAndNoKernel) {
  Call c;
  c.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(ctc_saved_bytes(c.p, c.execution), 0U);
  EXPECT_EQ(ctc_loss_workspace_bytes(c.p, c.losses, c.execution), 0U);
  EXPECT_EQ(c.run_loss().code, StatusCode::kUnsupported);
  EXPECT_EQ(c.run_gradient().code, StatusCode::kUnsupported);
  EXPECT_EQ(c.run_posteriors().code, StatusCode::kUnsupported);
  EXPECT_EQ(c.run_align().code, StatusCode::kUnsupported);
  KernelLaunches launches;
  EXPECT_FALSE(ctc_kernel_launches(0, &launches));
}

// What is kept is below the bound of the header, whatever the sizes.
TEST(CtcApi, SavedIsBounded) {
  for (const int frames : {0, 1, 2, 31, 64, 257, 5000, 60000}) {
    for (const int labels : {0, 1, 7, 8, 100, 3000, 15000}) {
      for (const int star : {-1, 3}) {
        CtcProblem p;
        p.batch = 2;
        p.frames = frames;
        p.labels = labels;
        p.classes = 4;
        p.star = star;
        EXPECT_LE(ctc_saved_bytes(p, Execution::host()), ctc_most_saved_bytes(p)) << frames << ", " << labels;
      }
    }
  }
}

}  // namespace
}  // namespace warpalign::test
