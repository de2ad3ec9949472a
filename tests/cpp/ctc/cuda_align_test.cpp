// Best paths on CUDA against the float64 reference: states, scores and spans, for sizes around the edges of
// strips, panels and pieces, for every type, layout and option, with ties and without paths.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_cases.h"

namespace warpalign::test {
namespace {

struct Result {
  std::vector<double> score, scores;        // (B,), (B, T)
  std::vector<std::int32_t> labels, spans;  // (B, T); (B, U, 2), or of flat targets
};

template <class Element, class Integer>
Result run_typed(const Case& c, const Data& data) {
  const DeviceCase<Element, Integer> on_device(c, data);
  using Real = typename DeviceCase<Element, Integer>::Real;
  const CtcProblem& p = on_device.p;
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t rows = static_cast<std::size_t>(c.batch) * c.frames;
  const std::size_t spans =
      2 * (c.flat ? static_cast<std::size_t>(p.target_count) : static_cast<std::size_t>(c.batch) * c.labels);
  const DeviceBuffer score(c.batch * sizeof(Real)), scores(rows * sizeof(Real));
  const DeviceBuffer labels(rows * sizeof(std::int32_t)), all_spans(spans * sizeof(std::int32_t));
  const CtcAlignment out{score.data(), static_cast<std::int32_t*>(labels.data()), scores.data(),
                         static_cast<std::int32_t*>(all_spans.data())};
  with_workspace(ctc::align_workspace_bytes_cuda(p, out, execution),
                 [&](Workspace w) { return ctc::align_cuda(p, out, w, execution); });
  Result result;
  for (const Real v : score.read<Real>(c.batch)) result.score.push_back(v);
  for (const Real v : scores.read<Real>(rows)) result.scores.push_back(v);
  result.labels = labels.read<std::int32_t>(rows);
  result.spans = all_spans.read<std::int32_t>(spans);
  return result;
}

// Compares with the reference: the path itself, or where rounding decides between paths its score alone.
void check(const Case& c, const Data& data, bool same_path = true) {
  SCOPED_TRACE(name_of(c));
  const Result result = with_types(c, [&](auto element, auto integer) {
    return run_typed<decltype(element), decltype(integer)>(c, data);
  });
  std::size_t first_label = 0;
  for (int b = 0; b < c.batch; ++b) {
    SCOPED_TRACE("utterance " + std::to_string(b));
    const auto problem = c.problem_of(b, data.targets[b], data.prior);
    const std::vector<double> logits = logits_of(c, data, b);
    const auto expected = ctc::reference::ctc_align(problem, logits);
    const auto weights = ctc::reference::state_weights(problem, logits, false);
    const int labels = static_cast<int>(data.targets[b].size());
    const std::size_t row = static_cast<std::size_t>(b) * c.frames;
    std::vector<std::int32_t> want_labels(c.frames, -1), want_spans(2 * static_cast<std::size_t>(labels), -1);
    if (std::isnan(expected.score)) {
      EXPECT_TRUE(std::isnan(result.score[b]));
    } else if (std::isinf(expected.score)) {
      EXPECT_EQ(result.score[b], expected.score);
    } else {
      EXPECT_NEAR(result.score[b], expected.score, 1e-6 * (1 + std::fabs(expected.score)));
    }
    if (expected.states.empty()) {
      for (int t = 0; t < c.frames; ++t) EXPECT_EQ(result.scores[row + t], 0.0);
    }
    for (int t = 0; t < static_cast<int>(expected.states.size()); ++t) {
      const int state = expected.states[t];
      want_labels[t] = problem.label_of(state);
      const double weight = weights[static_cast<std::size_t>(t) * problem.states() + state];
      if (same_path) {
        EXPECT_NEAR(result.scores[row + t], weight, 2e-6 * (1 + std::fabs(weight))) << t;
      }
      if (state % 2 == 0) continue;
      if (want_spans[state / 2 * 2] < 0) want_spans[state / 2 * 2] = t;
      want_spans[state / 2 * 2 + 1] = t;
    }
    const auto begin = result.labels.begin() + static_cast<std::ptrdiff_t>(row);
    if (same_path) {
      EXPECT_EQ(std::vector<std::int32_t>(begin, begin + c.frames), want_labels);
    }
    const std::size_t at = 2 * (c.flat ? first_label : static_cast<std::size_t>(b) * c.labels);
    const std::vector<std::int32_t> spans(
        result.spans.begin() + static_cast<std::ptrdiff_t>(at),
        result.spans.begin() + static_cast<std::ptrdiff_t>(at) + 2 * labels);
    if (same_path) {
      EXPECT_EQ(spans, want_spans);
    }
    for (std::size_t k = at + 2 * static_cast<std::size_t>(labels); !c.flat && k < at + 2 * c.labels; ++k) {
      EXPECT_EQ(result.spans[k], -1) << "padding";
    }
    first_label += static_cast<std::size_t>(labels);
  }
}
void check(const Case& c) { check(c, draw(c)); }

class CtcAlignCuda : public CtcCuda {};

TEST_F(CtcAlignCuda, AgreesAroundTheEdgesOfStrips) {
  unsigned seed = 0;
  for (const int frames : {1, 2, 7, 8, 9, 16, 33, 65}) {
    for (const int labels : {0, 1, 2, 5, 31, 32, 33}) {
      if (labels <= frames)
        check({.batch = 3, .frames = frames, .classes = 7, .labels = labels, .seed = ++seed});
    }
  }
}

TEST_F(CtcAlignCuda, AgreesOverSeveralPiecesAndPanels) {
  check({.batch = 3, .frames = 600, .classes = 9, .labels = 40, .frame_counts = {600, 512, 257}, .seed = 1});
  check({.batch = 2, .frames = 520, .classes = 9, .labels = 200, .frame_counts = {520, 300}, .seed = 2});
  // Almost every frame moves on: a piece's path is as wide as it is long.
  check({.batch = 1, .frames = 530, .classes = 40, .labels = 480, .seed = 3});
  check({.batch = 1, .frames = 513, .classes = 900, .labels = 511, .seed = 4});
}

TEST_F(CtcAlignCuda, AgreesForEveryTypeLayoutAndOption) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const int star : {-1, 3, 1000}) {
      for (const bool prior : {false, true}) {
        for (const bool log_probs : {false, true}) {
          const Case c{.batch = 3,
                       .frames = 60,
                       .classes = 11,
                       .labels = 25,
                       .dtype = dtype,
                       .frame_counts = {60, 41, 0},
                       .label_counts = {25, 8, 0},
                       .blank = 2,
                       .star = star,
                       .prior = prior,
                       .log_probs = log_probs,
                       .flat = prior,
                       .frames_first = log_probs,
                       .strided = star == 3,
                       .wide_integers = prior,
                       .kinds = 5};
          // Halves have many equal sums, which the reference's rounding tells apart.
          check(c, draw(c), dtype == DType::kFloat32 || dtype == DType::kFloat64);
        }
      }
    }
  }
}

