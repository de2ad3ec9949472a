// warpalign::soft_dtw_jvp on every path against central differences of the float64 reference, and its
// contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixture.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test::soft_dtw {
namespace {

const CostKind kCosts[] = {CostKind::kSquaredEuclidean, CostKind::kEuclidean, CostKind::kL1,
                           CostKind::kCosine, CostKind::kHuber};

// A batch and a tangent of each of its inputs.
template <typename T>
struct Dual {
  Batch<T> batch, tangents;
  Dual(Shape shape, double gamma, unsigned seed)
      : batch(shape, gamma, seed), tangents(shape, 1, seed + 1000) {}
};

template <typename T, typename Buffer = HostBuffer>
struct Call {
  const Dual<T>& dual;
  Buffer x{dual.batch.x.data}, y{dual.batch.y.data}, cost{dual.batch.cost.data};
  Buffer x_lengths{dual.batch.x_lengths}, y_lengths{dual.batch.y_lengths};
  Buffer x_mask{dual.batch.x_mask}, y_mask{dual.batch.y_mask}, gammas{dual.batch.gammas};
  Buffer x_tangent{dual.tangents.x.data}, y_tangent{dual.tangents.y.data},
      cost_tangent{dual.tangents.cost.data};
  Buffer value, grad_x, grad_y, alignment;
  SoftDtwProblem problem;
  SoftDtwTangents tangents;
  SoftDtwOutputs out;

  explicit Call(const Dual<T>& d)
      : dual(d),
        value(count(1) * sizeof(T)),
        grad_x(d.batch.x.data.size() * sizeof(T)),
        grad_y(d.batch.y.data.size() * sizeof(T)),
        alignment(count(d.batch.shape.n * d.batch.shape.m) * sizeof(T)) {
    const Batch<T>& b = d.batch;
    const auto view = [](const Buffer& buffer, const Tensor<T>& tensor) {
      return StridedTensor{buffer.data(), {tensor.stride[0], tensor.stride[1], tensor.stride[2]}};
    };
    problem.dtype = kDType<T>;
    problem.batch = b.shape.batch;
    problem.n = b.shape.n;
    problem.m = b.shape.m;
    problem.dim = b.shape.dim;
    problem.gamma = b.gamma;
    problem.band = b.options.band;
    problem.step_penalty = b.options.step_penalty;
    problem.cost_kind = b.options.cost_kind;
    if (!b.x_mask.empty()) problem.x_mask = static_cast<const std::uint8_t*>(x_mask.data());
    if (!b.y_mask.empty()) problem.y_mask = static_cast<const std::uint8_t*>(y_mask.data());
    if (!b.gammas.empty()) problem.gammas = gammas.data();
    if (!b.x_lengths.empty()) problem.x_lengths = static_cast<const std::int32_t*>(x_lengths.data());
    if (!b.y_lengths.empty()) problem.y_lengths = static_cast<const std::int32_t*>(y_lengths.data());
    if (b.shape.dim > 0) {
      problem.x = view(x, b.x);
      problem.y = view(y, b.y);
      tangents = {view(x_tangent, d.tangents.x), view(y_tangent, d.tangents.y), {}};
      out = {value.data(), grad_x.data(), grad_y.data(), alignment.data()};
    } else {
      problem.cost = view(cost, b.cost);
      tangents.cost = view(cost_tangent, d.tangents.cost);
      out = {value.data(), nullptr, nullptr, alignment.data()};
    }
  }

