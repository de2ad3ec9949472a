// Messages between the blocks of a cluster, and the mailboxes that count them.
#pragma once

#include "cuda/threads/cluster.cuh"

namespace warpalign::detail::recurrent {

// Four numbers as a message of 16 bytes.
struct Message {
  std::uint32_t words[4];
};
__device__ __forceinline__ Message bits_of(const float (&v)[4]) {
  return {{static_cast<std::uint32_t>(__float_as_int(v[0])), static_cast<std::uint32_t>(__float_as_int(v[1])),
           static_cast<std::uint32_t>(__float_as_int(v[2])),
           static_cast<std::uint32_t>(__float_as_int(v[3]))}};
}

// A number that the compiler would make again from the kernel's arguments at each use, by a slow read.
__device__ __forceinline__ int in_register(int v) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(v));
#endif
  return v;
}

// Opens a mailbox that gets so many bytes in each phase; 0: it gets none. One thread calls it, before the
// cluster_sync() after which messages may come.
__device__ __forceinline__ void open_mailbox(cuda::Mailbox* box, int bytes) {
  cuda::mailbox_init(box);
  if (bytes > 0) cuda::mailbox_expect(box, bytes);
}
// All threads wait for a phase's bytes, and the next phase is announced.
__device__ __forceinline__ void take_mail(cuda::Mailbox* box, int phase, int bytes) {
  cuda::mailbox_wait(box, phase);
  if (threadIdx.x == 0) cuda::mailbox_expect(box, bytes);
}

}  // namespace warpalign::detail::recurrent
