// Cases of CTC for the tests of the CUDA path: random problems of every type, layout and option, on the
// device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/half.h"
#include "ctc/problem.h"
#include "ctc/reference.h"
#include "device_buffer.h"
#include "values.h"

namespace warpalign::test {

namespace ctc = detail::ctc;
using detail::BFloat16;
using detail::Float16;

// What to run, for all types. Logits are drawn, then rounded to the type.
struct Case {
  int batch = 1, frames = 1, classes = 2, labels = 0;
  DType dtype = DType::kFloat32;
  std::vector<int> frame_counts = {};  // empty: all have `frames`
  std::vector<int> label_counts = {};
  int blank = 0;
  int star = -1;
  bool prior = false, log_probs = false, zero_infinity = false;
  bool flat = false, frames_first = false, strided = false, in_place = false, wide_integers = false;
  int kinds = 0;        // labels are drawn from so many classes; 0: from all
  double spread = 2.0;  // standard deviation of logits
  double grad = 1.0;    // upstream factor, times b + 1
  unsigned seed = 1;

  [[nodiscard]] int frames_of(int b) const { return frame_counts.empty() ? frames : frame_counts[b]; }
  [[nodiscard]] std::size_t place(int b, int t, int k) const {
    return (static_cast<std::size_t>(b) * frames + t) * classes + k;
  }
  [[nodiscard]] detail::ctc::reference::Ctc problem_of(int b, const std::vector<int>& targets,
                                                       const std::vector<double>& priors) const {
    return {frames_of(b), classes, targets, blank, star, priors, log_probs, zero_infinity};
  }
};

struct Data {
  std::vector<double> logits;  // (B, T, C)
  std::vector<std::vector<int>> targets;
  std::vector<double> prior;
};

inline double rounded(double v, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return static_cast<double>(static_cast<float>(Float16::rounded(static_cast<float>(v))));
    case DType::kBFloat16:
      return static_cast<double>(static_cast<float>(BFloat16::rounded(static_cast<float>(v))));
    case DType::kFloat32:
      return static_cast<double>(static_cast<float>(v));
    default:
      return v;
  }
}

inline Data draw(const Case& c) {
  std::mt19937 generator(c.seed);
  std::normal_distribution<double> normal(0.0, c.spread);
  Data data;
  data.logits.resize(static_cast<std::size_t>(c.batch) * c.frames * c.classes);
  for (double& v : data.logits) v = rounded(normal(generator), c.dtype);
  for (int b = 0; b < c.batch; ++b) {
    std::vector<int> targets(c.label_counts.empty() ? c.labels : c.label_counts[b]);
    for (int& y : targets) {
      const int kinds = c.kinds > 0 ? c.kinds : c.classes - 1;
      y = static_cast<int>(generator() % static_cast<unsigned>(kinds));
      if (y >= c.blank) ++y;
      if (c.star >= 0 && generator() % 4 == 0) y = c.star;
    }
    data.targets.push_back(targets);
  }
  if (c.prior) {
    const DType reals = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    for (int k = 0; k < c.classes; ++k) data.prior.push_back(rounded(normal(generator), reals));
  }
  return data;
}

template <class T>
std::vector<T> converted(const std::vector<double>& from) {
  std::vector<T> to(from.size());
  for (std::size_t k = 0; k < from.size(); ++k) {
    if constexpr (sizeof(T) == 2) {
      to[k] = T::rounded(static_cast<float>(from[k]));
    } else {
      to[k] = static_cast<T>(from[k]);
    }
  }
  return to;
}

template <class T>
double widened(T v) {
  if constexpr (sizeof(T) == 2) return static_cast<double>(static_cast<float>(v));
  if constexpr (sizeof(T) != 2) return static_cast<double>(v);
}

// Strides of (B, T, C) in the case's memory order.
inline std::vector<std::int64_t> strides_of(const Case& c) {
  const std::int64_t step = c.strided ? 3 : 1;
  const std::int64_t row = step * c.classes + (c.strided ? 5 : 0);
  if (c.frames_first) return {row, row * c.batch, step};
  return {row * c.frames, row, step};
}

template <class Integer>
std::vector<Integer> padded_targets(const Case& c, const Data& data) {
  std::vector<Integer> targets;
  for (const auto& of : data.targets) {
    targets.insert(targets.end(), of.begin(), of.end());
    if (!c.flat) targets.resize(targets.size() + c.labels - of.size(), Integer{-1});
  }
  return targets;
}
template <class Integer>
std::vector<Integer> label_counts_of(const Data& data) {
  std::vector<Integer> counts;
  for (const auto& of : data.targets) counts.push_back(static_cast<Integer>(of.size()));
  return counts;
}

