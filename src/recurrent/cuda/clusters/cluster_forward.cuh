// The forward sweep of a layer on clusters. A warp has the gates of 4 units for all of the depth: 16 rows of
// R. A block sends each new h to all blocks.
#pragma once

#include "recurrent/cuda/clusters/cluster_hidden.cuh"

namespace warpalign::detail::recurrent {

template <class T, int kSteps, SweepOptions kOptions>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_forward_kernel(ClusterParams<T> p) {
  using cuda::Word;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, batch = cell.at.batch, ranks = p.ranks;
  const int begin = p.places.begin, end = p.places.end;
  constexpr bool kPlain = kOptions == SweepOptions::kNone, kAll = kOptions == SweepOptions::kAll;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const tiles = reinterpret_cast<ForwardTile<kSteps>*>(cuda::dynamic_shared());
  Weights16 weights[kSteps];
  load_weights(cell, at, ranks, weights);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) weights[s].settle(reinterpret_cast<Weights16*>(tiles));
  __syncthreads();

  TilesOf<kOptions> work(cell, p, at, false, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const ForwardLanes lanes;
  const int row = lanes.row;
  const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits, unit = first_unit + lanes.unit;
  const bool has_unit = unit < hidden;
  float bias[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) bias[gate] = has_unit ? bias_of(cell, gate * hidden + unit) : 0.0f;

  fill_states<!kPlain>(cell, at, ranks, work, end, unit, row, tiles);
  if (thread == 0) {
    for (int tile = 0; tile < work.count(); ++tile) open_hidden(tiles[tile], ranks);
  }
  cuda::cluster_sync();
  const HiddenExchange exchange(tiles, at, ranks, lanes);

  // Which lane writes which array: h or c of the lanes' four units.
  T* const arrays[3] = {cell.h_rows, cell.h_all, cell.tape_c};
  T* array = lanes.unit == 0   ? arrays[0]
             : lanes.unit == 1 ? arrays[1]
             : lanes.unit == 2 ? arrays[2]
                               : nullptr;
  if (array) array += first_unit;
  const bool keeps_gates = cell.tape_c != nullptr;

  // Points at this lane's gate of the four units, in row 0.
  T* const gates_of_lane = cell.gates + static_cast<Offset>(lanes.unit) * hidden + first_unit;
  const auto gates_at = [&](const RowAt& r) { return reinterpret_cast<Word*>(gates_of_lane + 4 * r.first); };
  const auto kept_at = [&](const RowAt& r) {
    return cell.kept && has_unit && r.holds ? __ldg(cell.kept + (r.first + first_unit) / kWarpUnits) : 0u;
  };
  RowAt next = work.row_at(0, row, work.begin(), cell.step_at(work.begin()));
  Word next_gates = has_unit && next.holds ? *gates_at(next) : 0;
  [[maybe_unused]] unsigned next_kept = kAll ? kept_at(next) : 0;
  for (int place = work.begin(); place < work.end(); ++place) {
    const int t = cell.step_at(place), buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.working(); ++tile) {
      ForwardTile<kSteps>& own = tiles[tile];
      const RowAt here = next;
      float z[4], state = own.states[0][thread];
      widen_word<T>(lanes.transpose(next_gates), z);
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) z[gate] += bias[gate];
      {
        const bool is_last = tile + 1 == work.working();
        next = work.row_at(is_last ? 0 : tile + 1, row, is_last ? place + 1 : place,
                           is_last ? cell.step_at(place + 1) : t);
        next_gates = has_unit && next.holds ? *gates_at(next) : 0;
      }

      // What options ask for is found out before the wait too.
      [[maybe_unused]] KeptShares<float> keep{};
      [[maybe_unused]] bool restarts = false;
      if constexpr (kAll) {
        keep = kept_shares(cell, next_kept, lanes.unit);
        next_kept = kept_at(next);
        restarts = has_unit && work.resets_at(tile, row, place + 1, cell.step_at(place + 1));
      }

      exchange.template multiply<T>(own, weights, lanes, buffer, work.waits(place, tile),
                                    (place - begin - 1) / 2, z);
      const Activation<T>& a = cell.activation;
      float values[4];
      a.gates(z, values);
      float c = values[1] * state + values[0] * values[2], fresh = values[3] * a.squash(c);
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
            const int b = work.batch_row(tile, row);
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
      const Word gates = lanes.transpose(narrow_word<T>(values));
      if (has_unit && here.exists) {
        if (keeps_gates) *gates_at(here) = gates;
        if (array) {
          const Offset begin = lanes.unit == 0 ? here.row * cell.h_stride : here.first;
          *reinterpret_cast<Word*>(array + begin) = lanes.unit == 2 ? cells : kept;
        }
        if (cell.c_all) cell.write_cell(cell.c_all, here.first + unit, c);
      }
      const int b = work.batch_row(tile, row);
      if (has_unit && work.is_last(here, place, b)) {  // the state behind
        (end % 2 ? cell.h[1] : cell.h[0])[static_cast<Offset>(b) * cell.output_stride + unit] =
            first_of<T>(to_send);
        cell.c[static_cast<Offset>(b) * hidden + unit] = c_to_keep;
      }
    }
  }
  if constexpr (!kPlain) {
    const int word = thread % kClusterWarps, first = at.rank * kBlockUnits + word * kWarpUnits;
    work.for_dead_steps(thread / kClusterWarps, kClusterThreads / kClusterWarps, [&](int b, int t) {
      if (first >= hidden) return;
      const Offset r = static_cast<Offset>(t) * batch + b, begins = r * hidden + first;
      const auto clear = [&](T* to, Offset index) {
        if (to) *reinterpret_cast<Word*>(to + index) = 0;
      };
      clear(cell.h_rows, r * cell.h_stride + first), clear(cell.h_all, begins), clear(cell.tape_c, begins);
      for (int k = 0; k < kWarpUnits && cell.c_all; ++k) cell.write_cell(cell.c_all, begins + k, 0.0f);
    });
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
