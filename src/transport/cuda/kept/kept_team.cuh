// Sums of columns of a problem of kept_rows.cuh that several blocks share.
#pragma once

#include <cstring>

#include "cuda/memory/bulk_copy.cuh"
#include "cuda/threads/cluster.cuh"
#include "transport/cuda/kept/kept_passes.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class KeptTeam : public KeptPasses<Real_> {
 public:
  using Real = Real_;
  using KeptPasses<Real_>::KeptPasses;

 protected:
  using Base = KeptPasses<Real_>;
  using Base::arrays;
  using Base::block;
  using Base::p_;
  using Base::team_;
  using typename Base::Quad;
  using Places = typename KeptBlock::Places;

  // Sums of columns over the rows of all blocks of a team. Two places take turns, so that one wait is enough.
  // told: flags of this block's rows as bits. Returns the sums and flags of all blocks.
  //
  // In a cluster some threads share four columns. They add up the block's sums, and send them to every block
  // in messages. A block goes on when the messages of all blocks have arrived.
  static __device__ __forceinline__ const Real* told_by_messages(int done, int told) {
    constexpr int kWords = 16 / sizeof(Real);  // numbers of a message
    const Places& at = block().places;
    const int turn = done % 2, stride = at.stride + kToldFlags, blocks = at.blocks;
    Real* const all = arrays() + at.received + turn * blocks * stride;
    Real* const own = all + at.rank * stride;
    cuda::Mailbox* const box = block().boxes + turn;
    const auto send = [&](int to, int j, const Real* numbers) {
      std::uint32_t words[4];
      memcpy(words, numbers, sizeof words);
      cuda::send_message(cuda::cluster_address(own + j, to), words, cuda::cluster_address(box, to));
    };
    const int thread = static_cast<int>(threadIdx.x), telling = 1 << at.telling_bits;
    const int sharer = thread & (telling - 1);
    if (thread < blocks) {
      const Real flags[kWords] = {static_cast<Real>(told)};
      send(thread, at.stride, flags);
    }
    if (thread == 0) {
      cuda::mailbox_expect(box, blocks * (at.stride * static_cast<int>(sizeof(Real)) + 16));
    }
    const int j = 4 * (thread >> at.telling_bits), step = at.part_stride << at.telling_bits;
    const Real* from = arrays() + sharer * at.part_stride + min(j, at.stride - 4);
    Quad total{};
#pragma unroll 4
    for (int g = sharer; g < at.groups; g += telling, from += step) {
      const Quad v = *reinterpret_cast<const Quad*>(from);
#pragma unroll
      for (int c = 0; c < 4; ++c) total.v[c] += v.v[c];
    }
#pragma unroll 1
    for (int bit = 1; bit < telling; bit *= 2) {
#pragma unroll
      for (int c = 0; c < 4; ++c) total.v[c] += cuda::shuffle_xor(total.v[c], bit);
    }
    if (j < at.stride) {
#pragma unroll 1
      for (int to = sharer; to < blocks; to += telling) {
#pragma unroll
        for (int c = 0; c < 4; c += kWords) send(to, j + c, total.v + c);
      }
    }
    cuda::mailbox_wait(box, done / 2);
    return all;
  }
  // Called behind a barrier of the team that follows its last wait: no message is on its way then.
  static __device__ __forceinline__ void close_boxes() {
    if (block().places.in_cluster && threadIdx.x < 2) cuda::transfer_end(block().boxes + threadIdx.x);
  }
  // More blocks than a cluster has tell them through global memory.
  __device__ __forceinline__ const Real* told_in_memory(Team& team, int j, bool writes, Real sum, int turn,
                                                        int told) const {
    const Places& at = block().places;
    const int stride = at.stride + kToldFlags;
    Real* const all = p_.kept_sums + (static_cast<std::int64_t>(team.index) * 2 + turn) * at.blocks * stride;
    Real* const own = all + at.rank * stride;
    if (writes) own[j] = sum;
    if (threadIdx.x == 0) own[at.stride] = static_cast<Real>(told);
    team.barrier();
    return all;
  }
  // The column's sum of the blocks' ones, in their order, made in the type Sum; told: all blocks' flags.
  template <class Sum>
  static __device__ __forceinline__ Real joined_sum(const Real* all, int j, bool exists, int& told) {
    const Places& at = block().places;
    const int stride = at.stride + kToldFlags, blocks = at.blocks;
    told = 0;
    for (int b = static_cast<int>(threadIdx.x) % 32; b < blocks; b += 32) {
      told |= static_cast<int>(all[b * stride + at.stride]);
    }
    told = cuda::reduce(told, [](int x, int y) { return x | y; });
    if (!exists) return 0;
    const Real* from = all + j;
    Sum total = 0;
#pragma unroll 8
    for (int b = 0; b < blocks; ++b, from += stride) total += static_cast<Sum>(*from);
    return static_cast<Real>(total);
  }
};

}  // namespace warpalign::detail::transport
