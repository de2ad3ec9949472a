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

#include "recurrent/cuda/clusters/cluster_backward.cuh"
#include "recurrent/cuda/layer_norm/cluster_row_means.cuh"
#include "recurrent/cuda/layer_norm/unit_norms.cuh"

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

// As BackwardRows, with what layer norm has besides.
template <class T>
class NormBackwardRows : public BackwardRows<T, SweepOptions::kEnds> {
 public:
  using Base = BackwardRows<T, SweepOptions::kEnds>;
  struct Asked : Base::Asked {
    cuda::Word normals;
    float scale_h, scale_c;
    T normal_c, across;
  };

  __device__ __forceinline__ NormBackwardRows(const CudaCell<T>& cell, const EndingTiles& work,
                                              const BackwardLanes& lanes, int unit)
      : Base(cell, work, lanes, unit), normals_(cell.norm_h, lanes, unit, cell.hidden) {}

  __device__ __forceinline__ Asked ask(int place, int tile) const {
    Asked asked{Base::ask(place, tile), 0, 0, 0, {}, {}};
    const CudaCell<T>& cell = this->cell_;
    const RowAt& at = asked.at;
    if (this->unit_ >= cell.hidden || !at.holds) return asked;
    asked.normals = normals_.read(at.first);
    asked.scale_h = cell.scales[at.row * 3 + 1], asked.scale_c = cell.scales[at.row * 3 + 2];
    asked.normal_c = cell.norm_c[at.first + this->unit_];
    asked.across = cell.across[at.first + this->unit_];
    return asked;
  }
  __device__ __forceinline__ Asked ask_after(int place, int tile) const {
    const bool is_last = tile + 1 == this->work_.busy();
    return ask(is_last ? place + 1 : place, is_last ? 0 : tile + 1);
  }
  // The first of the lanes writes dv of the four units.
  __device__ __forceinline__ void write_dv(const RowAt& at, const BackwardLanes& lanes, float dv) const {
    cuda::Word word, nothing;
    lanes.join(cuda::narrow_pair<T>(dv, 0), word, nothing);
    if (lanes.unit != 0 || this->unit_ >= this->cell_.hidden || !at.exists) return;
    *reinterpret_cast<cuda::Word*>(this->cell_.dv + at.first + this->first_unit_) = word;
  }

 private:
  typename Base::Gates normals_;
};

// From the gradient with respect to o u(LN(c~)) to those with respect to LN(c~), and to z of o. They are 0
// where the row has no such step. normal: c~ normalised.
struct OutputSlopes {
  float v, o;

  template <class T>
  __device__ __forceinline__ OutputSlopes(const Activation<T>& a, cuda::Word gates_word,
                                          const UnitNorms& norms, float normal, bool holds) {
    float gates[4];
    widen_word<T>(gates_word, gates);
    const float squashed = a.squash(norms.scale_c * normal + norms.bias_c);
    v = holds ? gates[3] * a.squash_slope(squashed) : 0.0f;
    o = holds ? squashed * a.gate_slope(gates[3]) : 0.0f;
  }
};

// dz of a thread's unit and row, rounded as `word`, and its gradients with respect to R h normalised, with
// their means.
template <class T>
struct NormGradients {
  cuda::Word word;
  float by_normals[4], dc;  // dc: what goes to c of the step before
  RowPair means;

  // own: the tile, with what the first part of the step has kept. mean: that of c~'s norm. holds: the row has
  // this step.
  template <class Tile>
  __device__ __forceinline__ NormGradients(const Activation<T>& a, const Tile& own, const float (&scales)[4],
                                           const RowPair& mean, bool holds) {
    const int thread = static_cast<int>(threadIdx.x);
    float gates[4], slopes[4], normals[4];
    widen_word<T>(own.gates[thread], gates);
    widen_word<T>(own.normals[thread], normals);
    const float after = own.states[1][thread], off = mean.first + own.normal_c[thread] * mean.second;
    const float dcell = holds ? after - own.scale_c[thread] * off : 0.0f;
    a.slopes(gates, slopes);
    float dz[4] = {dcell * (gates[2] * slopes[0]), dcell * (own.before[thread] * slopes[1]),
                   dcell * (gates[0] * slopes[2]), own.by_o[thread]};
    word = narrow_word<T>(dz);
    dc = holds ? dcell * gates[1] : after;
    widen_word<T>(word, dz);
    float sum = 0, along = 0;
    unroll<4>([&](int gate) {
      by_normals[gate] = scales[gate] * dz[gate];
      sum += by_normals[gate], along += by_normals[gate] * normals[gate];
    });
    means = {.25f * sum, .25f * along};
  }
};

template <class T>
__device__ __forceinline__ void clear_norm_gradients(const CudaCell<T>& cell, Offset row, int first) {
  clear_gradients(cell, row, first);
  clear_word(cell.dv, row * cell.hidden + first);
}

