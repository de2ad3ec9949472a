// The forward sweep of a layer on clusters in float32 (cluster_forward.cuh has the 16-bit types').
#pragma once

#include "recurrent/cuda/clusters/cluster_float32.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// Shared memory of a tile of rows: h before steps of even and of odd place, c of each thread, mailboxes.
struct alignas(16) FloatForwardTile {
  float h[2][8][kFloatRanks * kBlockUnits + kFloatPad];
  float c[kClusterThreads];
  cuda::Mailbox boxes[2];
};

// T is float.
template <class T>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_forward_float_kernel(ClusterParams<T> p) {
  constexpr int kDepth = kFloatRanks * kBlockUnits, kPieces = kDepth / 16;
  using Tile = FloatForwardTile;
  const ClusterPlace at(p);
  const CudaCell<float> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, batch = cell.at.batch, ranks = p.ranks;
  const int begin = p.places.begin, end = p.places.end;
  const EvenTiles slice(cell, p, at, false, nullptr);
  const int thread = static_cast<int>(threadIdx.x), lane = at.lane, g = lane / 4;
  auto* const tiles = reinterpret_cast<Tile*>(cuda::dynamic_shared());

  // Rows of lanes with g < 4 are i and f of unit g % 4, the others' are g and o.
  const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits;
  FloatWeights weights[kPieces];
  {
    const int of_row = first_unit + g % 4;
    const float* const upper =
        cell.hh + (static_cast<Offset>(g / 4 * 2) * hidden + of_row) * cell.output_stride;
    const float* const lower = upper + static_cast<Offset>(hidden) * cell.output_stride;
#pragma unroll
    for (int s = 0; s < kPieces; ++s) {
      const int piece = 4 * s + lane % 4;
      const bool is_there = of_row < hidden && 4 * piece < hidden;
      weights[s] = {is_there ? read_piece(upper, piece) : FourFloats{},
                    is_there ? read_piece(lower, piece) : FourFloats{}};
    }
  }

  // This thread has one unit, and row `row` of every tile.
  const UnitLanes<4, 8> lanes;
  const int odd = lane / 16, row = lane % 4 * 2 + odd, unit = first_unit + lanes.unit;
  const bool has_unit = unit < hidden;
  float bias[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) bias[gate] = has_unit ? bias_of(cell, gate * hidden + unit) : 0.0f;
  for (int n = thread; n < slice.count() * 8 * kDepth; n += kClusterThreads) {
    const int tile = n / (8 * kDepth), r = n / kDepth % 8, column = n % kDepth;
    const int b = slice.batch_row(tile, r);
    const bool is_there = column < hidden && b < batch;
    tiles[tile].h[0][r][column] =
        is_there ? cell.h[0][static_cast<Offset>(b) * cell.output_stride + column] : 0.0f;
    tiles[tile].h[1][r][column] = 0;
  }
  for (int tile = 0; tile < slice.count(); ++tile) {
    const int b = slice.batch_row(tile, row);
    tiles[tile].c[thread] = has_unit && b < batch ? cell.c[static_cast<Offset>(b) * hidden + unit] : 0.0f;
  }
  const int bytes = ranks * kBlockUnits * 8 * static_cast<int>(sizeof(float));
  if (thread == 0) {
    for (int tile = 0; tile < slice.count(); ++tile) {
      for (cuda::Mailbox& box : tiles[tile].boxes) {
        cuda::mailbox_init(&box);
        cuda::mailbox_expect(&box, bytes);
      }
    }
  }
  cuda::cluster_sync();

  // The four lanes of a row's units send them to a rank each.
  const bool sends = lanes.unit < ranks;
  const int peer = sends ? (at.rank + ranks - lanes.unit) % ranks : at.rank;
  const cuda::ClusterAddress to = cuda::cluster_address(&tiles[0].h[0][row][first_unit], peer);
  const cuda::ClusterAddress box_there = cuda::cluster_address(&tiles[0].boxes[0], peer);

  struct Asked {
    RowAt at;
    float z[4];
  };
  const auto ask = [&](int place, int tile) {
    Asked asked{slice.row_at(tile, row, place, cell.step_at(place)), {}};
    if (!has_unit || !asked.at.holds) return asked;
    const float* const from = cell.gates + 4 * asked.at.first + unit;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) asked.z[gate] = from[static_cast<Offset>(gate) * hidden];
    return asked;
  };
  Asked next = ask(begin, 0);
  for (int place = begin; place < end; ++place) {
    const int buffer = place % 2;
    for (int tile = 0; tile < slice.count(); ++tile) {
      Tile& own = tiles[tile];
      const Asked here = next;
      const bool is_last = tile + 1 == slice.count();
      next = ask(is_last ? place + 1 : place, is_last ? 0 : tile + 1);
      const float before = own.c[thread];

      if (place > begin) {
        cuda::mailbox_wait(&own.boxes[buffer], (place - begin - 1) / 2);
        if (thread == 0) cuda::mailbox_expect(&own.boxes[buffer], bytes);
      }
      FloatSums sums;
      const float* const operands = own.h[buffer][g];
#pragma unroll
      for (int s = 0; s < kPieces; ++s) weights[s].multiply(read_piece(operands, 4 * s + lane % 4), sums);
      // A lane gives its odd or even row of the batch for the other two gates.
      const float rows[4] = {sums.total(0), sums.total(1), sums.total(2), sums.total(3)};
      const float first = cuda::shuffle_xor(odd ? rows[0] : rows[1], 16);
      const float second = cuda::shuffle_xor(odd ? rows[2] : rows[3], 16);
      const float z[4] = {
          here.z[0] + bias[0] + (odd ? first : rows[0]), here.z[1] + bias[1] + (odd ? second : rows[2]),
          here.z[2] + bias[2] + (odd ? rows[1] : first), here.z[3] + bias[3] + (odd ? rows[3] : second)};
      float values[4];
      cell.activation.gates(z, values);
      const float c = values[1] * before + values[0] * values[2];
      const float h = values[3] * cell.activation.squash(c);
      own.c[thread] = c;

      if (place + 1 < end) {
        const float beside = cuda::shuffle_xor(h, 4);
        const float even = lanes.unit % 2 ? beside : h, uneven = lanes.unit % 2 ? h : beside;
        const float far_even = cuda::shuffle_xor(even, 8), far_uneven = cuda::shuffle_xor(uneven, 8);
        const bool is_upper = lanes.unit / 2 == 1;
        const float message[4] = {is_upper ? far_even : even, is_upper ? far_uneven : uneven,
                                  is_upper ? even : far_even, is_upper ? uneven : far_uneven};
        const int offset =
            tile * static_cast<int>(sizeof(Tile)) + (1 - buffer) * static_cast<int>(sizeof(own.h[0]));
        const int box_offset =
            tile * static_cast<int>(sizeof(Tile)) + (1 - buffer) * static_cast<int>(sizeof(cuda::Mailbox));
        if (sends) send_floats(to + offset, message, box_there + box_offset);
      }

      // No other block waits for these stores.
      if (has_unit && here.at.holds) {
        const Offset entry = here.at.first + unit;
        if (cell.tape_c) {
          float* const gates = cell.gates + 4 * here.at.first + unit;
#pragma unroll
          for (int gate = 0; gate < 4; ++gate) gates[static_cast<Offset>(gate) * hidden] = values[gate];
          cell.tape_c[entry] = c;
        }
        if (cell.h_rows) cell.h_rows[here.at.row * cell.h_stride + unit] = h;
        if (cell.h_all) cell.h_all[entry] = h;
        if (cell.c_all) cell.write_cell(cell.c_all, entry, c);
        if (place == end - 1) {  // the state behind
          const int b = slice.batch_row(tile, row);
          h_before(cell, end)[static_cast<Offset>(b) * cell.output_stride + unit] = h;
          cell.c[static_cast<Offset>(b) * hidden + unit] = c;
        }
      }
    }
  }
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