  [[nodiscard]] std::size_t count(int per_pair) const {
    return static_cast<std::size_t>(dual.batch.shape.batch) * per_pair;
  }
  [[nodiscard]] Status run(const Execution& execution = Execution::host()) const {
    const std::size_t bytes = soft_dtw_jvp_workspace_bytes(problem, tangents, out, execution);
    const Buffer workspace(bytes);
    return warpalign::soft_dtw_jvp(problem, tangents, out, {workspace.data(), bytes}, execution);
  }
  [[nodiscard]] Outputs<T> results() const {
    return {value.template read<T>(count(1)), grad_x.template read<T>(dual.batch.x.data.size()),
            grad_y.template read<T>(dual.batch.y.data.size()),
            alignment.template read<T>(count(problem.n * problem.m))};
  }
};

// On the path of the test that runs; without tangents: null ones.
template <typename Buffer, typename T>
Outputs<T> results_on(const Dual<T>& dual, bool with_tangents, const Execution& execution) {
  Call<T, Buffer> call(dual);
  if (!with_tangents) call.tangents = {};
  const Status status = call.run(execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  return call.results();
}
template <typename T>
Outputs<T> results(const Dual<T>& dual, bool with_tangents = true) {
#if WARPALIGN_TEST_CUDA
  if (SoftDtw::GetParam().cuda)
    return results_on<DeviceBuffer>(dual, with_tangents, Execution::cuda(0, nullptr));
#endif
  return results_on<HostBuffer>(dual, with_tangents, Execution::host());
}

// The reference at inputs moved along the tangents, in float64.
template <typename T>
reference::Result moved(const Dual<T>& dual, int b, double step) {
  Batch<double> wide({1, dual.batch.n(b), dual.batch.m(b), dual.batch.shape.dim}, dual.batch.gamma, 0);
  const auto fill = [b, step](Tensor<double>& to, const Tensor<T>& from, const Tensor<T>& along, int rows,
                              int columns) {
    for (int i = 0; i < rows; ++i) {
      for (int k = 0; k < columns; ++k) {
        to.at(0, i, k) =
            static_cast<double>(from.at(b, i, k)) + step * static_cast<double>(along.at(b, i, k));
      }
    }
  };
  const Shape s = wide.shape;
  if (s.dim > 0) {
    fill(wide.x, dual.batch.x, dual.tangents.x, s.n, s.dim);
    fill(wide.y, dual.batch.y, dual.tangents.y, s.m, s.dim);
  } else {
    fill(wide.cost, dual.batch.cost, dual.tangents.cost, s.n, s.m);
  }
  wide.options = dual.batch.options;
  const auto row = [b](const std::vector<std::uint8_t>& mask, int full, int length) {
    const auto* const first = mask.data() + static_cast<std::ptrdiff_t>(b) * full;
    return mask.empty() ? mask : std::vector<std::uint8_t>(first, first + length);
  };
  wide.x_mask = row(dual.batch.x_mask, dual.batch.shape.n, s.n);
  wide.y_mask = row(dual.batch.y_mask, dual.batch.shape.m, s.m);
  if (!dual.batch.gammas.empty()) wide.gammas = {static_cast<double>(dual.batch.gammas[b])};
  return wide.expected(0);
}

// Central differences lose half of float64's digits. Seen on the CPU: 1.3e-6 of the slope's norm. Where the
// slope is nearly 0 the rounding of the subtracted numbers counts: 2.2e-16 of their norm, divided by twice
// the step.
template <typename T>
void expect_directional(const Dual<T>& dual) {
  const Outputs<T> got = results(dual);
  const auto [pairs, n, m, dim] = dual.batch.shape;
  const double step = 1e-6;
  for (int b = 0; b < pairs; ++b) {
    SCOPED_TRACE(::testing::Message()
                 << "pair " << b << " N=" << dual.batch.n(b) << "/" << n << " M=" << dual.batch.m(b) << "/"
                 << m << " D=" << dim << " cost=" << static_cast<int>(dual.batch.options.cost_kind)
                 << " gamma=" << dual.batch.gamma);
    const reference::Result after = moved(dual, b, step);
    const reference::Result before = moved(dual, b, -step);
    const auto expect = [step](const T* values, const std::vector<double>& high,
                               const std::vector<double>& low, int rows, int columns, int full_rows,
                               int full_columns) {
      std::vector<double> slope(high.size());
      double norm = 0, size = 0;
      for (std::size_t k = 0; k < slope.size(); ++k) {
        slope[k] = (high[k] - low[k]) / (2 * step);
        norm += slope[k] * slope[k];
        size += high[k] * high[k];
      }
      const double relative = error(values, slope, rows, columns, full_rows, full_columns);
      EXPECT_LE(relative * std::sqrt(norm), 2e-5 * std::sqrt(norm) + 1e-7 * std::sqrt(size) + 1e-9);
    };
    const auto at = [b](const std::vector<T>& all, int rows, int columns) {
      return all.data() + static_cast<std::size_t>(b) * rows * columns;
    };
    expect(at(got.value, 1, 1), {after.value}, {before.value}, 1, 1, 1, 1);
    expect(at(got.alignment, n, m), after.alignment, before.alignment, dual.batch.n(b), dual.batch.m(b), n,
           m);
    if (dim == 0) continue;
    expect(at(got.grad_x, n, dim), after.grad_x, before.grad_x, dual.batch.n(b), dim, n, dim);
    expect(at(got.grad_y, m, dim), after.grad_y, before.grad_y, dual.batch.m(b), dim, m, dim);
  }
}

template <typename T>
void grid(int turn) {
  const int dims[] = {1, 2, 5, 0, 9};
  const double penalties[] = {0, 0.3, 4.0};
  for (int n : {1, 2, 33, 130, 257}) {
    for (int m : {1, 31, 129, 300}) {
      ++turn;
      const int dim = dims[turn % 5];
      Dual<T> dual({1 + turn % 2, n, m, dim}, turn % 3 == 0 ? 0.3 : 2.0, turn);
      Batch<T>& batch = dual.batch;
      // The cosine of one feature is a constant.
      batch.options.cost_kind = kCosts[turn / 5 % 5];
      if (batch.options.cost_kind == CostKind::kCosine && dim == 1)
        batch.options.cost_kind = CostKind::kSquaredEuclidean;
      batch.options.step_penalty = penalties[turn % 3];
      if (turn % 4 == 0) batch.options.band = {BandKind::kSakoeChiba, turn % 50, 2.0};
      if (turn % 8 == 0 && dim > 0) {
        batch.x_mask.assign(static_cast<std::size_t>(batch.shape.batch) * n, 0);
        for (std::size_t k = 0; k < batch.x_mask.size(); k += 3) batch.x_mask[k] = 1;
      }
      if (turn % 6 == 0) batch.gammas = std::vector<T>(batch.shape.batch, T(0.7));
      expect_directional(dual);
    }
  }
}

TEST_P(SoftDtw, JvpGridFloat32) { grid<float>(0); }
TEST_P(SoftDtw, JvpGridFloat64) { grid<double>(7); }

TEST_P(SoftDtw, JvpOfEveryCost) {
  for (CostKind kind : kCosts) {
    for (int dim : {2, 4, 17}) {
      Dual<double> dual({2, 140, 135, dim}, 1.0, 42);
      dual.batch.options.cost_kind = kind;
      dual.batch.x_lengths = {140, 33};
      dual.batch.y_lengths = {101, 135};
      dual.batch.fill_padding_with_nan();
      expect_directional(dual);
    }
  }
}

TEST_P(SoftDtw, JvpOfBands) {
  for (BandKind kind : {BandKind::kSakoeChiba, BandKind::kAbsolute, BandKind::kSlanted, BandKind::kItakura}) {
    for (int dim : {0, 3}) {
      Dual<double> dual({1, 270, 260, dim}, 0.5, 43);
      dual.batch.options.band = {kind, 15, 2.0};
      expect_directional(dual);
    }
  }
}

TEST_P(SoftDtw, JvpWithoutTangentsIsZero) {
  for (int dim : {0, 3}) {
    const Dual<float> dual({2, 20, 30, dim}, 1.0, 44);
    const Outputs<float> got = results(dual, false);
    const auto zero = [](float v) { return v == 0; };
    EXPECT_TRUE(std::all_of(got.value.begin(), got.value.end(), zero));
    EXPECT_TRUE(std::all_of(got.grad_x.begin(), got.grad_x.end(), zero));
    EXPECT_TRUE(std::all_of(got.alignment.begin(), got.alignment.end(), zero));
  }
}

// Differences of exactly 1, which the step that is the slope of "l1" equals.
TEST_P(SoftDtw, JvpAtDifferencesOfOne) {
  for (CostKind kind : {CostKind::kL1, CostKind::kEuclidean, CostKind::kSquaredEuclidean}) {
    Dual<double> dual({1, 40, 50, 3}, 0.7, 49);
    dual.batch.options.cost_kind = kind;
    for (double& v : dual.batch.x.data) v = 2 * std::round(v);
    for (double& v : dual.batch.y.data) v = 2 * std::round(v) + 1;
    expect_directional(dual);
  }
}

TEST_P(SoftDtw, JvpOfTheValueAloneAndOnThreadsHasTheSameBits) {
  if (GetParam().cuda) GTEST_SKIP() << "threads of a CPU";
  const Dual<float> dual({5, 150, 140, 3}, 1.0, 45);
  const Call<float> call(dual);
  ASSERT_TRUE(call.run().ok());
  ThreadPool pool(3);
  const Call<float> threaded(dual);
  ASSERT_TRUE(threaded.run(Execution::host(pool.parallel_for())).ok());
  EXPECT_TRUE(same_bits(call.results(), threaded.results()));
  Call<float> value(dual);
  value.out = {value.value.data()};
  ASSERT_TRUE(value.run().ok());
  EXPECT_TRUE(same_bits(call.results().value, value.results().value));
  EXPECT_TRUE(value.grad_x.untouched());
}

TEST_P(SoftDtw, JvpOfNanAndInf) {
  Dual<float> dual({3, 20, 30, 0}, 1.0, 46);
  dual.batch.cost.at(0, 3, 4) = static_cast<float>(kNan);
  for (int j = 0; j < 30; ++j) dual.batch.cost.at(1, 7, j) = static_cast<float>(kInf);
  dual.batch.cost.at(2, 7, 7) = static_cast<float>(kInf);
  dual.tangents.cost.at(2, 7, 7) = static_cast<float>(kNan);  // of a forbidden cell
  const Outputs<float> got = results(dual);
  EXPECT_TRUE(std::isnan(got.value[0]) && std::isnan(got.alignment[599]));
  EXPECT_EQ(got.value[1], 0);
  EXPECT_TRUE(std::all_of(&got.alignment[600], &got.alignment[1200], [](float v) { return v == 0; }));
  EXPECT_TRUE(
      std::all_of(&got.alignment[1200], &got.alignment[1799], [](float v) { return std::isfinite(v); }));
  EXPECT_TRUE(std::isfinite(got.value[2]));
}

TEST(SoftDtwJvp, KeepsNoTable) {
  const Dual<float> dual({1, 1, 1, 1}, 1.0, 47);
  Call<float> call(dual);
  call.out.alignment = nullptr;
  call.problem.n = call.problem.m = 8192;
  const std::size_t bytes =
      soft_dtw_jvp_workspace_bytes(call.problem, call.tangents, call.out, Execution::host());
  EXPECT_LT(bytes, std::size_t{8192} * 8192 * sizeof(float) / 8);
}

TEST(SoftDtwJvp, RefusesWhatItDoesNotHave) {
  const Dual<float> dual({1, 3, 4, 2}, 1.0, 48);
  const auto refused = [&dual](StatusCode code, const char* argument, auto spoil, Execution execution) {
    Call<float> call(dual);
    spoil(call);
    const Status status = call.run(execution);
    EXPECT_EQ(status.code, code);
    EXPECT_STREQ(status.argument, argument);
    EXPECT_TRUE(call.value.untouched() && call.grad_x.untouched());
  };
  const Execution host = Execution::host();
  refused(
      StatusCode::kUnsupported, "gamma", [](Call<float>& c) { c.problem.gamma = 0; }, host);
  refused(
      StatusCode::kUnsupported, "subsequence", [](Call<float>& c) { c.problem.subsequence = true; }, host);
#if !WARPALIGN_TEST_CUDA
  const auto nothing = [](Call<float>&) {};
  refused(StatusCode::kUnsupported, "execution", nothing, Execution::cuda(0, nullptr));
#endif
  refused(
      StatusCode::kInvalidArgument, "grad_gamma", [](Call<float>& c) { c.out.grad_gamma = c.grad_y.data(); },
      host);
  refused(
      StatusCode::kInvalidArgument, "tangents", [](Call<float>& c) { c.tangents.cost = c.tangents.x; }, host);
  refused(
      StatusCode::kInvalidArgument, "n", [](Call<float>& c) { c.problem.n = 0; }, host);
  refused(
      StatusCode::kInvalidArgument, "tangents",
      [](Call<float>& c) { c.tangents.y.data = static_cast<const char*>(c.tangents.y.data) + 1; }, host);
  refused(
      StatusCode::kInvalidArgument, "grad_y", [](Call<float>& c) { c.out.grad_y = c.out.grad_x; }, host);
  refused(
      StatusCode::kInvalidArgument, "dim", [](Call<float>& c) { c.problem.dim = 1 << 30; }, host);
  Call<float> call(dual);
  EXPECT_STREQ(warpalign::soft_dtw_jvp(call.problem, call.tangents, call.out, {}, host).argument,
               "workspace");
}

WARPALIGN_FOR_EVERY(SoftDtw, all_paths);

}  // namespace
}  // namespace warpalign::test::soft_dtw
