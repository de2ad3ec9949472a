// Best alignments by CTC and monotonic alignment search against the float64 references.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "fixture.h"
#include "warpalign/monotonic_alignment.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

WARPALIGN_FOR_EVERY(CtcPath, instruction_sets);

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

// Scores: 4 epsilon, of a logit and its normaliser, which are below 8. The path itself is the reference's:
// sums are float64, in the same order, and of logits that are no multiples of each other. With logits of few
// bits equal sums are frequent.
void expect_alignment(const CtcBatch& batch, const CtcAlignRun& found) {
  const double epsilon = batch.dtype == DType::kFloat64 ? 0x1p-50 : 0x1p-21;
  std::size_t first_label = 0;
  for (int b = 0; b < batch.size(); ++b) {
    SCOPED_TRACE("utterance " + std::to_string(b));
    const Ctc& one = batch.utterances[b];
    const reference::CtcPath expected = reference::ctc_align(one, batch.logits[b]);
    const std::vector<double> weights = reference::state_weights(one, batch.logits[b], false);
    if (std::isfinite(expected.score)) {
      EXPECT_NEAR(found.score[b], expected.score, epsilon * (std::abs(expected.score) + one.frames));
    } else if (std::isnan(expected.score)) {
      EXPECT_TRUE(std::isnan(found.score[b]));
    } else {
      EXPECT_EQ(found.score[b], expected.score);
    }
    std::vector<std::int32_t> spans(2 * static_cast<std::size_t>(one.labels()), -1);
    for (int t = 0; t < batch.frames; ++t) {
      const std::size_t at = static_cast<std::size_t>(b) * batch.frames + t;
      const bool exists = t < static_cast<int>(expected.states.size());
      const int state = exists ? expected.states[t] : 0;
      ASSERT_EQ(found.labels[at], exists ? one.label_of(state) : -1) << "frame " << t;
      const double weight = exists ? weights[static_cast<std::size_t>(t) * one.states() + state] : 0;
      EXPECT_NEAR(found.scores[at], weight, epsilon * (std::abs(weight) + 8));
      if (!exists || state % 2 == 0) continue;
      if (spans[state - 1] < 0) spans[state - 1] = t;
      spans[state] = t;
    }
    const int rows = batch.layout.flat_targets ? one.labels() : batch.labels;
    for (int k = 0; k < 2 * rows; ++k) {
      EXPECT_EQ(found.spans[2 * first_label + k], k < 2 * one.labels() ? spans[k] : -1) << "span " << k / 2;
    }
    first_label += rows;
  }
}

CtcBatch random_batch(DType dtype, const Ctc& family, const std::vector<std::pair<int, int>>& sizes,
                      unsigned seed) {
  std::mt19937 random(seed);
  CtcBatch batch;
  batch.dtype = dtype;
  for (const auto& [frames, labels] : sizes) {
    Ctc one = family;
    one.frames = frames;
    one.targets = random_targets(family, labels, random);
    batch.add(one, random, 2);
  }
  return batch;
}

TEST_P(CtcPath, AlignGrid) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int classes : {2, 5, 33, 97}) {
      std::vector<std::pair<int, int>> sizes = {{0, 0}, {0, 2}, {5, 5}, {3, 5}};
      for (const int labels : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33})
        sizes.emplace_back(3 * labels + 2, labels);
      for (const bool log_probs : {false, true}) {
        const Ctc family{1, classes, {}, classes / 2, -1, {}, log_probs};
        const CtcBatch batch = random_batch(dtype, family, sizes, classes);
        expect_alignment(batch, align(batch));
      }
    }
  }
}

// Several segments, with few labels and with as many as fit.
TEST_P(CtcPath, AlignLongUtterances) {
  const CtcBatch batch =
      random_batch(DType::kFloat32, {1, 9}, {{700, 200}, {900, 2}, {300, 299}, {513, 0}, {650, 324}}, 7);
  expect_alignment(batch, align(batch));
}

// Integer log-probabilities: most sums are equal to others.
TEST_P(CtcPath, AlignTies) {
  for (int seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    CtcBatch batch;
    batch.dtype = seed % 2 == 0 ? DType::kFloat32 : DType::kFloat16;
    for (const int labels : {0, 1, 3, 9, 17}) {
      Ctc one{2 * labels + 5, 4, {}, 1, -1, {}, true};
      one.targets = random_targets(one, labels, random);
      std::vector<double> x(static_cast<std::size_t>(one.frames) * 4);
      for (double& v : x) v = -static_cast<double>(random() % 3);
      batch.add(one, x);
    }
    expect_alignment(batch, align(batch));
  }
}

