// The backward sweep of a layer on clusters in float32 (cluster_backward.cuh has the 16-bit types').
#pragma once

#include "recurrent/cuda/clusters/cluster_backward.cuh"
#include "recurrent/cuda/clusters/cluster_float32.cuh"

namespace warpalign::detail::recurrent {

// dz of the block's units, for even and odd turns: of a row of the batch, the gates of a unit side by side.
struct alignas(16) OwnFloatGradients {
  float dz[2][8][kFloatGates + kFloatPad];
};

// T is float.
template <class T>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_backward_float_kernel(ClusterParams<T> p) {
  constexpr int kPieces = kFloatGates / 16;
  using Tile = BackwardTile<kFloatRanks>;
  const ClusterPlace at(p);
  const CudaCell<float> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, batch = cell.at.batch, ranks = p.ranks;
  const int begin = p.places.begin, end = p.places.end;
  const EvenTiles slice(cell, p, at, true, nullptr);
  const int thread = static_cast<int>(threadIdx.x), lane = at.lane;
  auto& own_gradients = *reinterpret_cast<OwnFloatGradients*>(cuda::dynamic_shared());
  auto* const tiles = reinterpret_cast<Tile*>(&own_gradients + 1);

  // The warp's part of all products: rows of R^T for 16 units.
  FloatWeights weights[kPieces];
#pragma unroll
  for (int s = 0; s < kPieces; ++s) {
    FourFloats pieces[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int to_unit = at.warp * kPartRows + unit_of_part_row(lane / 4 + half * 8);
      const int unit = at.rank * kBlockUnits + 4 * s + lane % 4;
      const bool is_there = to_unit < hidden && unit < hidden;
      const float* const from = cell.hh_across + static_cast<Offset>(to_unit) * cell.gates_stride + unit;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) {
        pieces[half].entries[gate] = is_there ? from[static_cast<Offset>(gate) * hidden] : 0.0f;
      }
    }
    weights[s] = {pieces[0], pieces[1]};
  }

  // This thread has one unit, and row `row` of every tile.
  const UnitLanes<16, 2> lanes;
  const int row = lane / 4 % 4 * 2 + lane % 2;
  const int own_unit = at.warp * kWarpUnits + lanes.unit, unit = at.rank * kBlockUnits + own_unit;
  const bool has_unit = unit < hidden;
  for (int tile = 0; tile < slice.count(); ++tile) {
    for (int r = ranks; r < kFloatRanks; ++r) {  // these send nothing
      tiles[tile].parts[0][r][thread] = tiles[tile].parts[1][r][thread] = 0;
    }
    const int b = slice.batch_row(tile, row);
    const bool is_own = has_unit && b < batch;
    const Offset index = static_cast<Offset>(b) * hidden + unit;
    tiles[tile].states[0][thread] = is_own ? cell.dh[index] : 0.0f;
    tiles[tile].states[1][thread] = is_own ? cell.dc[index] : 0.0f;
  }
  const int bytes = ranks * kPartBytes;
  if (thread == 0) {
    for (int tile = 0; tile < slice.count(); ++tile) {
      for (cuda::Mailbox& box : tiles[tile].boxes) {
        cuda::mailbox_init(&box);
        cuda::mailbox_expect(&box, bytes);
      }
    }
  }
  cuda::cluster_sync();

  const int owner = at.warp / kBlockParts;
  const bool sends = owner < ranks;
  const int peer = sends ? owner : at.rank;
  const cuda::ClusterAddress to = cuda::cluster_address(
      &tiles[0].parts[0][at.rank][at.warp % kBlockParts * kPartFloats + lane * 4], peer);
  const cuda::ClusterAddress box_there = cuda::cluster_address(&tiles[0].boxes[0], peer);

