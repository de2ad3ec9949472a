// Memory for tests: poisoned before the call, and guarded on both sides.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#endif

namespace warpalign::test {

// NaN in every float type, -1 in every int.
constexpr unsigned char kPoison = 0xff;
// As much as the alignment that the library asks of a workspace, so that data() keeps it.
constexpr std::size_t kGuard = 256;

// Host memory. Writing past either end fails the test; under AddressSanitizer reading there does so too.
class HostBuffer {
 public:
  explicit HostBuffer(std::size_t bytes) : bytes_(bytes), all_(bytes + 3 * kGuard, kPoison) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(all_.data()) % kGuard;
    data_ = all_.data() + kGuard + (kGuard - misaligned) % kGuard;
    ASAN_POISON_MEMORY_REGION(all_.data(), data_ - all_.data());
    ASAN_POISON_MEMORY_REGION(data_ + bytes_, all_.data() + all_.size() - (data_ + bytes_));
  }
  template <typename T>
  explicit HostBuffer(const std::vector<T>& from) : HostBuffer(from.size() * sizeof(T)) {
    if (!from.empty()) std::memcpy(data_, from.data(), from.size() * sizeof(T));
  }
  ~HostBuffer() {
    ASAN_UNPOISON_MEMORY_REGION(all_.data(), all_.size());
    const auto clean = [](unsigned char c) { return c == kPoison; };
    EXPECT_TRUE(std::all_of(all_.data(), data_, clean)) << "written before the beginning";
    EXPECT_TRUE(std::all_of(data_ + bytes_, all_.data() + all_.size(), clean)) << "written behind the end";
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  template <typename T>
  [[nodiscard]] std::vector<T> read(std::size_t count) const {
    std::vector<T> to(count);
    if (count > 0) std::memcpy(to.data(), data_, count * sizeof(T));
    return to;
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(data_, data_ + bytes_, [](unsigned char c) { return c == kPoison; });
  }

 private:
  std::size_t bytes_;
  std::vector<unsigned char> all_;
  unsigned char* data_;
};

}  // namespace warpalign::test
