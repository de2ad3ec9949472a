// CTC of logits that come a chunk of frames at a time, against the float64 reference. Each test runs on every
// path: the CPU path's instruction sets, and CUDA.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fixture.h"
#include "warpalign/ctc_head.h"
#include "warpalign/plan.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

WARPALIGN_FOR_EVERY(CtcPath, all_paths);

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

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

// The memory of a training step's calls.
template <class Buffer>
class Head {
 public:
  Head(const CtcBatch& batch, const Execution& execution)
      : batch_(batch),
        execution_(execution),
        memory_(batch),
        problem_(memory_.problem),
        first_(labels() * sizeof(std::int32_t)),
        next_(labels() * sizeof(std::int32_t)),
        log_sums_(rows() * sizeof(double)),
        of_others_(problem_.star >= 0 ? rows() * sizeof(double) : 0),
        emissions_(rows() * (batch.labels + std::size_t{1}) * real_bytes(batch.dtype)),
        posteriors_(rows() * batch.labels * real_bytes(batch.dtype)),
        loss_(batch.size() * real_bytes(batch.dtype)),
        loss_alone_(batch.size() * real_bytes(batch.dtype)) {
    problem_.logits = {};
  }

  // `chunk` frames at a time.
  CtcRun run(std::int64_t chunk) {
    CtcRun run;
    const auto all = static_cast<std::int64_t>(rows());
    const CtcHeadLabels labels{static_cast<std::int32_t*>(first_.data()),
                               static_cast<std::int32_t*>(next_.data())};
    auto* const log_sums = static_cast<double*>(log_sums_.data());
    auto* const of_others = problem_.star >= 0 ? static_cast<double*>(of_others_.data()) : nullptr;
    run.status = ctc_head_labels(problem_, labels, execution_);
    for (std::int64_t first = 0; first < all; first += chunk) {
      if (!run.status.ok()) return run;
      run.status = ctc_head_emissions(problem_, rows_from(first, std::min(chunk, all - first)),
                                      {log_sums, of_others, emissions_.data()}, execution_);
    }
    if (!run.status.ok()) return run;
    const CtcProblem p = ctc_head_emission_problem(problem_, emissions_.data(), labels);
    run.status = sum_paths(p);
    if (!run.status.ok()) return run;
    run.loss = read_reals(loss_, batch_.dtype, batch_.size());
    run.bits = loss_.template read<unsigned char>(batch_.size() * real_bytes(batch_.dtype));
    std::vector<float> upstream32;
    for (const double g : batch_.grad_loss) upstream32.push_back(static_cast<float>(g));
    const Buffer upstream = batch_.dtype == DType::kFloat64 ? Buffer(batch_.grad_loss) : Buffer(upstream32);
    CtcHeadGradient g{labels, log_sums, of_others, posteriors_.data(), loss_.data()};
    if (!batch_.grad_loss.empty()) g.grad_loss = upstream.data();
    for (std::int64_t first = 0; first < all; first += chunk) {
      const CtcHeadRows rows = rows_from(first, std::min(chunk, all - first));
      const std::size_t needed = ctc_head_gradient_workspace_bytes(problem_, rows, execution_);
      const Buffer workspace(needed);
      run.status = ctc_head_gradient(problem_, rows, g, {workspace.data(), needed}, execution_);
      if (!run.status.ok()) return run;
    }
    read_gradient(run);
    return run;
  }

