// What CTC's tests of every path share: batches in memory, the calls, and the tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ctc/reference.h"
#include "elements.h"
#include "host_buffer.h"
#include "paths.h"
#include "warpalign/ctc.h"

namespace warpalign::test {

namespace reference = detail::ctc::reference;
using reference::Ctc;

constexpr double kInf = std::numeric_limits<double>::infinity();

// How a batch's logits, lengths and labels lie in memory.
struct CtcLayout {
  bool time_major = false;       // (T, B, C) in memory
  bool classes_outside = false;  // (C, B, T) in memory: a last stride that is not 1
  bool wide_integers = false;    // int64
  bool flat_targets = false;
  bool lengths = true;  // given; else all have T frames and U labels
  bool in_place = false;
  int gap = 0;  // elements behind each row that belong to nobody
};

// Utterances of one family (all but frames and targets are the first one's).
struct CtcBatch {
  DType dtype = DType::kFloat32;
  int frames = 0;  // T
  int labels = 0;  // U
  std::vector<Ctc> utterances = {};
  std::vector<std::vector<double>> logits = {};  // as dtype has them
  std::vector<double> grad_loss = {};            // empty: null
  CtcLayout layout = {};

  [[nodiscard]] int size() const { return static_cast<int>(utterances.size()); }
  [[nodiscard]] int classes() const { return utterances.front().classes; }
  [[nodiscard]] double upstream(int b) const { return grad_loss.empty() ? 1 : grad_loss[b]; }

  void add(const Ctc& one, std::vector<double> x) {
    for (double& v : x) v = rounded(dtype, v);
    frames = std::max(frames, one.frames);
    labels = std::max(labels, one.labels());
    utterances.push_back(one);
    logits.push_back(std::move(x));
  }
  // Logits of N(0, scale).
  void add(const Ctc& one, std::mt19937& random, double scale = 1) {
    std::normal_distribution<double> normal;
    std::vector<double> x(static_cast<std::size_t>(one.frames) * one.classes);
    for (double& v : x) v = scale * normal(random) - (one.log_probs ? 2 : 0);
    add(one, std::move(x));
  }
};

// `count` labels but blank, the same as the one before in a quarter of cases, and the star in some.
inline std::vector<int> random_targets(const Ctc& family, int count, std::mt19937& random) {
  std::vector<int> targets;
  while (static_cast<int>(targets.size()) < count) {
    const int label = static_cast<int>(random() % static_cast<unsigned>(family.classes));
    if (!targets.empty() && random() % 4 == 0) {
      targets.push_back(targets.back());
    } else if (family.star >= 0 && random() % 6 == 0) {
      targets.push_back(family.star);
    } else if (label != family.blank) {
      targets.push_back(label);
    }
  }
  return targets;
}

template <class Buffer>
class CtcMemory {
 public:
  explicit CtcMemory(const CtcBatch& batch)
      : batch_(batch),
        stride_(strides()),
        vectors_(*this),
        logits(vectors_.logits),
        prior_(vectors_.prior),
        logit_lengths_(vectors_.logit_lengths),
        target_lengths_(vectors_.target_lengths),
        targets_(vectors_.targets) {
    const Ctc& family = batch.utterances.front();
    problem.dtype = batch.dtype;
    problem.batch = batch.size();
    problem.frames = batch.frames;
    problem.labels = batch.labels;
    problem.classes = family.classes;
    problem.logits = {logits.data(), {stride_[0], stride_[1], stride_[2]}};
    problem.blank = family.blank;
    problem.star = family.star;
    problem.log_probs = family.log_probs;
    problem.zero_infinity = family.zero_infinity;
    if (!family.prior.empty()) problem.prior = prior_.data();
    problem.targets = integers(targets_);
    if (batch.layout.lengths) {
      problem.logit_lengths = integers(logit_lengths_);
      problem.target_lengths = integers(target_lengths_);
    }
    problem.flat_targets = batch.layout.flat_targets;
    problem.target_count = vectors_.target_count;
  }

