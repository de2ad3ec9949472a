// Launching: errors, shared memory, clusters, cooperative grids; the order of a ragged batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "cuda/launch/launch.cuh"
#include "cuda/launch/shared.cuh"
#include "cuda/memory/remote_access.cuh"
#include "cuda/rows/ragged.h"
#include "cuda/threads/cluster.cuh"
#include "device_buffer.h"

namespace warpalign::test {
namespace {

class LaunchCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
    static_cast<void>(cudaGetLastError());
  }
};

__global__ void write_number(int* to, int number) {
  if (threadIdx.x == 0) to[blockIdx.x] = number;
}

TEST_F(LaunchCuda, AnEarlierErrorIsNeitherReportedNorCleared) {
  const DeviceBuffer to(sizeof(int));
  int value;
  const cudaError_t earlier = cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1 << 20);
  ASSERT_NE(earlier, cudaSuccess);
  EXPECT_TRUE(cuda::launch(write_number, {1, 32}, static_cast<int*>(to.data()), 7).ok());
  EXPECT_EQ(cudaPeekAtLastError(), earlier);
  EXPECT_EQ(cudaGetLastError(), earlier);
  EXPECT_EQ(to.read<int>(1)[0], 7);
}

TEST_F(LaunchCuda, ItsOwnErrorIsReportedOnce) {
  const DeviceBuffer to(sizeof(int));
  const Status status = cuda::launch(write_number, {1, 2048}, static_cast<int*>(to.data()), 7);
  EXPECT_EQ(status.code, StatusCode::kDeviceError);
  // The driver has more than one text for it.
  EXPECT_TRUE(std::string_view(status.message).ends_with("argument")) << status.message;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cuda::attribute(cudaDevAttrMultiProcessorCount, 1 << 20), 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(LaunchCuda, SetMemory) {
  const DeviceBuffer to(1000);
  EXPECT_TRUE(cuda::set_memory(to.data(), 0x12, 999, nullptr).ok());
  EXPECT_TRUE(cuda::set_memory(nullptr, 0, 0, nullptr).ok());
  const auto bytes = to.read<unsigned char>(1000);
  EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + 999, 0x12), 999);
  EXPECT_EQ(bytes[999], kPoison);
}

__global__ void fill_shared(int words, int* sum) {
  int* const shared = reinterpret_cast<int*>(cuda::dynamic_shared());
  for (int k = threadIdx.x; k < words; k += blockDim.x) shared[k] = k % 7;
  __syncthreads();
  for (int k = threadIdx.x; k < words; k += blockDim.x) atomicAdd(sum, shared[words - 1 - k]);
}

TEST_F(LaunchCuda, SharedMemoryOfEverySize) {
  const int most = cuda::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) - cuda::kStaticSharedBytes;
  for (const int bytes : {4, 48 * 1024, 48 * 1024 + 4, most}) {
    const int words = bytes / 4;
    const DeviceBuffer sum(std::vector<int>{0});
    const Status status = cuda::launch(fill_shared, {1, 128, static_cast<std::size_t>(words) * 4}, words,
                                       static_cast<int*>(sum.data()));
    ASSERT_TRUE(status.ok()) << status.message;
    int expected = 0;
    for (int k = 0; k < words; ++k) expected += k % 7;
    EXPECT_EQ(sum.read<int>(1)[0], expected) << bytes;
  }
  const DeviceBuffer sum(std::vector<int>{0});
  const Status status = cuda::launch(fill_shared, {1, 32, static_cast<std::size_t>(most) + 4096}, 1,
                                     static_cast<int*>(sum.data()));
  EXPECT_EQ(status.code, StatusCode::kDeviceError);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// Every block tells the next one of its cluster its number, in dynamic and in static shared memory.
__global__ void ask_next_block(int cluster, int* numbers) {
  __shared__ int in_static;
  int* const in_dynamic = reinterpret_cast<int*>(cuda::dynamic_shared()) + 5;
  const int rank = cuda::cluster_rank();
  if (threadIdx.x == 0) {
    in_static = static_cast<int>(blockIdx.x);
    *in_dynamic = 1000 * static_cast<int>(blockIdx.x);
  }
  cuda::cluster_sync();
  if (threadIdx.x == 40) {
    const int next = (rank + 1) % cluster;
    numbers[blockIdx.x] = *cuda::in_block(in_dynamic, next) + *cuda::in_block(&in_static, next);
  }
  cuda::cluster_sync();
}

