// Best paths and posteriors of every path against known results, the enumeration of all paths, and the
// float64 reference.
#include <gtest/gtest.h>

#include <random>
#include <tuple>
#include <vector>

#include "aligning.h"
#include "families.h"
#include "fixture.h"
#include "random_batches.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

AlignmentRun align(const TransducerBatch& batch, bool want_posteriors = true, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (TransducerPath::GetParam().cuda) {
    return align_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_posteriors);
  }
#endif
  return align_on<HostBuffer>(batch, Execution::host(parallel_for), want_posteriors);
}

TransducerBatch batch_of(const TransducerCase& one, DType dtype = DType::kFloat64) {
  TransducerBatch batch;
  batch.dtype = dtype;
  batch.add(one);
  return batch;
}

TEST_P(TransducerPath, KnownBestPaths) {
  Transducer plain, multi, longer, tdt;
  plain.frames = 7, plain.labels = 6, plain.targets = {1, 2, 1};
  multi.frames = 5, multi.labels = 6, multi.targets = {1, 2}, multi.blank = 5, multi.sigma = .05;
  multi.durations = {2, 4}, multi.big_blank_columns = {4, 3};
  longer.frames = 8, longer.labels = 12, longer.targets = {1, 2, 3}, longer.blank = 11, longer.sigma = .1;
  longer.durations = {2, 4, 8}, longer.big_blank_columns = {10, 9, 8};
  tdt.frames = 5, tdt.labels = 4, tdt.targets = {1, 2}, tdt.blank = 3, tdt.durations = {0, 1, 2};
  tdt.tdt = true, tdt.sigma = .05;
  using Numbers = std::vector<std::int32_t>;
  const std::tuple<Transducer, double, Numbers, Numbers, Numbers> known[] = {
      {plain, -16.424937851130, {2, 5, 6}, {0, 0, 0}, {1, 1, 1, 1, 1, 1, 1}},
      {multi, -7.882318083463, {0, 0}, {0, 0}, {1, 4, -1, -1, -1}},
      {longer, -8.959054771172, {0, 0, 0}, {0, 0, 0}, {8, -1, -1, -1, -1, -1, -1, -1}},
      {tdt, -6.746937884251, {0, 2}, {2, 1}, {-1, -1, -1, 2, -1}},
  };
  for (const auto& [problem, score, frames, durations, blanks] : known) {
    const AlignmentRun run = align(batch_of(pattern_case("", problem)));
    ASSERT_TRUE(run.status.ok());
    const Alignment& a = run.all[0];
    EXPECT_NEAR(a.score, score, 1e-11);
    EXPECT_EQ(a.frames, frames);
    EXPECT_EQ(a.durations, durations);
    EXPECT_EQ(a.blanks, blanks);
  }
}

// All arcs of all nodes weigh the same, so that paths of as many arcs tie. Fewest arcs are best; seen from
// the end a blank goes before a label, and a longer one before a shorter.
TEST_P(TransducerPath, TiesTakeLongBlanksLastAndLabelsEarly) {
  Transducer p;
  p.frames = 7, p.labels = 8, p.targets = {1, 2}, p.blank = 7, p.durations = {2, 4},
  p.big_blank_columns = {6, 5};
  TransducerCase one{"", p, std::vector<double>(7 * 3 * 8)};
  using Numbers = std::vector<std::int32_t>;
  Alignment a = align(batch_of(one)).all[0];
  EXPECT_EQ(a.frames, Numbers({0, 0}));
  EXPECT_EQ(a.blanks, Numbers({1, 2, -1, 4, -1, -1, -1}));
  one.problem.durations = {}, one.problem.big_blank_columns = {};
  a = align(batch_of(one)).all[0];
  EXPECT_EQ(a.frames, Numbers({0, 0}));
  EXPECT_EQ(a.blanks, Numbers(7, 1));
}

