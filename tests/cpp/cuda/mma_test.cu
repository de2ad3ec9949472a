// Matrix units: products of 16-bit and TF32 blocks, and blocks loaded from shared memory.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cuda/launch/launch.cuh"
#include "cuda/launch/shared.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/tf32.cuh"
#include "cuda/products/mma.cuh"
#include "device_buffer.h"

namespace warpalign::test {
namespace {

// Elements whose product mma_half() makes: a (16, 16), b (16, 8), row-major; sum (16, 8).
template <class Half>
__global__ void product_kernel(const Half* a, const Half* b, float* sum) {
  auto* const shared = reinterpret_cast<Half*>(cuda::dynamic_shared());
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int k = lane; k < 256; k += 32) shared[k] = a[k];
  for (int k = lane; k < 128; k += 32) shared[256 + k] = b[k];
  __syncthreads();
  std::uint32_t block[4], right[4];
  cuda::load_matrices(block, shared + lane % 16 * 16 + lane / 16 * 8);
  // Two 8 x 8 matrices; the upper lanes' rows are loaded and not used.
  cuda::load_matrices<true>(right, shared + 256 + lane % 16 * 8);
  const std::uint32_t factor[2] = {right[0], right[1]};
  float mine[4];
  for (int k = 0; k < 4; ++k) mine[k] = sum[(g + k / 2 * 8) * 8 + 2 * t + k % 2];
  cuda::mma_half<Half>(mine, block, factor);
  for (int k = 0; k < 4; ++k) sum[(g + k / 2 * 8) * 8 + 2 * t + k % 2] = mine[k];
}

template <class Half>
class HalfProductCuda : public ::testing::Test {};
using Halves = ::testing::Types<cuda::Float16, cuda::BFloat16>;
TYPED_TEST_SUITE(HalfProductCuda, Halves);

TYPED_TEST(HalfProductCuda, IsTheProductOfTheBlocksInMemory) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto draw = [&](int count) {
    std::vector<TypeParam> values(count);
    for (auto& v : values) v = TypeParam::rounded(normal(random));
    return values;
  };
  const auto a = draw(256), b = draw(128);
  std::vector<float> start(128);
  for (float& v : start) v = normal(random);
  const DeviceBuffer left(a), right(b), sum(start);
  ASSERT_TRUE(cuda::launch(product_kernel<TypeParam>, {1, 32, 384 * sizeof(TypeParam)},
                           static_cast<const TypeParam*>(left.data()),
                           static_cast<const TypeParam*>(right.data()), static_cast<float*>(sum.data()))
                  .ok());
  const auto got = sum.read<float>(128);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double exact = start[i * 8 + j], size = std::abs(exact);
      for (int k = 0; k < 16; ++k) {
        const double term =
            static_cast<double>(static_cast<float>(a[i * 16 + k])) * static_cast<float>(b[k * 8 + j]);
        exact += term;
        size += std::abs(term);
      }
      // Products are exact; 17 terms are added in float32, by units that may cut what rounding would keep.
      EXPECT_NEAR(got[i * 8 + j], exact, 17 * 0x1p-23 * size) << i << ", " << j;
    }
  }
}

// What lane l gets of matrix m, by the numbers of the elements.
__global__ void matrices_kernel(std::uint32_t* plain, std::uint32_t* transposed) {
  auto* const shared = reinterpret_cast<std::uint16_t*>(cuda::dynamic_shared());
  const int lane = static_cast<int>(threadIdx.x);
  for (int k = lane; k < 256; k += 32) shared[k] = static_cast<std::uint16_t>(k);
  __syncthreads();
  std::uint32_t got[4];
  cuda::load_matrices(got, shared + 8 * lane);
  for (int m = 0; m < 4; ++m) plain[4 * lane + m] = got[m];
  cuda::load_matrices<true>(got, shared + 8 * lane);
  for (int m = 0; m < 4; ++m) transposed[4 * lane + m] = got[m];
}