 private:
  [[nodiscard]] std::size_t labels() const { return static_cast<std::size_t>(batch_.size()) * batch_.labels; }
  [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(batch_.size()) * batch_.frames; }
  // The logits in memory stand in for those of a product.
  [[nodiscard]] CtcHeadRows rows_from(std::int64_t first, std::int64_t count) const {
    CtcHeadRows rows;
    rows.stride = memory_.stride()[1];
    rows.logits =
        static_cast<std::byte*>(memory_.logits.data()) + first * rows.stride * size_of(batch_.dtype);
    rows.first = first;
    rows.count = count;
    return rows;
  }
  Status sum_paths(const CtcProblem& p) {
    const CtcPosteriors out{loss_.data(), posteriors_.data()};
    const std::size_t needed = ctc_posteriors_workspace_bytes(p, out, execution_);
    const Buffer workspace(needed);
    if (Status s = ctc_posteriors(p, out, {workspace.data(), needed}, execution_); !s.ok()) return s;
    const CtcOutputs alone{loss_alone_.data(), nullptr};
    const std::size_t of_loss = ctc_loss_workspace_bytes(p, alone, execution_);
    const Buffer space(of_loss);
    return ctc_loss(p, alone, {space.data(), of_loss}, execution_);
  }
  void read_gradient(CtcRun& run) const {
    const std::size_t size = size_of(batch_.dtype);
    const auto all = memory_.logits.template read<unsigned char>(memory_.bytes());
    for (int b = 0; b < batch_.size(); ++b) {
      std::vector<double> gradient;
      for (int t = 0; t < batch_.frames; ++t) {
        for (int c = 0; c < batch_.classes(); ++c) {
          const unsigned char* const at =
              &all[(b * memory_.stride()[0] + t * memory_.stride()[1] + c) * size];
          if (t < batch_.utterances[b].frames) {
            gradient.push_back(read_element(batch_.dtype, at));
            run.bits.insert(run.bits.end(), at, at + size);
          } else {
            for (std::size_t n = 0; n < size; ++n) run.padding_is_zero &= at[n] == 0;
          }
        }
      }
      run.gradient.push_back(std::move(gradient));
    }
    const std::vector<double> alone = read_reals(loss_alone_, batch_.dtype, batch_.size());
    for (int b = 0; b < batch_.size(); ++b) {
      if (std::isnan(run.loss[b])) continue;
      EXPECT_EQ(alone[b], run.loss[b]) << "without posteriors";
    }
  }

  const CtcBatch& batch_;
  const Execution execution_;
  const CtcMemory<Buffer> memory_;
  CtcProblem problem_;
  const Buffer first_, next_, log_sums_, of_others_, emissions_, posteriors_, loss_, loss_alone_;
};

// Emissions are rounded to float32, before paths are summed: 6e-8 of some -10, for each frame of a path.
void expect_close_to_reference(const CtcBatch& batch, const CtcRun& run) { expect_close(batch, run, 2e-6); }

CtcRun run_head(const CtcBatch& batch, std::int64_t chunk, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (on_cuda()) return Head<DeviceBuffer>(batch, Execution::cuda(0, nullptr)).run(chunk);
#endif
  return Head<HostBuffer>(batch, Execution::host(parallel_for)).run(chunk);
}

// Few classes and many, sizes around the vectors' widths, and chunks that end within utterances.
TEST_P(CtcPath, Grid) {
  for (const DType dtype : kDTypes) {
    for (const int classes : {2, 5, 33, 97, 520}) {
      SCOPED_TRACE(std::to_string(classes) + " classes");
      std::vector<std::pair<int, int>> sizes;
      for (const int labels : {0, 1, 7, 8, 17, 33, 40}) sizes.emplace_back(2 * labels + 3, labels);
      const CtcBatch batch = random_batch(dtype, {1, classes, {}, classes / 2}, sizes, classes);
      for (const int chunk : {13, 64, 1000}) expect_close_to_reference(batch, run_head(batch, chunk));
    }
  }
}

TEST_P(CtcPath, Options) {
  const std::vector<std::pair<int, int>> sizes = {{12, 4}, {9, 0}, {0, 0}, {0, 3}, {7, 5}, {40, 12}};
  for (const DType dtype : kDTypes) {
    for (int option = 0; option < 8; ++option) {
      SCOPED_TRACE("option " + std::to_string(option));
      std::mt19937 random(option);
      std::normal_distribution<double> normal;
      Ctc family{1, 11, {}, 3};
      if ((option & 1) != 0) family.star = option % 4 == 1 ? 11 : 7;
      for (int c = 0; (option & 2) != 0 && c < 11; ++c) {
        const double prior = normal(random);
        family.prior.push_back(dtype == DType::kFloat64 ? prior : static_cast<float>(prior));
      }
      CtcBatch batch = random_batch(dtype, family, sizes, 100 + option);
      batch.layout.wide_integers = (option & 4) != 0;
      batch.layout.gap = (option & 4) != 0 ? 5 : 0;
      if (option % 3 != 0) batch.grad_loss = {1, -2, 3, 0.5, 0, 0.125};
      expect_close_to_reference(batch, run_head(batch, 10));
    }
  }
}

