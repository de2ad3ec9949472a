// CTC's losses and gradients on CUDA against the float64 reference: sizes around the edges of strips, panels,
// groups of frames, segments and chunks; every type, stride and option; utterances without a path, and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ctc/cuda/call/budget.h"
#include "cuda_cases.h"

namespace warpalign::test {
namespace {

struct Result {
  std::vector<double> loss, gradient;  // (B,), (B, T, C)
  std::vector<double> posteriors;      // (B, T, U)
};

template <class Element, class Integer>
Result run_typed(const Case& c, const Data& data) {
  const DeviceCase<Element, Integer> on_device(c, data);
  using Real = typename DeviceCase<Element, Integer>::Real;
  const CtcProblem& p = on_device.p;
  const Execution execution = Execution::cuda(0, nullptr);
  const DeviceBuffer loss(c.batch * sizeof(Real)), value(c.batch * sizeof(Real));
  const DeviceBuffer saved(ctc::saved_bytes_cuda(p, execution));
  const CtcOutputs out{loss.data(), saved.data()}, alone{value.data(), nullptr};
  with_workspace(ctc::loss_workspace_bytes_cuda(p, out, execution),
                 [&](Workspace w) { return ctc::loss_cuda(p, out, w, execution); });
  with_workspace(ctc::loss_workspace_bytes_cuda(p, alone, execution),
                 [&](Workspace w) { return ctc::loss_cuda(p, alone, w, execution); });

  Result result;
  const std::size_t labels = static_cast<std::size_t>(c.batch) * c.frames * c.labels;
  const DeviceBuffer posteriors(labels * sizeof(Real));
  const CtcPosteriors wanted{nullptr, posteriors.data()};
  with_workspace(ctc::posteriors_workspace_bytes_cuda(p, wanted, execution),
                 [&](Workspace w) { return ctc::posteriors_cuda(p, wanted, w, execution); });
  for (const Real v : posteriors.read<Real>(labels)) result.posteriors.push_back(v);

  std::vector<double> factors(c.batch);
  for (int b = 0; b < c.batch; ++b) factors[b] = c.grad * (b + 1);
  const DeviceBuffer grad_loss(converted<Real>(factors));
  const DeviceBuffer grad(on_device.size() * sizeof(Element));
  CtcGradient g;
  g.saved = saved.data();
  g.grad_loss = grad_loss.data();
  g.logits = c.in_place ? on_device.logits.data() : grad.data();
  std::copy(p.logits.stride, p.logits.stride + 3, g.logits_stride);
  with_workspace(ctc::gradient_workspace_bytes_cuda(p, g, execution),
                 [&](Workspace w) { return ctc::gradient_cuda(p, g, w, execution); });

  const std::vector<Real> values = value.read<Real>(c.batch);
  for (const Real v : loss.read<Real>(c.batch)) result.loss.push_back(v);
  for (int b = 0; b < c.batch; ++b) {
    if (std::isnan(result.loss[b])) continue;
    EXPECT_EQ(values[b], result.loss[b]) << "without a gradient";
  }
  const auto all = (c.in_place ? on_device.logits : grad).template read<Element>(on_device.size());
  for (int b = 0; b < c.batch; ++b) {
    for (int t = 0; t < c.frames; ++t) {
      for (int k = 0; k < c.classes; ++k) result.gradient.push_back(widened(all[on_device.place(b, t, k)]));
    }
  }
  return result;
}

Result run(const Case& c, const Data& data) {
  return with_types(c, [&](auto element, auto integer) {
    return run_typed<decltype(element), decltype(integer)>(c, data);
  });
}

// Errors of the gradient, as multiples of the upstream factor: of float32's recursion, and of its rounding in
// the end.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-11;
    case DType::kFloat16:
      return 0x1p-11 + 2e-6;
    case DType::kBFloat16:
      return 0x1p-8 + 2e-6;
    default:
      return 2e-6;
  }
}

