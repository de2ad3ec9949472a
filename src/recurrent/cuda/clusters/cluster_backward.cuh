// The backward sweep of a layer on clusters. A block turns dz of its own units into parts of dh for all
// units, and sends each block its part in float32. The owner adds the parts in the order of the ranks.
#pragma once

#include "recurrent/cuda/clusters/cluster_parts.cuh"

namespace warpalign::detail::recurrent {

// A thread's unit and row of every tile in arrays of rows: what a step reads of them, and dz.
template <class T, SweepOptions kOptions>
class BackwardRows {
 public:
  static constexpr bool kAll = kOptions == SweepOptions::kAll;
  using Gates = GateRows<T, BackwardLanes>;
  using Work = TilesOf<kOptions>;
  // Loaded ahead of a step.
  struct Asked {
    RowAt at;
    typename Gates::Entries gates;
    T before, dy;  // c[t-1] from the tape
    unsigned kept;
  };
  // What a step takes beside its gates.
  struct Inputs {
    float before, dy, dc;
    bool resets;
  };

  __device__ __forceinline__ BackwardRows(const CudaCell<T>& cell, const Work& work,
                                          const BackwardLanes& lanes, int unit)
      : cell_(cell),
        work_(work),
        first_unit_(unit - lanes.unit),
        unit_(unit),
        row_(lanes.row),
        gates_(cell.gates, lanes, unit, cell.hidden),
        dz_(cell.dz, lanes, unit, cell.hidden) {}

  __device__ __forceinline__ Asked ask(int place, int tile) const {
    const int t = cell_.step_back_at(place);
    Asked asked{work_.row_at(tile, row_, place, t), {}, {}, {}, 0};
    if (unit_ >= cell_.hidden || !asked.at.holds) return asked;
    asked.gates = gates_.read(asked.at.first);
    if (cell_.dy) asked.dy = cell_.dy[asked.at.row * cell_.dy_stride + unit_];
    const RowAt last = work_.row_at(tile, row_, place + 1, cell_.reverse ? t + 1 : t - 1);
    if (last.holds) {
      asked.before = cell_.tape_c[last.first + unit_];
    } else if constexpr (sizeof(T) == 4) {  // else T may not hold it
      asked.before = cell_.c0[static_cast<Offset>(work_.batch_row(tile, row_)) * cell_.hidden + unit_];
    }
    if constexpr (kAll) {
      if (cell_.kept) asked.kept = __ldg(cell_.kept + (asked.at.first + first_unit_) / kWarpUnits);
    }
    return asked;
  }
  // Of the tile that is worked on after this one.
  __device__ __forceinline__ Asked ask_after(int place, int tile) const {
    const bool is_last = tile + 1 == work_.busy();
    return ask(is_last ? place + 1 : place, is_last ? 0 : tile + 1);
  }
  // dc: what the next step has left. holds: the row has this step.
  __device__ __forceinline__ Inputs inputs(const Asked& asked, int place, int tile, int b, bool holds,
                                           float dc) const {
    Inputs in{cuda::widen(asked.before), 0, dc, false};
    if (!holds) return in;
    const int t = cell_.step_back_at(place), last = cell_.reverse ? t + 1 : t - 1;
    if constexpr (kAll) in.resets = work_.resets_at(tile, row_, place, t);
    if (sizeof(T) == 2 && (in.resets || work_.begins_row(asked.at, last, b))) {
      in.before = cell_.c0[static_cast<Offset>(b) * cell_.hidden + unit_];
    }
    in.dy = cuda::widen(asked.dy);
    if (cell_.dropout.factor != 0) in.dy *= cell_.dropout.of(cell_.masks, t, b, unit_);
    if (cell_.dh_all) in.dy += cuda::widen(cell_.dh_all[asked.at.first + unit_]);
    if (cell_.dc_all) in.dc += cell_.read_cell(cell_.dc_all, asked.at.first + unit_);
    return in;
  }
  // Whether the step swept before, which is the next one in time, has begun with (h0, c0).
  __device__ __forceinline__ bool restarts(int place, int tile) const {
    if constexpr (kAll) {
      return unit_ < cell_.hidden && work_.resets_at(tile, row_, place - 1, cell_.step_back_at(place - 1));
    }
    return false;
  }
  // No other block waits for these stores.
  __device__ __forceinline__ void write(const RowAt& at, const typename Gates::Entries& dz) const {
    if (unit_ < cell_.hidden && at.exists) dz_.write(at.first, dz);
  }