template <class T, int kParts>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_norm_backward_kernel(ClusterParams<T> p) {
  constexpr int kRanks = kParts * kClusterWarps / kBlockParts;
  using Tile = NormBackwardTile<kRanks>;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, ranks = p.ranks, begin = p.places.begin;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const pairs = reinterpret_cast<WarpPairs*>(cuda::dynamic_shared());
  auto& own_gradients = *reinterpret_cast<OwnGradients<T>*>(pairs + 1);
  auto* const tiles = reinterpret_cast<Tile*>(&own_gradients + 1);
  Weights16 weights[kParts][kDepthSteps];
  load_weights_across(cell, at, &own_gradients, weights);
  EndingTiles work(cell, p, at, true, reinterpret_cast<TileRows*>(tiles + p.tiles));

  // This thread has one unit, and row `row` of every tile.
  const BackwardLanes lanes;
  const int row = lanes.row, unit = at.rank * kBlockUnits + at.warp * kWarpUnits + lanes.unit;
  const bool has_unit = unit < hidden;
  const UnitNorms norms(cell, unit);
  const float ones = column_sum(cell, unit, row);
  fill_gradients<kRanks>(cell, work, ranks, unit, row, tiles);
  open_mails<kRanks>(tiles, work.count(), ranks);
  cuda::cluster_sync();
  const PartExchange<kParts, Tile> exchange(tiles, at, ranks);
  RowMeans<kRanks, false, 16, 2, 1> means(tiles[0].mail, pairs, at, ranks, hidden, lanes.unit, row);
  const NormBackwardRows<T> rows(cell, work, lanes, unit);

  auto next = rows.ask(work.begin(), 0);
  int turn = 0;
  for (int place = work.begin(); place <= work.end(); ++place) {
    const int t = cell.step_back_at(place), buffer = place % 2;
    work.go_to(place);
    for (int tile = 0; tile < work.busy(); ++tile) {  // dh, and back to c~ normalised
      Tile& own = tiles[tile];
      const int b = work.batch_row(tile, row);
      const auto here = next;
      const bool holds = has_unit && here.at.holds && work.works(place, tile);
      const cuda::Word gates = lanes.transpose(here.gates);
      own.gates[thread] = gates, own.normals[thread] = lanes.transpose(here.normals);
      float dh = own.states[0][thread];
      const auto in = rows.inputs(here, place, tile, b, holds, own.states[1][thread]);
      next = rows.ask_after(place, tile);
      const float normal = cuda::widen(here.normal_c);
      const OutputSlopes to(cell.activation, gates, norms, normal, holds);
      own.before[thread] = in.before, own.scale_c[thread] = here.scale_c, own.normal_c[thread] = normal;
      if (work.waits(place, tile)) {
        const RowPair mean = means.take(own.mail[1], place - begin - 1);
        dh += own.scale_h[thread] * (exchange.take(own, buffer, (place - begin - 1) / 2) - mean.first * ones -
                                     mean.second * own.across[thread]);
      }
      if (!work.works(place, tile)) {
        if (has_unit) leave_gradients(cell, b, unit, dh, in.dc);
        continue;  // every thread does
      }
      const float all = dh + in.dy, dv = all * to.v, by_normal = norms.scale_c * dv;
      means.exchange({by_normal, by_normal * normal}, mail_offset<Tile>(tile, 0));
      own.scale_h[thread] = here.scale_h, own.across[thread] = cuda::widen(here.across);
      own.by_o[thread] = all * to.o;
      own.states[0][thread] = holds ? 0.0f : dh, own.states[1][thread] = in.dc + here.scale_c * by_normal;
      rows.write_dv(here.at, lanes, dv);
    }
    for (int tile = 0; tile < work.working(); ++tile) {  // dz, and parts of dh
      Tile& own = tiles[tile];
      const RowAt here = work.row_at(tile, row, place, t);
      const RowPair mean = means.take(own.mail[0], place - begin);
      const NormGradients<T> gradients(cell.activation, own, norms.scale_h, mean, has_unit && here.holds);
      const int own_turn = turn++ % 2;
      own_gradients.put(own_turn, lanes.unit, at.warp, row, narrow_gates<T>(lanes, gradients.by_normals));
      const RowPair all = means.of_block(gradients.means);  // and everybody sees dz
      exchange.template send<T>(weights, own_gradients, own_turn, tile, buffer);
      means.send(all, mail_offset<Tile>(tile, 1));
      own.states[1][thread] = gradients.dc;
      rows.write(here, lanes.transpose(gradients.word));
    }
  }
  work.for_dead_words(at, hidden, [&](Offset r, int first) { clear_norm_gradients(cell, r, first); });
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
