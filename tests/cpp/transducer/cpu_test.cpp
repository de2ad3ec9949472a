// What the CPU path alone promises: thread counts change no bit, and half types are float32 rounded once.
#include <gtest/gtest.h>

#include <random>

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

TEST_P(TransducerPath, HalfTypesAreFloat32RoundedOnce) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const TransducerBatch half = some_batch(dtype, 4);
    TransducerBatch wide = half;
    wide.dtype = DType::kFloat32;
    const TransducerRun narrow = run(half), exact = run(wide);
    EXPECT_EQ(narrow.loss, exact.loss);
    for (std::size_t b = 0; b < half.cases.size(); ++b) {
      for (std::size_t n = 0; n < exact.gradient[b].size(); ++n) {
        ASSERT_EQ(narrow.gradient[b][n], rounded(dtype, exact.gradient[b][n])) << b << ", " << n;
      }
    }
  }
}

WARPALIGN_FOR_EVERY(TransducerPath, instruction_sets);

}  // namespace
}  // namespace warpalign::test
