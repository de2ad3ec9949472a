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
  std::vector<TransducerHypothesis> hypothesis = std::vector<TransducerHypothesis>(4, {0, 0, -1, 0});
  std::vector<double> beam_log_prob = std::vector<double>(4);
  std::vector<std::uint64_t> hash = std::vector<std::uint64_t>(4);
  std::vector<TransducerNode> nodes = std::vector<TransducerNode>(8);
  std::vector<std::int32_t> used{0, 2};
  HostBuffer next_hypothesis{64}, next_beam_log_prob{32}, next_hash{32}, source{16}, label{16}, expand{16};
  TransducerScores scores;
  TransducerGreedyStep greedy;
  TransducerBeamStep beam;
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
    beam.batch = beam.beams = 2;
    beam.frames = 3;
    beam.lengths = lengths.data();
    beam.decoding.labels = 5;
    beam.scores = encoder.data();
    beam.hypothesis = hypothesis.data();
    beam.log_prob = beam_log_prob.data();
    beam.hash = hash.data();
    beam.nodes = nodes.data();
    beam.capacity = 4;
    beam.used = used.data();
    beam.next_hypothesis = static_cast<TransducerHypothesis*>(next_hypothesis.data());
    beam.next_log_prob = static_cast<double*>(next_beam_log_prob.data());
    beam.next_hash = static_cast<std::uint64_t*>(next_hash.data());
    beam.source = static_cast<std::int32_t*>(source.data());
    beam.label = static_cast<std::int32_t*>(label.data());
    beam.expand = static_cast<std::int32_t*>(expand.data());
  }
  [[nodiscard]] Status run_beam() const { return transducer_beam_step(beam, workspace, execution); }
  [[nodiscard]] Status run_scores() const { return transducer_scores(scores, workspace, execution); }
  [[nodiscard]] Status run_greedy() const { return transducer_greedy_step(greedy, workspace, execution); }
  [[nodiscard]] bool untouched() const {
    return out.untouched() && next_walk.untouched() && next_log_prob.untouched() && memory.untouched() &&
           next_hypothesis.untouched() && next_hash.untouched() && used[0] == 0;
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
  EXPECT_TRUE(call.run_beam().ok());
  EXPECT_FALSE(call.next_hypothesis.untouched());
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
          {"encoder: expected 3 strides, one for each axis (write StridedTensor::contiguous(data, extents), "
           "or "
           "set `stride`), got 2",
           [](Call& c) { c.scores.joint.encoder.stride[1] = kUnsetStride; }},
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
    c.greedy.decoding.big_blank_column[0] = 3, c.greedy.decoding.big_blank_column[1] = id;
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
          {"durations: expected different durations, got 2", [&](Call& c) { tdt(c, 2, 2); }},
          {"big_blanks: expected at most 8 big blanks, got 9",
           [](Call& c) { c.greedy.decoding.durations = 9; }},
          {"big_blanks: expected 2 to 64 frames each, got 1", [&](Call& c) { big(c, 1, 4); }},
          {"big_blanks: expected a column of the scores, got -1", [&](Call& c) { big(c, 4, -1); }},
          {"big_blanks: expected different columns, and not blank's, got 0", [&](Call& c) { big(c, 4, 0); }},
          {"big_blanks: expected different columns, and not blank's, got 3", [&](Call& c) { big(c, 4, 3); }},
          {"window: expected at most 2^48 scores, got 536870912",
           [](Call& c) { c.greedy.window = c.greedy.decoding.labels = 1 << 29; }},
          {"lengths: expected between 0 and T, got -1 at index 0", [](Call& c) { c.lengths[0] = -1; }},
          {"weight: expected an address 0 bytes past a multiple of 4, got 1",
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

TEST(DecodeApi, BeamStepsRefuse) {
  constexpr const char* kNull = ": expected a pointer to its data, because the batch is not empty, got 0";
  expect_refused(
      {
          {"beams: expected an even number from 2 to 32, got 34", [](Call& c) { c.beam.beams = 34; }},
          {"beams: expected an even number from 2 to 32, got 3", [](Call& c) { c.beam.beams = 3; }},
          {"capacity: expected 2 K to 2^29 nodes, got 1", [](Call& c) { c.beam.capacity = 1; }},
          {"blank: expected a column of the scores, got -1", [](Call& c) { c.beam.decoding.blank = -1; }},
          {"lengths: expected between 0 and T, got 4 at index 1", [](Call& c) { c.lengths[1] = 4; }},
          {"used: expected room for 2 K more nodes in the capacity, got 3 at index 1",
           [](Call& c) { c.used[1] = 3; }},
          {"hypothesis: expected frames from 0 to 2^29, got -1 at index 1",
           [](Call& c) { c.hypothesis[3].frame = -1; }},
          {"hypothesis: expected nodes from -1 to used - 1, got 2 at index 1",
           [](Call& c) { c.hypothesis[2].node = 2; }},
          {"label_scores: expected an address 0 bytes past a multiple of 4, got 2",
           [](Call& c) { c.beam.label_scores = reinterpret_cast<const void*>(2); }},
          {"workspace: expected as many bytes as its workspace function says, got 0",
           [](Call& c) { c.workspace.bytes = 0; }},
      },
      [](const Call& c) { return c.run_beam(); });
  const struct {
    std::string name;
    std::function<void(TransducerBeamStep&)> make;
  } nulls[] = {
      {"scores", [](auto& p) { p.scores = nullptr; }},
      {"hypothesis", [](auto& p) { p.hypothesis = nullptr; }},
      {"log_prob", [](auto& p) { p.log_prob = nullptr; }},
      {"hash", [](auto& p) { p.hash = nullptr; }},
      {"nodes", [](auto& p) { p.nodes = nullptr; }},
      {"used", [](auto& p) { p.used = nullptr; }},
      {"next_hypothesis", [](auto& p) { p.next_hypothesis = nullptr; }},
      {"next_log_prob", [](auto& p) { p.next_log_prob = nullptr; }},
      {"next_hash", [](auto& p) { p.next_hash = nullptr; }},
      {"source", [](auto& p) { p.source = nullptr; }},
      {"label", [](auto& p) { p.label = nullptr; }},
      {"expand", [](auto& p) { p.expand = nullptr; }},
  };
  for (const auto& [name, make] : nulls) {
    Call call;
    make(call.beam);
    EXPECT_EQ(to_string(call.run_beam()), name + kNull);
    EXPECT_TRUE(call.untouched());
  }
}

TEST(DecodeApi, WithoutACudaPathItSaysSo) {
  Call call;
  call.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(to_string(call.run_scores()), "execution: this build of warpalign has no CUDA path");
  EXPECT_EQ(to_string(call.run_greedy()), "execution: this build of warpalign has no CUDA path");
  EXPECT_EQ(to_string(call.run_beam()), "execution: this build of warpalign has no CUDA path");
  EXPECT_TRUE(call.untouched());
}

}  // namespace
}  // namespace warpalign::test
