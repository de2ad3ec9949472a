// The CPU path: batches, lengths, strides, which outputs are wanted, and threads. None of them may change a
// bit of a pair's result.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "fixture.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test::soft_dtw {
namespace {

template <typename T>
void ragged(int dim, Wanted wanted) {
  Batch<T> batch({6, 90, 140, dim}, 0.5, 71);
  batch.x_lengths = {1, 90, 33, 32, 64, 17};
  batch.y_lengths = {140, 1, 65, 64, 33, 16};
  batch.fill_padding_with_nan();
  check(batch, wanted);
}

TEST_P(SoftDtw, RaggedLengthsIgnorePadding) {
  for (int dim : {0, 1, 3, 16}) {
    for (Wanted wanted : {kValue, kGradients, kEverything}) {
      ragged<float>(dim, wanted);
      ragged<double>(dim, wanted);
    }
  }
}

TEST_P(SoftDtw, RaggedInOneAxisOnly) {
  Batch<float> batch({2, 300, 20, 2}, 0.5, 72);
  batch.x_lengths = {257, 300};
  batch.fill_padding_with_nan();
  check(batch);
  Batch<float> other({2, 20, 300, 2}, 0.5, 73);
  other.y_lengths = {300, 255};
  other.fill_padding_with_nan();
  check(other);
}

// A pair's result may not depend on how much padding, or what company, it has.
TEST_P(SoftDtw, APairIsTheSameAloneAndInABatch) {
  for (int dim : {1, 8}) {
    Batch<float> batch({3, 290, 270, dim}, 0.5, 74);
    batch.x_lengths = {290, 100, 7};
    batch.y_lengths = {270, 31, 260};
    const Outputs<float> together = run(batch, kEverything);
    for (int b = 0; b < 3; ++b) {
      const int n = batch.n(b), m = batch.m(b);
      Batch<float> one({1, n, m, dim}, 0.5, 0);
      for (int d = 0; d < dim; ++d) {
        for (int i = 0; i < n; ++i) one.x.at(0, i, d) = batch.x.at(b, i, d);
        for (int j = 0; j < m; ++j) one.y.at(0, j, d) = batch.y.at(b, j, d);
      }
      const Outputs<float> alone = run(one, kEverything);
      EXPECT_EQ(alone.value[0], together.value[b]);
      int different = 0;
      for (int i = 0; i < n; ++i) {
        for (int d = 0; d < dim; ++d) {
          different += alone.grad_x[i * dim + d] != together.grad_x[(b * 290 + i) * dim + d];
        }
        for (int j = 0; j < m; ++j) {
          different += alone.alignment[i * m + j] != together.alignment[(b * 290 + i) * 270 + j];
        }
      }
      EXPECT_EQ(different, 0) << "pair " << b;
    }
  }
}

template <typename T>
void strided() {
  const int b = 3, n = 50, m = 40, dim = 5;
  const Batch<T> contiguous({b, n, m, dim}, 0.6, 75);
  const Outputs<T> expected = run(contiguous, kEverything);
  const std::array<std::int64_t, 3> layouts[] = {
      {1, b, b * 50},        // batch innermost
      {50 * dim, 1, 50},     // features before time, as (B, D, N)
      {dim, b * dim, 1},     // time first
      {2 * 50 * 7, 7, 1},    // a slice of wider rows, and every second of twice as many pairs
      {50 * 30, 30, 6},      // gaps on every axis
      {50 * dim, -dim, 1},   // time reversed
      {-50 * dim, dim, -1},  // pairs and features reversed
  };
  for (const auto& layout : layouts) {
    Batch<T> batch = contiguous;
    batch.x = spread(contiguous.x, b, n, dim, layout);
    batch.y = spread(contiguous.y, b, m, dim, layout);
    EXPECT_TRUE(same_bits(run(batch, kEverything), expected))
        << layout[0] << " " << layout[1] << " " << layout[2];
  }

  const Batch<T> table({b, n, m, 0}, 0.6, 76);
  const Outputs<T> table_expected = run(table, kEverything);
  const std::array<std::int64_t, 3> table_layouts[] = {
      {1, b, b * n}, {n * m, 1, n}, {n * 100, 100, 2}, {n * m, -m, 1}, {n * m, m, -1}};
  for (const auto& layout : table_layouts) {
    Batch<T> batch = table;
    batch.cost = spread(table.cost, b, n, m, layout);
    EXPECT_TRUE(same_bits(run(batch, kEverything), table_expected))
        << layout[0] << " " << layout[1] << " " << layout[2];
  }
}

TEST_P(SoftDtw, AnyStrides) {
  strided<float>();
  strided<double>();
}

TEST_P(SoftDtw, StrideZeroBroadcasts) {
  for (int axis = 0; axis < 3; ++axis) {
    Batch<float> batch({3, 50, 40, 4}, 0.6, 77);
    batch.y.stride[axis] = 0;
    check(batch);
    Batch<float> table({3, 50, 40, 0}, 0.6, 78);
    table.cost.stride[axis] = 0;
    check(table);
  }
}

// Each output alone, and every combination, has the same bits as when all are asked for.
TEST_P(SoftDtw, AnyCombinationOfOutputs) {
  for (int dim : {1, 3, 16}) {
    const Batch<float> batch({2, 140, 300, dim}, 0.3, 79);
    const Outputs<float> all = run(batch, kEverything);
    HostBuffer x(batch.x.data), y(batch.y.data);
    SoftDtwProblem problem;
    problem.batch = 2;
    problem.n = 140;
    problem.m = 300;
    problem.dim = dim;
    problem.x = {x.data(), {140 * dim, dim, 1}};
    problem.y = {y.data(), {300 * dim, dim, 1}};
    problem.gamma = 0.3;
    for (int mask = 0; mask < 8; ++mask) {
      HostBuffer value(2 * 4), grad_x(2 * 140 * dim * 4), grad_y(2 * 300 * dim * 4), table(2 * 140 * 300 * 4);
      const SoftDtwOutputs out{value.data(), mask & 1 ? grad_x.data() : nullptr,
                               mask & 2 ? grad_y.data() : nullptr, mask & 4 ? table.data() : nullptr};
      const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, Execution::host());
      HostBuffer workspace(bytes);
      ASSERT_TRUE(warpalign::soft_dtw(problem, out, {workspace.data(), bytes}, Execution::host()).ok());
      EXPECT_TRUE(same_bits(value.read<float>(2), all.value)) << mask;
      if (mask & 1) {
        EXPECT_TRUE(same_bits(grad_x.read<float>(2 * 140 * dim), all.grad_x)) << mask;
      }
      if (mask & 2) {
        EXPECT_TRUE(same_bits(grad_y.read<float>(2 * 300 * dim), all.grad_y)) << mask;
      }
      if (mask & 4) {
        EXPECT_TRUE(same_bits(table.read<float>(2 * 140 * 300), all.alignment)) << mask;
      }
    }
  }
}

