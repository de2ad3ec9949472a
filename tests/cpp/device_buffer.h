// GPU memory for tests.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "host_buffer.h"

namespace warpalign::test {

// Memory of tests/simt is the CPU's.
#if WARPALIGN_SIMT
#define WARPALIGN_POISON_GUARD(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define WARPALIGN_UNPOISON_GUARD(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define WARPALIGN_POISON_GUARD(address, bytes) static_cast<void>(0)
#define WARPALIGN_UNPOISON_GUARD(address, bytes) static_cast<void>(0)
#endif

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

// Device memory with a guard behind it: poisoned before, checked after. Under AddressSanitizer a single byte
// of it that is read fails the test, too. (A page's border would not do: an aligned load of 16 bytes that
// passes the memory's end passes no page's.)
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes + kGuard), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, kPoison, bytes + kGuard),
              cudaSuccess);  // NaN in every float type, -1 in every int
    WARPALIGN_POISON_GUARD(static_cast<char*>(data_) + bytes, kGuard);
  }
  template <typename T>
  explicit DeviceBuffer(const std::vector<T>& from) : DeviceBuffer(from.size() * sizeof(T)) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceBuffer() {
    WARPALIGN_UNPOISON_GUARD(static_cast<char*>(data_) + bytes_, kGuard);
    std::vector<unsigned char> guard(kGuard);
    EXPECT_EQ(cudaMemcpy(guard.data(), static_cast<char*>(data_) + bytes_, kGuard, cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (unsigned char c : guard) EXPECT_EQ(c, kPoison) << "written behind the end";
    cudaFree(data_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  template <typename T>
  [[nodiscard]] std::vector<T> read(std::size_t count) const {
    std::vector<T> to(count);  // cudaMemcpy waits for the call's work on the default stream
    EXPECT_EQ(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return to;
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace warpalign::test