// Every path of small lattices, one by one: the best score, and each arc's share of the total.
struct Totals {
  double best = -kInf, sum = 0;
};
void enumerate(const Transducer& p, reference::TransducerResult& result, int t, int u, double weight,
               std::vector<reference::TransducerArc*>& path, Totals& totals) {
  if (t == p.frames) {
    totals.best = std::max(totals.best, weight);
    totals.sum += std::exp(weight);
    for (auto* arc : path) arc->posterior += std::exp(weight);
    return;
  }
  for (auto& arc : result.arcs[t * p.states() + u]) {
    path.push_back(&arc);
    enumerate(p, result, t + arc.frames, u + (arc.is_label ? 1 : 0), weight + arc.weight, path, totals);
    path.pop_back();
  }
}

TEST_P(TransducerPath, SmallLatticesByEnumeration) {
  int turn = 0;
  for (int kind = 0; kind < 4; ++kind) {
    for (int penalty = 0; penalty < kPenalties; ++penalty) {
      for (const auto& [frames, u] : {std::pair{1, 0}, {1, 3}, {4, 2}, {5, 5}, {5, 0}}) {
        if (turn++ % kOptionThinning) continue;
        SCOPED_TRACE(::testing::Message() << kind << ", " << penalty << ", " << frames << " x " << u);
        std::mt19937 random(turn);
        Transducer p = family(kind, frames, u, 14, random);
        add_penalty(p, penalty);
        TransducerBatch batch;
        batch.dtype = DType::kFloat64;
        batch.add(p, random);
        const auto& one = batch.cases[0];
        auto result = reference::transducer(one.problem, one.logits(), one.duration_logits());
        for (auto& arcs : result.arcs) {
          for (auto& arc : arcs) arc.posterior = 0;
        }
        Totals totals;
        std::vector<reference::TransducerArc*> path;
        enumerate(one.problem, result, 0, 0, 0, path, totals);
        for (auto& arcs : result.arcs) {
          for (auto& arc : arcs) arc.posterior /= totals.sum > 0 ? totals.sum : 1;
        }
        const AlignmentRun run = align(batch);
        ASSERT_TRUE(run.status.ok());
        const Alignment& a = run.all[0];
        const Alignment expected = expected_posteriors(one.problem, result);
        if (totals.sum == 0) {
          EXPECT_EQ(a.score, -kInf);
        } else {
          EXPECT_NEAR(a.score, totals.best, 1e-12);
          EXPECT_NEAR(weigh_path(one.problem, result, a), totals.best, 1e-12);
        }
        for (std::size_t n = 0; n < expected.blank.size(); ++n) {
          EXPECT_NEAR(a.blank[n], expected.blank[n], 1e-13);
          EXPECT_NEAR(a.label[n], expected.label[n], 1e-13);
          for (std::size_t k = 0; k < a.groups.size(); ++k) {
            EXPECT_NEAR(a.groups[k][n], expected.groups[k][n], 1e-13);
          }
        }
      }
    }
  }
}

TEST_P(TransducerPath, AlignmentsOfEverySize) {
  int turn = 0;
  for (const int frames : {1, 2, 31, 32, 33, 97}) {
    for (const int states : {1, 2, 31, 32, 33, 97}) {
      for (int kind = 0; kind < 3; ++kind) {
        if (turn++ % kThinning) continue;
        SCOPED_TRACE(::testing::Message() << frames << " x " << states << ", family " << kind);
        std::mt19937 random(turn);
        TransducerBatch batch;
        batch.dtype = kEveryDType[turn / kThinning % 2];
        batch.add(family(kind, frames, states - 1, 14, random), random);
        expect_aligned(batch, align(batch));
      }
    }
  }
}

TEST_P(TransducerPath, AlignmentsOfEveryFamilyAndPenaltyInRaggedBatches) {
  for_ragged_batches([](const TransducerBatch& batch, int) { expect_aligned(batch, align(batch)); });
}

TEST_P(TransducerPath, AlignmentsWithLongArcs) {
  for_long_arcs([](const TransducerBatch& batch) { expect_aligned(batch, align(batch)); });
}

