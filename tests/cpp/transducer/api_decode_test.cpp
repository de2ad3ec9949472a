// The contract of warpalign/transducer_decode.h: every violation is refused by its argument's name, and
// nothing is written.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "host_buffer.h"
#include "warpalign/transducer_decode.h"

namespace warpalign::test {
namespace {

// Two utterances of 3 frames, H = 4, 5 columns, window 2, with all that the calls take.
struct Call {
  std::vector<float> encoder = std::vector<float>(24), predictor = std::vector<float>(8),
                     weight = std::vector<float>(20), bias = std::vector<float>(5);
  std::vector<std::int32_t> lengths{3, 2}, frame{0, 1};
  std::vector<TransducerWalk> walk{{0, 0, -1, -1, 0}, {1, 0, -1, -1, 0}};
  std::vector<double> log_prob{0, 0};
  HostBuffer out{2 * 2 * 5 * 4}, next_walk{2 * sizeof(TransducerWalk)}, next_log_prob{16}, memory{1 << 14};
  TransducerScores scores;
  TransducerGreedyStep greedy;
  Workspace workspace{memory.data(), 1 << 14};
  Execution execution = Execution::host();

  Call() {
    TransducerJoint joint;
    joint.hidden = 4;
    joint.encoder = {encoder.data(), {12, 4, 1}};
    joint.predictor = predictor.data();
    joint.weight = weight.data();
    joint.bias = bias.data();
    scores.batch = greedy.batch = 2;
    scores.frames = greedy.frames = 3;
    scores.window = greedy.window = 2;
    scores.lengths = greedy.lengths = lengths.data();
    scores.joint = greedy.joint = joint;
    scores.columns = 5;
    scores.frame = frame.data();
    scores.scores = out.data();
    greedy.decoding.labels = 5;
    greedy.walk = walk.data();
    greedy.log_prob = log_prob.data();
    greedy.next_walk = static_cast<TransducerWalk*>(next_walk.data());
    greedy.next_log_prob = static_cast<double*>(next_log_prob.data());
  }
  [[nodiscard]] Status run_scores() const { return transducer_scores(scores, workspace, execution); }
  [[nodiscard]] Status run_greedy() const { return transducer_greedy_step(greedy, workspace, execution); }
  [[nodiscard]] bool untouched() const {
    return out.untouched() && next_walk.untouched() && next_log_prob.untouched() && memory.untouched();
  }
};

struct Violation {
  const char* says;
  std::function<void(Call&)> make;
};

template <class Run>
void expect_refused(const std::vector<Violation>& all, const Run& run) {
  for (const auto& [says, make] : all) {
    Call call;
    make(call);
    EXPECT_EQ(to_string(run(call)), says);
    EXPECT_TRUE(call.untouched()) << says;
  }
}

TEST(DecodeApi, GoodCalls) {
  Call call;
  EXPECT_TRUE(call.run_scores().ok());
  EXPECT_TRUE(call.run_greedy().ok());
  EXPECT_FALSE(call.out.untouched());
  EXPECT_FALSE(call.next_walk.untouched());
  call.scores.batch = call.greedy.batch = 0;
  call.scores.frame = nullptr;
  call.greedy.walk = nullptr;
  EXPECT_TRUE(call.run_scores().ok());
  EXPECT_TRUE(call.run_greedy().ok());
}

TEST(DecodeApi, WithoutFramesNothingOfTheJointIsLookedAt) {
  Call call;
  call.lengths = {0, 0};
  call.scores.frames = call.greedy.frames = 0;
  call.scores.joint = call.greedy.joint = {};
  EXPECT_TRUE(call.run_scores().ok());
  EXPECT_EQ(call.out.read<float>(20), std::vector<float>(20, 0));
  EXPECT_TRUE(call.run_greedy().ok());
}

TEST(DecodeApi, ScoresRefuse) {
  expect_refused(
      {
          {"dtype: expected kFloat32 or kFloat64, got 2", [](Call& c) { c.scores.dtype = DType::kFloat16; }},
          {"batch: expected 0 to 2^29 utterances, got -1", [](Call& c) { c.scores.batch = -1; }},
          {"frames: expected 0 to 2^29 frames, got -1", [](Call& c) { c.scores.frames = -1; }},
          {"window: expected 1 to 2^29 frames, got 0", [](Call& c) { c.scores.window = 0; }},
          {"beams: expected 1 to 2^29 hypotheses, got 0", [](Call& c) { c.scores.beams = 0; }},
          {"columns: expected 1 to 2^29 columns, got 0", [](Call& c) { c.scores.columns = 0; }},
          {"columns: expected at most 2^48 scores, got 536870912",
           [](Call& c) { c.scores.columns = c.scores.window = 1 << 29; }},
          {"lengths: expected between 0 and T, got 4 at index 1", [](Call& c) { c.lengths[1] = 4; }},
          {"hidden: expected 1 to 2^29 numbers, got 0", [](Call& c) { c.scores.joint.hidden = 0; }},
          {"activation: expected one of the values of Activation, got 2",
           [](Call& c) { c.scores.joint.activation = static_cast<Activation>(2); }},
          {"encoder: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.scores.joint.encoder.data = nullptr; }},
          {"encoder: expected a last stride of 1, got 2",
           [](Call& c) { c.scores.joint.encoder.stride[2] = 2; }},
          {"predictor: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.scores.joint.predictor = nullptr; }},
          {"weight: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.scores.joint.weight = nullptr; }},
          {"frame: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.scores.frame = nullptr; }},
          {"scores: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.scores.scores = nullptr; }},
          {"workspace: expected as many bytes as its workspace function says, got 0",
           [](Call& c) { c.workspace.bytes = 0; }},
      },
      [](const Call& c) { return c.run_scores(); });
}

TEST(DecodeApi, GreedyStepsRefuse) {
  const auto tdt = [](Call& c, int first, int second) {
    c.greedy.decoding.tdt = true;
    c.greedy.decoding.durations = 2;
    c.greedy.decoding.duration[0] = first;
    c.greedy.decoding.duration[1] = second;
  };
  const auto big = [](Call& c, int duration, int id) {
    c.greedy.decoding.durations = 2;
    c.greedy.decoding.duration[0] = 2, c.greedy.decoding.duration[1] = duration;
    c.greedy.decoding.id[0] = 3, c.greedy.decoding.id[1] = id;
  };
  expect_refused(
      {
          {"labels: expected 1 to 2^29 columns, got 0", [](Call& c) { c.greedy.decoding.labels = 0; }},
          {"blank: expected a column of the scores, got 5", [](Call& c) { c.greedy.decoding.blank = 5; }},
          {"max_symbols: expected 1 to 2^29 labels, got 0",
           [](Call& c) { c.greedy.decoding.max_symbols = 0; }},
          {"durations: expected 1 to 16 durations, got 17",
           [&](Call& c) { tdt(c, 0, 1), c.greedy.decoding.durations = 17; }},
          {"durations: expected 0 to 64 frames each, got 65", [&](Call& c) { tdt(c, 0, 65); }},
          {"durations: expected one duration at least above 0, got 0", [&](Call& c) { tdt(c, 0, 0); }},
          {"big_blank_durations: expected at most 8 big blanks, got 9",
           [](Call& c) { c.greedy.decoding.durations = 9; }},
          {"big_blank_durations: expected 2 to 64 frames each, got 1", [&](Call& c) { big(c, 1, 4); }},
          {"big_blank_ids: expected a column of the scores, got -1", [&](Call& c) { big(c, 4, -1); }},
          {"big_blank_ids: expected different columns, and not blank's, got 0",
           [&](Call& c) { big(c, 4, 0); }},
          {"big_blank_ids: expected different columns, and not blank's, got 3",
           [&](Call& c) { big(c, 4, 3); }},
          {"window: expected at most 2^48 scores, got 536870912",
           [](Call& c) { c.greedy.window = c.greedy.decoding.labels = 1 << 29; }},
          {"lengths: expected between 0 and T, got -1 at index 0", [](Call& c) { c.lengths[0] = -1; }},
          {"weight: expected a pointer aligned to the size of its elements, got 1",
           [](Call& c) { c.greedy.joint.weight = reinterpret_cast<const void*>(1); }},
          {"walk: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.greedy.walk = nullptr; }},
          {"walk: expected frames from 0 to 2^29, got -1 at index 1", [](Call& c) { c.walk[1].frame = -1; }},
          {"log_prob: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.greedy.log_prob = nullptr; }},
          {"next_walk: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.greedy.next_walk = nullptr; }},
          {"next_log_prob: expected a pointer to its data, because the batch is not empty, got 0",
           [](Call& c) { c.greedy.next_log_prob = nullptr; }},
          {"workspace: expected as many bytes as its workspace function says, got 0",
           [](Call& c) { c.workspace.bytes = 0; }},
      },
      [](const Call& c) { return c.run_greedy(); });
}

TEST(DecodeApi, WithoutACudaPathItSaysSo) {
  Call call;
  call.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(to_string(call.run_scores()), "execution: this build of warpalign has no CUDA path");
  EXPECT_EQ(to_string(call.run_greedy()), "execution: this build of warpalign has no CUDA path");
  EXPECT_TRUE(call.untouched());
}

}  // namespace
}  // namespace warpalign::test
