// The forward sweep of a layer on clusters. A warp has the gates of 4 units for all of the depth: 16 rows of
// R. A block sends each new h to all blocks.
#pragma once

#include "recurrent/cuda/clusters/cluster_hidden.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// float32 has no options.
template <class T, int kSteps, SweepOptions kOptions>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_forward_kernel(ClusterParams<T> p) {
  using cuda::Word;
  using Tile = ForwardTile<T, kSteps>;
  using Gates = GateRows<T, ForwardLanes>;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, ranks = p.ranks;
  const int begin = p.places.begin, end = p.places.end;
  constexpr bool kPlain = kOptions == SweepOptions::kNone, kAll = kOptions == SweepOptions::kAll;
  static_assert(sizeof(T) == 2 || kPlain);
  const int thread = static_cast<int>(threadIdx.x);
  auto* const tiles = reinterpret_cast<Tile*>(cuda::dynamic_shared());
  ClusterWeights<T> weights[kSteps];
  load_weights(cell, at, ranks, tiles, weights);

  TilesOf<kOptions> work(cell, p, at, false, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const ForwardLanes lanes;
  const int row = lanes.row;
  const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits, unit = first_unit + lanes.unit;
  const bool has_unit = unit < hidden;
  float bias[4];
  unroll<4>([&](int gate) { bias[gate] = has_unit ? bias_of(cell, gate * hidden + unit) : 0.0f; });

  fill_states<!kPlain>(cell, at, ranks, work, end, unit, row, tiles);
  if (thread == 0) {
    for (int tile = 0; tile < work.count(); ++tile) open_hidden<T>(tiles[tile], ranks);
  }
  cuda::cluster_sync();
  const HiddenExchange<T, Tile> exchange(tiles, at, ranks, lanes);

  // In 16-bit types: which lane writes which array, h or c of the lanes' four units.
  T* const arrays[3] = {cell.h_rows, cell.h_all, cell.tape_c};
  [[maybe_unused]] T* array = lanes.unit == 0   ? arrays[0]
                              : lanes.unit == 1 ? arrays[1]
                              : lanes.unit == 2 ? arrays[2]
                                                : nullptr;
  if (array) array += first_unit;
  const bool keeps_gates = cell.tape_c != nullptr;

  const Gates gate_rows(cell.gates, lanes, unit, hidden);
  const auto ask = [&](const RowAt& r) {
    return has_unit && r.holds ? gate_rows.read(r.first) : typename Gates::Entries{};
  };
  const auto kept_at = [&](const RowAt& r) {
    return cell.kept && has_unit && r.holds ? __ldg(cell.kept + (r.first + first_unit) / kWarpUnits) : 0u;
  };
  RowAt next = work.row_at(0, row, work.begin(), cell.step_at(work.begin()));
  auto next_gates = ask(next);
  [[maybe_unused]] unsigned next_kept = kAll ? kept_at(next) : 0;
  for (int place = work.begin(); place < work.end(); ++place) {
    const int t = cell.step_at(place), buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.working(); ++tile) {
      Tile& own = tiles[tile];
      const RowAt here = next;
      float z[4], state = own.states[0][thread];
      widen_gates<T>(lanes, next_gates, z);
      unroll<4>([&](int gate) { z[gate] += bias[gate]; });
      {
        const bool is_last = tile + 1 == work.working();
        next = work.row_at(is_last ? 0 : tile + 1, row, is_last ? place + 1 : place,
                           is_last ? cell.step_at(place + 1) : t);
        next_gates = ask(next);
      }

      // What options ask for is found out before the wait too.
      [[maybe_unused]] KeptShares<float> keep{};
      [[maybe_unused]] bool restarts = false;
      if constexpr (kAll) {
        keep = kept_shares(cell, next_kept, lanes.unit);
        next_kept = kept_at(next);
        restarts = has_unit && work.resets_at(tile, row, place + 1, cell.step_at(place + 1));
      }

      exchange.multiply(own, weights, lanes, buffer, work.waits(place, tile), (place - begin - 1) / 2, z);
      const Activation<T>& a = cell.activation;
      float values[4];
      a.gates(z, values);
      float c = values[1] * state + values[0] * values[2], fresh = values[3] * a.squash(c);
      const int b = work.batch_row(tile, row);
      if constexpr (sizeof(T) == 4) {
        own.states[0][thread] = c;
        if (work.goes_on(place, tile)) exchange.send(tile, buffer, lanes, fresh);
        // No other block waits for these stores.
        if (has_unit && here.exists) {
          if (keeps_gates) gate_rows.write(here.first, narrow_gates<T>(lanes, values));
          if (cell.tape_c) cell.tape_c[here.first + unit] = c;
          if (cell.h_rows) cell.h_rows[here.row * cell.h_stride + unit] = fresh;
          if (cell.h_all) cell.h_all[here.first + unit] = fresh;
          if (cell.c_all) cell.write_cell(cell.c_all, here.first + unit, c);
        }
        if (has_unit && work.is_last(here, place, b)) leave_state(cell, end, b, unit, fresh, c);
      } else {
        // Pairs of h and c, as they are sent and as they are kept in the arrays. c of the first pair is not
        // used.
        std::uint32_t to_send, to_keep;
        float c_to_keep;
        if constexpr (kPlain) {
          to_send = to_keep = cuda::narrow_pair<T>(fresh, c);
          c_to_keep = c;
        } else {
          const float before = own.states[1][thread];
          if constexpr (kAll) {
            if (keep.h != 0) fresh = keep.h * before + (1 - keep.h) * fresh;
            if (keep.c != 0) c = keep.c * state + (1 - keep.c) * c;
          }
          // A row without this step keeps its state.
          float h_after = here.holds ? fresh : before;
          c_to_keep = here.holds ? c : state;
          if constexpr (kAll) {
            to_keep = cuda::narrow_pair<T>(fresh, c);
            if (restarts) {
              h_after = cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + unit]);
              c_to_keep = cell.c0[static_cast<Offset>(b) * hidden + unit];
            }
          }
          to_send = cuda::narrow_pair<T>(h_after, c);
          if constexpr (kAll) own.states[1][thread] = cuda::widen(first_of<T>(to_send));
        }
        own.states[0][thread] = c_to_keep;

        Word word, cells;
        lanes.join(to_send, word, cells);
        const Word other = cuda::shuffle_xor(word, 16);
        if (work.goes_on(place, tile)) exchange.send(tile, buffer, lanes, word, other);

        // No other block waits for these stores.
        Word kept = word;
        if constexpr (kAll) lanes.join(to_keep, kept, cells);
        const Word gates = narrow_gates<T>(lanes, values);
        if (has_unit && here.exists) {
          if (keeps_gates) gate_rows.write(here.first, gates);
          if (array) {
            const Offset first = lanes.unit == 0 ? here.row * cell.h_stride : here.first;
            *reinterpret_cast<Word*>(array + first) = lanes.unit == 2 ? cells : kept;
          }
          if (cell.c_all) cell.write_cell(cell.c_all, here.first + unit, c);
        }
        if (has_unit && work.is_last(here, place, b)) {
          leave_state(cell, end, b, unit, first_of<T>(to_send), c_to_keep);
        }
      }
    }
  }
  if constexpr (!kPlain) {
    work.for_dead_words(at, hidden, [&](Offset r, int first) {
      const Offset begins = r * hidden + first;
      clear_word(cell.h_rows, r * cell.h_stride + first);
      clear_word(cell.h_all, begins), clear_word(cell.tape_c, begins);
      for (int k = 0; k < kWarpUnits && cell.c_all; ++k) cell.write_cell(cell.c_all, begins + k, 0.0f);
    });
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
