// Large scratch memory of a CPU in large pages.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace warpalign::binding {

// Asks the kernel for pages of 2 MB: memory that is touched for the first time costs a fault for each page,
// and scratch memory beyond 32 MB is new in every call, because malloc gives it back. It is advice alone: the
// kernel may not follow it, and smaller memory is left as it is.
inline void prefer_huge_pages(void* data, std::size_t bytes) {
#if defined(__linux__)
  constexpr std::uintptr_t kPage = 4096, kHugePage = std::uintptr_t{1} << 21;
  if (bytes < 8 * kHugePage) return;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (address + kPage - 1) / kPage * kPage, end = (address + bytes) / kPage * kPage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}

}  // namespace warpalign::binding