void check_posteriors(const Case& c, int b, int labels, const std::vector<double>& expected,
                      const std::vector<double>& all) {
  const double tolerance = c.dtype == DType::kFloat64 ? 1e-11 : 2e-6;
  for (int t = 0; t < c.frames; ++t) {
    for (int k = 0; k < c.labels; ++k) {
      const double got = all[(static_cast<std::size_t>(b) * c.frames + t) * c.labels + k];
      if (t >= c.frames_of(b) || k >= labels) {
        ASSERT_EQ(got, 0.0) << "padding of the posteriors";
        continue;
      }
      const double want = expected[static_cast<std::size_t>(t) * (2 * labels + 1) + 2 * k + 1];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << "posterior";
      } else {
        ASSERT_NEAR(got, want, tolerance) << "posterior of label " << k << " at frame " << t;
      }
    }
  }
}

// Compares with the reference.
void check(const Case& c, const Data& data) {
  SCOPED_TRACE(name_of(c));
  const Result result = run(c, data);
  const double loss_tolerance = c.dtype == DType::kFloat64 ? 1e-12 : 1e-6;
  for (int b = 0; b < c.batch; ++b) {
    SCOPED_TRACE("utterance " + std::to_string(b));
    const int frames = c.frame_counts.empty() ? c.frames : c.frame_counts[b];
    const ctc::reference::Ctc problem{frames, c.classes,  data.targets[b], c.blank,
                                      c.star, data.prior, c.log_probs,     c.zero_infinity};
    const std::size_t begin = static_cast<std::size_t>(b) * c.frames * c.classes;
    const std::size_t size = static_cast<std::size_t>(frames) * c.classes;
    const std::vector<double> logits(data.logits.begin() + begin, data.logits.begin() + begin + size);
    const auto expected = ctc::reference::ctc(problem, logits);
    if (std::isnan(expected.loss) || std::isinf(expected.loss)) {
      EXPECT_TRUE(std::isnan(expected.loss) ? std::isnan(result.loss[b]) : result.loss[b] == expected.loss)
          << result.loss[b] << " in place of " << expected.loss;
    } else {
      EXPECT_NEAR(result.loss[b], expected.loss, loss_tolerance * (1 + std::fabs(expected.loss)));
    }
    check_posteriors(c, b, static_cast<int>(data.targets[b].size()), expected.posteriors, result.posteriors);
    double worst = 0;
    std::size_t at = 0;
    const double factor = c.grad * (b + 1);
    for (std::size_t k = 0; k < size; ++k) {
      const double want = expected.gradient[k] * factor, got = result.gradient[begin + k];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << k;
        continue;
      }
      ASSERT_TRUE(std::isfinite(got)) << "element " << k << ": " << got;
      if (std::fabs(got - want) > worst) worst = std::fabs(got - want), at = k;
    }
    EXPECT_LE(worst, tolerance_of(c.dtype) * std::fabs(factor))
        << "frame " << at / c.classes << " class " << at % c.classes;
    for (std::size_t k = size; k < static_cast<std::size_t>(c.frames) * c.classes; ++k) {
      ASSERT_EQ(result.gradient[begin + k], 0.0) << "padding";
    }
  }
}
void check(const Case& c) { check(c, draw(c)); }

class CtcLossCuda : public CtcCuda {};

TEST_F(CtcLossCuda, WhatIsSavedIsWithinTheBound) {
  for (const int frames : {0, 1, 16, 17, 255, 256, 257, 1500, 60000}) {
    for (const int labels : {0, 1, 31, 32, 400, 15000}) {
      for (const int batch : {1, 7}) {
        CtcProblem p;
        p.batch = batch;
        p.frames = frames;
        p.classes = 32;
        p.labels = labels;
        p.star = 3;
        p.flat_targets = true;
        for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
          p.dtype = dtype;
          EXPECT_LE(ctc::saved_bytes_cuda(p, Execution::cuda(0, nullptr)), ctc_most_saved_bytes(p))
              << "T " << frames << " U " << labels << " B " << batch;
        }
      }
    }
  }
}

TEST_F(CtcLossCuda, AgreesAroundTheEdgesOfStripsAndSegments) {
  unsigned seed = 0;
  for (const int frames : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 48, 65}) {
    for (const int labels : {0, 1, 2, 5, 16, 30, 31, 32, 33}) {
      if (labels > frames) continue;
      for (const int classes : {3, 33})
        check({.batch = 2, .frames = frames, .classes = classes, .labels = labels, .seed = ++seed});
    }
  }
}