TEST_F(CtcAlignCuda, TiesAreBrokenAsTheHeaderSays) {
  for (const int frames : {6, 40, 300}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Case c{
          .batch = 1, .frames = frames, .classes = 3, .labels = frames / 3, .log_probs = true, .seed = seed};
      Data data = draw(c);
      for (double& v : data.logits) v = std::floor(v);
      check(c, data);
    }
  }
}

TEST_F(CtcAlignCuda, FewFramesOfManyLabels) {
  for (const bool flat : {false, true}) {
    check({.batch = 4,
           .frames = 20,
           .classes = 9,
           .labels = 150,
           .label_counts = {9, 150, 21, 2},
           .flat = flat});
  }
}

TEST_F(CtcAlignCuda, NoPathAndNaN) {
  for (const bool log_probs : {false, true}) {
    const Case c{.batch = 5,
                 .frames = 70,
                 .classes = 5,
                 .labels = 60,
                 .frame_counts = {70, 20, 0, 70, 70},
                 .label_counts = {60, 21, 1, 40, 40},
                 .log_probs = log_probs};
    Data data = draw(c);
    data.logits[c.place(3, 69, data.targets[3][0])] = kNan;
    data.logits[c.place(4, 0, data.targets[4].back())] = kInf;
    check(c, data);
  }
}

}  // namespace
}  // namespace warpalign::test