// A case's problem on the device.
template <class Element, class Integer>
class DeviceCase {
 public:
  using Real = std::conditional_t<std::is_same_v<Element, double>, double, float>;

  DeviceCase(const Case& c, const Data& data)
      : case_(c),
        strides_(strides_of(c)),
        elements_(spread_out(data)),
        logits(converted<Element>(elements_)),
        targets_(padded_targets<Integer>(c, data)),
        label_counts_(label_counts_of<Integer>(data)),
        frame_counts_(std::vector<Integer>(c.frame_counts.begin(), c.frame_counts.end())),
        prior_(converted<Real>(data.prior)) {
    p.dtype = c.dtype;
    p.batch = c.batch;
    p.frames = c.frames;
    p.classes = c.classes;
    p.labels = c.labels;
    p.logits.data = logits.data();
    std::copy(strides_.begin(), strides_.end(), p.logits.stride);
    p.targets = static_cast<const Integer*>(targets_.data());
    if (!c.label_counts.empty() || c.flat) {
      p.target_lengths = static_cast<const Integer*>(label_counts_.data());
    }
    if (!c.frame_counts.empty()) p.logit_lengths = static_cast<const Integer*>(frame_counts_.data());
    p.flat_targets = c.flat;
    p.target_count = static_cast<std::int64_t>(padded_targets<Integer>(c, data).size());
    p.blank = c.blank;
    p.star = c.star;
    if (c.prior) p.prior = prior_.data();
    p.log_probs = c.log_probs;
    p.zero_infinity = c.zero_infinity;
  }

  [[nodiscard]] std::size_t size() const { return elements_.size(); }
  [[nodiscard]] std::int64_t place(int b, int t, int k) const {
    return b * strides_[0] + t * strides_[1] + k * strides_[2];
  }

 private:
  // NaN in the padding, and between rows.
  std::vector<double> spread_out(const Data& data) const {
    if (case_.frames == 0) return {};
    std::vector<double> all(place(case_.batch - 1, case_.frames - 1, case_.classes - 1) + 1, kNan);
    for (int b = 0; b < case_.batch; ++b) {
      for (int t = 0; t < case_.frames_of(b); ++t) {
        for (int k = 0; k < case_.classes; ++k) all[place(b, t, k)] = data.logits[case_.place(b, t, k)];
      }
    }
    return all;
  }

  const Case case_;
  const std::vector<std::int64_t> strides_;
  const std::vector<double> elements_;

 public:
  const DeviceBuffer logits;
  CtcProblem p;

 private:
  const DeviceBuffer targets_, label_counts_, frame_counts_, prior_;
};

// Calls function(Workspace) with so many bytes, and expects that all is well.
template <class Function>
void with_workspace(std::size_t bytes, const Function& function) {
  const DeviceBuffer memory(bytes);
  const Status status = function(Workspace{memory.data(), bytes});
  EXPECT_TRUE(status.ok()) << to_string(status);
}

// function(Element{}, Integer{}) for the case's types.
template <class Function>
auto with_types(const Case& c, const Function& function) {
  switch (c.dtype) {
    case DType::kFloat64:
      return c.wide_integers ? function(double{}, std::int64_t{}) : function(double{}, std::int32_t{});
    case DType::kFloat16:
      return function(Float16{}, std::int32_t{});
    case DType::kBFloat16:
      return function(BFloat16{}, std::int64_t{});
    default:
      return c.wide_integers ? function(float{}, std::int64_t{}) : function(float{}, std::int32_t{});
  }
}

inline std::string name_of(const Case& c) {
  return "B " + std::to_string(c.batch) + " T " + std::to_string(c.frames) + " C " +
         std::to_string(c.classes) + " U " + std::to_string(c.labels) + " dtype " +
         std::to_string(static_cast<int>(c.dtype)) + " seed " + std::to_string(c.seed);
}

// A frame's logits of an utterance, for the reference.
inline std::vector<double> logits_of(const Case& c, const Data& data, int b) {
  const auto begin = data.logits.begin() + static_cast<std::ptrdiff_t>(c.place(b, 0, 0));
  return {begin, begin + static_cast<std::ptrdiff_t>(c.frames_of(b)) * c.classes};
}

class CtcCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

}  // namespace warpalign::test