TEST_F(CtcLossCuda, AgreesWithSeveralPanels) {
  check({.batch = 2, .frames = 140, .classes = 5, .labels = 127, .seed = 1});
  check({.batch = 1, .frames = 150, .classes = 12, .labels = 128, .seed = 2});
  check({.batch = 2, .frames = 310, .classes = 40, .labels = 300, .kinds = 7, .seed = 3});
  check({.batch = 1, .frames = 300, .classes = 9, .labels = 97, .dtype = DType::kFloat64, .seed = 4});
  check({.batch = 1, .frames = 310, .classes = 9, .labels = 260, .dtype = DType::kFloat64, .seed = 5});
}

// With all states kept, with chunks swept again, and with these in several rounds.
TEST_F(CtcLossCuda, RoundsOfChunksGiveTheSameBits) {
  for (const int labels : {10, 40, 140}) {
    const Case c{.batch = 2, .frames = 330, .classes = 9, .labels = labels, .frame_counts = {330, 170}};
    const Data data = draw(c);
    const std::vector<double> whole = run(c, data).gradient;
    const std::size_t whole_before = std::exchange(ctc::whole_budget, 0);
    check(c, data);
    const std::vector<double> in_one_round = run(c, data).gradient;
    const std::size_t round_before = std::exchange(ctc::round_budget, 400 * labels);
    check(c, data);
    const std::vector<double> in_rounds = run(c, data).gradient;
    ctc::round_budget = round_before;
    ctc::whole_budget = whole_before;
    EXPECT_EQ(whole, in_one_round);
    EXPECT_EQ(whole, in_rounds);
  }
}

TEST_F(CtcLossCuda, ManyLabelsOfManyClassesAreAddedUpInMemory) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    check({.batch = 2,
           .frames = 40,
           .classes = 2000,
           .labels = 1700,
           .dtype = dtype,
           .label_counts = {20, 33},
           .kinds = 9});
  }
}

TEST_F(CtcLossCuda, AgreesForEveryType) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const int classes : {2, 17, 64, 600, 1031}) {
      for (const bool in_place : {false, true}) {
        check({.batch = 3,
               .frames = 40,
               .classes = classes,
               .labels = 20,
               .dtype = dtype,
               .frame_counts = {40, 33, 21},
               .label_counts = {20, 3, 0},
               .in_place = in_place,
               .wide_integers = in_place});
      }
    }
  }
}

TEST_F(CtcLossCuda, AgreesForEveryLayout) {
  for (const int classes : {19, 700}) {
    for (const bool frames_first : {false, true}) {
      for (const bool strided : {false, true}) {
        for (const bool flat : {false, true}) {
          check({.batch = 5,
                 .frames = 37,
                 .classes = classes,
                 .labels = 34,
                 .frame_counts = {37, 0, 36, 1, 20},
                 .label_counts = {12, 0, 34, 1, 5},
                 .blank = 7,
                 .flat = flat,
                 .frames_first = frames_first,
                 .strided = strided,
                 .in_place = strided});
        }
      }
    }
  }
}

TEST_F(CtcLossCuda, AgreesForEveryOption) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    for (const int classes : {6, 800}) {
      for (const int star : {-1, 3, 1000}) {
        for (const bool prior : {false, true}) {
          for (const bool log_probs : {false, true}) {
            check({.batch = 2,
                   .frames = 50,
                   .classes = classes,
                   .labels = 15,
                   .dtype = dtype,
                   .blank = 2,
                   .star = star,
                   .prior = prior,
                   .log_probs = log_probs,
                   .kinds = 5,
                   .grad = -0.5});
          }
        }
      }
    }
  }
}

// The extent of labels is beyond what frames have room for, as with flat targets of many utterances.
TEST_F(CtcLossCuda, FewFramesOfManyLabels) {
  for (const bool flat : {false, true}) {
    for (const int classes : {5, 3000}) {
      check({.batch = 5,
             .frames = 20,
             .classes = classes,
             .labels = 150,
             .frame_counts = {20, 20, 13, 0, 20},
             .label_counts = {9, 150, 3, 40, 21},
             .flat = flat});
    }
  }
}

