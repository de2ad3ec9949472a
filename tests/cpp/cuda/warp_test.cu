// Shuffles of numbers and structs, and reductions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda/launch/launch.cuh"
#include "cuda/threads/warp.cuh"
#include "device_buffer.h"

namespace warpalign::test {
namespace {

struct Words {  // 12 bytes
  float a;
  int b;
  unsigned c;
};
struct Pairs {  // 24 bytes, by 8
  double a;
  long long b;
  float c;
  int d;
};

template <class T>
__host__ __device__ T make(int lane);
template <>
__host__ __device__ int make<int>(int lane) {
  return 7 * lane - 100;
}
template <>
__host__ __device__ double make<double>(int lane) {
  return 1.0 / (lane + 1);
}
template <>
__host__ __device__ std::int64_t make<std::int64_t>(int lane) {
  return (std::int64_t(1) << 40) * lane + lane;
}
template <>
__host__ __device__ Words make<Words>(int lane) {
  return {0.5f * lane, -lane, 3u * lane};
}
template <>
__host__ __device__ Pairs make<Pairs>(int lane) {
  return {0.25 * lane, -(1ll << 35) * lane, 2.0f * lane, lane};
}

bool equal(const Words& x, const Words& y) { return x.a == y.a && x.b == y.b && x.c == y.c; }
bool equal(const Pairs& x, const Pairs& y) { return x.a == y.a && x.b == y.b && x.c == y.c && x.d == y.d; }
template <class T>
bool equal(const T& x, const T& y) {
  return x == y;
}

template <class T>
__global__ void shuffle_kernel(T* to) {
  const int lane = threadIdx.x;
  const T own = make<T>(lane);
  to[lane] = cuda::shuffle(own, 5);
  to[32 + lane] = cuda::shuffle(own, (lane + 9) % 32);
  to[64 + lane] = cuda::shuffle_up(own);
  to[96 + lane] = cuda::shuffle_up(own, 4);
  to[128 + lane] = cuda::shuffle_down(own);
  to[160 + lane] = cuda::shuffle_down(own, 8);
  to[192 + lane] = cuda::shuffle_xor(own, 1);
  to[224 + lane] = cuda::shuffle_xor(own, 21);
}

template <class T>
class ShuffleCuda : public ::testing::Test {};
using Types = ::testing::Types<int, double, std::int64_t, Words, Pairs>;
TYPED_TEST_SUITE(ShuffleCuda, Types);

TYPED_TEST(ShuffleCuda, BringsWhatTheOtherLaneHas) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const DeviceBuffer to(256 * sizeof(TypeParam));
  ASSERT_TRUE(cuda::launch(shuffle_kernel<TypeParam>, {1, 32}, static_cast<TypeParam*>(to.data())).ok());
  const auto got = to.read<TypeParam>(256);
  for (int lane = 0; lane < 32; ++lane) {
    const int from[8] = {5,
                         (lane + 9) % 32,
                         lane > 0 ? lane - 1 : lane,
                         lane >= 4 ? lane - 4 : lane,
                         lane < 31 ? lane + 1 : lane,
                         lane < 24 ? lane + 8 : lane,
                         lane ^ 1,
                         lane ^ 21};
    for (int k = 0; k < 8; ++k) {
      EXPECT_TRUE(equal(got[32 * k + lane], make<TypeParam>(from[k])))
          << "shuffle " << k << ", lane " << lane;
    }
  }
}

template <int kLanes>
__global__ void reduce_kernel(const float* from, float* sums, float* largest, int* counts) {
  const int lane = threadIdx.x;
  sums[lane] = cuda::reduce_sum<kLanes>(from[lane]);
  largest[lane] = cuda::reduce_max<kLanes>(from[lane]);
  counts[lane] = cuda::reduce<kLanes>(lane, [](int a, int b) { return a | b; });
}

template <int kLanes>
void expect_reductions() {
  std::mt19937 random(kLanes);
  std::vector<float> values(32);
  for (float& v : values) v = std::normal_distribution<float>(0, 1)(random);
  const DeviceBuffer from(values), sums(128), largest(128), counts(128);
  ASSERT_TRUE(cuda::launch(reduce_kernel<kLanes>, {1, 32}, static_cast<const float*>(from.data()),
                           static_cast<float*>(sums.data()), static_cast<float*>(largest.data()),
                           static_cast<int*>(counts.data()))
                  .ok());
  const auto got_sum = sums.read<float>(32), got_largest = largest.read<float>(32);
  const auto got_count = counts.read<int>(32);
  for (int lane = 0; lane < 32; ++lane) {
    const int first = lane / kLanes * kLanes;
    double sum = 0, size = 0;
    float top = -INFINITY;
    int bits = 0;
    for (int k = first; k < first + kLanes; ++k) {
      sum += values[k];
      size += std::abs(values[k]);
      top = std::max(top, values[k]);
      bits |= k;
    }
    EXPECT_NEAR(got_sum[lane], sum, 5 * 0x1p-24 * size);  // five roundings at most
    EXPECT_EQ(got_sum[lane], got_sum[first]) << "not the same bits in all lanes";
    EXPECT_EQ(got_largest[lane], top);
    EXPECT_EQ(got_count[lane], bits);
  }
}

TEST(ReduceCuda, OverNeighbouringLanes) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  expect_reductions<1>();
  expect_reductions<2>();
  expect_reductions<4>();
  expect_reductions<16>();
  expect_reductions<32>();
}

}  // namespace
}  // namespace warpalign::test
