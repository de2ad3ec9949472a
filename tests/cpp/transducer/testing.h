// What the tests of every path share: batches in memory, the two calls, and the tolerances.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cases.h"
#include "elements.h"
#include "host_buffer.h"
#include "transducer/reference.h"
#include "values.h"
#include "warpalign/transducer.h"

namespace warpalign::test {

// Utterances of one family, and how they lie in memory. Label and duration logits are columns of the same
// rows, with `gap` columns behind them that belong to nobody.
struct TransducerBatch {
  DType dtype = DType::kFloat32;
  int frames = 0;  // T
  int states = 1;  // U + 1
  std::vector<TransducerCase> cases;
  std::vector<double> grad_loss;  // one for each; empty: 1
  bool packed = false;
  bool flat_targets = false;
  bool in_place = false;
  bool lengths = true;  // given; else all have T frames and U labels
  int gap = 0;
  std::function<void(TransducerProblem&)> adjust = {};  // has the last word on the problem

  [[nodiscard]] const reference::Transducer& family() const { return cases.front().problem; }
  [[nodiscard]] int columns() const { return cases.front().width(); }
  [[nodiscard]] int width() const { return columns() + gap; }
  [[nodiscard]] double upstream(std::size_t b) const { return grad_loss.empty() ? 1 : grad_loss[b]; }

  // Rows of N(0, scale), as dtype has them.
  void add(const reference::Transducer& problem, std::mt19937& random, double scale = 1) {
    TransducerCase one{"", problem, {}};
    std::normal_distribution<double> normal;
    const std::size_t count = static_cast<std::size_t>(problem.frames) * problem.states() * one.width();
    for (std::size_t n = 0; n < count; ++n) {
      one.rows.push_back(rounded(dtype, scale * normal(random) - (problem.log_probs ? 2 : 0)));
    }
    add(one);
  }
  void add(TransducerCase one) {
    for (double& x : one.rows) x = rounded(dtype, x);
    frames = std::max(frames, one.problem.frames);
    states = std::max(states, one.problem.states());
    cases.push_back(std::move(one));
  }
};

// What the two calls have written.
struct TransducerRun {
  Status status;
  std::vector<double> loss;
  std::vector<std::vector<double>> gradient;  // of an utterance: (T_b, U_b+1, V + D)
  std::vector<unsigned char> bits;            // of losses and gradients, utterance by utterance
  bool padding_is_zero = true;
  bool gap_is_untouched = true;
};

// Where row (t, u) of utterance b lies, in rows; -1: nowhere, in packed memory.
class RowMap {
 public:
  explicit RowMap(const TransducerBatch& batch) : batch_(batch) {
    for (const auto& one : batch.cases) {
      first_.push_back(rows_);
      rows_ += batch.packed ? one.problem.frames * one.problem.states() : batch.frames * batch.states;
    }
  }
  [[nodiscard]] int rows() const { return rows_; }
  [[nodiscard]] int row(std::size_t b, int t, int u) const {
    return first_[b] + t * (batch_.packed ? batch_.cases[b].problem.states() : batch_.states) + u;
  }

 private:
  const TransducerBatch& batch_;
  std::vector<int> first_;
  int rows_ = 0;
};

// The problem's settings, from the reference's.
inline TransducerProblem problem_of(const TransducerBatch& batch) {
  const reference::Transducer& family = batch.family();
  TransducerProblem p;
  p.dtype = batch.dtype;
  p.labels = family.labels;
  p.packed = batch.packed;
  p.log_probs = family.log_probs;
  TransducerLattice& l = p.lattice;
  l.batch = static_cast<std::int32_t>(batch.cases.size());
  l.frames = batch.frames;
  l.states = batch.states;
  l.tdt = family.tdt;
  l.blank = family.blank;
  l.durations = static_cast<std::int32_t>(family.durations.size());
  for (int i = 0; i < l.durations; ++i) {
    l.duration[i] = family.durations[i];
    if (!family.tdt) l.big_blank_column[i] = family.big_blank_columns[i];
  }
  l.sigma = family.sigma;
  l.fastemit = family.fastemit;
  l.delay = family.delay;
  l.eos = family.eos;
  l.eos_penalty = family.eos_penalty;
  l.star = family.star;
  l.star_penalty = family.star_penalty;
  l.clamp = family.clamp;
  l.zero_infinity = family.zero_infinity;
  return p;
}

// What a batch's buffers hold. Padding and gap are NaN.
struct BatchVectors {
  std::vector<unsigned char> logits;
  std::vector<std::int32_t> logit_lengths, target_lengths, targets;
  std::vector<std::uint8_t> without_durations;