TEST_F(CtcLossCuda, TooFewFramesHaveNoPath) {
  for (const bool zero_infinity : {false, true}) {
    for (const bool log_probs : {false, true}) {
      check({.batch = 6,
             .frames = 40,
             .classes = 3,
             .labels = 40,
             .frame_counts = {0, 0, 1, 20, 40, 39},
             .label_counts = {0, 1, 2, 21, 36, 40},
             .log_probs = log_probs,
             .zero_infinity = zero_infinity,
             .kinds = 2});
    }
  }
}

TEST_F(CtcLossCuda, ClassesThatCannotBeEmittedStayFinite) {
  for (const int classes : {5, 700}) {
    const Case c{.batch = 3, .frames = 40, .classes = classes, .labels = 8};
    Data data = draw(c);
    const auto at = [&](int b, int t, int k) -> double& { return data.logits[c.place(b, t, k)]; };
    for (int t = 0; t < 40; t += 3) at(0, t, 1 + t % 4) = -kInf;
    for (int t = 0; t < 40; ++t) at(1, t, data.targets[1][4]) = -kInf;  // no path
    for (int k = 0; k < classes; ++k) at(2, 11, k) = -kInf;             // no path
    check(c, data);
  }
}

TEST_F(CtcLossCuda, NaNStaysInItsUtterance) {
  for (const bool log_probs : {false, true}) {
    for (const double bad : {kNan, kInf}) {
      for (const int labels : {8, 40, 150}) {
        const Case c{.batch = 4, .frames = 200, .classes = 5, .labels = labels, .log_probs = log_probs};
        Data data = draw(c);
        const auto at = [&](int b, int t, int k) -> double& { return data.logits[c.place(b, t, k)]; };
        at(0, 199, data.targets[0][0]) = bad;
        at(1, 0, data.targets[1].back()) = bad;
        at(2, 100, 0) = bad;
        check(c, data);
      }
    }
  }
}

// A NaN that no path to the end comes through, found in another strip than the last.
TEST_F(CtcLossCuda, NaNCountsWhereNoPathPasses) {
  const Case c{.batch = 1, .frames = 200, .classes = 170, .labels = 150, .log_probs = true};
  Data data = draw(c);
  for (int k = 0; k < c.labels; ++k) data.targets[0][k] = k + 1;
  data.logits[static_cast<std::size_t>(199) * c.classes + 1] = kNan;
  check(c, data);
}

TEST_F(CtcLossCuda, InvalidLabelsGiveNaN) {
  for (const int bad : {-1, 0, 5, 1 << 30}) {
    const Case c{.batch = 2, .frames = 30, .classes = 5, .labels = 6};
    Data data = draw(c);
    data.targets[0][3] = bad;
    const Result result = run(c, data);
    EXPECT_TRUE(std::isnan(result.loss[0]));
    EXPECT_TRUE(std::isfinite(result.loss[1]));
    for (std::size_t k = 0; k < 30 * 5; ++k) EXPECT_TRUE(std::isnan(result.gradient[k]));
    for (std::size_t k = 30 * 5; k < 60 * 5; ++k) EXPECT_TRUE(std::isfinite(result.gradient[k]));
  }
}

TEST_F(CtcLossCuda, ExtremeLogitsKeepTheirDigits) {
  for (const double spread : {50.0, 1000.0, 1e-3}) {
    check({.batch = 2, .frames = 100, .classes = 20, .labels = 40, .spread = spread});
    check({.batch = 2, .frames = 100, .classes = 20, .labels = 40, .log_probs = true, .spread = spread});
  }
}

TEST_F(CtcLossCuda, AnUpstreamFactorOfZeroGivesZero) {
  const Case c{.batch = 2, .frames = 30, .classes = 5, .labels = 6, .grad = 0};
  Data data = draw(c);
  data.targets[0][3] = -7;
  for (const double g : run(c, data).gradient) EXPECT_EQ(g, 0.0);
}

}  // namespace
}  // namespace warpalign::test