TEST_P(CtcPath, AlignOptions) {
  const std::vector<std::pair<int, int>> sizes = {{25, 9}, {14, 3}, {6, 6}, {3, 0}, {0, 0}, {2, 7}};
  for (const DType dtype : kDTypes) {
    for (int option = 0; option < 16; ++option) {
      Ctc family{1, 12, {}, 2, (option & 1) != 0 ? 40 : -1, {}, (option & 2) != 0};
      for (int c = 0; (option & 4) != 0 && c < 12; ++c) family.prior.push_back(0.3 * c - 1.7);
      CtcBatch batch = random_batch(dtype, family, sizes, 50 + option);
      batch.layout.flat_targets = (option & 8) != 0;
      batch.layout.wide_integers = option % 3 == 0;
      batch.layout.time_major = option % 3 == 1;
      batch.layout.classes_outside = option % 3 == 2;
      if (family.star >= 0 || dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
        // A star ties with a neighbour whose class is the best one, and half types tie by themselves, in sums
        // that the reference rounds elsewhere: labels may differ, scores may not.
        const CtcAlignRun found = align(batch);
        for (int b = 0; b < batch.size(); ++b) {
          const double expected = reference::ctc_align(batch.utterances[b], batch.logits[b]).score;
          if (std::isinf(expected)) {
            EXPECT_EQ(found.score[b], expected);
            continue;
          }
          EXPECT_NEAR(found.score[b], expected, 1e-5 * (1 + std::abs(expected)));
          double sum = 0;
          for (int t = 0; t < batch.frames; ++t) {
            sum += found.scores[static_cast<std::size_t>(b) * batch.frames + t];
          }
          EXPECT_NEAR(sum, expected, 1e-5 * (1 + std::abs(expected)));
        }
        continue;
      }
      expect_alignment(batch, align(batch));
    }
  }
}

TEST_P(CtcPath, AlignExtremes) {
  for (const bool log_probs : {false, true}) {
    CtcBatch batch =
        random_batch(DType::kFloat32, {1, 7, {}, 0, -1, {}, log_probs}, {{9, 3}, {9, 3}, {9, 3}, {9, 3}}, 77);
    for (int t = 0; t < 9; ++t) batch.logits[0][t * 7 + t % 7] = -kInf;
    for (int c = 0; c < 7; ++c) batch.logits[1][4 * 7 + c] = -kInf;
    batch.logits[2][7] = std::nan("");
    batch.logits[3][7] = kInf;
    expect_alignment(batch, align(batch));
  }
}

TEST_P(CtcPath, AlignSameBitsForAnyThreads) {
  if (on_cuda()) GTEST_SKIP() << "host threads";
  const CtcBatch batch = random_batch(DType::kFloat32, {1, 20}, {{300, 30}, {80, 20}, {500, 11}}, 12);
  const CtcAlignRun alone = align(batch);
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    const CtcAlignRun shared = align(batch, pool.parallel_for());
    EXPECT_EQ(shared.labels, alone.labels);
    EXPECT_EQ(shared.score, alone.score);
  }
}

// Threads share stripes of pairs of long utterances.
TEST_P(CtcPath, AlignStripes) {
  if (on_cuda()) GTEST_SKIP() << "host threads";
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    CtcBatch batch = random_batch(dtype, {1, 9}, {{3500, 1700}}, 4);
    const CtcAlignRun alone = align(batch);
    expect_alignment(batch, alone);
    for (const int option : {0, 1, 2}) {
      CtcBatch changed = batch;
      changed.layout.classes_outside = option == 1;
      if (option == 2) {  // an utterance far shorter than the stripes
        changed = random_batch(dtype, {1, 9}, {{3500, 1700}, {40, 12}, {30, 50}}, 4);
      }
      ThreadPool pool(option == 2 ? 6 : 3);
      expect_alignment(changed, align(changed, pool.parallel_for()));
    }
    batch.logits[0][9 * 3000] = std::nan("");
    ThreadPool pool(2);
    EXPECT_TRUE(std::isnan(align(batch, pool.parallel_for()).score[0]));
  }
}

struct MonotonicRun {
  std::vector<double> score;
  std::vector<std::int32_t> durations;
  std::vector<std::uint8_t> path;
};

