// The backward sweep of a layer on the whole grid, two tiles of rows at once.
//
// On sm_90 and later clusters of kSplit blocks may share the units of all their blocks: each block has a part
// of the gates of all units as the depth of its products, and so reads a kSplit-th of dz. The blocks of a
// cluster send each other parts of dh (PartMail). Rows then have every step, without resets and zoneout.
#pragma once

#include "recurrent/cuda/grid/gradient_ring.cuh"
#include "recurrent/cuda/grid/pair_gradient.cuh"
#include "recurrent/cuda/grid/part_mail.cuh"

namespace warpalign::detail::recurrent {

template <class T, int kSplit, int kSteps, bool kShares, bool kPlain>
__global__ void __launch_bounds__(kResidentThreads, 1) resident_backward_kernel(ResidentParams<T> p) {
  constexpr bool kIsSplit = kSplit > 1;
  static_assert(kPlain || !kIsSplit);
  const PairPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<kPlain>(cell.at);
  const int steps = cell.at.steps, pairs = (p.tiles + 1) / 2, thread = static_cast<int>(threadIdx.x);
  const int part = kIsSplit ? cuda::cluster_rank() : 0, depth = 4 / kSplit * cell.hidden;
  const Offset first_gate = static_cast<Offset>(part) * depth;

  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  auto* const parts = reinterpret_cast<SplitPair<kSplit>*>(partials + partials_of_pair(kSplit));
  Weights16* const more = reinterpret_cast<Weights16*>(parts + (kIsSplit ? pairs : 0));
  OwnState* const own = reinterpret_cast<OwnState*>(more + kSplit * p.shared_steps * kResidentThreads);
  using Weights = RowWeights<T, kSplit, kSteps, kShares, 2>;
  Weights weights(more, p.shared_steps, depth);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int m, int r) -> const T* {
    const int unit = (at.rank - part + m) * kOwnUnits + r;
    return unit < cell.hidden ? cell.hh_across + static_cast<Offset>(unit) * cell.gates_stride + first_gate
                              : nullptr;
  });
  using Exchange = std::conditional_t<kIsSplit, GradientRing<T>, WholeRows<T>>;
  const Exchange exchange(cell, words_of_lane(cell, at), at.group, p.ranks);
  const PairGradient<T, kPlain, Exchange> gradient(cell, rows, at, exchange);
  for (int pair = 0; pair < pairs; ++pair) own[pair * kResidentThreads + thread] = gradient.first(pair);
  if constexpr (kIsSplit) {
    if (thread == 0 && at.rank * kOwnUnits < cell.hidden) PartMail<kSplit>::open(parts, pairs);
    cuda::cluster_sync();  // the mail is open, and the weights' places become those of sums
  } else {
    __syncthreads();
  }
  const PartMail<kSplit> mail(parts, at, part, cell.hidden);

  // Of blocks that share units the next pair's rows are there when a pair's step ends. Else rows are asked
  // for after the tape: four times as many bytes, which would be asked for in vain before.
  const bool asks_early = pairs > 1;
  RowPair<T> from{};
  typename Weights::Asked words;
  weights.ask(from.of, words);
  for (int place = 0; place <= steps; ++place) {
    exchange.meet(place);
    for (int pair = 0; pair < pairs; ++pair) {
      const auto asked = gradient.ask(place, pair);
      float sum[1] = {};
      if constexpr (!kIsSplit) {
        typename Weights::Sums sums[2] = {};
        from = rows_of_dz(cell, rows, at, exchange, place, pair, first_gate);
        weights.ask(from.of, words);
        weights.multiply(from.of, 2 * pair + 1 < p.tiles, words, sums);
        join_sums(sums, partials, 0, sum);
      } else {
        if (place > 0) {
          typename Weights::Sums sums[2] = {};
          weights.multiply(from.of, 2 * pair + 1 < p.tiles, words, sums);
          __syncthreads();  // the sums of the turn before have been read
          put_sums<kSplit>(sums, partials);
          __syncthreads();
          mail.send(partials, pair, place % 2);
        }
        const bool is_last = pair + 1 == pairs;
        from = rows_of_dz(cell, rows, at, exchange, is_last ? place + 1 : place, is_last ? 0 : pair + 1,
                          first_gate);
        if (asks_early) weights.ask(from.of, words);
        if (place > 0) sum[0] = mail.take(pair, place, at.row);
      }
      gradient.finish(place, pair, asked, sum[0], own[pair * kResidentThreads + thread]);
      if (kIsSplit && !asks_early) weights.ask(from.of, words);
    }
  }
  if constexpr (kIsSplit) cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