TEST_P(CtcPath, WithoutLengths) {
  CtcBatch batch = random_batch(DType::kFloat32, {1, 50}, {{20, 7}, {20, 7}, {20, 7}}, 5);
  batch.layout.lengths = false;
  expect_close_to_reference(batch, run_head(batch, 25));
}

// Many equal labels, and more labels than a block's shared memory takes gradients of.
TEST_P(CtcPath, ManyLabels) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const CtcBatch batch = random_batch(dtype, {1, 7}, {{24, 4500}, {300, 140}, {60, 2}}, 3);
    expect_close_to_reference(batch, run_head(batch, 100));
  }
}

// -inf, NaN and +inf among the logits: of a class that is no label, of a label, of a whole frame.
TEST_P(CtcPath, SpecialLogits) {
  for (const DType dtype : kDTypes) {
    for (const int star : {-1, 20}) {
      const std::vector<std::pair<int, int>> sizes(8, {9, 3});
      CtcBatch batch = random_batch(dtype, {1, 20, {}, 0, star}, sizes, 9);
      const auto at = [&](int b, int t, int c) -> double& { return batch.logits[b][t * 20 + c]; };
      const double nan = std::numeric_limits<double>::quiet_NaN();
      at(0, 4, 19) = nan;
      at(1, 4, 19) = kInf;
      at(2, 4, 0) = kInf;
      at(3, 4, 19) = -kInf;
      for (int c = 0; c < 20; ++c) at(4, 4, c) = -kInf;
      for (int c = 1; c < 20; ++c) at(5, 4, c) = -kInf;
      at(6, 4, 0) = -kInf;
      expect_close_to_reference(batch, run_head(batch, 20));
    }
  }
}

// A frame's gradient does not depend on the chunk that it is in, nor on the number of threads.
TEST_P(CtcPath, ChunksAndThreadsChangeNoBit) {
  const CtcBatch batch = random_batch(DType::kFloat32, {1, 300, {}, 0, 300}, {{40, 12}, {33, 9}, {5, 1}}, 8);
  const CtcRun one = run_head(batch, 1000);
  ThreadPool pool(3);
  EXPECT_EQ(run_head(batch, 7).bits, one.bits);
  EXPECT_EQ(run_head(batch, 1000).bits, one.bits);
  EXPECT_EQ(run_head(batch, 50, pool.parallel_for()).bits, one.bits);
}

#if WARPALIGN_TEST_CUDA
// Labels on a device are not read back: an invalid one makes its utterance NaN, and no other one.
TEST(CtcHeadCuda, AnInvalidLabelMakesNaN) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  CtcBatch batch = random_batch(DType::kFloat32, {1, 20}, {{9, 3}, {9, 3}}, 2);
  for (const int label : {-1, 0, 20}) {
    batch.utterances[0].targets[1] = label;
    const CtcRun run = Head<DeviceBuffer>(batch, Execution::cuda(0, nullptr)).run(18);
    ASSERT_TRUE(run.status.ok());
    EXPECT_TRUE(std::isnan(run.loss[0]));
    for (const double v : run.gradient[0]) EXPECT_TRUE(std::isnan(v));
    EXPECT_TRUE(std::isfinite(run.loss[1]));
    for (const double v : run.gradient[1]) EXPECT_TRUE(std::isfinite(v));
  }
}
#endif

// Two utterances of 3 frames and 2 labels, C = 5.
struct Call {
  std::vector<std::int32_t> targets{1, 2, 2, 3};
  CtcProblem p;
  CtcHeadRows rows;
  CtcHeadEmissions emissions;
  CtcHeadGradient gradient;
  Workspace workspace;
  Execution execution = Execution::host();
  HostBuffer logits{120}, first{16}, next{16}, log_sums{48}, weights{72}, posteriors{48}, loss{8},
      memory{1 << 14};