// Items of (S_b, T_b), in (B, S, T) or, transposed, in (B, T, S).
MonotonicRun run_monotonic(DType dtype, const std::vector<std::pair<int, int>>& sizes,
                           const std::vector<std::vector<double>>& scores, bool transposed, bool wide) {
  int positions = 0, frames = 0;
  std::vector<std::int32_t> text32, frame32;
  for (const auto& [s, t] : sizes) {
    positions = std::max(positions, s);
    frames = std::max(frames, t);
    text32.push_back(s);
    frame32.push_back(t);
  }
  const std::vector<std::int64_t> text64(text32.begin(), text32.end()),
      frame64(frame32.begin(), frame32.end());
  const std::size_t size = size_of(dtype), table = static_cast<std::size_t>(positions) * frames;
  std::vector<unsigned char> elements(sizes.size() * table * size, kPoison);
  const std::int64_t by_s = transposed ? 1 : frames, by_t = transposed ? positions : 1;
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    for (int s = 0; s < sizes[b].first; ++s) {
      for (int t = 0; t < sizes[b].second; ++t) {
        write_element(dtype, &elements[(b * table + s * by_s + t * by_t) * size],
                      scores[b][static_cast<std::size_t>(s) * sizes[b].second + t]);
      }
    }
  }
  const HostBuffer x(elements), score(sizes.size() * real_bytes(dtype)),
      durations(sizes.size() * positions * 4), path(sizes.size() * table);
  const HostBuffer texts = wide ? HostBuffer(text64) : HostBuffer(text32);
  const HostBuffer lengths = wide ? HostBuffer(frame64) : HostBuffer(frame32);
  MonotonicAlignmentProblem p;
  p.dtype = dtype;
  p.batch = static_cast<std::int32_t>(sizes.size());
  p.positions = positions;
  p.frames = frames;
  p.scores = {x.data(), {static_cast<std::int64_t>(table), by_s, by_t}};
  p.text_lengths.data = texts.data();
  p.frame_lengths.data = lengths.data();
  p.text_lengths.type = p.frame_lengths.type = wide ? IntegerType::kInt64 : IntegerType::kInt32;
  const MonotonicAlignment out{score.data(), static_cast<std::int32_t*>(durations.data()),
                               static_cast<std::uint8_t*>(path.data())};
  ThreadPool pool(wide ? 3 : 1);
  const Execution execution = Execution::host(pool.parallel_for());
  const std::size_t needed = monotonic_alignment_workspace_bytes(p, out, execution);
  const HostBuffer workspace(needed);
  EXPECT_TRUE(monotonic_alignment(p, out, {workspace.data(), needed}, execution).ok());
  return {read_reals(score, dtype, sizes.size()), durations.read<std::int32_t>(sizes.size() * positions),
          path.read<std::uint8_t>(sizes.size() * table)};
}

TEST_P(CtcPath, Monotonic) {
  const std::vector<std::pair<int, int>> sizes = {{0, 0},  {1, 1},   {3, 2},   {5, 5}, {8, 30}, {17, 33},
                                                  {9, 64}, {33, 97}, {40, 41}, {0, 4}, {2, 90}};
  for (const DType dtype : kDTypes) {
    for (int option = 0; option < 8; ++option) {
      std::mt19937 random(option);
      std::normal_distribution<double> normal;
      std::vector<std::vector<double>> scores;
      for (const auto& [s, t] : sizes) {
        std::vector<double> x(static_cast<std::size_t>(s) * t);
        // Every other time small integers, so that sums are equal.
        for (double& v : x)
          v = rounded(dtype, (option & 1) != 0 ? static_cast<double>(random() % 3) : normal(random));
        scores.push_back(std::move(x));
      }
      if (option >= 6) scores[5][40] = -kInf;
      if (option == 7) scores[6][3] = std::nan("");
      const MonotonicRun run = run_monotonic(dtype, sizes, scores, (option & 2) != 0, (option & 4) != 0);
      const std::size_t positions = run.durations.size() / sizes.size(),
                        frames = run.path.size() / run.durations.size();
      for (std::size_t b = 0; b < sizes.size(); ++b) {
        SCOPED_TRACE("item " + std::to_string(b));
        const reference::MonotonicPath expected =
            reference::monotonic_alignment(sizes[b].first, sizes[b].second, scores[b]);
        if (std::isnan(expected.score)) {
          EXPECT_TRUE(std::isnan(run.score[b]));
        } else if (std::isinf(expected.score)) {
          EXPECT_EQ(run.score[b], expected.score);
        } else {
          EXPECT_NEAR(run.score[b], expected.score,
                      (dtype == DType::kFloat64 ? 1e-13 : 1e-6) * (1 + std::abs(expected.score)));
        }
        int t = 0;
        for (std::size_t s = 0; s < positions; ++s) {
          const int wanted = s < expected.durations.size() ? expected.durations[s] : 0;
          ASSERT_EQ(run.durations[b * positions + s], wanted) << "position " << s;
          for (int k = 0; k < static_cast<int>(frames); ++k) {
            EXPECT_EQ(run.path[(b * positions + s) * frames + k], k >= t && k < t + wanted ? 1 : 0);
          }
          t += wanted;
        }
      }
    }
  }
}

}  // namespace
}  // namespace warpalign::test