TEST_P(TransducerPath, SpecialValuesOfAlignmentsStayInTheirUtterance) {
  for (const DType dtype : kEveryDType) {
    for (int kind = 0; kind < 3; ++kind) {
      std::mt19937 random(3);
      TransducerBatch batch;
      batch.dtype = dtype;
      const Transducer p = family(kind, 9, 4, 14, random);
      for (int b = 0; b < 8; ++b) batch.add(p, random);
      const int width = batch.columns();
      const auto at = [&](int b, int t, int u, int k) -> double& {
        return batch.cases[b].rows[(t * 5 + u) * width + k];
      };
      at(0, 3, 2, 5) = kNan;
      at(1, 8, 4, 0) = kInf;
      at(2, 4, 1, 13) = -kInf;
      for (int u = 0; u < 5; ++u) {
        for (int k = 0; k < 14; ++k) at(3, 8, u, k) = -kInf;  // a last frame without a way on
      }
      for (int k = 0; k < 14; ++k) at(4, 5, 3, k) = -kInf;
      for (int k = 0; k < 14; ++k) at(5, 0, 0, k) = -kInf;  // no path
      for (int k = 0; k < 14; ++k) at(6, 0, 0, k) = -kInf;  // no path and a NaN
      at(6, 1, 1, 2) = kNan;
      at(7, 0, 4, 3) = kNan;
      expect_aligned(batch, align(batch));
    }
  }
}

TEST_P(TransducerPath, BitsOfAlignmentsDependOnTheUtteranceAlone) {
  const auto expect_same = [](const Alignment& a, const Alignment& b) {
    EXPECT_EQ(a.score, b.score);
    EXPECT_EQ(a.frames, b.frames);
    EXPECT_EQ(a.durations, b.durations);
    EXPECT_EQ(a.blanks, b.blanks);
    EXPECT_EQ(a.blank, b.blank);
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.groups, b.groups);
  };
  for (int kind = 0; kind < 3; ++kind) {
    for (const DType dtype : kEveryDType) {
      std::mt19937 random(kind + 1);
      TransducerBatch padded;
      padded.dtype = dtype;
      for (const auto& [frames, u] : {std::pair{30, 11}, {64, 5}, {7, 20}}) {
        padded.add(family(kind, frames, u, 37, random), random);
      }
      const AlignmentRun expected = align(padded);
      TransducerBatch packed = padded;
      packed.packed = packed.flat_targets = true;
      const AlignmentRun of_packed = align(packed), again = align(padded), paths = align(padded, false);
      ThreadPool pool(3);
      const AlignmentRun of_threads = align(padded, true, pool.parallel_for());
      for (std::size_t b = 0; b < padded.cases.size(); ++b) {
        expect_same(of_packed.all[b], expected.all[b]);
        expect_same(again.all[b], expected.all[b]);
        expect_same(of_threads.all[b], expected.all[b]);
        EXPECT_EQ(paths.all[b].score, expected.all[b].score);
        EXPECT_EQ(paths.all[b].frames, expected.all[b].frames);
        TransducerBatch alone = batch_of(padded.cases[b], dtype);
        alone.lengths = false;
        expect_same(align(alone).all[0], expected.all[b]);
      }
    }
  }
}

// What holds of every alignment: the best path is no better than all paths together; every label has one
// frame; nodes of an anti-diagonal (RNN-T) are passed exactly once.
TEST_P(TransducerPath, PosteriorsAddUp) {
  std::mt19937 random(7);
  TransducerBatch batch;
  batch.add(family(0, 300, 60, 14, random), random);
  batch.add(family(2, 300, 60, 14, random), random);
  for (std::size_t b = 0; b < 2; ++b) {
    const TransducerBatch one = batch_of(batch.cases[b], DType::kFloat32);
    const Alignment a = align(one).all[0];
    EXPECT_LE(a.score, -run(one, false).loss[0] + 1e-3);
    std::vector<double> by_label(61), by_diagonal(360);
    for (int t = 0; t < 300; ++t) {
      for (int u = 0; u < 61; ++u) {
        const int node = t * 61 + u;
        by_label[u] += a.label[node];
        by_diagonal[t + u] += a.blank[node] + a.label[node];
      }
    }
    for (int u = 0; u < 60; ++u) EXPECT_NEAR(by_label[u], 1, 2e-5);
    EXPECT_EQ(by_label[60], 0);
    for (int d = 0; b == 0 && d < 360; ++d) EXPECT_NEAR(by_diagonal[d], 1, 1e-5);
  }
}

WARPALIGN_FOR_EVERY(TransducerPath, all_paths);

}  // namespace
}  // namespace warpalign::test
