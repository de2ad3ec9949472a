// GPU memory for tests.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "host_buffer.h"

namespace warpalign::test {

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

// Device memory with a guard behind it: poisoned before, checked after.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes + kGuard), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, kPoison, bytes + kGuard),
              cudaSuccess);  // NaN in every float type, -1 in every int
  }
  template <typename T>
  explicit DeviceBuffer(const std::vector<T>& from) : DeviceBuffer(from.size() * sizeof(T)) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceBuffer() {
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