 protected:
  const CudaCell<T>& cell_;
  const Work& work_;
  int first_unit_, unit_, row_;
  Gates gates_, dz_;
};

// From the gradients with respect to a cell's c~ and m = o u(c~) to those with respect to z.
struct StepSlopes {
  float to_cell, to_i, to_f, to_g, to_o;

  template <class T>
  __device__ __forceinline__ StepSlopes(const Activation<T>& a, const float (&gates)[4], float before) {
    const float i = gates[0], f = gates[1], g = gates[2], o = gates[3];
    const float squashed = a.squash(f * before + i * g);
    float slopes[4];
    a.slopes(gates, slopes);
    to_cell = o * a.squash_slope(squashed), to_o = squashed * slopes[3];
    to_i = g * slopes[0], to_f = before * slopes[1], to_g = i * slopes[2];
  }
};

// float32 has no options.
template <class T, int kParts, SweepOptions kOptions>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_backward_kernel(ClusterParams<T> p) {
  constexpr int kRanks = kParts * kClusterWarps / kBlockParts;
  using Tile = BackwardTile<kRanks>;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, ranks = p.ranks, begin = p.places.begin;
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
  const int row = lanes.row, unit = at.rank * kBlockUnits + at.warp * kWarpUnits + lanes.unit;
  const bool has_unit = unit < hidden;
  fill_gradients<kRanks>(cell, work, ranks, unit, row, tiles);
  cuda::cluster_sync();
  const PartExchange<kParts, Tile> exchange(tiles, at, ranks);
  const BackwardRows<T, kOptions> rows(cell, work, lanes, unit);
  auto next = rows.ask(work.begin(), 0);
  int turn = 0;
  for (int place = work.begin(); place <= work.end(); ++place) {
    const int buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.busy(); ++tile) {
      Tile& own = tiles[tile];
      const int b = work.batch_row(tile, row);
      const Offset index = static_cast<Offset>(b) * hidden + unit;
      const auto here = next;
      const bool holds = has_unit && here.at.holds && work.works(place, tile);
      float gates[4];
      widen_gates<T>(lanes, here.gates, gates);
      float dh = own.states[0][thread];
      const auto in = rows.inputs(here, place, tile, b, holds, own.states[1][thread]);
      next = rows.ask_after(place, tile);
      const StepSlopes to(cell.activation, gates, in.before);
      KeptShares<float> keep{};
      if constexpr (kAll) keep = kept_shares(cell, here.kept, lanes.unit);
      const bool restarts = rows.restarts(place, tile);

      if (work.waits(place, tile)) {
        dh += exchange.take(own, buffer, (place - begin - 1) / 2);
        if (restarts) cell.dh0[index] += dh, dh = 0;
      }
      if (!work.works(place, tile)) {
        if (has_unit) leave_gradients(cell, b, unit, dh, in.dc);
        continue;  // every thread does
      }
      const float all = dh + in.dy, dm = (1 - keep.h) * all;
      const float dcell = (1 - keep.c) * in.dc + dm * to.to_cell;
      const float dz[4] = {holds ? dcell * to.to_i : 0.0f, holds ? dcell * to.to_f : 0.0f,
                           holds ? dcell * to.to_g : 0.0f, holds ? dm * to.to_o : 0.0f};
      const auto entries = narrow_gates<T>(lanes, dz);
      const int own_turn = turn++ % 2;
      own_gradients.put(own_turn, lanes.unit, at.warp, row, entries);
      __syncthreads();
      exchange.template send<T>(weights, own_gradients, own_turn, tile, buffer);
      rows.write(here.at, entries);
      float dc_before = keep.c * in.dc + dcell * gates[1];
      if (in.resets) cell.dc0[index] += dc_before, dc_before = 0;
      own.states[0][thread] = !holds ? dh : kAll ? keep.h * all : 0.0f;
      if (holds) own.states[1][thread] = dc_before;
    }
  }
  if constexpr (!kPlain) {
    work.for_dead_words(at, hidden, [&](Offset r, int first) { clear_gradients(cell, r, first); });
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