  Call() {
    p.batch = 2;
    p.frames = 3;
    p.classes = 5;
    p.labels = 2;
    p.targets = targets.data();
    rows = {logits.data(), 5, 0, 6};
    gradient.labels = {static_cast<std::int32_t*>(first.data()), static_cast<std::int32_t*>(next.data())};
    gradient.log_sums = emissions.log_sums = static_cast<double*>(log_sums.data());
    emissions.emissions = weights.data();
    gradient.posteriors = posteriors.data();
    gradient.loss = loss.data();
    workspace = {memory.data(), 1 << 14};
  }
  Status run_labels() { return ctc_head_labels(p, gradient.labels, execution); }
  Status run_emissions() { return ctc_head_emissions(p, rows, emissions, execution); }
  Status run_gradient() { return ctc_head_gradient(p, rows, gradient, workspace, execution); }
};

struct Violation {
  const char* argument;
  std::function<void(Call&)> make;
};

void expect_refused(const std::vector<Violation>& violations, Status (Call::*run)()) {
  for (const Violation& violation : violations) {
    SCOPED_TRACE(violation.argument);
    Call c;
    violation.make(c);
    const Status status = (c.*run)();
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.argument), violation.argument);
    EXPECT_TRUE(c.logits.untouched() && c.first.untouched() && c.log_sums.untouched());
  }
}

TEST(CtcHeadApi, EveryViolationIsRefusedByName) {
  const std::vector<Violation> of_all = {
      {"log_probs", [](Call& c) { c.p.log_probs = true; }},
      {"blank", [](Call& c) { c.p.blank = 5; }},
      {"targets", [](Call& c) { c.targets[2] = 0; }},
      {"targets", [](Call& c) { c.p.targets = Integers(); }},
  };
  const std::vector<Violation> of_rows = {
      {"rows.first", [](Call& c) { c.rows.first = -1; }},
      {"rows.count", [](Call& c) { c.rows.count = 7; }},
      {"rows.count", [](Call& c) { c.rows.first = 1; }},
      {"rows.stride", [](Call& c) { c.rows.stride = 4; }},
      {"rows.logits", [](Call& c) { c.rows.logits = nullptr; }},
  };
  const std::vector<Violation> of_gradient = {
      {"labels.first", [](Call& c) { c.gradient.labels.first = nullptr; }},
      {"labels.next", [](Call& c) { c.gradient.labels.next = nullptr; }},
      {"log_sums", [](Call& c) { c.gradient.log_sums = nullptr; }},
      {"log_sums_of_others", [](Call& c) { c.p.star = 7; }},
      {"posteriors", [](Call& c) { c.gradient.posteriors = nullptr; }},
      {"loss", [](Call& c) { c.gradient.loss = nullptr; }},
      {"grad_loss", [](Call& c) { c.gradient.grad_loss = static_cast<std::byte*>(c.loss.data()) + 1; }},
      {"workspace", [](Call& c) { c.workspace = {}; }},
  };
  const std::vector<Violation> of_emissions = {
      {"log_sums", [](Call& c) { c.emissions.log_sums = nullptr; }},
      {"log_sums_of_others", [](Call& c) { c.p.star = 7; }},
      {"emissions", [](Call& c) { c.emissions.emissions = nullptr; }},
  };
  for (const auto run : {&Call::run_labels, &Call::run_emissions, &Call::run_gradient}) {
    expect_refused(of_all, run);
  }
  expect_refused(of_rows, &Call::run_emissions);
  expect_refused(of_rows, &Call::run_gradient);
  expect_refused(of_emissions, &Call::run_emissions);
  expect_refused(of_gradient, &Call::run_gradient);
  Call flat;
  std::vector<std::int32_t> counts{2, 2};
  flat.p.flat_targets = true;
  flat.p.target_count = 4;
  flat.p.target_lengths = counts.data();
  EXPECT_EQ(std::string(flat.run_labels().argument), "targets");
  Call good;
  EXPECT_TRUE(good.run_labels().ok() && good.run_emissions().ok());
}

TEST(CtcHeadApi, ADescriptionRunsNothing) {
  Call c;
  const PlanDescription description;
  EXPECT_TRUE(c.run_labels().ok() && c.run_emissions().ok() && c.run_gradient().ok());
  EXPECT_TRUE(c.logits.untouched() && c.first.untouched() && c.log_sums.untouched());
  for (const char* name : {"ctc_head_labels", "ctc_head_emissions", "ctc_head_gradient"}) {
    EXPECT_NE(description.text().find(name), std::string::npos) << description.text();
  }
}

}  // namespace
}  // namespace warpalign::test