TEST_P(SoftDtw, RepeatedRunsAreBitwiseEqual) {
  const Batch<float> batch({9, 150, 270, 5}, 0.3, 81);
  const Outputs<float> first = run(batch, kEverything);
  for (int repeat = 0; repeat < 10; ++repeat) ASSERT_TRUE(same_bits(run(batch, kEverything), first));
}

// Threads as a front end lends them: one per task, started in no particular order.
struct BareThreads {
  int most_asked = 0;

  static void run(void* context, int tasks, ParallelFor::Task task, void* state) {
    auto& self = *static_cast<BareThreads*>(context);
    self.most_asked = std::max(self.most_asked, tasks);
    std::vector<std::thread> threads;
    for (int index = tasks - 1; index >= 0; --index) threads.emplace_back(task, state, index);
    for (std::thread& thread : threads) thread.join();
  }
};

template <typename T>
void any_threads(const Batch<T>& batch, Wanted wanted = kEverything) {
  const Outputs<T> alone = run(batch, wanted);
  for (int threads : {1, 2, 3, 8, 50}) {
    BareThreads bare;
    EXPECT_TRUE(same_bits(run(batch, wanted, {&BareThreads::run, &bare, threads}), alone)) << threads;
    EXPECT_LE(bare.most_asked, threads);
    ThreadPool pool(threads);
    EXPECT_TRUE(same_bits(run(batch, wanted, pool.parallel_for()), alone)) << threads;
  }
}

