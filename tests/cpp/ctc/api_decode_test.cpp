// The contract of warpalign/ctc_decode.h: every violation is refused by its argument's name.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "testing.h"
#include "warpalign/ctc_decode.h"

namespace warpalign::test {
namespace {

// Two utterances of 3 frames, C = 5, and a beam of 2.
struct Call {
  std::vector<float> logits = std::vector<float>(2 * 3 * 5);
  std::vector<std::int32_t> frame_counts{3, 2}, frames_before{0, 0};
  CtcProblem p;
  CtcGreedy greedy;
  CtcBeam beam;
  CtcBeamLabels labels;
  Workspace workspace;
  Execution execution = Execution::host();
  HostBuffer after{4 * sizeof(CtcHypothesis)}, nodes{2 * 3 * 2 * sizeof(CtcNode)}, frames_after{8},
      source{16}, label{16}, walk{2 * sizeof(CtcWalk)}, tokens{96}, token_frames{96}, lengths{32}, scores{32},
      memory{1 << 16};

  Call() {
    p.batch = 2;
    p.frames = 3;
    p.classes = 5;
    p.logits = {logits.data(), {15, 5, 1}};
    p.logit_lengths = frame_counts.data();
    const auto integers = [](const HostBuffer& buffer) { return static_cast<std::int64_t*>(buffer.data()); };
    greedy.after = static_cast<CtcWalk*>(walk.data());
    greedy.tokens = integers(tokens);
    greedy.token_frames = integers(token_frames);
    greedy.lengths = integers(lengths);
    beam.beams = 2;
    beam.threshold = kInf;
    beam.frames_before = frames_before.data();
    beam.nodes = static_cast<CtcNode*>(nodes.data());
    beam.capacity = 3;
    beam.after = static_cast<CtcHypothesis*>(after.data());
    beam.frames_after = static_cast<std::int32_t*>(frames_after.data());
    beam.source = static_cast<std::int32_t*>(source.data());
    beam.label = static_cast<std::int32_t*>(label.data());
    labels.batch = labels.beams = labels.n_best = 2;
    labels.hypotheses = beam.after;
    labels.nodes = beam.nodes;
    labels.capacity = labels.longest = 3;
    labels.tokens = integers(tokens);
    labels.token_frames = integers(token_frames);
    labels.lengths = integers(lengths);
    labels.scores = static_cast<double*>(scores.data());
    workspace = {memory.data(), 1 << 16};
  }
  Status run_greedy() { return ctc_greedy(p, greedy, workspace, execution); }
  Status run_beam() { return ctc_beam(p, beam, workspace, execution); }
  Status run_labels() { return ctc_beam_labels(labels, execution); }
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
    EXPECT_TRUE(c.after.untouched() && c.walk.untouched() && c.tokens.untouched() && c.lengths.untouched());
  }
}

TEST(CtcDecodeApi, GoodCallsPass) {
  Call c;
  EXPECT_TRUE(c.run_greedy().ok()) << c.run_greedy().message;
  EXPECT_TRUE(c.run_beam().ok()) << c.run_beam().message;
  EXPECT_TRUE(c.run_labels().ok()) << c.run_labels().message;
  c.beam.frames_before = nullptr;
  c.beam.frames_after = c.beam.source = c.beam.label = nullptr;
  EXPECT_TRUE(c.run_beam().ok());
  c.p.targets.type = static_cast<IntegerType>(5);  // targets are not looked at
  c.p.labels = 7;
  EXPECT_TRUE(c.run_beam().ok());
  c.p.frames = 0;
  c.p.logit_lengths = {};
  c.greedy.tokens = c.greedy.token_frames = nullptr;
  EXPECT_TRUE(c.run_greedy().ok());
  CtcProblem empty;
  empty.classes = 3;
  CtcBeam beam;
  beam.threshold = 1;
  EXPECT_TRUE(ctc_greedy(empty, {}, {}, Execution::host()).ok());
  EXPECT_TRUE(ctc_beam(empty, beam, {}, Execution::host()).ok());
  EXPECT_TRUE(ctc_beam_labels({}, Execution::host()).ok());
}

const std::vector<Violation>& of_the_problem() {
  static const std::vector<Violation> violations = {
      {"execution", [](Call& c) { c.execution.device = static_cast<Device>(7); }},
      {"dtype", [](Call& c) { c.p.dtype = static_cast<DType>(9); }},
      {"batch", [](Call& c) { c.p.batch = -1; }},
      {"classes", [](Call& c) { c.p.classes = 0; }},
      {"blank", [](Call& c) { c.p.blank = 5; }},
      {"logits", [](Call& c) { c.p.logits.data = nullptr; }},
      {"logits", [](Call& c) { c.p.logits.stride[2] = -1; }},
      {"logit_lengths", [](Call& c) { c.frame_counts[1] = 4; }},
      {"workspace", [](Call& c) { c.workspace.bytes = 1; }},
  };
  return violations;
}

TEST(CtcDecodeApi, EveryViolationOfGreedySearchIsRefused) {
  expect_refused(of_the_problem(), &Call::run_greedy);
  expect_refused(
      {
          {"after", [](Call& c) { c.greedy.after = nullptr; }},
          {"lengths", [](Call& c) { c.greedy.lengths = nullptr; }},
          {"tokens", [](Call& c) { c.greedy.tokens = nullptr; }},
          {"token_frames", [](Call& c) { c.greedy.token_frames = nullptr; }},
          {"token_frames", [](Call& c) { c.greedy.token_frames = c.greedy.tokens; }},
          {"before",
           [](Call& c) {
             c.greedy.before =
                 reinterpret_cast<const CtcWalk*>(reinterpret_cast<const char*>(c.logits.data()) + 1);
           }},
      },
      &Call::run_greedy);
}

TEST(CtcDecodeApi, EveryViolationOfBeamSearchIsRefused) {
  expect_refused(of_the_problem(), &Call::run_beam);
  expect_refused(
      {
          {"beams", [](Call& c) { c.beam.beams = 0; }},
          {"beams", [](Call& c) { c.beam.beams = 129; }},
          {"capacity", [](Call& c) { c.beam.capacity = -1; }},
          {"capacity", [](Call& c) { c.beam.capacity = 1 << 30; }},
          {"capacity", [](Call& c) { c.beam.capacity = 2; }},
          {"capacity", [](Call& c) { c.frames_before[1] = 2; }},
          {"capacity", [](Call& c) { c.frames_before[1] = -1; }},
          {"threshold", [](Call& c) { c.beam.threshold = 0; }},
          {"threshold", [](Call& c) { c.beam.threshold = std::nan(""); }},
          {"label_scores", [](Call& c) { c.beam.label_scores = c.logits.data(); }},
          {"beams",
           [](Call& c) {
             c.beam.label_scores = c.logits.data();
             c.p.frames = 1;
             c.frame_counts = {1, 1};
             c.beam.beams = 65;
           }},
          {"after", [](Call& c) { c.beam.after = nullptr; }},
          {"nodes", [](Call& c) { c.beam.nodes = nullptr; }},
          {"nodes", [](Call& c) { c.beam.nodes = reinterpret_cast<CtcNode*>(c.beam.after); }},
          {"label", [](Call& c) { c.beam.label = c.beam.source; }},
      },
      &Call::run_beam);
}

TEST(CtcDecodeApi, EveryViolationOfLabelsIsRefused) {
  expect_refused(
      {
          {"execution", [](Call& c) { c.execution.device = static_cast<Device>(7); }},
          {"batch", [](Call& c) { c.labels.batch = -1; }},
          {"beams", [](Call& c) { c.labels.beams = 200; }},
          {"n_best", [](Call& c) { c.labels.n_best = 0; }},
          {"n_best", [](Call& c) { c.labels.n_best = 3; }},
          {"capacity", [](Call& c) { c.labels.capacity = -1; }},
          {"longest", [](Call& c) { c.labels.longest = -1; }},
          {"hypotheses", [](Call& c) { c.labels.hypotheses = nullptr; }},
          {"nodes", [](Call& c) { c.labels.nodes = nullptr; }},
          {"lengths", [](Call& c) { c.labels.lengths = nullptr; }},
          {"scores", [](Call& c) { c.labels.scores = nullptr; }},
          {"tokens", [](Call& c) { c.labels.tokens = nullptr; }},
          {"token_frames", [](Call& c) { c.labels.token_frames = c.labels.tokens; }},
      },
      &Call::run_labels);
}

TEST(CtcDecodeApi, WithoutACudaPathADeviceIsUnsupported) {
  Call c;
  c.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(c.run_greedy().code, StatusCode::kUnsupported);
  EXPECT_EQ(c.run_beam().code, StatusCode::kUnsupported);
  EXPECT_EQ(c.run_labels().code, StatusCode::kUnsupported);
}

}  // namespace
}  // namespace warpalign::test
