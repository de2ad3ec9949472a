// What the CPU path alone promises: thread counts change no bit, and half types are float32 rounded once.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "aligning.h"
#include "families.h"
#include "fixture.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

TransducerBatch some_batch(DType dtype, int seed) {
  std::mt19937 random(seed);
  TransducerBatch batch;
  batch.dtype = dtype;
  for (const auto& [frames, u] : {std::pair{300, 60}, {1, 3}, {90, 200}, {33, 0}, {257, 31}}) {
    reference::Transducer p;
    p.frames = frames;
    p.labels = 40;
    p.fastemit = .01;
    for (int k = 0; k < u; ++k) p.targets.push_back(1 + static_cast<int>(random() % 39));
    batch.add(p, random);
  }
  return batch;
}

TEST_P(TransducerPath, ThreadsChangeNoBit) {
  const TransducerBatch batch = some_batch(DType::kFloat32, 2);
  const TransducerRun alone = run(batch);
  expect_close(batch, alone);
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(run(batch, true, pool.parallel_for()).bits, alone.bits) << threads;
  }
}

// The powers of half types have fewer terms, with an error far below the rounding. So less than one in a
// hundred numbers becomes a neighbour of the rounded one.
TEST_P(TransducerPath, HalfTypesAreFloat32RoundedOnce) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double unit = dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    const TransducerBatch half = some_batch(dtype, 4);
    TransducerBatch wide = half;
    wide.dtype = DType::kFloat32;
    const TransducerRun narrow = run(half), exact = run(wide);
    std::size_t all = 0, different = 0;
    for (std::size_t b = 0; b < half.cases.size(); ++b) {
      EXPECT_NEAR(narrow.loss[b], exact.loss[b], 2.4e-7 * exact.loss[b]) << b;
      for (std::size_t n = 0; n < exact.gradient[b].size(); ++n) {
        const double wanted = exact.gradient[b][n];
        ASSERT_NEAR(narrow.gradient[b][n], wanted, (unit + 4e-6) * std::abs(wanted) + 1e-6) << b << ", " << n;
        ++all;
        different += narrow.gradient[b][n] != rounded(dtype, wanted);
      }
    }
    EXPECT_LE(different, all / 100) << "of " << all;
  }
}

// An infinite upstream factor makes every entry infinite, of its own sign: a scaler of losses looks for that.
TEST_P(TransducerPath, InfiniteFactorsMakeNoNaN) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    std::mt19937 random(6);
    TransducerBatch batch;
    batch.dtype = dtype;
    reference::Transducer p;
    p.frames = 5;
    p.labels = 41;
    p.targets = {1, 2, 3};
    batch.add(p, random);
    const std::vector<double> finite = run(batch).gradient[0];
    batch.grad_loss = {INFINITY};
    const std::vector<double> infinite = run(batch).gradient[0];
    ASSERT_EQ(infinite.size(), finite.size());
    for (std::size_t n = 0; n < finite.size(); ++n) {
      const double wanted = std::copysign(INFINITY, finite[n]);
      ASSERT_TRUE(infinite[n] == wanted || finite[n] == 0) << n << ": " << infinite[n];
    }
  }
}

// Long utterances: float32's posteriors against float64's of the same logits. alpha + beta - log Z in float32
// would be off by percents.
TEST_P(TransducerPath, PosteriorsOfLongUtterancesInFloat32) {
  if (TransducerPath::GetParam().isa != cpu::best_isa()) GTEST_SKIP() << "one instruction set is enough";
  if (kIsSanitized) GTEST_SKIP() << "about digits";
  for (const auto& [kind, frames, u] : {std::tuple{0, 3000, 600}, {1, 1000, 200}, {2, 1000, 200}}) {
    std::mt19937 random(kind);
    TransducerBatch narrow;
    narrow.add(family(kind, frames, u, 12, random), random);
    TransducerBatch wide = narrow;
    wide.dtype = DType::kFloat64;
    const Alignment a = align_on<HostBuffer>(narrow, Execution::host()).all[0];
    const Alignment b = align_on<HostBuffer>(wide, Execution::host()).all[0];
    double absolute = 0, relative = 0;
    const auto compare = [&](const std::vector<double>& got, const std::vector<double>& wanted) {
      for (std::size_t n = 0; n < wanted.size(); ++n) {
        const double error = std::abs(got[n] - wanted[n]);
        absolute = std::max(absolute, error);
        if (wanted[n] > 1e-3) relative = std::max(relative, error / wanted[n]);
      }
    };
    compare(a.blank, b.blank);
    compare(a.label, b.label);
    for (std::size_t k = 0; k < a.groups.size(); ++k) compare(a.groups[k], b.groups[k]);
    EXPECT_LE(absolute, 2e-5);
    EXPECT_LE(relative, 2e-5);
  }
}

WARPALIGN_FOR_EVERY(TransducerPath, instruction_sets);

}  // namespace
}  // namespace warpalign::test
