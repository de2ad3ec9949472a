// The contract of warpalign/transducer_align.h: every violation is refused by its argument's name.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "testing.h"
#include "warpalign/transducer_align.h"

namespace warpalign::test {
namespace {

// Two utterances of 3 frames and 2 labels, V = 5, one big blank, with every output.
struct Call {
  std::vector<float> logits = std::vector<float>(2 * 3 * 3 * 5),
                     durations = std::vector<float>(2 * 3 * 3 * 2);
  std::vector<std::int32_t> targets{1, 2, 2, 3};
  TransducerProblem p;
  TransducerAlignment out;
  Workspace workspace;
  Execution execution = Execution::host();
  HostBuffer score{8}, frames{16}, label_durations{16}, blanks{24}, blank{72}, label{72}, grouped{144},
      memory{1 << 16};

  Call() {
    p.labels = 5;
    p.logits = {logits.data(), {45, 15, 5, 1}};
    TransducerLattice& l = p.lattice;
    l.batch = 2;
    l.frames = 3;
    l.states = 3;
    l.durations = 1;
    l.duration[0] = 2;
    l.big_blank_column[0] = 4;
    l.targets = targets.data();
    l.target_stride = 2;
    out.score = score.data();
    out.frames = static_cast<std::int32_t*>(frames.data());
    out.durations = static_cast<std::int32_t*>(label_durations.data());
    out.blanks = static_cast<std::int32_t*>(blanks.data());
    out.blank_posteriors = blank.data();
    out.label_posteriors = label.data();
    out.big_blank_posteriors = grouped.data();
    workspace = {memory.data(), 1 << 16};
  }
  void make_tdt() {
    p.lattice.tdt = true;
    p.lattice.durations = 2;
    p.lattice.duration[0] = 0;
    p.lattice.duration[1] = 1;
    p.duration_logits = {durations.data(), {18, 6, 2, 1}};
    out.duration_posteriors = grouped.data();
    out.big_blank_posteriors = nullptr;
  }
  Status run() { return transducer_align(p, out, workspace, execution); }
  [[nodiscard]] bool untouched() const {
    return score.untouched() && frames.untouched() && blanks.untouched() && blank.untouched();
  }
};

TEST(TransducerAlignApi, GoodCallsPass) {
  Call c;
  EXPECT_TRUE(c.run().ok()) << c.run().message;
  Call tdt;
  tdt.make_tdt();
  EXPECT_TRUE(tdt.run().ok()) << tdt.run().message;
  Call nothing;
  nothing.out = {};
  EXPECT_TRUE(nothing.run().ok());
  TransducerProblem empty;
  empty.labels = 3;
  EXPECT_TRUE(transducer_align(empty, {}, {}, Execution::host()).ok());
}

TEST(TransducerAlignApi, EveryViolationIsRefusedAndNothingIsWritten) {
  struct Violation {
    const char* argument;
    std::function<void(Call&)> make;
  };
  const std::vector<Violation> violations = {
      {"blank", [](Call& c) { c.p.lattice.blank = 5; }},
      {"logits", [](Call& c) { c.p.logits.data = nullptr; }},
      {"targets", [](Call& c) { c.targets[0] = 4; }},
      {"score", [](Call& c) { c.out.score = static_cast<char*>(c.out.score) + 2; }},
      {"frames", [](Call& c) { c.out.frames = static_cast<std::int32_t*>(c.out.score); }},
      {"durations", [](Call& c) { c.out.durations = c.out.frames; }},
      {"blanks", [](Call& c) { c.out.blanks = c.out.frames + 3; }},
      {"label_posteriors", [](Call& c) { c.out.label_posteriors = static_cast<char*>(c.blank.data()) + 8; }},
      {"big_blank_posteriors", [](Call& c) { c.out.big_blank_posteriors = c.label.data(); }},
      {"duration_posteriors",
       [](Call& c) {
         c.out.duration_posteriors = c.grouped.data();
         c.out.big_blank_posteriors = nullptr;
       }},
      {"big_blank_posteriors",
       [](Call& c) {
         c.make_tdt();
         c.out.big_blank_posteriors = c.grouped.data();
         c.out.duration_posteriors = nullptr;
       }},
      {"workspace", [](Call& c) { c.workspace.bytes = 8; }},
      {"workspace", [](Call& c) { c.workspace.data = nullptr; }},
      {"workspace", [](Call& c) { c.out.score = c.memory.data(); }},
  };
  for (const Violation& violation : violations) {
    SCOPED_TRACE(violation.argument);
    Call c;
    violation.make(c);
    const Status status = c.run();
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.argument), violation.argument);
    EXPECT_TRUE(c.untouched());
  }
}

TEST(TransducerAlignApi, RefusedProblemsHaveNoSize) {
  Call c;
  c.p.lattice.blank = 9;
  EXPECT_EQ(transducer_align_workspace_bytes(c.p, c.out, c.execution), 0U);
}

TEST(TransducerAlignApi, WithoutACudaPath) {
  Call c;
  c.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(c.run().code, StatusCode::kUnsupported);
  EXPECT_EQ(transducer_align_workspace_bytes(c.p, c.out, c.execution), 0U);
}

}  // namespace
}  // namespace warpalign::test
