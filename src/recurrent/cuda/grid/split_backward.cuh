// The backward sweep of a layer on the whole grid, for sm_90 and later: clusters of kSplit blocks share the
// units of all their blocks, and each block has a part of the gates of all units as the depth of its
// products. So a block reads a kSplit-th of dz. The blocks of a cluster send each other parts of dh, and the
// owner of a unit adds them in the order of the ranks.
//
// A message for step s + 1 needs dz of step s, which its receiver has written after its last look at the
// parts of step s. So two buffers suffice.
#pragma once

#include "recurrent/cuda/cell/mail.cuh"
#include "recurrent/cuda/grid/gradient_ring.cuh"
#include "recurrent/cuda/grid/pair_gradient.cuh"

namespace warpalign::detail::recurrent {

constexpr int kPairRows = 16;

// Shared memory of a pair of tiles: parts of dh from each block for steps of even and of odd place, and what
// counts their bytes.
template <int kSplit>
struct alignas(16) SplitPair {
  static constexpr int kFloats = kPairRows * kOwnUnits;
  float parts[2][kSplit][kFloats];
  cuda::Mailbox boxes[2];
};

// Rows have every step, without resets and zoneout.
template <class T, int kSplit, int kSteps, bool kShares>
__global__ void __launch_bounds__(kResidentThreads, 1) split_backward_kernel(ResidentParams<T> p) {
  const PairPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<true>(cell.at);
  const int hidden = cell.hidden, steps = cell.at.steps, stride = cell.gates_stride;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int part = cuda::cluster_rank(), first_rank = at.rank - part;
  const Offset first_gate = static_cast<Offset>(part) * (4 / kSplit) * hidden;
  const int pairs = (p.tiles + 1) / 2;
  const GradientRing<T> ring(cell, words_of_lane(cell, at), at.group, p.ranks);
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  using Pair = SplitPair<kSplit>;
  Pair* const exchange = reinterpret_cast<Pair*>(partials + partials_of_pair(kSplit));
  Weights16* const more = reinterpret_cast<Weights16*>(exchange + pairs);
  OwnState* const own = reinterpret_cast<OwnState*>(more + kSplit * p.shared_steps * kResidentThreads);
  using Weights = RowWeights<T, kSplit, kSteps, kShares, 2>;
  Weights weights(more, p.shared_steps, 4 / kSplit * hidden);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int m, int r) -> const T* {
    const int unit = (first_rank + m) * kOwnUnits + r;
    return unit < hidden ? cell.hh_across + static_cast<Offset>(unit) * stride + first_gate : nullptr;
  });
  const PairGradient<T, true, GradientRing<T>> gradient(cell, rows, at, ring);
  for (int pair = 0; pair < pairs; ++pair) own[pair * kResidentThreads + thread] = gradient.first(pair);
  // A block that has no units gets no messages.
  constexpr int kBytes = kSplit * Pair::kFloats * static_cast<int>(sizeof(float));
  const bool gets_parts = at.rank * kOwnUnits < hidden;
  if (thread == 0 && gets_parts) {
    for (int pair = 0; pair < pairs; ++pair) {
      for (cuda::Mailbox& box : exchange[pair].boxes) open_mailbox(&box, kBytes);
    }
  }
  cuda::cluster_sync();  // and the places become those of sums

  // A thread joins the warps' sums of four units of a row, and sends them to the block that owns the units.
  const int message_row = thread / 4 % kPairRows, message_block = thread / 4 / kPairRows;
  const bool sends = message_block < kSplit && (first_rank + message_block) * kOwnUnits < hidden;
  const int message_place = message_row * kOwnUnits + thread % 4 * 4;
  const int peer = sends ? message_block : part;
  const cuda::ClusterAddress to = cuda::cluster_address(&exchange[0].parts[0][part][message_place], peer);
  const cuda::ClusterAddress box_there = cuda::cluster_address(&exchange[0].boxes[0], peer);

  const bool asks_early = pairs > 1;  // the next pair's rows are there when a step of a pair ends
  RowPair<T> from{};
  typename Weights::Asked words;
  weights.ask(from.of, words);
  for (int place = 0; place <= steps; ++place) {
    ring.meet(place);
    for (int pair = 0; pair < pairs; ++pair) {
      const auto asked = gradient.ask(place, pair);
      if (place > 0) {
        const bool two = 2 * pair + 1 < p.tiles;
        typename Weights::Sums sums[2] = {};
        weights.multiply(from.of, two, words, sums);
        __syncthreads();  // the sums of the turn before have been read
        put_sums<kSplit>(sums, partials);
        __syncthreads();
        if (sends) {
          constexpr int kDistance = warp_distance(kSplit);
          const float* const first = partials + message_row / 8 * kDistance +
                                     (message_block * 8 + message_row % 8) * kColumnDistance + thread % 4 * 4;
          float sum[2][4] = {};
          unroll<kResidentWarps>([&](int k) {
            const float4 v = *reinterpret_cast<const float4*>(first + 2 * k * kDistance);
            sum[k % 2][0] += v.x, sum[k % 2][1] += v.y, sum[k % 2][2] += v.z, sum[k % 2][3] += v.w;
          });
          const Message message = bits_of(
              {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1], sum[0][2] + sum[1][2], sum[0][3] + sum[1][3]});
          const int offset = pair * static_cast<int>(sizeof(Pair)), buffer = place % 2;
          cuda::send_message(to + offset + buffer * static_cast<int>(sizeof(exchange->parts[0])),
                             message.words,
                             box_there + offset + buffer * static_cast<int>(sizeof(cuda::Mailbox)));
        }
      }

      const bool is_last = pair + 1 == pairs;
      from =
          rows_of_dz(cell, rows, at, ring, is_last ? place + 1 : place, is_last ? 0 : pair + 1, first_gate);
      if (asks_early) weights.ask(from.of, words);
      float sum = 0;
      if (place > 0 && gets_parts) {
        const int buffer = place % 2;
        Pair& here = exchange[pair];
        take_mail(&here.boxes[buffer], (place - 1) / 2, kBytes);
        const int own_place = at.row * kOwnUnits + lane / 2;
        sum = here.parts[buffer][0][own_place];
#pragma unroll
        for (int k = 1; k < kSplit; ++k) sum += here.parts[buffer][k][own_place];
      }
      gradient.finish(place, pair, asked, sum, own[pair * kResidentThreads + thread]);
      if (!asks_early) weights.ask(from.of, words);
    }
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