  struct Asked {
    RowAt at;
    float gates[4], before, dy;
  };
  const auto ask = [&](int place, int tile) {
    const int t = cell.step_back_at(place), b = slice.batch_row(tile, row);
    Asked asked{slice.row_at(tile, row, place, t), {}, 0, 0};
    if (!has_unit || !asked.at.holds) return asked;
    const float* const gates = cell.gates + 4 * asked.at.first + unit;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) asked.gates[gate] = gates[static_cast<Offset>(gate) * hidden];
    if (cell.dy) asked.dy = cell.dy[asked.at.row * cell.dy_stride + unit];
    const RowAt last = slice.row_at(tile, row, place + 1, cell.reverse ? t + 1 : t - 1);
    asked.before =
        last.holds ? cell.tape_c[last.first + unit] : cell.c0[static_cast<Offset>(b) * hidden + unit];
    return asked;
  };
  Asked next = ask(begin, 0);
  int turn = 0;
  for (int place = begin; place <= end; ++place) {
    const int t = cell.step_back_at(place), buffer = place % 2;
    for (int tile = 0; tile < slice.count(); ++tile, ++turn) {
      Tile& own = tiles[tile];
      const int b = slice.batch_row(tile, row);
      const Asked here = next;
      const bool holds = has_unit && here.at.holds && place < end;
      const bool is_last = tile + 1 == slice.count();
      float dh = own.states[0][thread], dc = own.states[1][thread], dy = here.dy;
      if (holds) {
        if (cell.dropout.factor != 0) dy *= cell.dropout.of(cell.masks, t, b, unit);
        if (cell.dh_all) dy += cell.dh_all[here.at.first + unit];
        if (cell.dc_all) dc += cell.read_cell(cell.dc_all, here.at.first + unit);
      }
      next = ask(is_last ? place + 1 : place, is_last ? 0 : tile + 1);
      const Activation<float>& a = cell.activation;
      const float i = here.gates[0], f = here.gates[1], g = here.gates[2], o = here.gates[3];
      const float squashed = a.squash(f * here.before + i * g);
      float slopes[4];
      a.slopes(here.gates, slopes);
      const float to_cell = o * a.squash_slope(squashed), to_o = squashed * slopes[3];
      const float to_i = g * slopes[0], to_f = here.before * slopes[1], to_g = i * slopes[2];

      if (place > begin) {
        cuda::mailbox_wait(&own.boxes[buffer], (place - begin - 1) / 2);
        if (thread == 0) cuda::mailbox_expect(&own.boxes[buffer], bytes);
        float sums[kFloatRanks];
#pragma unroll
        for (int r = 0; r < kFloatRanks; ++r) sums[r] = own.parts[buffer][r][thread];
        dh += (sums[0] + sums[1]) + (sums[2] + sums[3]);
      }
      if (place == end) {
        const Offset index = static_cast<Offset>(b) * hidden + unit;
        if (has_unit && b < batch) cell.dh[index] = dh, cell.dc[index] = dc;
        continue;  // every thread does
      }
      const float dm = dh + dy, dcell = dc + dm * to_cell;
      const FourFloats dz{{holds ? dcell * to_i : 0.0f, holds ? dcell * to_f : 0.0f,
                           holds ? dcell * to_g : 0.0f, holds ? dm * to_o : 0.0f}};
      auto& own_dz = own_gradients.dz[turn % 2];
      *reinterpret_cast<FourFloats*>(&own_dz[row][own_unit * 4]) = dz;
      __syncthreads();
      {
        const float* const operands = own_dz[lane / 4];
        FloatSums sums;
#pragma unroll
        for (int s = 0; s < kPieces; ++s) weights[s].multiply(read_piece(operands, 4 * s + lane % 4), sums);
        const float message[4] = {sums.total(0), sums.total(1), sums.total(2), sums.total(3)};
        const int offset =
            tile * static_cast<int>(sizeof(Tile)) + (1 - buffer) * static_cast<int>(sizeof(own.parts[0]));
        const int box_offset =
            tile * static_cast<int>(sizeof(Tile)) + (1 - buffer) * static_cast<int>(sizeof(cuda::Mailbox));
        if (sends) send_floats(to + offset, message, box_there + box_offset);
      }
      // No other block waits for these stores.
      if (holds) {
        float* const to_dz = cell.dz + here.at.row * cell.gates_stride + unit;
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) to_dz[static_cast<Offset>(gate) * hidden] = dz.entries[gate];
        own.states[0][thread] = 0, own.states[1][thread] = dcell * f;
      }
    }
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
