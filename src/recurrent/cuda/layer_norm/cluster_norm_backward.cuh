// The backward sweep of a layer with layer norm on clusters. A step has two exchanges: of the means that the
// norm of c~ takes, and of the parts of dh with the means that the norm of R h takes. So the tiles of a
// cluster take turns in each of two parts of a step.
//
// The norm of R h needs no exchange of its own. With n = R h normalised and dn its
// gradient,
//   R^T scale (dn - mean(dn) - n mean(dn n)) = scale (R^T dn - mean(dn) R^T 1 - mean(dn n) R^T n).
// R^T n of all steps is a product before the sweep. So blocks exchange parts of R^T dn, and the owner of
// a unit subtracts the rest.
#pragma once

#include "recurrent/cuda/clusters/cluster_parts.cuh"
#include "recurrent/cuda/layer_norm/cluster_row_means.cuh"

namespace warpalign::detail::recurrent {

// Shared memory of a tile of rows, as BackwardTile; what a thread keeps for the next part of a step, and for
// the next step; and the mail of both exchanges.
template <int kRanks>
struct alignas(16) NormBackwardTile {
  float parts[2][kRanks][kBlockParts * kPartFloats];
  float states[2][kClusterThreads];     // dh; dc, and with what goes into dc~ beside means
  cuda::Word gates[kClusterThreads];    // i, f, g, o
  cuda::Word normals[kClusterThreads];  // R h normalised, of the four gates
  float before[kClusterThreads];        // c of the step before
  float by_o[kClusterThreads];          // dz of o
  float scale_c[kClusterThreads];       // 1 / sqrt(var + eps) of c~
  float normal_c[kClusterThreads];      // c~ normalised
  float scale_h[kClusterThreads];       // 1 / sqrt(var + eps) of R h
  float across[kClusterThreads];        // R^T n
  RowMail<kRanks> mail[2];
  cuda::Mailbox boxes[2];
};

// The sum of R's column `unit`, by the 8 lanes that have the unit.
template <class T>
__device__ __forceinline__ float column_sum(const CudaCell<T>& cell, int unit, int row) {
  const auto* const words =
      reinterpret_cast<const cuda::Word*>(cell.hh_across + static_cast<Offset>(unit) * cell.gates_stride);
  float sum = 0;
  for (int n = row; n < cell.hidden; n += 8) {
    float v[4];
    widen_word<T>(unit < cell.hidden ? words[n] : 0, v);
    sum += (v[0] + v[1]) + (v[2] + v[3]);
  }
  sum += cuda::shuffle_xor(sum, 1);
  sum += cuda::shuffle_xor(sum, 4);
  return sum + cuda::shuffle_xor(sum, 8);
}

// The numbers that a thread has loaded ahead of a step.
template <class T>
struct AskedNormStep {
  RowAt at;
  cuda::Word gates, normals;
  float scale_h, scale_c;
  T before, dy, normal_c, across;
};

template <class T, int kParts>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_norm_backward_kernel(ClusterParams<T> p) {
  using cuda::Word;
  constexpr int kRanks = kParts * kClusterWarps / kBlockParts;
  using Tile = NormBackwardTile<kRanks>;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, batch = cell.at.batch, ranks = p.ranks;
  const int begin = p.places.begin;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const pairs = reinterpret_cast<WarpPairs*>(cuda::dynamic_shared());
  auto& own_gradients = *reinterpret_cast<OwnGradients<T>*>(pairs + 1);
  auto* const tiles = reinterpret_cast<Tile*>(&own_gradients + 1);
  Weights16 weights[kParts][kDepthSteps];
  load_weights_across(cell, at, &own_gradients, weights);

  EndingTiles work(cell, p, at, true, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const BackwardLanes lanes;
  const int row = lanes.row;
  const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits, unit = first_unit + lanes.unit;
  const bool has_unit = unit < hidden;
  float scale_h[4];
  unroll<4>(
      [&](int gate) { scale_h[gate] = has_unit ? cuda::widen(cell.ln_hh[gate * hidden + unit]) : 0.0f; });
  const float scale_c = has_unit ? cuda::widen(cell.ln_cell[unit]) : 0.0f;
  const float bias_c = has_unit ? cuda::widen(cell.ln_cell_bias[unit]) : 0.0f;

  const float ones = column_sum(cell, unit, row);
  fill_gradients(cell, work, unit, row, tiles);
  for (int tile = 0; tile < work.count(); ++tile) {
    for (auto& mail : tiles[tile].mail) open_mail(mail, ranks);
    open_parts<kRanks>(tiles[tile], ranks);
  }
  cuda::cluster_sync();
  const PartExchange<kParts, Tile> exchange(tiles, at, ranks);
  RowMeans<kRanks, false, 16, 2, 1> means(tiles[0].mail, pairs, at, ranks, hidden, lanes.unit, row);
  const auto mail_offset = [](int tile, int which) {
    return tile * static_cast<int>(sizeof(Tile)) + which * static_cast<int>(sizeof(RowMail<kRanks>));
  };

  // This lane's gate of the four units, in a row.
  const Offset lane_offset = static_cast<Offset>(lanes.unit) * hidden + first_unit;
  const auto word_at = [&](T* rows, const RowAt& r) {
    return reinterpret_cast<Word*>(rows + lane_offset + 4 * r.first);
  };
  const auto ask = [&](int place, int tile) {
    const int t = cell.step_back_at(place);
    AskedNormStep<T> asked{work.row_at(tile, row, place, t), 0, 0, 0, 0, {}, {}, {}, {}};
    if (!has_unit || !asked.at.holds) return asked;
    asked.gates = *word_at(cell.gates, asked.at);
    asked.normals = *word_at(cell.norm_h, asked.at);
    asked.scale_h = cell.scales[asked.at.row * 3 + 1];
    asked.scale_c = cell.scales[asked.at.row * 3 + 2];
    if (cell.dy) asked.dy = cell.dy[asked.at.row * cell.dy_stride + unit];
    asked.normal_c = cell.norm_c[asked.at.first + unit];
    asked.across = cell.across[asked.at.first + unit];
    const RowAt last = work.row_at(tile, row, place + 1, cell.reverse ? t + 1 : t - 1);
    if (last.holds) asked.before = cell.tape_c[last.first + unit];
    return asked;
  };
  const Activation<T>& a = cell.activation;
  AskedNormStep<T> next = ask(work.begin(), 0);
  int turn = 0;
  for (int place = work.begin(); place <= work.end(); ++place) {
    const int t = cell.step_back_at(place), buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.busy(); ++tile) {  // dh, and back to c~ normalised
      Tile& own = tiles[tile];
      const int b = work.batch_row(tile, row);
      const Offset index = static_cast<Offset>(b) * hidden + unit;
      const AskedNormStep<T> here = next;
      const bool holds = has_unit && here.at.holds && work.works(place, tile);
      const bool is_last = tile + 1 == work.busy();
      const Word words[2] = {lanes.transpose(here.gates), lanes.transpose(here.normals)};
      float gates[4], before = cuda::widen(here.before), dy = 0;
      widen_word<T>(words[0], gates);
      float dh = own.states[0][thread], dc = own.states[1][thread];
      if (holds) {
        if (work.begins_row(here.at, cell.reverse ? t + 1 : t - 1, b)) before = cell.c0[index];
        dy = cuda::widen(here.dy);
        if (cell.dropout.factor != 0) dy *= cell.dropout.of(cell.masks, t, b, unit);
        if (cell.dh_all) dy += cuda::widen(cell.dh_all[here.at.first + unit]);
        if (cell.dc_all) dc += cell.read_cell(cell.dc_all, here.at.first + unit);
      }
      next = ask(is_last ? place + 1 : place, is_last ? 0 : tile + 1);
      const float normal = cuda::widen(here.normal_c), o = gates[3];
      const float squashed = a.squash(scale_c * normal + bias_c);
      const float to_v = holds ? o * a.squash_slope(squashed) : 0.0f;
      const float to_o = holds ? squashed * a.gate_slope(o) : 0.0f;
      own.gates[thread] = words[0], own.normals[thread] = words[1], own.before[thread] = before;
      own.scale_c[thread] = here.scale_c, own.normal_c[thread] = normal;

      if (work.waits(place, tile)) {
        const RowPair mean = means.take(own.mail[1], place - begin - 1);
        const float part = exchange.take(own, buffer, (place - begin - 1) / 2);
        dh += own.scale_h[thread] * (part - mean.first * ones - mean.second * own.across[thread]);
      }
      if (!work.works(place, tile)) {
        if (has_unit && b < batch) cell.dh[index] = dh, cell.dc[index] = dc;
        continue;  // every thread does
      }
      const float all = dh + dy, dv = all * to_v, by_normal = scale_c * dv;
      means.put({by_normal, by_normal * normal});
      __syncthreads();
      means.send(means.merge(), mail_offset(tile, 0));
      own.scale_h[thread] = here.scale_h, own.across[thread] = cuda::widen(here.across);
      own.by_o[thread] = all * to_o;
      own.states[0][thread] = holds ? 0.0f : dh, own.states[1][thread] = dc + here.scale_c * by_normal;
      Word word, nothing;
      lanes.join(cuda::narrow_pair<T>(dv, 0), word, nothing);
      if (lanes.unit == 0 && has_unit && here.at.exists) {
        *reinterpret_cast<Word*>(cell.dv + here.at.first + first_unit) = word;
      }
    }

    for (int tile = 0; tile < work.working(); ++tile) {  // dz, and parts of dh
      Tile& own = tiles[tile];
      const RowAt here = work.row_at(tile, row, place, t);
      const bool holds = has_unit && here.holds;
      float gates[4], slopes[4], normals[4], dz[4], by_normals[4];
      widen_word<T>(own.gates[thread], gates);
      widen_word<T>(own.normals[thread], normals);
      const float before = own.before[thread], dc = own.states[1][thread], by_o = own.by_o[thread];
      const float scale = own.scale_c[thread], normal = own.normal_c[thread];
      a.slopes(gates, slopes);
      const float to_i = gates[2] * slopes[0], to_f = before * slopes[1], to_g = gates[0] * slopes[2];
      const RowPair mean = means.take(own.mail[0], place - begin);
      const float dcell = holds ? dc - scale * (mean.first + normal * mean.second) : 0.0f;
      dz[0] = dcell * to_i, dz[1] = dcell * to_f, dz[2] = dcell * to_g, dz[3] = by_o;
      const Word word = narrow_word<T>(dz);
      widen_word<T>(word, dz);
      float sum = 0, along = 0;
      unroll<4>([&](int gate) {
        by_normals[gate] = scale_h[gate] * dz[gate];
        sum += by_normals[gate], along += by_normals[gate] * normals[gate];
      });
      const int own_turn = turn++ % 2;
      own_gradients.put(own_turn, lanes.unit, at.warp, row, narrow_gates<T>(lanes, by_normals));
      means.put({.25f * sum, .25f * along});
      __syncthreads();
      const RowPair all = means.merge();
      exchange.template send<T>(weights, own_gradients, own_turn, tile, buffer);
      means.send(all, mail_offset(tile, 1));
      own.states[1][thread] = holds ? dcell * gates[1] : dc;
      // No other block waits for these stores.
      const Word stored = lanes.transpose(word);
      if (has_unit && here.exists) *word_at(cell.dz, here) = stored;
    }
  }
  work.for_dead_words(at, hidden, [&](Offset r, int first) {
    for (int gate = 0; gate < 4; ++gate) clear_word(cell.dz, (4 * r + gate) * hidden + first);
    clear_word(cell.dv, r * hidden + first);
  });
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
