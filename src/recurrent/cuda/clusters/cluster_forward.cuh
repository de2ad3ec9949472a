// The forward sweep of a layer on clusters. A warp has the gates of 4 units for all of the depth: 16 rows of
// R. A block sends each new h to all blocks.
#pragma once

#include "recurrent/cuda/clusters/cluster_hidden.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// A thread's unit in arrays of rows: what a step reads of it, and what it leaves. In 16-bit types each lane
// of four units writes one array of these units: of h, of h with all directions, or of c.
template <class T>
class ForwardRows {
 public:
  using Gates = GateRows<T, ForwardLanes>;

  // fourth: an array that the fourth lane writes.
  __device__ __forceinline__ ForwardRows(const CudaCell<T>& cell, const ForwardLanes& lanes, int unit,
                                         T* fourth = nullptr)
      : cell_(cell), lane_(lanes.unit), unit_(unit), gates_(cell.gates, lanes, unit, cell.hidden) {
    T* const arrays[4] = {cell.h_rows, cell.h_all, cell.tape_c, fourth};
    array_ = lane_ == 0 ? arrays[0] : lane_ == 1 ? arrays[1] : lane_ == 2 ? arrays[2] : arrays[3];
    if (array_) array_ += unit - lane_;
  }
  // What a step takes, or nothing where the row has no such step.
  struct Asked {
    RowAt at;
    typename Gates::Entries gates;  // W x
    unsigned kept;                  // zoneout's bits of the lanes' units
  };
  template <bool kAll>
  __device__ __forceinline__ Asked ask(const RowAt& at) const {
    Asked asked{at, {}, 0};
    if (unit_ >= cell_.hidden || !at.holds) return asked;
    asked.gates = gates_.read(at.first);
    if (kAll && cell_.kept) asked.kept = __ldg(cell_.kept + (at.first + unit_ - lane_) / kWarpUnits);
    return asked;
  }
  // No other block waits for these stores. In float32:
  __device__ __forceinline__ void write(const RowAt& at, const Piece<float>& gates, float h, float c) const {
    if (unit_ >= cell_.hidden || !at.exists) return;
    if (cell_.tape_c) gates_.write(at.first, gates);
    if (cell_.tape_c) cell_.tape_c[at.first + unit_] = c;
    if (cell_.h_rows) cell_.h_rows[at.row * cell_.h_stride + unit_] = h;
    if (cell_.h_all) cell_.h_all[at.first + unit_] = h;
    if (cell_.c_all) cell_.write_cell(cell_.c_all, at.first + unit_, c);
  }
  // In 16-bit types: words of the lanes' four units, and c of this one. fourth: for the fourth lane's array.
  __device__ __forceinline__ void write_gates(const RowAt& at, cuda::Word gates) const {
    if (cell_.tape_c && unit_ < cell_.hidden && at.exists) gates_.write(at.first, gates);
  }
  __device__ __forceinline__ void write_states(const RowAt& at, cuda::Word h, cuda::Word cells, float c,
                                               cuda::Word fourth = 0) const {
    if (unit_ >= cell_.hidden || !at.exists) return;
    if (array_) {
      const Offset first = lane_ == 0 ? at.row * cell_.h_stride : at.first;
      *reinterpret_cast<cuda::Word*>(array_ + first) = lane_ == 2 ? cells : lane_ == 3 ? fourth : h;
    }
    if (cell_.c_all) cell_.write_cell(cell_.c_all, at.first + unit_, c);
  }

 protected:
  const CudaCell<T>& cell_;
  int lane_, unit_;
  Gates gates_;
  T* array_;
};

// The state after a step of 16-bit types. Pairs of h and c, rounded: as they are sent, and as the arrays keep
// them; c of the first pair is not used. c: as the next step takes it.
struct StepState {
  std::uint32_t to_send, to_keep;
  float c;
};
// From the new h and c, and those before the step. c becomes what the arrays keep.
template <SweepOptions kOptions, class T>
__device__ __forceinline__ StepState state_after(const CudaCell<T>& cell, const KeptShares<float>& keep,
                                                 bool holds, bool restarts, int b, int unit, float h_before,
                                                 float c_before, float h, float& c) {
  if constexpr (kOptions == SweepOptions::kNone) {
    const std::uint32_t both = cuda::narrow_pair<T>(h, c);
    return {both, both, c};
  } else {
    constexpr bool kAll = kOptions == SweepOptions::kAll;
    if constexpr (kAll) {
      if (keep.h != 0) h = keep.h * h_before + (1 - keep.h) * h;
      if (keep.c != 0) c = keep.c * c_before + (1 - keep.c) * c;
    }
    // A row without this step keeps its state.
    float h_after = holds ? h : h_before;
    StepState after{0, 0, holds ? c : c_before};
    if constexpr (kAll) {
      after.to_keep = cuda::narrow_pair<T>(h, c);
      if (restarts) {
        h_after = cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + unit]);
        after.c = cell.c0[static_cast<Offset>(b) * cell.hidden + unit];
      }
    }
    after.to_send = cuda::narrow_pair<T>(h_after, c);
    return after;
  }
}

