// The forward sweep of a layer with layer norm on clusters. A step has three exchanges: of the moments of
// R h, of those of c~, and of h. So the tiles of a cluster take turns in each of three parts of a step.
#pragma once

#include "cuda/numbers/math.cuh"
#include "recurrent/cuda/clusters/cluster_forward.cuh"
#include "recurrent/cuda/layer_norm/cluster_row_means.cuh"
#include "recurrent/cuda/layer_norm/unit_norms.cuh"

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

// As ForwardRows, with what layer norm has besides.
template <class T>
class NormForwardRows : public ForwardRows<T> {
 public:
  using Base = ForwardRows<T>;

  __device__ __forceinline__ NormForwardRows(const CudaCell<T>& cell, const ForwardLanes& lanes, int unit)
      : Base(cell, lanes, unit, cell.tape_c ? cell.norm_c : nullptr),
        inputs_(cell.norm_x, lanes, unit, cell.hidden),
        normals_(cell.norm_h, lanes, unit, cell.hidden) {}

  // W x normalised.
  __device__ __forceinline__ cuda::Word ask(const RowAt& at) const {
    return this->unit_ < this->cell_.hidden && at.holds ? inputs_.read(at.first) : 0;
  }
  // R h normalised, and what norm k of a step has divided by: 1 is that of R h, 2 that of c~.
  __device__ __forceinline__ void write_normals(const RowAt& at, cuda::Word normals) const {
    if (this->cell_.tape_c && this->unit_ < this->cell_.hidden && at.exists)
      normals_.write(at.first, normals);
  }
  __device__ __forceinline__ void write_scale(const RowAt& at, int k, float scale) const {
    if (this->cell_.tape_c && this->unit_ == 0 && at.exists) this->cell_.scales[at.row * 3 + k] = scale;
  }

 private:
  typename Base::Gates inputs_, normals_;
};

// Keeps R h of the four gates for the next part of a step. Returns their mean and variance.
__device__ __forceinline__ RowPair keep_products(const float (&products)[4],
                                                 float (&kept)[4][kClusterThreads]) {
  const float mean = .25f * ((products[0] + products[1]) + (products[2] + products[3]));
  float squares = 0;
  unroll<4>([&](int gate) {
    kept[gate][threadIdx.x] = products[gate];
    squares += (products[gate] - mean) * (products[gate] - mean);
  });
  return {mean, .25f * squares};
}

// As clear_states(), with what the tape has besides: gradients with respect to gamma are sums over all rows.
template <class T>
__device__ __forceinline__ void clear_norms(const CudaCell<T>& cell, Offset row, int first) {
  clear_states(cell, row, first);
  if (!cell.tape_c) return;
  clear_word(cell.norm_c, row * cell.hidden + first);
  for (int gate = 0; gate < 4; ++gate) clear_word(cell.norm_h, (row * 4 + gate) * cell.hidden + first);
}

template <class T, int kSteps>
__global__ void __launch_bounds__(kClusterThreads, 1) cluster_norm_forward_kernel(ClusterParams<T> p) {
  using cuda::Word;
  using Tile = NormForwardTile<kSteps>;
  constexpr int kRanks = kSteps / 2;
  const ClusterPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, ranks = p.ranks, begin = p.places.begin, end = p.places.end;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const pairs = reinterpret_cast<WarpPairs*>(cuda::dynamic_shared());
  auto* const tiles = reinterpret_cast<Tile*>(pairs + 1);
  Weights16 weights[kSteps];
  load_weights(cell, at, ranks, tiles, weights);
  EndingTiles work(cell, p, at, false, reinterpret_cast<TileRows*>(tiles + p.tiles));
  // This thread has one unit, and row `row` of every tile.
  const ForwardLanes lanes;
  const int row = lanes.row, unit = at.rank * kBlockUnits + at.warp * kWarpUnits + lanes.unit;
  const UnitNorms norms(cell, unit);
  fill_states<true>(cell, at, ranks, work, end, unit, row, tiles);
  open_mails<kRanks>(tiles, work.count(), ranks);
  cuda::cluster_sync();
  const HiddenExchange<T, Tile> exchange(tiles, at, ranks, lanes);
  RowMeans<kRanks, true, 4, 8, 16> means(tiles[0].mail, pairs, at, ranks, hidden, lanes.unit, row);
  const NormForwardRows<T> rows(cell, lanes, unit);
  RowAt next = work.row_at(0, row, work.begin(), cell.step_at(work.begin()));
  Word next_x = rows.ask(next);
  for (int place = work.begin(); place < work.end(); ++place) {
    const int t = cell.step_at(place), buffer = place % 2;
    work.go_to(place);
    const int working = work.working();
    for (int tile = 0; tile < working; ++tile) {  // R h
      Tile& own = tiles[tile];
      float raw[4] = {};
      exchange.multiply(own, weights, lanes, buffer, work.waits(place, tile), (place - begin - 1) / 2, raw);
      means.exchange(keep_products(raw, own.kept), mail_offset<Tile>(tile, 0));
    }
    for (int tile = 0; tile < working; ++tile) {  // gates and c~
      Tile& own = tiles[tile];
      const RowAt here = next;
      float x[4], normal[4], z[4], values[4];
      widen_word<T>(lanes.transpose(next_x), x);
      next = row_after(cell, work, row, place, tile);
      next_x = rows.ask(next);
      const RowPair moments = means.take(own.mail[0], place - begin);
      const float scale = cuda::reciprocal_root_fast(moments.second + cell.eps);
      norms.join(own.kept, moments.first, scale, x, normal, z);
      cell.activation.gates(z, values);
      const float state = own.states[0][thread], c = values[1] * state + values[0] * values[2];
      means.exchange({c, 0}, mail_offset<Tile>(tile, 1));
      own.kept[0][thread] = c, own.kept[1][thread] = values[3];
      own.states[0][thread] = here.holds ? c : state;  // a row without this step keeps its state
      rows.write_gates(here, lanes.transpose(narrow_word<T>(values)));
      rows.write_normals(here, lanes.transpose(narrow_word<T>(normal)));
      rows.write_scale(here, 1, scale);
    }
    for (int tile = 0; tile < working; ++tile) {  // h
      Tile& own = tiles[tile];
      const RowAt here = work.row_at(tile, row, place, t);
      const float c = own.kept[0][thread], o = own.kept[1][thread], before = own.states[1][thread];
      const RowPair moments = means.take(own.mail[1], place - begin);
      const float scale = cuda::reciprocal_root_fast(moments.second + cell.eps);
      const float normal = (c - moments.first) * scale;
      const float fresh = o * cell.activation.squash(norms.scale_c * normal + norms.bias_c);
      const std::uint32_t to_send = cuda::narrow_pair<T>(here.holds ? fresh : before, c);
      Word word, cells, normals, nothing;
      lanes.join(to_send, word, cells);
      const Word other = cuda::shuffle_xor(word, 16);
      if (work.goes_on(place, tile)) exchange.send(tile, buffer, lanes, word, other);
      lanes.join(cuda::narrow_pair<T>(normal, 0), normals, nothing);
      rows.write_states(here, word, cells, c, normals);
      rows.write_scale(here, 2, scale);
      const int b = work.batch_row(tile, row);
      if (unit < hidden && work.is_last(here, place, b)) {
        leave_state(cell, end, b, unit, first_of<T>(to_send), c);
      }
    }
  }
  work.for_dead_words(at, hidden, [&](Offset r, int first) { clear_norms(cell, r, first); });
  cuda::cluster_sync();  // nobody has ended before its messages are taken
}

}  // namespace warpalign::detail::recurrent
