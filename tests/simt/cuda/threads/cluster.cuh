// Stands in for src/cuda/threads/cluster.cuh.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/threads/messages.h"
#include "cuda/threads/warp.cuh"
#include "simt.h"

namespace warpalign::cuda {

inline int cluster_rank() { return simt::cluster_rank(); }
inline void cluster_sync() { simt::sync_cluster(); }
template <class T>
T* in_block(T* shared, int rank) {
  return static_cast<T*>(simt::in_block(shared, rank));
}

using Mailbox = std::uint64_t;  // phases that have ended, 31 bits; whether bytes are announced; bytes missing
using ClusterAddress = unsigned char*;

inline ClusterAddress cluster_address(const void* shared, int rank) {
  return static_cast<ClusterAddress>(simt::in_block(const_cast<void*>(shared), rank));
}
inline void mailbox_init(Mailbox* box) { __atomic_store_n(box, 0, __ATOMIC_SEQ_CST); }
inline void mailbox_change(Mailbox* box, bool announces, int missing) {
  Mailbox old = __atomic_load_n(box, __ATOMIC_SEQ_CST), fresh;
  do {
    const auto bytes = static_cast<std::uint32_t>(old) + static_cast<std::uint32_t>(missing);
    const bool was_announced = (old >> 32 & 1) != 0;
    if (was_announced && announces) simt::fail("a mailbox's bytes are announced twice in a phase");
    const std::uint64_t announced = was_announced || announces ? 1 : 0, ended = old >> 33;
    fresh = announced != 0 && bytes == 0 ? (ended + 1) << 33 : ended << 33 | announced << 32 | bytes;
  } while (!__atomic_compare_exchange_n(box, &old, fresh, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
inline void mailbox_expect(Mailbox* box, int bytes) { mailbox_change(box, true, bytes); }
inline void mailbox_wait(Mailbox* box, int phase) {
  while ((__atomic_load_n(box, __ATOMIC_SEQ_CST) >> 33 & 1) == static_cast<unsigned>(phase & 1))
    simt::yield();
  __syncwarp();
}
inline void send_message(ClusterAddress to, const std::uint32_t (&words)[4], ClusterAddress box) {
  // An H200 says so too: error 715, an illegal instruction.
  if (simt::cluster_size() < 2) simt::fail("a message in a cluster of one block");
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) simt::fail("a message is not aligned to 16 bytes");
  std::memcpy(to, words, 16);
  ++messages;
  mailbox_change(reinterpret_cast<Mailbox*>(box), false, -16);
}

}  // namespace warpalign::cuda
