// The band of a pruned loss on every path, against its equations.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "fixture.h"
#include "warpalign/transducer_band.h"

namespace warpalign::test {
namespace {

struct BandCase {
  int batch, frames, states, width;
  std::vector<float> gradients = {};
  std::vector<std::int32_t> t_lengths = {}, u_lengths = {};

  // Multiples of 1/16, whose sums are exact: many of them are equal.
  void draw(int seed) {
    std::mt19937 random(seed);
    gradients.resize(static_cast<std::size_t>(batch) * frames * states * 2);
    for (float& g : gradients) g = -static_cast<float>(random() % 17) / 16;
  }
  [[nodiscard]] float at(int b, int t, int u, int arc) const {
    return gradients[((static_cast<std::size_t>(b) * frames + t) * states + u) * 2 + arc];
  }
};

std::vector<std::int32_t> expected(const BandCase& c) {
  std::vector<std::int32_t> first;
  for (int b = 0; b < c.batch; ++b) {
    const int frames = c.t_lengths.empty() ? c.frames : c.t_lengths[b];
    const int labels = c.u_lengths.empty() ? c.states - 1 : c.u_lengths[b];
    std::vector<int> preferred, least;
    for (int t = 0; t < c.frames; ++t) {
      int best = std::max(labels + 1 - c.width, 0);
      double most = -INFINITY;
      for (int k = 0; t < frames - 1 && k + c.width <= c.states; ++k) {
        double sum = k > 0 ? c.at(b, t, k - 1, 1) : 0;
        for (int u = k; u < k + c.width; ++u) sum -= c.at(b, t, u, 0);
        if (sum > most) best = k;
        most = std::max(most, sum);
      }
      preferred.push_back(best);
    }
    for (int t = 0; t < c.frames; ++t) {
      least.push_back(*std::min_element(preferred.begin() + t, preferred.end()));
    }
    for (int t = 0; t < c.frames; ++t) {
      int above = INT_MAX;
      for (int later = t; later < c.frames; ++later) {
        above = std::min(above, (c.width - 1) * later - least[later]);
      }
      first.push_back((c.width - 1) * t - std::max(above, 0));
    }
  }
  return first;
}

template <class Buffer>
std::vector<std::int32_t> found_on(const BandCase& c, const Execution& execution) {
  const std::size_t count = static_cast<std::size_t>(c.batch) * c.frames;
  const Buffer gradients(c.gradients), t_lengths(c.t_lengths), u_lengths(c.u_lengths), first(4 * count);
  TransducerBandProblem p;
  p.batch = c.batch;
  p.frames = c.frames;
  p.states = c.states;
  p.gradients = static_cast<const float*>(gradients.data());
  if (!c.t_lengths.empty()) p.logit_lengths = static_cast<const std::int32_t*>(t_lengths.data());
  if (!c.u_lengths.empty()) p.target_lengths = static_cast<const std::int32_t*>(u_lengths.data());
  p.band_states = c.width;
  p.first = static_cast<std::int32_t*>(first.data());
  const std::size_t needed = transducer_band_workspace_bytes(p, execution);
  const Buffer workspace(needed);
  const Status status = transducer_band(p, {workspace.data(), needed}, execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  return first.template read<std::int32_t>(count);
}

std::vector<std::int32_t> found(const BandCase& c) {
#if WARPALIGN_TEST_CUDA
  if (TransducerPath::GetParam().cuda) return found_on<DeviceBuffer>(c, Execution::cuda(0, nullptr));
#endif
  return found_on<HostBuffer>(c, Execution::host());
}

TEST_P(TransducerPath, BandOfEverySize) {
  int seed = 0;
  for (const int frames : {0, 1, 2, 9, 70, 300}) {
    for (const int states : {1, 2, 5, 33, 70}) {
      for (const int width : {1, 2, 5, 33}) {
        if (width > states) continue;
        SCOPED_TRACE(::testing::Message() << "T " << frames << " U + 1 " << states << " s " << width);
        BandCase c{frames > 100 ? 1 : 2, frames, states, width};
        c.draw(++seed);
        EXPECT_EQ(found(c), expected(c));
      }
    }
  }
}

TEST_P(TransducerPath, BandOfRaggedUtterances) {
  for (const int width : {2, 4}) {
    BandCase c{5, 40, 12, width};
    c.draw(width);
    c.t_lengths = {40, 1, 0, 17, 33};
    c.u_lengths = {11, 0, 5, 2, 11};
    const std::vector<std::int32_t> exact = expected(c);
    EXPECT_EQ(found(c), exact);
    // Padded frames are not read.
    for (int n = 17 * 24; n < 40 * 24; ++n) c.gradients[3 * 40 * 24 + n] = NAN;
    EXPECT_EQ(found(c), exact);
  }
}

// A NaN leaves the band within the batch.
TEST_P(TransducerPath, BandOfNaN) {
  BandCase c{1, 6, 9, 3};
  c.draw(1);
  std::fill_n(c.gradients.begin(), 4 * 18, NAN);
  for (const std::int32_t first : found(c)) {
    EXPECT_GE(first, 0);
    EXPECT_LE(first, 6);
  }
}

TEST_P(TransducerPath, BandOfNothing) {
  BandCase c{0, 6, 9, 3};
  EXPECT_TRUE(found(c).empty());
}

WARPALIGN_FOR_EVERY(TransducerPath, all_paths);

}  // namespace
}  // namespace warpalign::test