  BatchVectors(const TransducerBatch& batch, const RowMap& map)
      : logits(map.rows() * batch.width() * size_of(batch.dtype), kPoison) {
    const std::size_t size = size_of(batch.dtype);
    for (std::size_t b = 0; b < batch.cases.size(); ++b) {
      const auto& [name, one, rows] = batch.cases[b];
      logit_lengths.push_back(one.frames);
      target_lengths.push_back(one.states() - 1);
      targets.insert(targets.end(), one.targets.begin(), one.targets.end());
      if (!batch.flat_targets) targets.resize((b + 1) * (batch.states - 1), -77);
      without_durations.push_back(one.without_durations ? 1 : 0);
      std::size_t n = 0;
      for (int t = 0; t < one.frames; ++t) {
        for (int u = 0; u < one.states(); ++u) {
          unsigned char* const row = logits.data() + map.row(b, t, u) * batch.width() * size;
          for (int k = 0; k < batch.columns(); ++k) write_element(batch.dtype, row + k * size, rows[n++]);
        }
      }
    }
  }
};

// A batch in Buffers, as a problem.
template <class Buffer>
class BatchMemory {
 public:
  explicit BatchMemory(const TransducerBatch& batch)
      : map(batch),
        vectors(batch, map),
        logits(vectors.logits),
        problem(problem_of(batch)),
        logit_lengths_(vectors.logit_lengths),
        target_lengths_(vectors.target_lengths),
        targets_(vectors.targets),
        without_durations_(vectors.without_durations) {
    const std::int64_t row = batch.width();
    const auto strided = [&](int column) {
      return StridedTensorOf<4>{static_cast<unsigned char*>(logits.data()) + column * size_of(batch.dtype),
                                {row * batch.frames * batch.states, row * batch.states, row, 1}};
    };
    problem.logits = strided(0);
    TransducerLattice& l = problem.lattice;
    if (l.tdt) problem.duration_logits = strided(problem.labels);
    problem.packed_rows = batch.packed ? map.rows() : 0;
    if (batch.lengths) {
      l.logit_lengths = static_cast<const std::int32_t*>(logit_lengths_.data());
      l.target_lengths = static_cast<const std::int32_t*>(target_lengths_.data());
    }
    l.targets = static_cast<const std::int32_t*>(targets_.data());
    l.flat_targets = batch.flat_targets;
    l.target_count = static_cast<std::int64_t>(vectors.targets.size());
    if (l.tdt) l.without_durations = static_cast<const std::uint8_t*>(without_durations_.data());
    if (batch.adjust) batch.adjust(problem);
  }

  const RowMap map;
  const BatchVectors vectors;
  const Buffer logits;
  TransducerProblem problem;

