// Hand-over between warps of a block through a ring, and between blocks through global memory.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/launch/launch.cuh"
#include "cuda/memory/remote.cuh"
#include "cuda/threads/ring.cuh"
#include "device_buffer.h"

namespace warpalign::test {
namespace {

class RingCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

// Warp 0 sends items to warp 1, in two series with a reset between them. An item is a number per lane.
template <int kDepth, int kArrivals>
__global__ void hand_over(int items, int* received) {
  __shared__ cuda::Ring<kDepth, kArrivals> ring;
  __shared__ volatile int places[kDepth][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool arrives = lane < kArrivals;
  if (warp == 0) ring.init(lane);
  __syncthreads();
  for (int series = 0; series < 2; ++series) {
    if (warp == 0) ring.reset(lane);
    __syncthreads();
    for (int n = 0; n < items; ++n) {
      if (warp == 0) {
        ring.reserve(n);
        places[n % kDepth][lane] = 1000 * (series + 1) + 32 * n + lane;
        __syncwarp();
        if (arrives) ring.publish(n);
      } else {
        ring.receive(n);
        received[(series * items + n) * 32 + lane] = places[n % kDepth][(lane + n) % 32];
        __syncwarp();
        if (arrives) ring.release(n);
      }
    }
    __syncthreads();
  }
}

template <int kDepth, int kArrivals>
void expect_all_in_order(int items) {
  const DeviceBuffer received(2 * items * 32 * sizeof(int));
  const Status status =
      cuda::launch(hand_over<kDepth, kArrivals>, {1, 64}, items, static_cast<int*>(received.data()));
  ASSERT_TRUE(status.ok()) << status.message;
  const auto got = received.read<int>(2 * items * 32);
  for (int k = 0; k < 2 * items; ++k) {
    for (int lane = 0; lane < 32; ++lane) {
      const int n = k % items;
      ASSERT_EQ(got[k * 32 + lane], 1000 * (k / items + 1) + 32 * n + (lane + n) % 32)
          << "depth " << kDepth << ", " << kArrivals << " arrivals, item " << n << ", lane " << lane;
    }
  }
}

TEST_F(RingCuda, BringsEveryItemInOrder) {
  for (const int items : {1, 2, 7, 8, 9, 100}) {
    expect_all_in_order<1, 1>(items);
    expect_all_in_order<1, 32>(items);
    expect_all_in_order<3, 32>(items);
    expect_all_in_order<8, 1>(items);
    expect_all_in_order<16, 32>(items);
  }
}

// Items lie where the last one of the round before was: 0 1 2 3, then 3 2 1 0.
__global__ void there_and_back(int rounds, int* received) {
  constexpr int kDepth = 4;
  __shared__ cuda::Ring<kDepth, 32> ring;
  __shared__ volatile int places[kDepth][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) ring.init(lane);
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kDepth; ++i) {
      const int place = round % 2 == 0 ? i : kDepth - 1 - i;
      if (warp == 0) {
        ring.reserve_at(place, round);
        places[place][lane] = round * kDepth + i;
        ring.publish_at(place);
      } else {
        ring.receive_at(place, round);
        received[(round * kDepth + i) * 32 + lane] = places[place][31 - lane];
        ring.release_at(place);
      }
    }
  }
}

TEST_F(RingCuda, PlacesMayComeInAnotherOrder) {
  constexpr int kRounds = 9;
  const DeviceBuffer received(kRounds * 4 * 32 * sizeof(int));
  ASSERT_TRUE(cuda::launch(there_and_back, {1, 64}, kRounds, static_cast<int*>(received.data())).ok());
  const auto got = received.read<int>(kRounds * 4 * 32);
  for (int k = 0; k < kRounds * 4 * 32; ++k) ASSERT_EQ(got[k], k / 32);
}

// Block 0 sends groups of 8 words to block 1 through memory that starts as all one-bits.
__global__ void send_to_next_block(int groups, cuda::Word* memory, cuda::Word* received) {
  __shared__ cuda::Word words[8];
  const int lane = threadIdx.x;
  if (blockIdx.x == 0) {
    for (int g = 0; g < groups; ++g) {
      if (lane < 8) words[lane] = 100ull * g + lane;
      __syncwarp();
      cuda::send_words<8>(memory + g * 8, words, lane);
      __syncwarp();
    }
  } else {
    cuda::RemoteReader<8> remote;
    remote.ask(memory, lane);
    for (int g = 0; g < groups; ++g) {
      remote.receive(words, lane);
      if (g + 1 < groups) remote.ask(memory + (g + 1) * 8, lane);
      if (lane < 8) received[g * 8 + lane] = words[7 - lane];
    }
  }
}

TEST_F(RingCuda, WordsReachAnotherBlock) {
  constexpr int kGroups = 50;
  const DeviceBuffer memory(kGroups * 64), received(kGroups * 64);
  ASSERT_TRUE(cuda::set_memory(memory.data(), 0xff, kGroups * 64, nullptr).ok());
  ASSERT_TRUE(cuda::launch(send_to_next_block, {2, 32}, kGroups, static_cast<cuda::Word*>(memory.data()),
                           static_cast<cuda::Word*>(received.data()))
                  .ok());
  const auto got = received.read<cuda::Word>(kGroups * 8);
  for (int k = 0; k < kGroups * 8; ++k) ASSERT_EQ(got[k], 100ull * (k / 8) + 7 - k % 8);
}

}  // namespace
}  // namespace warpalign::test
