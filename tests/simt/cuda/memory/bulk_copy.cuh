// Stands in for src/cuda/memory/bulk_copy.cuh: a copy has ended when the call returns.
#pragma once

#include <cstdint>
#include <cstring>

#include "simt.h"

namespace warpalign::cuda {

struct TransferBarrier {
  int arrivals, missing, bytes;
  unsigned phase;

  // A phase ends when nobody and nothing is missing.
  void look() {
    if (missing != 0 || bytes != 0) return;
    missing = arrivals;
    ++phase;
  }
};

template <int kArrivals>
void transfer_init(TransferBarrier* b) {
  *b = {kArrivals, kArrivals, 0, 0};
}
inline void transfer_fence() {}
inline void transfer_end(TransferBarrier*) {}
inline void transfer_end(std::uint64_t*) {}  // a Mailbox of cluster.cuh
inline void transfer_arrive(TransferBarrier* b) {
  --b->missing;
  b->look();
}
inline void transfer_expect(TransferBarrier* b, int bytes) {
  b->bytes += bytes;
  transfer_arrive(b);
}
inline void transfer_wait(TransferBarrier* b, int parity) {
  while (b->phase % 2 == static_cast<unsigned>(parity)) simt::yield();
}
inline void copy_bulk(void* shared, const void* global, int bytes, TransferBarrier* b) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    simt::fail("a bulk copy is not aligned to 16 bytes");
  }
  std::memcpy(shared, global, bytes);
  b->bytes -= bytes;
  b->look();
}
inline void prefetch_bulk(const void* global, int bytes) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    simt::fail("a bulk prefetch is not aligned to 16 bytes");
  }
}
inline void fence_bulk() {}
inline void fence_bulk_shared() {}

}  // namespace warpalign::cuda