  [[nodiscard]] const std::vector<std::int64_t>& stride() const { return stride_; }
  [[nodiscard]] std::size_t bytes() const { return vectors_.logits.size(); }
  [[nodiscard]] std::int64_t target_count() const { return vectors_.target_count; }

 private:
  const CtcBatch& batch_;
  const std::vector<std::int64_t> stride_;

  // What the buffers hold. Padding and gaps are NaN, padding of labels is out of range.
  struct Vectors {
    std::vector<unsigned char> logits, prior, logit_lengths, target_lengths, targets;
    std::int64_t target_count = 0;

    explicit Vectors(const CtcMemory& memory) {
      const CtcBatch& batch = memory.batch_;
      const std::size_t size = size_of(batch.dtype);
      const auto& stride = memory.stride_;
      const std::int64_t elements =
          std::max({stride[0] * batch.size(), stride[1] * batch.frames, stride[2] * batch.classes()});
      logits.assign(static_cast<std::size_t>(elements) * size, kPoison);
      const auto push = [&](std::vector<unsigned char>& to, std::int64_t value) {
        const std::size_t width = batch.layout.wide_integers ? 8 : 4;
        const auto narrow = static_cast<std::int32_t>(value);
        const auto* const from = width == 8 ? reinterpret_cast<const unsigned char*>(&value)
                                            : reinterpret_cast<const unsigned char*>(&narrow);
        to.insert(to.end(), from, from + width);
      };
      for (int b = 0; b < batch.size(); ++b) {
        const Ctc& one = batch.utterances[b];
        push(logit_lengths, one.frames);
        push(target_lengths, one.labels());
        const int rows = batch.layout.flat_targets ? one.labels() : batch.labels;
        for (int k = 0; k < rows; ++k) push(targets, k < one.labels() ? one.targets[k] : -77);
        target_count += rows;
        for (int t = 0; t < one.frames; ++t) {
          for (int c = 0; c < one.classes; ++c) {
            write_element(batch.dtype, &logits[(b * stride[0] + t * stride[1] + c * stride[2]) * size],
                          batch.logits[b][static_cast<std::size_t>(t) * one.classes + c]);
          }
        }
      }
      const DType real = batch.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
      for (const double v : batch.utterances.front().prior) {
        unsigned char bytes[8];
        write_element(real, bytes, v);
        prior.insert(prior.end(), bytes, bytes + size_of(real));
      }
    }
  };

  [[nodiscard]] std::vector<std::int64_t> strides() const {
    const std::int64_t b = batch_.size(), t = batch_.frames, c = batch_.classes() + batch_.layout.gap;
    if (batch_.layout.classes_outside) return {t, 1, b * t};
    if (batch_.layout.time_major) return {c, b * c, 1};
    return {t * c, c, 1};
  }
  [[nodiscard]] Integers integers(const Buffer& buffer) const {
    Integers view;
    view.data = buffer.data();
    view.type = batch_.layout.wide_integers ? IntegerType::kInt64 : IntegerType::kInt32;
    return view;
  }

  const Vectors vectors_;

 public:
  const Buffer logits;
  CtcProblem problem;