TEST_P(SoftDtw, ThreadsDoNotChangeABit) {
  any_threads(Batch<float>({17, 60, 70, 3}, 0.3, 82));
  any_threads(Batch<double>({5, 60, 70, 0}, 0.3, 83));
  any_threads(Batch<float>({1, 300, 280, 9}, 0.3, 84));
  Batch<float> mixed({6, 50, 60, 2}, 1e-3, 85);  // some pairs need more range than others
  for (int i = 0; i < 50; ++i) mixed.x.at(2, i, 0) *= 1e6f;
  mixed.x_lengths = {50, 3, 50, 41, 1, 50};
  any_threads(mixed);
}

// Pairs of several tiles, which threads share: with every option that the strips pass on to each other.
TEST_P(SoftDtw, ThreadsOfOnePairDoNotChangeABit) {
  int turn = 0;
  for (const Shape& shape : {Shape{1, 700, 300, 1}, {1, 513, 400, 6}, {2, 385, 384, 3}, {1, 300, 900, 0}}) {
    Batch<float> batch(shape, 0.3, 90 + ++turn);
    any_threads(batch);
    any_threads(batch, kValue);
    batch.gamma = 0;
    any_threads(batch);
    batch.gamma = 1e-12;  // in float64
    any_threads(batch);
    batch.gamma = 1;
    batch.options.step_penalty = 0.3;
    for (int radius : {0, 40, 200}) {
      if (kIsSanitized && radius != 40) continue;
      batch.options.band = {BandKind::kSakoeChiba, radius, 2.0};
      any_threads(batch);
      any_threads(batch, kValue);
    }
  }
  Batch<float> ragged({3, 600, 500, 2}, 0.5, 95);
  ragged.x_lengths = {600, 1, 257};
  ragged.y_lengths = {129, 500, 400};
  any_threads(ragged);
  Batch<double> nan({1, 520, 400, 2}, 0.5, 96);
  nan.x.at(0, 300, 1) = kNan;
  any_threads(nan);
}

TEST_P(SoftDtw, ThreadsOfOnePairWithEveryOption) {
  for (CostKind kind : {CostKind::kEuclidean, CostKind::kL1, CostKind::kCosine, CostKind::kHuber}) {
    Batch<float> batch({1, 530, 410, 5}, 0.5, 97);
    batch.options.cost_kind = kind;
    any_threads(batch, kAll);
    batch.x_mask.assign(530, 0);
    for (int i = 0; i < 530; i += 7) batch.x_mask[i] = 1;
    batch.y_mask.assign(410, 0);
    any_threads(batch, kAll);
  }
  Batch<float> sought({1, 390, 700, 2}, 0.5, 98);
  sought.options.subsequence = true;
  any_threads(sought, kGradients);
}

// A front end may run the tasks one after the other, in any order: none may wait for one that has not begun.
TEST_P(SoftDtw, TasksOneAfterTheOther) {
  const auto backwards = [](void*, int tasks, ParallelFor::Task task, void* state) {
    for (int index = tasks - 1; index >= 0; --index) task(state, index);
  };
  for (const Shape& shape : {Shape{1, 600, 500, 2}, {3, 600, 500, 2}}) {
    const Batch<float> batch(shape, 0.3, 99);
    EXPECT_TRUE(same_bits(run(batch, kEverything, {backwards, nullptr, 8}), run(batch, kEverything)));
  }
}

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int tasks : {0, 1, 2, 5, 100}) {
      std::vector<std::atomic<int>> counts(100);
      const auto task = [](void* state, int index) {
        ++(*static_cast<std::vector<std::atomic<int>>*>(state))[index];
      };
      const ParallelFor parallel_for = pool.parallel_for();
      parallel_for.run(parallel_for.context, tasks, task, &counts);
      for (int k = 0; k < 100; ++k) EXPECT_EQ(counts[k], k < tasks ? 1 : 0);
    }
  }
  EXPECT_GE(ThreadPool().threads(), 1);
}

TEST_P(SoftDtw, EmptyBatch) {
  const Outputs<float> got = run(Batch<float>({0, 5, 6, 2}, 1.0, 86), kEverything);
  EXPECT_TRUE(got.value.empty());
}

TEST_P(SoftDtw, ManyTinyPairs) {
  check(Batch<float>({1025, 3, 5, 1}, 1.0, 87));
  check(Batch<float>({300, 33, 17, 2}, 1.0, 88), kGradients);
}

WARPALIGN_FOR_EVERY(SoftDtw, instruction_sets);

}  // namespace
}  // namespace warpalign::test::soft_dtw