TEST_F(LaunchCuda, BlocksOfAClusterReachEachOther) {
  if (cuda::attribute(cudaDevAttrComputeCapabilityMajor, 0) < 9) GTEST_SKIP() << "no clusters before sm_90";
  for (const int cluster : {2, 4, 8}) {
    const int blocks = 3 * cluster;
    const DeviceBuffer numbers(sizeof(int) * blocks);
    const Status status = cuda::launch(ask_next_block, {blocks, 64, 64, nullptr, cluster}, cluster,
                                       static_cast<int*>(numbers.data()));
    ASSERT_TRUE(status.ok()) << status.message;
    const auto got = numbers.read<int>(blocks);
    for (int b = 0; b < blocks; ++b) {
      EXPECT_EQ(got[b], 1001 * (b / cluster * cluster + (b + 1) % cluster)) << cluster << ", block " << b;
    }
  }
  int* const ignored = nullptr;  // these launches fail
  EXPECT_FALSE(cuda::launch(ask_next_block, {6, 64, 64, nullptr, 4}, 4, ignored).ok());  // not whole clusters
  EXPECT_FALSE(
      cuda::launch(ask_next_block, {64, 64, 64, nullptr, 32}, 32, ignored).ok());  // more than any GPU
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// A message of a round: its words tell who sends it, in which round.
__device__ std::uint32_t word_of(int round, int from, int lane, int word) {
  return static_cast<std::uint32_t>(((round * 16 + from) * 32 + lane) * 4 + word);
}

// Every lane of a block sends a message to every block of its cluster, `rounds` times, through two buffers.
__global__ void exchange_messages(int cluster, int rounds, int* wrong) {
  __shared__ cuda::Mailbox boxes[2];
  auto* const words = reinterpret_cast<std::uint32_t(*)[16][32][4]>(cuda::dynamic_shared());
  const int rank = cuda::cluster_rank(), lane = static_cast<int>(threadIdx.x), bytes = cluster * 32 * 16;
  if (lane == 0) {
    for (cuda::Mailbox& box : boxes) {
      cuda::mailbox_init(&box);
      cuda::mailbox_expect(&box, bytes);
    }
  }
  cuda::cluster_sync();
  for (int round = 0; round < rounds; ++round) {
    const int buffer = round % 2;
    const std::uint32_t message[4] = {word_of(round, rank, lane, 0), word_of(round, rank, lane, 1),
                                      word_of(round, rank, lane, 2), word_of(round, rank, lane, 3)};
    for (int to = 0; to < cluster; ++to) {
      cuda::send_message(cuda::cluster_address(words[buffer][rank][lane], to), message,
                         cuda::cluster_address(&boxes[buffer], to));
    }
    cuda::mailbox_wait(&boxes[buffer], round / 2);
    if (lane == 0) cuda::mailbox_expect(&boxes[buffer], bytes);
    for (int from = 0; from < cluster; ++from) {
      for (int k = 0; k < 4; ++k) {
        if (words[buffer][from][lane][k] != word_of(round, from, lane, k)) atomicAdd(wrong, 1);
      }
    }
    __syncwarp();  // all have read before any sends again
  }
  cuda::cluster_sync();
}

constexpr std::size_t kMessageBytes = 2 * 16 * 32 * 16;

TEST_F(LaunchCuda, MessagesWithinAClusterAreCounted) {
  if (cuda::attribute(cudaDevAttrComputeCapabilityMajor, 0) < 9) GTEST_SKIP() << "no clusters before sm_90";
  for (const int cluster : {2, 3, 8, 16}) {
    const DeviceBuffer wrong(std::vector<int>{0});
    const Status status = cuda::launch(exchange_messages, {2 * cluster, 32, kMessageBytes, nullptr, cluster},
                                       cluster, 7, static_cast<int*>(wrong.data()));
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(wrong.read<int>(1)[0], 0) << cluster;
  }
}

#if WARPALIGN_SIMT
// A GPU refuses this; so does the stand-in, that tests without a GPU find it.
TEST_F(LaunchCuda, AClusterOfOneBlockGetsNoMessages) {
  int wrong = 0;
  EXPECT_DEATH(static_cast<void>(cuda::launch(exchange_messages, {1, 32, kMessageBytes}, 1, 2, &wrong)),
               "a message in a cluster of one block");
}
#endif

// Every block waits for all others, `rounds` times.
__global__ void meet_all(int rounds, int* arrived, int* seen) {
  for (int round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0) {
      atomicAdd(arrived, 1);
      while (cuda::load_acquire(arrived) < round * static_cast<int>(gridDim.x)) {
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) seen[blockIdx.x] = cuda::load_acquire(arrived);
}

TEST_F(LaunchCuda, ACooperativeGridIsResidentOrRefused) {
  constexpr int kShared = 20 * 1024;
  int most = 0;
  ASSERT_TRUE(cuda::resident_blocks(meet_all, {1, 64, kShared}, &most).ok());
  ASSERT_GT(most, 2);
  const DeviceBuffer arrived(std::vector<int>{0});
  const DeviceBuffer seen(sizeof(int) * most);
  const auto launch = [&](int blocks) {
    return cuda::launch(meet_all, {blocks, 64, kShared, nullptr, 1, true}, 3,
                        static_cast<int*>(arrived.data()), static_cast<int*>(seen.data()));
  };
  const Status refused = launch(most + 1);
  EXPECT_EQ(refused.code, StatusCode::kDeviceError);
  EXPECT_STREQ(refused.message, "too many blocks in cooperative launch");
  ASSERT_TRUE(launch(most).ok());
  for (const int count : seen.read<int>(most)) EXPECT_EQ(count, 3 * most);
}

class RaggedCuda : public LaunchCuda {};

TEST_F(RaggedCuda, LongestFirst) {
  constexpr int kRows = 700, kColumns = 300;
  for (const int batch : {1, 2, 1023, 1024, 1025, 3000}) {
    std::mt19937 random(batch);
    std::vector<std::int32_t> rows(batch), columns(batch);
    for (auto& n : rows) n = static_cast<int>(random() % (kRows + 20)) - 10;  // also out of range
    for (auto& n : columns) n = static_cast<int>(random() % kColumns) + 1;
    const DeviceBuffer of_rows(rows), of_columns(columns), order(sizeof(int) * batch), counter(sizeof(int));
    for (const bool has_columns : {false, true}) {
      const auto* const column_lengths =
          has_columns ? static_cast<const std::int32_t*>(of_columns.data()) : nullptr;
      const Status status = cuda::find_longest_first(
          {static_cast<const std::int32_t*>(of_rows.data()), kRows}, {column_lengths, kColumns}, batch,
          static_cast<int*>(order.data()), static_cast<int*>(counter.data()), nullptr);
      ASSERT_TRUE(status.ok()) << status.message;
      EXPECT_EQ(counter.read<int>(1)[0], 0);
      auto sorted = order.read<int>(batch);
      const auto cells = [&](int b) {
        return static_cast<double>(std::clamp(rows[b], 1, kRows)) * (has_columns ? columns[b] : kColumns);
      };
      for (int k = 1; k < batch; ++k) {  // to one of 1024 parts of all cells
        ASSERT_LE(cells(sorted[k]), cells(sorted[k - 1]) + kRows * kColumns / 1023.0) << batch << ", " << k;
      }
      std::sort(sorted.begin(), sorted.end());
      std::vector<int> all(batch);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(sorted, all);
    }
  }
}

__global__ void lengths_kernel(const std::int32_t* lengths, int* to) {
  to[threadIdx.x] = cuda::true_length(lengths, static_cast<int>(threadIdx.x), 9);
  to[32 + threadIdx.x] = cuda::true_length(lengths, static_cast<int>(threadIdx.x), 9, 0);
  to[64 + threadIdx.x] = cuda::true_length(nullptr, static_cast<int>(threadIdx.x), 9);
}

TEST_F(RaggedCuda, TrueLengthIsHeldInRange) {
  std::vector<std::int32_t> lengths(32);
  std::iota(lengths.begin(), lengths.end(), -5);
  const DeviceBuffer from(lengths), to(96 * sizeof(int));
  ASSERT_TRUE(cuda::launch(lengths_kernel, {1, 32}, static_cast<const std::int32_t*>(from.data()),
                           static_cast<int*>(to.data()))
                  .ok());
  const auto got = to.read<int>(96);
  for (int k = 0; k < 32; ++k) {
    EXPECT_EQ(got[k], std::clamp(lengths[k], 1, 9));
    EXPECT_EQ(got[32 + k], std::clamp(lengths[k], 0, 9));
    EXPECT_EQ(got[64 + k], 9);
  }
}

}  // namespace
}  // namespace warpalign::test
