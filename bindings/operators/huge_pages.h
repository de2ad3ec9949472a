// Large scratch memory of a CPU in large pages.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace warpalign::binding {

// Asks Linux to back buffers above 32 MiB with pages of 2 MiB; smaller buffers are left unchanged. The first
// access to each page causes a page fault, and glibc returns such buffers to the system when they are freed,
// so that every call would fault again. Linux may ignore the request.
inline void prefer_huge_pages(void* data, std::size_t bytes) {
#if defined(__linux__)
  constexpr std::size_t kPage = 4096, kHugePage = std::size_t{1} << 21;
  if (bytes <= 16 * kHugePage) return;
  const std::size_t before = (kPage - reinterpret_cast<std::uintptr_t>(data) % kPage) % kPage;
  madvise(static_cast<std::byte*>(data) + before, (bytes - before) / kPage * kPage, MADV_HUGEPAGE);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}

}  // namespace warpalign::binding
