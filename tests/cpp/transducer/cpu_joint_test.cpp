// What the joint's CPU path alone promises: thread counts change no bit, and chunks have no borders.
#include <gtest/gtest.h>

#include <random>

#include "cpu/isa.h"
#include "joint_testing.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

// The second call takes the live nodes in several chunks. Borders lie within utterances.
TEST_P(TransducerPath, JointOfSeveralChunks) {
  std::mt19937 random(3);
  JointBatch batch;
  batch.network.hidden = 40;
  batch.network.tanh = true;
  batch.workspace_limit = 1 << 20;
  for (const auto& [frames, u] : {std::pair{25, 20}, {44, 30}, {12, 33}}) {
    reference::Transducer p;
    p.frames = frames;
    p.labels = 300;
    for (int k = 0; k < u; ++k) p.targets.push_back(1 + static_cast<int>(random() % 299));
    batch.add(p, random, 0.5);
  }
  TransducerJointProblem p;
  p.hidden = 40;
  p.labels = 300;
  p.workspace_limit = batch.workspace_limit;
  p.lattice.batch = 3;
  p.lattice.frames = 44;
  p.lattice.states = 34;
  const TransducerJointGradient none;
  // The logits of all 2297 nodes do not fit.
  ASSERT_LT(transducer_joint_gradient_workspace_bytes(p, none, Execution::host()), 2297 * 300 * 4);
  const JointRun first = run_joint(batch);
  expect_close(batch, first);
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    const JointRun again = run_joint(batch, true, pool.parallel_for());
    EXPECT_EQ(again.loss, first.loss);
    EXPECT_EQ(again.encoder, first.encoder);
    EXPECT_EQ(again.predictor, first.predictor);
    EXPECT_EQ(again.weight, first.weight);
    EXPECT_EQ(again.bias, first.bias);
  }
}

// Half types are computed as float32 on the widened inputs: losses have the same bits. Products of bfloat16
// take rounded factors where the processor has them.
TEST_P(TransducerPath, JointOfHalfTypesIsFloat32) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    if (dtype == DType::kBFloat16 && cpu::has_bfloat16_products()) continue;
    std::mt19937 random(4);
    JointBatch half;
    half.dtype = dtype;
    half.network.hidden = 21;
    reference::Transducer p;
    p.frames = 30;
    p.labels = 12;
    p.targets = {1, 2, 3, 4};
    half.add(p, random);
    JointBatch wide = half;
    wide.dtype = DType::kFloat32;
    const JointRun narrow = run_joint(half), exact = run_joint(wide);
    EXPECT_EQ(narrow.loss, exact.loss);
    for (std::size_t n = 0; n < exact.weight.size(); ++n) {
      ASSERT_EQ(narrow.weight[n], rounded(dtype, exact.weight[n])) << n;
    }
    for (std::size_t n = 0; n < exact.encoder.size(); ++n) {
      ASSERT_EQ(narrow.encoder[n], rounded(dtype, exact.encoder[n])) << n;
    }
  }
}

// Odd and even numbers of nodes, hidden numbers and columns; several tiles and chunks; threads change no bit.
TEST_P(TransducerPath, JointOfBFloat16InPairs) {
  if (!cpu::has_bfloat16_products()) GTEST_SKIP() << "the processor has no products of bfloat16";
  for (const auto& [hidden, labels] : {std::pair{1, 2}, {21, 33}, {32, 64}, {63, 131}}) {
    std::mt19937 random(hidden);
    JointBatch batch;
    batch.dtype = DType::kBFloat16;
    batch.network.hidden = hidden;
    batch.network.tanh = hidden > 30;
    batch.workspace_limit = hidden == 63 ? 0 : 48 << 20;
    for (const int frames : {31, 1, 40}) {
      reference::Transducer p;
      p.frames = frames;
      p.labels = labels;
      p.targets.assign(frames % 9, 1);
      batch.add(p, random);
    }
    const JointRun alone = run_joint(batch);
    expect_close(batch, alone, 0x1p-7);
    ThreadPool pool(3);
    const JointRun again = run_joint(batch, true, pool.parallel_for());
    EXPECT_EQ(again.loss, alone.loss);
    EXPECT_EQ(again.encoder, alone.encoder);
    EXPECT_EQ(again.predictor, alone.predictor);
    EXPECT_EQ(again.weight, alone.weight);
    EXPECT_EQ(again.bias, alone.bias);
  }
}

WARPALIGN_FOR_EVERY(TransducerPath, instruction_sets);

}  // namespace
}  // namespace warpalign::test