// float32 has no options.
template <class T, int kSteps, SweepOptions kOptions>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_forward_kernel(ClusterParams<T> p) {
  using cuda::Word;
  using Tile = ForwardTile<T, kSteps>;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, ranks = p.ranks, begin = p.places.begin, end = p.places.end;
  constexpr bool kPlain = kOptions == SweepOptions::kNone, kAll = kOptions == SweepOptions::kAll;
  static_assert(sizeof(T) == 2 || kPlain);
  const int thread = static_cast<int>(threadIdx.x);
  auto* const tiles = reinterpret_cast<Tile*>(cuda::dynamic_shared());
  ClusterWeights<T> weights[kSteps];
  load_weights(cell, at, ranks, tiles, weights);
  TilesOf<kOptions> work(cell, p, at, false, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const ForwardLanes lanes;
  const int row = lanes.row, unit = at.rank * kBlockUnits + at.warp * kWarpUnits + lanes.unit;
  const bool has_unit = unit < hidden;
  float bias[4];
  unroll<4>([&](int gate) { bias[gate] = has_unit ? bias_of(cell, gate * hidden + unit) : 0.0f; });

  fill_states<!kPlain>(cell, at, ranks, work, end, unit, row, tiles);
  cuda::cluster_sync();
  const HiddenExchange<T, Tile> exchange(tiles, at, ranks, lanes);
  const ForwardRows<T> rows(cell, lanes, unit);

  auto next = rows.template ask<kAll>(work.row_at(0, row, work.begin(), cell.step_at(work.begin())));
  for (int place = work.begin(); place < work.end(); ++place) {
    const int buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.working(); ++tile) {
      Tile& own = tiles[tile];
      const auto asked = next;
      const RowAt& here = asked.at;
      float z[4], state = own.states[0][thread];
      widen_gates<T>(lanes, asked.gates, z);
      unroll<4>([&](int gate) { z[gate] += bias[gate]; });
      next = rows.template ask<kAll>(row_after(cell, work, row, place, tile));
      [[maybe_unused]] bool restarts = false;  // found out before the wait, too
      if constexpr (kAll) {
        restarts = has_unit && work.resets_at(tile, row, place + 1, cell.step_at(place + 1));
      }

      exchange.multiply(own, weights, lanes, buffer, work.waits(place, tile), (place - begin - 1) / 2, z);
      float values[4];
      cell.activation.gates(z, values);
      float c = values[1] * state + values[0] * values[2], fresh = values[3] * cell.activation.squash(c);
      const int b = work.batch_row(tile, row);
      if constexpr (sizeof(T) == 4) {
        own.states[0][thread] = c;
        if (work.goes_on(place, tile)) exchange.send(tile, buffer, lanes, fresh);
        rows.write(here, narrow_gates<T>(lanes, values), fresh, c);
        if (has_unit && work.is_last(here, place, b)) leave_state(cell, end, b, unit, fresh, c);
      } else {
        const float before = kPlain ? 0.0f : own.states[1][thread];
        const KeptShares<float> keep = kAll ? kept_shares(cell, asked.kept, lanes.unit) : KeptShares<float>{};
        const StepState after =
            state_after<kOptions>(cell, keep, here.holds, restarts, b, unit, before, state, fresh, c);
        const T h = first_of<T>(after.to_send);
        if constexpr (kAll) own.states[1][thread] = cuda::widen(h);
        own.states[0][thread] = after.c;
        Word word, cells;
        lanes.join(after.to_send, word, cells);
        const Word other = cuda::shuffle_xor(word, 16);
        if (work.goes_on(place, tile)) exchange.send(tile, buffer, lanes, word, other);
        Word kept = word;
        if constexpr (kAll) lanes.join(after.to_keep, kept, cells);
        rows.write_gates(here, narrow_gates<T>(lanes, values));
        rows.write_states(here, kept, cells, c);
        if (has_unit && work.is_last(here, place, b)) leave_state(cell, end, b, unit, h, after.c);
      }
    }
  }
  if constexpr (!kPlain) {
    work.for_dead_words(at, hidden, [&](Offset r, int first) { clear_states(cell, r, first); });
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
