// Numbers with an exponent of their own, dual numbers, 16-bit types, and single-instruction functions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda/launch/launch.cuh"
#include "cuda/numbers/dual.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "cuda/numbers/scaled_number.cuh"
#include "device_buffer.h"

namespace warpalign::test {
namespace {

template <class T>
struct NumbersCuda : ::testing::Test {
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};
using Exponents = ::testing::Types<std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(NumbersCuda, Exponents);

template <class Exponent>
struct Results {
  cuda::ScaledNumber<Exponent> normal, product, sum;
  float scaled;  // a in units of the larger exponent of both
  double log2;
};

template <class Exponent>
__global__ void scaled_kernel(const cuda::ScaledNumber<Exponent>* numbers, int count,
                              Results<Exponent>* results) {
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (k >= count) return;
  const auto a = numbers[2 * k], b = numbers[2 * k + 1];
  const Exponent top = a.exponent > b.exponent ? a.exponent : b.exponent;
  results[k] = {cuda::normal(a), cuda::product(cuda::normal(a), cuda::normal(b)), cuda::sum(a, b),
                cuda::scaled(a, top), cuda::log2_of(a)};
}

// x 2^shift, with the result within a long double's range; 0 below.
long double shifted(long double x, std::int64_t shift) {
  return shift < -16000 ? 0.0L : std::ldexp(x, static_cast<int>(shift));
}

TYPED_TEST(NumbersCuda, ArithmeticKeepsFloat32PrecisionAtAnyMagnitude) {
  using Number = cuda::ScaledNumber<TypeParam>;
  constexpr std::int64_t kFar = std::int64_t(1) << (sizeof(TypeParam) == 4 ? 28 : 60);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> mantissa(1.0f, 8.0f);
  std::vector<Number> numbers;
  for (int k = 0; k < 1000; ++k) {
    const std::int64_t around = static_cast<std::int64_t>(random() % (2 * kFar)) - kFar;
    const std::int64_t apart = static_cast<std::int64_t>(random() % 300) - 150;
    numbers.push_back({mantissa(random), static_cast<TypeParam>(around)});
    numbers.push_back({mantissa(random), static_cast<TypeParam>(around + apart)});
  }
  const int count = static_cast<int>(numbers.size() / 2);
  const DeviceBuffer from(numbers), to(sizeof(Results<TypeParam>) * count);
  const Status status = cuda::launch(scaled_kernel<TypeParam>, {cuda::div_up(count, 128), 128},
                                     static_cast<const Number*>(from.data()), count,
                                     static_cast<Results<TypeParam>*>(to.data()));
  ASSERT_TRUE(status.ok()) << status.message;
  const auto results = to.read<Results<TypeParam>>(count);
  for (int k = 0; k < count; ++k) {
    const Number a = numbers[2 * k], b = numbers[2 * k + 1];
    const Results<TypeParam>& r = results[k];
    const long double x = a.mantissa, y = b.mantissa;
    EXPECT_GE(r.normal.mantissa, 1.0f);
    EXPECT_LT(r.normal.mantissa, 2.0f);
    EXPECT_EQ(shifted(r.normal.mantissa, std::int64_t(r.normal.exponent) - a.exponent), x);
    const std::int64_t both = std::int64_t(a.exponent) + b.exponent;
    EXPECT_NEAR(static_cast<double>(shifted(r.product.mantissa, r.product.exponent - both) / (x * y)), 1.0,
                0x1p-24);
    const long double sum = x + shifted(y, std::int64_t(b.exponent) - a.exponent);
    const long double got = shifted(r.sum.mantissa, std::int64_t(r.sum.exponent) - a.exponent);
    EXPECT_NEAR(static_cast<double>(got / sum), 1.0, 0x1p-23);
    const std::int64_t below = std::min<std::int64_t>(std::int64_t(a.exponent) - b.exponent, 0);
    EXPECT_EQ(r.scaled, below < -126 ? 0.0f : static_cast<float>(shifted(x, below)));
    EXPECT_NEAR(r.log2, static_cast<double>(a.exponent) + std::log2(static_cast<double>(a.mantissa)),
                0x1p-52 * std::abs(static_cast<double>(a.exponent)) + 1e-15);
  }
}

TYPED_TEST(NumbersCuda, ZeroStaysZero) {
  using Number = cuda::ScaledNumber<TypeParam>;
  const Number zero{1.0f, Number::kZeroExponent};
  const Number one{1.0f, 0};
  const Number tiny{1.5f, Number::kZeroExponent + 3};
  const std::vector<Number> numbers = {zero, one, one, zero, zero, zero, tiny, tiny};
  const DeviceBuffer from(numbers), to(sizeof(Results<TypeParam>) * 4);
  ASSERT_TRUE(cuda::launch(scaled_kernel<TypeParam>, {1, 32}, static_cast<const Number*>(from.data()), 4,
                           static_cast<Results<TypeParam>*>(to.data()))
                  .ok());
  const auto r = to.read<Results<TypeParam>>(4);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(r[k].product.exponent, Number::kZeroExponent) << k;
  EXPECT_EQ(r[0].sum.mantissa, 1.0f);
  EXPECT_EQ(r[0].sum.exponent, 0);
  EXPECT_EQ(r[0].scaled, 0.0f);
  EXPECT_EQ(r[1].scaled, 1.0f);
  EXPECT_EQ(r[2].normal.exponent, Number::kZeroExponent);
  EXPECT_EQ(r[2].log2, static_cast<double>(Number::kZeroExponent));
}

using DualsCuda = NumbersCuda<double>;

__global__ void dual_kernel(const double* from, cuda::Dual* to) {
  const cuda::Dual a(from[0], from[1]), b(from[2], from[3]), zero(0.0, 2.0);
  const cuda::Dual all[] = {a + b,     a - b,     a * b,   a / b,     abs(a),     abs(b),
                            min(a, b), max(a, b), sqrt(b), abs(zero), sqrt(zero), cuda::Dual(3.0)};
  for (int k = 0; k < 12; ++k) to[k] = all[k];
}

TEST_F(DualsCuda, DerivativesAreThoseOfTheFormulas) {
  const double a = -1.25, da = 0.5, b = 3.0, db = -0.75;
  const DeviceBuffer from(std::vector<double>{a, da, b, db}), to(12 * sizeof(cuda::Dual));
  ASSERT_TRUE(cuda::launch(dual_kernel, {1, 32}, static_cast<const double*>(from.data()),
                           static_cast<cuda::Dual*>(to.data()))
                  .ok());
  const auto got = to.read<double>(24);
  const double expected[12][2] = {{a + b, da + db},
                                  {a - b, da - db},
                                  {a * b, da * b + a * db},
                                  {a / b, (da * b - a * db) / (b * b)},
                                  {-a, -da},
                                  {b, db},
                                  {a, da},
                                  {b, db},
                                  {std::sqrt(b), db / (2 * std::sqrt(b))},
                                  {0, 0},
                                  {0, 0},
                                  {3, 0}};
  for (int k = 0; k < 12; ++k) {
    EXPECT_DOUBLE_EQ(got[2 * k], expected[k][0]) << k;
    EXPECT_DOUBLE_EQ(got[2 * k + 1], expected[k][1]) << k;
  }
}

template <class Half>
struct HalvesCuda : NumbersCuda<Half> {};
using Halves = ::testing::Types<cuda::Float16, cuda::BFloat16>;
TYPED_TEST_SUITE(HalvesCuda, Halves);

template <class Half>
__global__ void widen_kernel(const Half* from, float* to) {
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  to[k] = cuda::widen(from[k]);
}
template <class Half>
__global__ void narrow_kernel(const float* from, Half* to) {
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  to[k] = cuda::narrow<Half>(from[k]);
}

TYPED_TEST(HalvesCuda, WidenAllAndRoundToTheNearest) {
  constexpr int kAll = 1 << 16;
  std::vector<TypeParam> halves(kAll);
  for (int k = 0; k < kAll; ++k) halves[k].bits = static_cast<std::uint16_t>(k);
  const DeviceBuffer from(halves), wide(kAll * sizeof(float));
  ASSERT_TRUE(cuda::launch(widen_kernel<TypeParam>, {kAll / 256, 256},
                           static_cast<const TypeParam*>(from.data()), static_cast<float*>(wide.data()))
                  .ok());
  const auto widened = wide.read<float>(kAll);
  // Each value, the middle between it and the next one of the same sign, and the middle's neighbours.
  std::vector<float> values;
  for (int k = 0; k < kAll; ++k) {
    const float expected = static_cast<float>(halves[k]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(widened[k])) << k;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(widened[k]), std::bit_cast<std::uint32_t>(expected)) << k;
    }
    const double next = static_cast<float>(halves[k < kAll - 1 ? k + 1 : k]);
    const auto middle = static_cast<float>((static_cast<double>(expected) + next) / 2);
    for (const float v :
         {expected, middle, std::nextafter(middle, -INFINITY), std::nextafter(middle, INFINITY)})
      values.push_back(v);
  }
  const int count = static_cast<int>(values.size());
  const DeviceBuffer in(values), out(count * sizeof(TypeParam));
  ASSERT_TRUE(cuda::launch(narrow_kernel<TypeParam>, {count / 256, 256}, static_cast<const float*>(in.data()),
                           static_cast<TypeParam*>(out.data()))
                  .ok());
  const auto rounded = out.read<TypeParam>(count);
  for (int k = 0; k < count; ++k) {
    if (std::isnan(values[k])) {
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded[k]))) << k;
    } else {
      ASSERT_EQ(rounded[k].bits, TypeParam::rounded(values[k]).bits) << values[k];
    }
  }
}