 private:
  const Buffer logit_lengths_, target_lengths_, targets_, without_durations_;
};

// Runs both calls. Results, saved memory and workspace start as NaN.
template <class Buffer>
TransducerRun run_on(const TransducerBatch& batch, const Execution& execution, bool want_gradient = true) {
  const BatchMemory<Buffer> memory(batch);
  const RowMap& map = memory.map;
  const TransducerProblem& p = memory.problem;
  const Buffer& logits = memory.logits;
  const int v = batch.family().labels, width = batch.width();
  const std::size_t size = size_of(batch.dtype), cases = batch.cases.size();
  std::vector<float> upstream32;
  std::vector<double> upstream64;
  for (std::size_t b = 0; b < cases; ++b) {
    upstream32.push_back(static_cast<float>(batch.upstream(b)));
    upstream64.push_back(batch.upstream(b));
  }
  const bool wide = batch.dtype == DType::kFloat64;
  const std::size_t loss_size = wide ? 8 : 4;
  const std::size_t bytes = memory.vectors.logits.size();
  const Buffer gradient(want_gradient && !batch.in_place ? bytes : 0);
  const Buffer upstream = wide ? Buffer(upstream64) : Buffer(upstream32);
  const Buffer loss(cases * loss_size);

  const Buffer saved(want_gradient ? transducer_saved_bytes(p, execution) : 0);
  const TransducerOutputs outputs{loss.data(), want_gradient ? saved.data() : nullptr};
  TransducerRun run;
  {
    const std::size_t needed = transducer_workspace_bytes(p, outputs, execution);
    const Buffer workspace(needed);
    run.status = transducer(p, outputs, {workspace.data(), needed}, execution);
    if (!run.status.ok()) return run;
    const auto keep = [&](const auto& values) {
      run.loss.assign(values.begin(), values.end());
      const auto* const begin = reinterpret_cast<const unsigned char*>(values.data());
      run.bits.assign(begin, begin + cases * loss_size);
    };
    wide ? keep(loss.template read<double>(cases)) : keep(loss.template read<float>(cases));
  }
  if (!want_gradient) return run;

  const Buffer& written = batch.in_place ? logits : gradient;
  TransducerGradient g;
  g.saved = saved.data();
  g.grad_loss = upstream.data();
  g.logits = written.data();
  if (p.lattice.tdt) g.duration_logits = static_cast<unsigned char*>(written.data()) + v * size;
  for (int axis = 0; axis < 3; ++axis) {
    g.logits_stride[axis] = g.duration_logits_stride[axis] = p.logits.stride[axis];
  }
  const std::size_t needed = transducer_gradient_workspace_bytes(p, g, execution);
  const Buffer workspace(needed);
  run.status = transducer_gradient(p, g, {workspace.data(), needed}, execution);
  if (!run.status.ok()) return run;
  const std::vector<unsigned char> result = written.template read<unsigned char>(bytes);
  for (std::size_t b = 0; b < cases; ++b) {
    const auto& one = batch.cases[b].problem;
    std::vector<double> rows;
    const int all_frames = batch.packed ? one.frames : batch.frames,
              all_states = batch.packed ? one.states() : batch.states;
    for (int t = 0; t < all_frames; ++t) {
      for (int u = 0; u < all_states; ++u) {
        const unsigned char* const at = &result[static_cast<std::size_t>(map.row(b, t, u)) * width * size];
        const bool real = t < one.frames && u < one.states();
        for (int k = 0; k < width; ++k) {
          const unsigned char* const element = at + k * size;
          if (k >= batch.columns()) {
            for (std::size_t n = 0; n < size; ++n) run.gap_is_untouched &= element[n] == kPoison;
          } else if (real) {
            rows.push_back(read_element(batch.dtype, element));
          } else {
            for (std::size_t n = 0; n < size; ++n) run.padding_is_zero &= element[n] == 0;
          }
        }
        if (real) run.bits.insert(run.bits.end(), at, at + batch.columns() * size);
      }
    }
    run.gradient.push_back(std::move(rows));
  }
  return run;
}

// Gradient rows of the reference, both heads' columns, times the upstream factor.
inline std::vector<double> expected_gradient(const TransducerCase& one,
                                             const reference::TransducerResult& result, double upstream) {
  const int v = one.problem.labels, d = one.width() - v;
  std::vector<double> rows;
  for (int node = 0; node < one.problem.frames * one.problem.states(); ++node) {
    for (int k = 0; k < v; ++k)
      rows.push_back(upstream * result.grad_logits[static_cast<std::size_t>(node) * v + k]);
    for (int k = 0; k < d; ++k)
      rows.push_back(upstream * result.grad_durations[static_cast<std::size_t>(node) * d + k]);
  }
  return rows;
}

// Holds a run to the float64 reference on the rounded logits.
//
// Loss: 4 epsilon |loss| + 2 (T + U) epsilon: each of a path's arcs has a weight that is rounded once.
// Gradient: relative L2 1e-5 and 1e-10, as docs/numerics.md has it. Half types besides: their own rounding,
// and half the smallest number that the type has. Floor: each entry is a difference of two numbers up to 1,
// which leaves an epsilon where they are equal.
inline void expect_close(const TransducerBatch& batch, const TransducerRun& run) {
  ASSERT_TRUE(run.status.ok()) << run.status.argument << ": " << run.status.message << " "
                               << run.status.value;
  EXPECT_TRUE(run.padding_is_zero);
  EXPECT_TRUE(run.gap_is_untouched);
  const double epsilon = batch.dtype == DType::kFloat64 ? 2.3e-16 : 1.2e-7;
  const double limit = batch.dtype == DType::kFloat64 ? 1e-10 : 1e-5;
  const double rounding = batch.dtype == DType::kFloat16    ? 0x1p-11
                          : batch.dtype == DType::kBFloat16 ? 0x1p-8
                                                            : 0;
  const double smallest = batch.dtype == DType::kFloat16 ? 0x1p-25 : 0;
  for (std::size_t b = 0; b < batch.cases.size(); ++b) {
    SCOPED_TRACE("utterance " + std::to_string(b));
    const auto& one = batch.cases[b];
    const auto result = reference::transducer(one.problem, one.logits(), one.duration_logits());
    const double expected = result.loss;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(run.loss[b]));
    } else if (std::isinf(expected)) {
      EXPECT_EQ(run.loss[b], expected);
    } else {
      const double steps = one.problem.frames + one.problem.states();
      EXPECT_NEAR(run.loss[b], expected, 4 * epsilon * std::abs(expected) + 2 * steps * epsilon);
    }
    if (run.gradient.empty()) continue;
    const std::vector<double> wanted = expected_gradient(one, result, batch.upstream(b));
    double error = 0, norm = 0;
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      if (std::isnan(wanted[n])) {
        ASSERT_TRUE(std::isnan(run.gradient[b][n])) << n;
        continue;
      }
      const double difference = run.gradient[b][n] - wanted[n];
      ASSERT_FALSE(std::isnan(difference)) << n;
      const double own = std::max(std::abs(difference) - rounding * std::abs(wanted[n]) - smallest, 0.0);
      error += own * own;
      norm += wanted[n] * wanted[n];
    }
    const double floor = epsilon * std::sqrt(static_cast<double>(wanted.size()));
    EXPECT_LE(std::sqrt(error), limit * std::sqrt(norm) + floor) << "norm " << std::sqrt(norm);
  }
}

}  // namespace warpalign::test
