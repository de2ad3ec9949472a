// Bump allocator over memory that the caller owns. The same layout function runs twice: without memory, to
// compute the number of bytes, and over the caller's workspace, to assign them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plan_log.h"

namespace warpalign::detail {

inline bool is_aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector

  Arena() = default;  // measures only: take() returns null
  explicit Arena(void* base) : base_(static_cast<std::byte*>(base)) {}

  // name: for the plan's description, where the memory is handed out.
  template <class T>
  T* take(std::size_t count, const char* name = nullptr) {
    const std::size_t begin = used_;
    used_ = (begin + count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    if (PlanLog* const log = name && base_ ? PlanLog::current() : nullptr) log->memory(name, used_ - begin);
    return base_ ? reinterpret_cast<T*>(base_ + begin) : nullptr;
  }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace warpalign::detail
