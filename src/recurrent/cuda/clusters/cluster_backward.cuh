// The backward sweep of a layer on clusters. A block turns dz of its own units into parts of dh for all
// units, and sends each block its part in float32. The owner adds the parts in the order of the ranks.
#pragma once

#include "recurrent/cuda/clusters/cluster_parts.cuh"

namespace warpalign::detail::recurrent {

// The numbers that a thread has loaded ahead of a step.
template <class T>
struct AskedStep {
  RowAt at;
  typename GateRows<T, BackwardLanes>::Entries gates;
  T before, dy;  // c[t-1] from the tape
  unsigned kept;
};

// float32 has no options.
template <class T, int kParts, SweepOptions kOptions>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_backward_kernel(ClusterParams<T> p) {
  constexpr int kRanks = kParts * kClusterWarps / kBlockParts;
  using Tile = BackwardTile<kRanks>;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, batch = cell.at.batch, ranks = p.ranks;
  const int begin = p.places.begin;
  constexpr bool kPlain = kOptions == SweepOptions::kNone, kAll = kOptions == SweepOptions::kAll;
  static_assert(sizeof(T) == 2 || kPlain);
  const int thread = static_cast<int>(threadIdx.x);
  auto& own_gradients = *reinterpret_cast<OwnGradients<T>*>(cuda::dynamic_shared());
  auto* const tiles = reinterpret_cast<Tile*>(&own_gradients + 1);

  ClusterWeights<T> weights[kParts][kDepthSteps];
  load_weights_across(cell, at, &own_gradients, weights);

  TilesOf<kOptions> work(cell, p, at, true, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const BackwardLanes lanes;
  const int row = lanes.row;
  const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits, unit = first_unit + lanes.unit;
  const bool has_unit = unit < hidden;
  fill_gradients(cell, work, unit, row, tiles);
  for (int tile = 0; tile < work.count(); ++tile) open_parts<kRanks>(tiles[tile], ranks);
  cuda::cluster_sync();
  const PartExchange<kParts, Tile> exchange(tiles, at, ranks);

  const GateRows<T, BackwardLanes> gate_rows(cell.gates, lanes, unit, hidden),
      dz_rows(cell.dz, lanes, unit, hidden);
  const auto ask = [&](int place, int tile) {
    const int t = cell.step_back_at(place);
    AskedStep<T> asked{work.row_at(tile, row, place, t), {}, {}, {}, 0};
    if (!has_unit || !asked.at.holds) return asked;
    asked.gates = gate_rows.read(asked.at.first);
    if (cell.dy) asked.dy = cell.dy[asked.at.row * cell.dy_stride + unit];
    const RowAt last = work.row_at(tile, row, place + 1, cell.reverse ? t + 1 : t - 1);
    if (last.holds) {
      asked.before = cell.tape_c[last.first + unit];
    } else if constexpr (sizeof(T) == 4) {  // else T may not hold it
      asked.before = cell.c0[static_cast<Offset>(work.batch_row(tile, row)) * hidden + unit];
    }
    if constexpr (kAll) {
      if (cell.kept) asked.kept = __ldg(cell.kept + (asked.at.first + first_unit) / kWarpUnits);
    }
    return asked;
  };
  AskedStep<T> next = ask(work.begin(), 0);
  int turn = 0;
  for (int place = work.begin(); place <= work.end(); ++place) {
    const int t = cell.step_back_at(place), buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.busy(); ++tile) {
      Tile& own = tiles[tile];
      const int b = work.batch_row(tile, row);
      const Offset index = static_cast<Offset>(b) * hidden + unit;
      const AskedStep<T> here = next;
      const bool holds = has_unit && here.at.holds && work.works(place, tile);
      const bool is_last = tile + 1 == work.busy();
      float gates[4], before = cuda::widen(here.before), dy = 0;
      widen_gates<T>(lanes, here.gates, gates);
      float dh = own.states[0][thread], dc = own.states[1][thread];
      bool resets = false;
      if (holds) {
        if constexpr (kAll) resets = work.resets_at(tile, row, place, t);
        const int last = cell.reverse ? t + 1 : t - 1;
        if (sizeof(T) == 2 && (resets || work.begins_row(here.at, last, b))) before = cell.c0[index];
        dy = cuda::widen(here.dy);
        if (cell.dropout.factor != 0) dy *= cell.dropout.of(cell.masks, t, b, unit);
        if (cell.dh_all) dy += cuda::widen(cell.dh_all[here.at.first + unit]);
        if (cell.dc_all) dc += cell.read_cell(cell.dc_all, here.at.first + unit);
      }
      next = ask(is_last ? place + 1 : place, is_last ? 0 : tile + 1);
      const Activation<T>& a = cell.activation;
      const float i = gates[0], f = gates[1], g = gates[2], o = gates[3];
      const float squashed = a.squash(f * before + i * g);
      float slopes[4];
      a.slopes(gates, slopes);
      const float to_cell = o * a.squash_slope(squashed), to_o = squashed * slopes[3];
      const float to_i = g * slopes[0], to_f = before * slopes[1], to_g = i * slopes[2];
      KeptShares<float> keep{};
      [[maybe_unused]] bool restarts = false;
      if constexpr (kAll) {
        keep = kept_shares(cell, here.kept, lanes.unit);
        restarts = has_unit && work.resets_at(tile, row, place - 1, cell.step_back_at(place - 1));
      }

      if (work.waits(place, tile)) {
        dh += exchange.take(own, buffer, (place - begin - 1) / 2);
        if constexpr (kAll) {
          if (restarts) {
            cell.dh0[index] += dh;
            dh = 0;
          }
        }
      }
      if (!work.works(place, tile)) {
        if (has_unit && b < batch) cell.dh[index] = dh, cell.dc[index] = dc;
        continue;  // every thread does
      }
      const float all = dh + dy, dm = (1 - keep.h) * all;
      const float dcell = (1 - keep.c) * dc + dm * to_cell;
      const float dz[4] = {holds ? dcell * to_i : 0.0f, holds ? dcell * to_f : 0.0f,
                           holds ? dcell * to_g : 0.0f, holds ? dm * to_o : 0.0f};
      const auto entries = narrow_gates<T>(lanes, dz);
      const int own_turn = turn++ % 2;
      own_gradients.put(own_turn, lanes.unit, at.warp, row, entries);
      __syncthreads();
      exchange.template send<T>(weights, own_gradients, own_turn, tile, buffer);
      // No other block waits for these stores.
      if (has_unit && here.at.exists) dz_rows.write(here.at.first, entries);
      if (holds) {
        float dc_before = keep.c * dc + dcell * f;
        if (resets) cell.dc0[index] += dc_before, dc_before = 0;
        own.states[0][thread] = kAll ? keep.h * all : 0.0f, own.states[1][thread] = dc_before;
      } else {
        own.states[0][thread] = dh;
      }
    }
  }
  if constexpr (!kPlain) {
    work.for_dead_words(at, hidden, [&](Offset r, int first) {
      for (int gate = 0; gate < 4; ++gate) clear_word(cell.dz, (4 * r + gate) * hidden + first);
    });
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
