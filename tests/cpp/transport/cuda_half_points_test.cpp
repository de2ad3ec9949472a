// Sinkhorn between points rounded to binary16 on CUDA, against the float64 CPU path with as many iterations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "device_buffer.h"
#include "testing.h"
#include "warpalign/kernel_launches.h"

namespace warpalign::test {
namespace {

class TransportHalfPointsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

struct Case {
  int n, m, dim;
  double rho_a = kInf, rho_b = kInf, mass = 0;
  TransportReference reference = TransportReference::kProduct;
  int iterations = 3;
};

struct Answer {
  Status status;
  std::vector<double> f, g;
  double value, linear, shift;
  std::int32_t iterations;
};

template <class Real, class Buffer>
Answer answer(const Case& c, const std::vector<double>& x, const std::vector<double>& y,
              const Execution& execution) {
  const Buffer x_data(as<Real>(x)), y_data(as<Real>(y)), a(as<Real>(weights(c.n, 3))),
      b(as<Real>(weights(c.m, 4))), start(as<Real>(normal(c.n, 5, 0.1)));
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = 1;
  p.n = c.n;
  p.m = c.m;
  p.dim = c.dim;
  p.x = {x_data.data(), {0, c.dim, 1}};
  p.y = {y_data.data(), {0, 1, c.m}};  // coordinate by coordinate
  p.cost_scale = 0.7;
  p.epsilon = 0.05 * c.dim;
  p.a = {a.data(), c.rho_a, nullptr};
  p.b = {b.data(), c.rho_b, nullptr};
  p.mass = c.mass;
  p.reference = c.reference;
  p.f0 = start.data();
  p.max_iterations = c.iterations;
  p.tolerance = 0;
  const Buffer f(c.n * sizeof(Real)), g(c.m * sizeof(Real)), value(sizeof(Real)), linear(sizeof(Real)),
      shift(sizeof(Real)), iterations(sizeof(std::int32_t));
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  out.value = value.data();
  out.linear = linear.data();
  out.shift = shift.data();
  out.iterations = static_cast<std::int32_t*>(iterations.data());
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const Buffer workspace(bytes);
  const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
  return {status,
          read<Real>(f, c.n),
          read<Real>(g, c.m),
          read<Real>(value, 1)[0],
          read<Real>(linear, 1)[0],
          read<Real>(shift, 1)[0],
          iterations.template read<std::int32_t>(1)[0]};
}

unsigned long long launches_of_half_points() {
  unsigned long long all = 0;
  KernelLaunches kernel;
  for (int k = 0; transport_kernel_launches(k, &kernel); ++k) {
    if (std::string(kernel.kernel).starts_with("half points")) all += kernel.launches;
  }
  return all;
}

// Numbers of both signs that binary16 has, in every coordinate.
std::vector<double> on_grid(int count, int dim, unsigned seed) {
  std::vector<double> v = normal(static_cast<std::size_t>(count) * dim, seed);
  for (double& number : v) number = std::round(number * 64) / 64;
  for (int d = 0; d < dim; ++d) v[d] = d % 2 == 0 ? 1 : -1;
  if (count > 1) {
    for (int d = 0; d < dim; ++d) v[dim + d] = -v[d];
  }
  return v;
}
std::vector<double> transposed(const std::vector<double>& v, int count, int dim) {
  std::vector<double> to(v.size());
  for (int i = 0; i < count; ++i) {
    for (int d = 0; d < dim; ++d) to[d * count + i] = v[i * dim + d];
  }
  return to;
}

void check(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.n << " x " << c.m << ", dim " << c.dim << ", rho " << c.rho_a
                                  << " and " << c.rho_b << ", mass " << c.mass);
  const std::vector<double> x = on_grid(c.n, c.dim, 1), y = transposed(on_grid(c.m, c.dim, 2), c.m, c.dim);
  const Answer want = answer<double, HostBuffer>(c, x, y, Execution::host());
  const unsigned long long before = launches_of_half_points();
  const Answer got = answer<float, DeviceBuffer>(c, x, y, Execution::cuda(0, nullptr, Precision::kMedium));
  ASSERT_TRUE(got.status.ok()) << to_string(got.status);
  EXPECT_GT(launches_of_half_points(), before);
  // The points are exact. A logit's magnitude is that of the costs over epsilon, some 100 bits here: its
  // rounding moves a potential by 1e-5 epsilon.
  const double scale = 2e-5 * 0.05 * c.dim + 2e-6 * std::max(largest(want.f), largest(want.g));
  EXPECT_LE(distance(got.f, want.f), scale);
  EXPECT_LE(distance(got.g, want.g), scale);
  EXPECT_NEAR(got.value, want.value, 2 * scale + 1e-7 * std::abs(want.value));
  EXPECT_NEAR(got.linear, want.linear, 1e-4 * std::abs(want.linear));
  EXPECT_NEAR(got.shift, want.shift, scale);
  EXPECT_EQ(got.iterations, c.iterations);
}

TEST_F(TransportHalfPointsCuda, SizesAroundTiles) {
  for (const auto& [n, m] : {std::pair{1, 1}, {3, 70}, {31, 33}, {64, 65}, {127, 129}, {130, 300}}) {
    for (const int dim : {1, 16, 17, 80, 81, 128}) {
      if ((n + m + dim) % 2 == 0 || n < 100) check({n, m, dim});
    }
  }
}

TEST_F(TransportHalfPointsCuda, LongSides) {
  for (const int dim : {3, 70, 100}) check({1, 8200, dim, kInf, kInf, 0, TransportReference::kProduct, 1});
  check({8192, 65, 16, 0.5, kInf, 0, TransportReference::kCounting, 2});
}

TEST_F(TransportHalfPointsCuda, MarginalsAndReferences) {
  for (const TransportReference reference : {TransportReference::kProduct, TransportReference::kCounting}) {
    check({66, 90, 5, kInf, 0, 0, reference});
    check({66, 90, 5, 0.4, 0.3, 0, reference});
    check({66, 90, 5, kInf, kInf, 0.6, reference});
  }
}

// Coordinates far from 0: the grid lies around the middle of their range.
TEST_F(TransportHalfPointsCuda, AnOffsetIsTakenAway) {
  const Case c{70, 80, 6};
  std::vector<double> x = normal(c.n * c.dim, 1), y = normal(c.m * c.dim, 2);
  for (double& v : x) v = 1000 + v;
  for (double& v : y) v = 1000 + v;
  const Answer want = answer<double, HostBuffer>(c, x, y, Execution::host());
  const Answer got = answer<float, DeviceBuffer>(c, x, y, Execution::cuda(0, nullptr, Precision::kMedium));
  // Coordinates are rounded to 2^-11 of 4: a cost moves by some 1e-2 of its root.
  EXPECT_LE(distance(got.f, want.f), 0.02);
  EXPECT_NEAR(got.value, want.value, 0.02);
}

// The first iteration's plan has a mass of 2^-10000 or less.
TEST_F(TransportHalfPointsCuda, PartialTransportAtCostsFarAboveEpsilon) {
  const Case c{66, 90, 5, kInf, kInf, 0.6};
  const std::vector<double> x = on_grid(c.n, c.dim, 1);
  std::vector<double> y = on_grid(c.m, c.dim, 2);
  for (double& v : y) v += 32;
  y = transposed(y, c.m, c.dim);
  const Answer want = answer<double, HostBuffer>(c, x, y, Execution::host());
  const Answer got = answer<float, DeviceBuffer>(c, x, y, Execution::cuda(0, nullptr, Precision::kMedium));
  ASSERT_TRUE(got.status.ok()) << to_string(got.status);
  EXPECT_NEAR(got.value, want.value, 1e-3 * want.value);
  EXPECT_NEAR(got.linear, want.linear, 1e-3 * want.linear);
}

TEST_F(TransportHalfPointsCuda, NanStaysNan) {
  const Case c{70, 80, 3};
  std::vector<double> x = on_grid(c.n, c.dim, 1);
  x[10] = kNan;
  const Answer got = answer<float, DeviceBuffer>(c, x, transposed(on_grid(c.m, c.dim, 2), c.m, c.dim),
                                                 Execution::cuda(0, nullptr, Precision::kMedium));
  EXPECT_TRUE(std::all_of(got.f.begin(), got.f.end(), [](double v) { return std::isnan(v); }));
  EXPECT_TRUE(std::all_of(got.g.begin(), got.g.end(), [](double v) { return std::isnan(v); }));
  EXPECT_TRUE(std::isnan(got.value));
}

}  // namespace
}  // namespace warpalign::test