TEST(LoadMatricesCuda, GivesEachLaneItsElements) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const DeviceBuffer plain(128 * sizeof(std::uint32_t)), transposed(128 * sizeof(std::uint32_t));
  ASSERT_TRUE(cuda::launch(matrices_kernel, {1, 32, 512}, static_cast<std::uint32_t*>(plain.data()),
                           static_cast<std::uint32_t*>(transposed.data()))
                  .ok());
  const auto rows = plain.read<std::uint32_t>(128), columns = transposed.read<std::uint32_t>(128);
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t g = lane / 4, t = lane % 4;
    for (std::uint32_t m = 0; m < 4; ++m) {
      const std::uint32_t first = 64 * m + 8 * g + 2 * t;
      EXPECT_EQ(rows[4 * lane + m], first | (first + 1) << 16);
      const std::uint32_t above = 64 * m + 16 * t + g;
      EXPECT_EQ(columns[4 * lane + m], above | (above + 8) << 16);
    }
  }
}

// a (16, 8), b (8, 8), row-major.
__global__ void tf32_kernel(const float* a, const float* b, float* sum) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  float left[4], right[2], mine[4] = {};
  for (int k = 0; k < 4; ++k) left[k] = a[(g + k % 2 * 8) * 8 + t + k / 2 * 4];
  for (int k = 0; k < 2; ++k) right[k] = b[(t + 4 * k) * 8 + g];
  cuda::mma_tf32(mine, left, right);
  for (int k = 0; k < 4; ++k) sum[(g + k / 2 * 8) * 8 + 2 * t + k % 2] = mine[k];
}

TEST(Tf32ProductCuda, IsTheProductOfTenBitsOfMantissa) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> a(128), b(64);
  for (float& v : a) v = normal(random);
  for (float& v : b) v = normal(random);
  const DeviceBuffer left(a), right(b), sum(128 * sizeof(float));
  ASSERT_TRUE(cuda::launch(tf32_kernel, {1, 32}, static_cast<const float*>(left.data()),
                           static_cast<const float*>(right.data()), static_cast<float*>(sum.data()))
                  .ok());
  const auto got = sum.read<float>(128);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double exact = 0, size = 0;
      for (int k = 0; k < 8; ++k) {
        exact += static_cast<double>(a[i * 8 + k]) * b[k * 8 + j];
        size += std::abs(static_cast<double>(a[i * 8 + k]) * b[k * 8 + j]);
      }
      EXPECT_NEAR(got[i * 8 + j], exact, 0x1p-9 * size) << i << ", " << j;  // two cut factors
    }
  }
}

__global__ void factor_kernel(const float* from, float* to) {
  to[threadIdx.x] = cuda::near_tf32_factor(from[threadIdx.x]);
}

// What the units see of a factor: its upper 19 bits.
float seen(float v) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & ~0x1fffu); }

TEST(Tf32FactorCuda, IsATf32NextToTheNumber) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // NaN of all bits is what a GPU makes of 0 / 0.
  std::vector<float> values{0,          -0.0f,        1,         0x1.002p0f, -0x1.002p0f,
                            0x1.001p0f, 0x1.ffffp-3f, kInfinity, -kInfinity};
  for (const std::uint32_t nan : {0x7fffffffu, 0xffffffffu, 0x7fc00000u})
    values.push_back(std::bit_cast<float>(nan));
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  while (values.size() < 64) values.push_back(normal(random));
  const DeviceBuffer from(values), to(64 * sizeof(float));
  ASSERT_TRUE(cuda::launch(factor_kernel, {1, 64}, static_cast<const float*>(from.data()),
                           static_cast<float*>(to.data()))
                  .ok());
  const auto factors = to.read<float>(64);
  for (int k = 0; k < 64; ++k) {
    const float v = values[k], is = seen(factors[k]);
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(is)) << k;
    } else if (std::isinf(v)) {
      EXPECT_EQ(is, v);
    } else {
      const float place = 0x1p-10f * std::exp2(std::floor(std::log2(std::abs(v))));  // the last one of a TF32
      EXPECT_LE(std::abs(is - v), 0.71f * place) << v;
      EXPECT_TRUE(is == v || seen(v) != v) << v;
    }
  }
}

}  // namespace
}  // namespace warpalign::test
