// Monotonic alignment search on CUDA against the float64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda_cases.h"

namespace warpalign::test {
namespace {

struct Search {
  int batch = 1, positions = 1, frames = 1;
  DType dtype = DType::kFloat32;
  std::vector<int> text_lengths = {}, frame_lengths = {};
  bool frames_first = false;  // memory order (B, T, S)
  bool whole = false;         // scores are small integers: ties
  unsigned seed = 1;

  [[nodiscard]] int positions_of(int b) const { return text_lengths.empty() ? positions : text_lengths[b]; }
  [[nodiscard]] int frames_of(int b) const { return frame_lengths.empty() ? frames : frame_lengths[b]; }
};

template <class Element>
void check_typed(const Search& c, std::vector<double> x) {
  using Real = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  SCOPED_TRACE("B " + std::to_string(c.batch) + " S " + std::to_string(c.positions) + " T " +
               std::to_string(c.frames) + " seed " + std::to_string(c.seed));
  const std::int64_t all = static_cast<std::int64_t>(c.positions) * c.frames;
  const std::vector<std::int64_t> stride = c.frames_first ? std::vector<std::int64_t>{all, 1, c.positions}
                                                          : std::vector<std::int64_t>{all, c.frames, 1};
  const auto at = [&](int b, int s, int t) { return b * stride[0] + s * stride[1] + t * stride[2]; };
  for (double& v : x) v = rounded(v, c.dtype);
  std::vector<double> padded(x.size(), kNan);
  for (int b = 0; b < c.batch; ++b) {
    for (int s = 0; s < c.positions_of(b); ++s) {
      for (int t = 0; t < c.frames_of(b); ++t) padded[at(b, s, t)] = x[at(b, s, t)];
    }
  }
  const DeviceBuffer scores(converted<Element>(padded));
  const DeviceBuffer text_lengths(std::vector<std::int64_t>(c.text_lengths.begin(), c.text_lengths.end()));
  const DeviceBuffer frame_lengths(std::vector<std::int32_t>(c.frame_lengths.begin(), c.frame_lengths.end()));
  MonotonicAlignmentProblem p;
  p.dtype = c.dtype;
  p.batch = c.batch;
  p.positions = c.positions;
  p.frames = c.frames;
  p.scores.data = scores.data();
  std::copy(stride.begin(), stride.end(), p.scores.stride);
  if (!c.text_lengths.empty()) p.text_lengths = static_cast<const std::int64_t*>(text_lengths.data());
  if (!c.frame_lengths.empty()) p.frame_lengths = static_cast<const std::int32_t*>(frame_lengths.data());
  const std::size_t positions = static_cast<std::size_t>(c.batch) * c.positions;
  const DeviceBuffer score(c.batch * sizeof(Real)), durations(positions * sizeof(std::int32_t));
  const DeviceBuffer path(x.size());
  const MonotonicAlignment out{score.data(), static_cast<std::int32_t*>(durations.data()),
                               static_cast<std::uint8_t*>(path.data())};
  const Execution execution = Execution::cuda(0, nullptr);
  with_workspace(ctc::monotonic_workspace_bytes_cuda(p, out, execution),
                 [&](Workspace w) { return ctc::monotonic_cuda(p, out, w, execution); });
  const auto got = score.read<Real>(c.batch);
  const auto got_durations = durations.read<std::int32_t>(positions);
  const auto got_path = path.read<std::uint8_t>(x.size());
  for (int b = 0; b < c.batch; ++b) {
    SCOPED_TRACE("item " + std::to_string(b));
    std::vector<double> own;
    bool bad = false;
    for (int s = 0; s < c.positions_of(b); ++s) {
      for (int t = 0; t < c.frames_of(b); ++t) {
        own.push_back(x[at(b, s, t)]);
        bad |= !(own.back() < kInf);
      }
    }
    const auto expected = ctc::reference::monotonic_alignment(c.positions_of(b), c.frames_of(b), own);
    if (bad) {
      EXPECT_TRUE(std::isnan(got[b]));
    } else if (std::isinf(expected.score)) {
      EXPECT_EQ(got[b], expected.score);
    } else {
      EXPECT_NEAR(got[b], expected.score, 1e-6 * (1 + std::fabs(expected.score)));
    }
    int t = 0;
    const bool has_path = std::isfinite(expected.score) && !bad;
    for (int s = 0; s < c.positions; ++s) {
      const int duration = has_path && s < c.positions_of(b) ? expected.durations[s] : 0;
      ASSERT_EQ(got_durations[static_cast<std::size_t>(b) * c.positions + s], duration) << s;
      for (int k = 0; k < c.frames; ++k) {
        const std::size_t place = (static_cast<std::size_t>(b) * c.positions + s) * c.frames + k;
        ASSERT_EQ(got_path[place], k >= t && k < t + duration) << s << " " << k;
      }
      t += duration;
    }
  }
}

void check(const Search& c, const std::vector<double>& x) {
  switch (c.dtype) {
    case DType::kFloat64:
      return check_typed<double>(c, x);
    case DType::kFloat16:
      return check_typed<Float16>(c, x);
    case DType::kBFloat16:
      return check_typed<BFloat16>(c, x);
    default:
      return check_typed<float>(c, x);
  }
}
std::vector<double> draw_scores(const Search& c) {
  std::mt19937 generator(c.seed);
  std::normal_distribution<double> normal(0.0, 2.0);
  std::vector<double> x(static_cast<std::size_t>(c.batch) * c.positions * c.frames);
  for (double& v : x) v = c.whole ? std::floor(normal(generator)) : normal(generator);
  return x;
}
void check(const Search& c) { check(c, draw_scores(c)); }

class MonotonicCuda : public CtcCuda {};

TEST_F(MonotonicCuda, AgreesAroundTheEdgesOfStrips) {
  unsigned seed = 0;
  for (const int frames : {1, 2, 7, 8, 9, 31, 32, 33, 65, 130}) {
    for (const int positions : {1, 2, 31, 32, 33, 64, 97}) {
      check({.batch = 2, .positions = positions, .frames = frames, .seed = ++seed});
      check({.batch = 1, .positions = positions, .frames = frames, .whole = true, .seed = ++seed});
    }
  }
}

TEST_F(MonotonicCuda, AgreesForEveryTypeAndOrder) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const bool frames_first : {false, true}) {
      check({.batch = 5,
             .positions = 70,
             .frames = 104,
             .dtype = dtype,
             .text_lengths = {70, 3, 0, 0, 50},
             .frame_lengths = {104, 90, 7, 0, 49},
             .frames_first = frames_first});
    }
  }
}

TEST_F(MonotonicCuda, AgreesInSeveralRounds) {
  check({.batch = 1, .positions = 600, .frames = 650});
  check({.batch = 1, .positions = 1040, .frames = 1050, .whole = true});
}

TEST_F(MonotonicCuda, NaNAndInfinity) {
  const Search c{.batch = 4, .positions = 40, .frames = 60};
  std::vector<double> x = draw_scores(c);
  x[39 * 60 + 0] = kNan;  // no path comes here
  x[2400 + 5] = kInf;
  x[4800] = -kInf;  // no path
  x[7200 + 30 * 60 + 40] = -kInf;
  check(c, x);
}

}  // namespace
}  // namespace warpalign::test
