// The backward sweep of a layer on the whole grid, two tiles of rows at once.
#pragma once

#include "recurrent/cuda/grid/pair_gradient.cuh"

namespace warpalign::detail::recurrent {

template <class T, int kSteps, bool kShares, bool kPlain>
__global__ void __launch_bounds__(kResidentThreads, 1) pair_backward_kernel(ResidentParams<T> p) {
  const PairPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<kPlain>(cell.at);
  const int steps = cell.at.steps, depth = cell.gates_stride, pairs = (p.tiles + 1) / 2;
  const int thread = static_cast<int>(threadIdx.x);
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + partials_of_pair(1));
  OwnState* const own = reinterpret_cast<OwnState*>(more + p.shared_steps * kResidentThreads);
  using Weights = RowWeights<T, 1, kSteps, kShares, 2>;
  Weights weights(more, p.shared_steps, depth);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int, int r) -> const T* {
    const int unit = at.rank * kOwnUnits + r;
    return unit < cell.hidden ? cell.hh_across + static_cast<Offset>(unit) * depth : nullptr;
  });
  __syncthreads();  // the places become those of sums
  const WholeRows<T> exchange(cell, words_of_lane(cell, at));
  const PairGradient<T, kPlain, WholeRows<T>> gradient(cell, rows, at, exchange);
  for (int pair = 0; pair < pairs; ++pair) own[pair * kResidentThreads + thread] = gradient.first(pair);
  for (int place = 0; place <= steps; ++place) {
    for (int pair = 0; pair < pairs; ++pair) {
      const auto asked = gradient.ask(place, pair);
      const RowPair<T> from = rows_of_dz(cell, rows, at, exchange, place, pair, 0);
      typename Weights::Sums sums[2] = {};
      typename Weights::Asked words;
      weights.ask(from.of, words);
      weights.multiply(from.of, 2 * pair + 1 < p.tiles, words, sums);
      float totals[1];
      join_sums(sums, partials, 0, totals);
      gradient.finish(place, pair, asked, totals[0], own[pair * kResidentThreads + thread]);
    }
  }
}

}  // namespace warpalign::detail::recurrent