using MathCuda = NumbersCuda<float>;

__global__ void math_kernel(const float* from, float* to) {
  const int k = static_cast<int>(threadIdx.x);
  to[k] = cuda::exp2_fast(from[k]);
  to[32 + k] = cuda::reciprocal_fast(from[k]);
  to[64 + k] = cuda::sqrt_fast(fabsf(from[k]));
  to[96 + k] = cuda::reciprocal_root_fast(fabsf(from[k]));
}

TEST_F(MathCuda, SingleInstructionsAreAsExactAsTheyPromise) {
  std::mt19937 random(3);
  std::vector<float> values(32);
  for (float& v : values) v = std::uniform_real_distribution<float>(-120, 120)(random);
  values[0] = 0.5f, values[1] = -0.5f, values[2] = 1e-3f;
  const DeviceBuffer from(values), to(512);
  ASSERT_TRUE(cuda::launch(math_kernel, {1, 32}, static_cast<const float*>(from.data()),
                           static_cast<float*>(to.data()))
                  .ok());
  const auto got = to.read<float>(128);
  for (int k = 0; k < 32; ++k) {
    const double v = values[k], size = std::abs(v);
    EXPECT_NEAR(got[k] / std::exp2(v), 1.0, 0x1p-22) << v;
    EXPECT_NEAR(got[32 + k] * v, 1.0, 0x1p-22) << v;
    EXPECT_NEAR(got[64 + k] / std::sqrt(size), 1.0, 0x1p-22) << v;
    EXPECT_NEAR(got[96 + k] * std::sqrt(size), 1.0, 0x1p-22) << v;
  }
}

}  // namespace
}  // namespace warpalign::test
