// The forward sweep of a layer with layer norm on clusters. A step has three exchanges: of the moments of
// R h, of those of c~, and of h. So the tiles of a cluster take turns in each of three parts of a step.
#pragma once

#include "cuda/numbers/math.cuh"
#include "recurrent/cuda/clusters/cluster_hidden.cuh"
#include "recurrent/cuda/layer_norm/cluster_row_means.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// Shared memory of a tile of rows, as ForwardTile; what a thread keeps between the parts of a step, which is
// R h and then c~ and o; and the mail of both exchanges.
template <int kSteps>
struct alignas(16) NormForwardTile {
  cuda::Word h[2][kSteps * kTileWords];
  float states[2][kClusterThreads];  // c, and h before the first step
  float kept[4][kClusterThreads];
  RowMail<kSteps / 2> mail[2];
  cuda::Mailbox boxes[2][2];
};

template <class T, int kSteps>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_norm_forward_kernel(ClusterParams<T> p) {
  using cuda::Word;
  using Tile = NormForwardTile<kSteps>;
  constexpr int kRanks = kSteps / 2;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, ranks = p.ranks;
  const int begin = p.places.begin, end = p.places.end;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const pairs = reinterpret_cast<WarpPairs*>(cuda::dynamic_shared());
  auto* const tiles = reinterpret_cast<Tile*>(pairs + 1);
  Weights16 weights[kSteps];
  load_weights(cell, at, ranks, tiles, weights);

  EndingTiles work(cell, p, at, false, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const ForwardLanes lanes;
  const int row = lanes.row;
  const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits, unit = first_unit + lanes.unit;
  const bool has_unit = unit < hidden;
  float bias[4], scale_x[4], scale_h[4];
  unroll<4>([&](int gate) {
    const int entry = gate * hidden + unit;
    bias[gate] = has_unit ? bias_of(cell, entry) : 0.0f;
    scale_x[gate] = has_unit ? cuda::widen(cell.ln_ih[entry]) : 0.0f;
    scale_h[gate] = has_unit ? cuda::widen(cell.ln_hh[entry]) : 0.0f;
  });
  const float scale_c = has_unit ? cuda::widen(cell.ln_cell[unit]) : 0.0f;
  const float bias_c = has_unit ? cuda::widen(cell.ln_cell_bias[unit]) : 0.0f;

  fill_states<true>(cell, at, ranks, work, end, unit, row, tiles);
  for (int tile = 0; tile < work.count(); ++tile) {
    for (auto& mail : tiles[tile].mail) open_mail(mail, ranks);
    if (thread == 0) open_hidden<T>(tiles[tile], ranks);
  }
  cuda::cluster_sync();
  const HiddenExchange<T, Tile> exchange(tiles, at, ranks, lanes);
  RowMeans<kRanks, true, 4, 8, 16> means(tiles[0].mail, pairs, at, ranks, hidden, lanes.unit, row);
  const auto mail_offset = [](int tile, int which) {
    return tile * static_cast<int>(sizeof(Tile)) + which * static_cast<int>(sizeof(RowMail<kRanks>));
  };

  // Which lane writes which array: h, c, or c~ normalised, of the lanes' four units.
  T* array = lanes.unit == 0 ? cell.h_rows : lanes.unit == 1 ? cell.h_all : cell.tape_c;
  const bool keeps_steps = cell.tape_c != nullptr;
  if (lanes.unit == 3) array = keeps_steps ? cell.norm_c : nullptr;
  if (array) array += first_unit;
  // This lane's gate of the four units, in a row.
  const Offset lane_offset = static_cast<Offset>(lanes.unit) * hidden + first_unit;
  const auto word_at = [&](T* rows, const RowAt& r) {
    return reinterpret_cast<Word*>(rows + lane_offset + 4 * r.first);
  };

  RowAt next = work.row_at(0, row, work.begin(), cell.step_at(work.begin()));
  Word next_x = has_unit && next.holds ? *word_at(cell.norm_x, next) : 0;
  for (int place = work.begin(); place < work.end(); ++place) {
    const int t = cell.step_at(place), buffer = place % 2;
    work.go_to(place);
    const int working = work.working();
    for (int tile = 0; tile < working; ++tile) {  // R h
      Tile& own = tiles[tile];
      float raw[4] = {};
      exchange.multiply(own, weights, lanes, buffer, work.waits(place, tile), (place - begin - 1) / 2, raw);
      const float mean = .25f * ((raw[0] + raw[1]) + (raw[2] + raw[3]));
      float squares = 0;
      unroll<4>([&](int gate) {
        own.kept[gate][thread] = raw[gate];
        squares += (raw[gate] - mean) * (raw[gate] - mean);
      });
      means.put({mean, .25f * squares});
      __syncthreads();
      means.send(means.merge(), mail_offset(tile, 0));
    }

    for (int tile = 0; tile < working; ++tile) {  // gates and c~
      Tile& own = tiles[tile];
      const RowAt here = next;
      float x[4], normal[4], z[4], values[4];
      widen_word<T>(lanes.transpose(next_x), x);
      {
        const bool is_last = tile + 1 == working;
        next = work.row_at(is_last ? 0 : tile + 1, row, is_last ? place + 1 : place,
                           is_last ? cell.step_at(place + 1) : t);
        next_x = has_unit && next.holds ? *word_at(cell.norm_x, next) : 0;
      }
      const RowPair moments = means.take(own.mail[0], place - begin);
      const float scale = cuda::reciprocal_root_fast(moments.second + cell.eps);
      unroll<4>([&](int gate) {
        normal[gate] = (own.kept[gate][thread] - moments.first) * scale;
        z[gate] = scale_x[gate] * x[gate] + (scale_h[gate] * normal[gate] + bias[gate]);
      });
      cell.activation.gates(z, values);
      const float state = own.states[0][thread], c = values[1] * state + values[0] * values[2];
      means.put({c, 0});
      __syncthreads();
      means.send(means.merge(), mail_offset(tile, 1));
      own.kept[0][thread] = c, own.kept[1][thread] = values[3];
      own.states[0][thread] = here.holds ? c : state;  // a row without this step keeps its state
      // No other block waits for these stores.
      const Word gates = lanes.transpose(narrow_word<T>(values));
      const Word normals = lanes.transpose(narrow_word<T>(normal));
      if (keeps_steps && has_unit && here.exists) {
        *word_at(cell.gates, here) = gates;
        *word_at(cell.norm_h, here) = normals;
        if (unit == 0) cell.scales[here.row * 3 + 1] = scale;
      }
    }

    for (int tile = 0; tile < working; ++tile) {  // h
      Tile& own = tiles[tile];
      const RowAt here = work.row_at(tile, row, place, t);
      const float c = own.kept[0][thread], o = own.kept[1][thread], before = own.states[1][thread];
      const RowPair moments = means.take(own.mail[1], place - begin);
      const float scale = cuda::reciprocal_root_fast(moments.second + cell.eps);
      const float normal = (c - moments.first) * scale;
      const float fresh = o * cell.activation.squash(scale_c * normal + bias_c);
      const std::uint32_t to_send = cuda::narrow_pair<T>(here.holds ? fresh : before, c);
      Word word, cells, normals, nothing;
      lanes.join(to_send, word, cells);
      const Word other = cuda::shuffle_xor(word, 16);
      if (work.goes_on(place, tile)) exchange.send(tile, buffer, lanes, word, other);

      lanes.join(cuda::narrow_pair<T>(normal, 0), normals, nothing);
      if (has_unit && here.exists) {
        if (array) {
          const Offset first = lanes.unit == 0 ? here.row * cell.h_stride : here.first;
          *reinterpret_cast<Word*>(array + first) = lanes.unit == 2   ? cells
                                                    : lanes.unit == 3 ? normals
                                                                      : word;
        }
        if (cell.c_all) cell.write_cell(cell.c_all, here.first + unit, c);
        if (keeps_steps && unit == 0) cell.scales[here.row * 3 + 2] = scale;
      }
      const int b = work.batch_row(tile, row);
      if (has_unit && work.is_last(here, place, b)) {
        leave_state(cell, end, b, unit, first_of<T>(to_send), c);
      }
    }
  }
  work.for_dead_words(at, hidden, [&](Offset r, int first) {
    const Offset begins = r * hidden + first;
    clear_word(cell.h_rows, r * cell.h_stride + first);
    clear_word(cell.h_all, begins), clear_word(cell.tape_c, begins);
    for (int k = 0; k < kWarpUnits && cell.c_all; ++k) cell.write_cell(cell.c_all, begins + k, 0.0f);
    if (!keeps_steps) return;
    // Gradients with respect to gamma are sums over all rows.
    clear_word(cell.norm_c, begins);
    for (int gate = 0; gate < 4; ++gate) clear_word(cell.norm_h, (r * 4 + gate) * hidden + first);
  });
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