 private:
  const Buffer prior_, logit_lengths_, target_lengths_, targets_;
};

// Reals in a buffer, as doubles.
template <class Buffer>
std::vector<double> read_reals(const Buffer& buffer, DType dtype, std::size_t count) {
  if (dtype == DType::kFloat64) return buffer.template read<double>(count);
  const std::vector<float> values = buffer.template read<float>(count);
  return {values.begin(), values.end()};
}
inline std::size_t real_bytes(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

// What the calls have written.
struct CtcRun {
  Status status;
  std::vector<double> loss;
  std::vector<std::vector<double>> gradient;  // of an utterance: (T_b, C)
  std::vector<unsigned char> bits;            // of losses and gradients
  bool padding_is_zero = true;
};

template <class Buffer>
CtcRun run_loss(const CtcBatch& batch, const Execution& execution, bool want_gradient) {
  const CtcMemory<Buffer> memory(batch);
  const CtcProblem& p = memory.problem;
  const std::size_t size = size_of(batch.dtype), real = real_bytes(batch.dtype);
  const Buffer loss(batch.size() * real);
  const std::size_t saved_bytes = ctc_saved_bytes(p, execution);
  EXPECT_LE(saved_bytes, ctc_most_saved_bytes(p));
  const Buffer saved(want_gradient ? saved_bytes : 0);
  const CtcOutputs outputs{loss.data(), want_gradient ? saved.data() : nullptr};
  CtcRun run;
  {
    const std::size_t needed = ctc_loss_workspace_bytes(p, outputs, execution);
    const Buffer workspace(needed);
    run.status = ctc_loss(p, outputs, {workspace.data(), needed}, execution);
    if (!run.status.ok()) return run;
    run.loss = read_reals(loss, batch.dtype, batch.size());
    run.bits = loss.template read<unsigned char>(batch.size() * real);
  }
  if (!want_gradient) return run;
  std::vector<float> upstream32;
  for (const double g : batch.grad_loss) upstream32.push_back(static_cast<float>(g));
  const Buffer upstream = batch.dtype == DType::kFloat64 ? Buffer(batch.grad_loss) : Buffer(upstream32);
  const Buffer elsewhere(batch.layout.in_place ? 0 : memory.bytes());
  const Buffer& written = batch.layout.in_place ? memory.logits : elsewhere;
  CtcGradient g;
  g.saved = saved.data();
  if (!batch.grad_loss.empty()) g.grad_loss = upstream.data();
  g.logits = written.data();
  for (int axis = 0; axis < 3; ++axis) g.logits_stride[axis] = memory.stride()[axis];
  const std::size_t needed = ctc_gradient_workspace_bytes(p, g, execution);
  const Buffer workspace(needed);
  run.status = ctc_gradient(p, g, {workspace.data(), needed}, execution);
  if (!run.status.ok()) return run;
  const std::vector<unsigned char> all = written.template read<unsigned char>(memory.bytes());
  for (int b = 0; b < batch.size(); ++b) {
    std::vector<double> rows;
    for (int t = 0; t < batch.frames; ++t) {
      for (int c = 0; c < batch.classes(); ++c) {
        const unsigned char* const at =
            &all[(b * memory.stride()[0] + t * memory.stride()[1] + c * memory.stride()[2]) * size];
        if (t < batch.utterances[b].frames) {
          rows.push_back(read_element(batch.dtype, at));
          run.bits.insert(run.bits.end(), at, at + size);
        } else {
          for (std::size_t n = 0; n < size; ++n) run.padding_is_zero &= at[n] == 0;
        }
      }
    }
    run.gradient.push_back(std::move(rows));
  }
  return run;
}

template <class Buffer>
std::vector<double> run_posteriors(const CtcBatch& batch, const Execution& execution) {
  const CtcMemory<Buffer> memory(batch);
  const std::size_t real = real_bytes(batch.dtype);
  const std::size_t count = static_cast<std::size_t>(batch.size()) * batch.frames * batch.labels;
  const Buffer loss(batch.size() * real), labels(count * real);
  const CtcPosteriors out{loss.data(), labels.data()};
  const std::size_t needed = ctc_posteriors_workspace_bytes(memory.problem, out, execution);
  const Buffer workspace(needed);
  EXPECT_TRUE(ctc_posteriors(memory.problem, out, {workspace.data(), needed}, execution).ok());
  return read_reals(labels, batch.dtype, count);
}

struct CtcAlignRun {
  std::vector<double> score, scores;
  std::vector<std::int32_t> labels, spans;
};

template <class Buffer>
CtcAlignRun run_align(const CtcBatch& batch, const Execution& execution) {
  const CtcMemory<Buffer> memory(batch);
  const std::size_t real = real_bytes(batch.dtype);
  const std::size_t frames = static_cast<std::size_t>(batch.size()) * batch.frames;
  const std::size_t spans = 2 * static_cast<std::size_t>(memory.target_count());
  const Buffer score(batch.size() * real), labels(frames * 4), scores(frames * real), span(spans * 4);
  const CtcAlignment out{score.data(), static_cast<std::int32_t*>(labels.data()), scores.data(),
                         static_cast<std::int32_t*>(span.data())};
  const std::size_t needed = ctc_align_workspace_bytes(memory.problem, out, execution);
  const Buffer workspace(needed);
  const Status status = ctc_align(memory.problem, out, {workspace.data(), needed}, execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  return {read_reals(score, batch.dtype, batch.size()), read_reals(scores, batch.dtype, frames),
          labels.template read<std::int32_t>(frames), span.template read<std::int32_t>(spans)};
}

// Holds a run to the float64 reference on the rounded logits.
//
// Loss: 4 epsilon |loss| + (T + 8) epsilon: a frame's normaliser is rounded once. Gradient: 4e-7 of float32,
// the rounding of p and g, times the upstream factor (of_float32); of float64 1e-13, and 2e-15 of the loss,
// which the reference's logarithms of posteriors are the difference of. Half types besides: their own
// rounding.
inline void expect_close(const CtcBatch& batch, const CtcRun& run, double of_float32 = 4e-7) {
  ASSERT_TRUE(run.status.ok()) << run.status.argument << ": " << run.status.message << " "
                               << run.status.value;
  EXPECT_TRUE(run.padding_is_zero);
  const bool wide = batch.dtype == DType::kFloat64;
  const double epsilon = wide ? 0x1p-52 : 0x1p-23;
  const double rounding = batch.dtype == DType::kFloat16    ? 0x1p-11
                          : batch.dtype == DType::kBFloat16 ? 0x1p-8
                                                            : 0;
  for (int b = 0; b < batch.size(); ++b) {
    SCOPED_TRACE("utterance " + std::to_string(b));
    const reference::CtcResult expected = reference::ctc(batch.utterances[b], batch.logits[b]);
    if (std::isnan(expected.loss)) {
      EXPECT_TRUE(std::isnan(run.loss[b]));
    } else if (std::isinf(expected.loss)) {
      EXPECT_EQ(run.loss[b], expected.loss);
    } else {
      const double bound = epsilon * (4 * std::abs(expected.loss) + batch.utterances[b].frames + 8);
      EXPECT_NEAR(run.loss[b], expected.loss, bound);
    }
    if (run.gradient.empty()) continue;
    ASSERT_EQ(run.gradient[b].size(), expected.gradient.size());
    const double tolerance =
        wide ? 1e-13 + 2e-15 * (std::isfinite(expected.loss) ? expected.loss : 0) : of_float32;
    int worst = -1;
    double worst_error = 0;
    for (std::size_t k = 0; k < expected.gradient.size(); ++k) {
      const double wanted = batch.upstream(b) == 0 ? 0 : batch.upstream(b) * expected.gradient[k];
      const double bound = std::abs(batch.upstream(b)) * tolerance + rounding * std::abs(wanted) +
                           (batch.dtype == DType::kFloat16 ? 0x1p-25 : 0);
      const double off = std::abs(run.gradient[b][k] - wanted);
      const bool both_nan = std::isnan(wanted) && std::isnan(run.gradient[b][k]);
      const double error = both_nan || off == 0 ? 0 : (std::isnan(off) ? kInf : off / bound);
      if (error <= worst_error || (error <= 1 && worst >= 0)) continue;
      worst_error = error;
      worst = static_cast<int>(k);
    }
    EXPECT_LE(worst_error, 1) << "element " << worst << " of (T, " << batch.classes()
                              << "): " << run.gradient[b][std::max(worst, 0)] << " for "
                              << batch.upstream(b) * expected.gradient[std::max(worst, 0)];
  }
}

}  // namespace warpalign::test
