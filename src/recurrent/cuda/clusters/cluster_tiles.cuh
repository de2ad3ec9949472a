// The tiles of a cluster: which rows of the batch they have, and at which places of a sweep they work.
//
// Where rows end at lengths, the longest rows come first, and clusters take tiles of them in turn, there and
// back. So a cluster's second tile is a short one. A tile works at the places at which its longest row has
// steps, and a cluster at those of its first tile.
#pragma once

#include "recurrent/cuda/cell/kept.cuh"
#include "recurrent/cuda/clusters/cluster_sweep.cuh"

namespace warpalign::detail::recurrent {

// What a kernel can do besides: nothing, rows that end, or all of rows that end, resets and zoneout.
enum class SweepOptions { kNone, kEnds, kAll };

// A row of a tile: b in the batch. It has steps from place `begin` on, up to the one before `end`.
struct alignas(16) TileRow {
  int b, begin, end;
};
// The rows of a tile, the longest one first. Where t grows with the place, the tile ends at place `bound`;
// else it begins there.
struct TileRows {
  TileRow row[8];
  int bound;
};

// Where a row is in arrays of rows at a place, and where its H entries begin there. exists: it is in memory.
// holds: it is within the length. is_last: the sweep, or backward the row, ends after it.
struct RowAt {
  Offset row, first;
  bool exists, holds, is_last;
};

// Every row has every step. A slice has rows that lie side by side, and its tiles work at all places.
class EvenTiles {
 public:
  template <class T>
  __device__ __forceinline__ EvenTiles(const CudaCell<T>& cell, const ClusterParams<T>& p,
                                       const ClusterPlace& at, bool, TileRows*)
      : rows_{cell.at.steps, cell.at.batch},
        first_row_(at.slice * p.tiles * 8),
        count_(min(p.tiles, (cell.at.batch - first_row_ + 7) / 8)),
        hidden_(cell.hidden),
        places_(p.places) {}

  [[nodiscard]] __device__ __forceinline__ int count() const { return count_; }
  [[nodiscard]] __device__ __forceinline__ int begin() const { return places_.begin; }
  [[nodiscard]] __device__ __forceinline__ int end() const { return places_.end; }
  // The row of the batch; not below B: there is none.
  [[nodiscard]] __device__ __forceinline__ int batch_row(int tile, int row) const {
    return first_row_ + tile * 8 + row;
  }
  // A row at place `place`, where t is `t`.
  [[nodiscard]] __device__ __forceinline__ RowAt row_at(int tile, int row, int, int t) const {
    const int b = batch_row(tile, row);
    const bool exists = rows_.has_row(t, b);
    const Offset at = exists ? rows_.first(t) + b : 0;
    return {at, at * hidden_, exists, exists, false};
  }

  // Of place after place: how many tiles have something to do at it, and whether this tile waits for messages
  // from the place before, works at this place, and works at the next one.
  __device__ __forceinline__ void go_to(int) {}
  [[nodiscard]] __device__ __forceinline__ int working() const { return count_; }
  [[nodiscard]] __device__ __forceinline__ int busy() const { return count_; }
  [[nodiscard]] __device__ __forceinline__ bool waits(int place, int) const { return place > places_.begin; }
  [[nodiscard]] __device__ __forceinline__ bool works(int place, int) const { return place < places_.end; }
  [[nodiscard]] __device__ __forceinline__ bool goes_on(int place, int) const {
    return place + 1 < places_.end;
  }
  // Forward: whether the state after this step is the row's last one in this sweep.
  [[nodiscard]] __device__ __forceinline__ bool is_last(const RowAt&, int place, int b) const {
    return place == places_.end - 1 && b < rows_.batch;
  }
  // Backward: whether there is no step `last` of the row before this one.
  [[nodiscard]] __device__ __forceinline__ bool begins_row(const RowAt&, int last, int b) const {
    return !rows_.has_row(last, b);
  }

 private:
  PlainRows rows_;
  int first_row_, count_, hidden_;
  Places places_;
};

// Rows end at lengths, or where packed rows do.
class EndingTiles {
 public:
  // All threads of the block call it. `tiles` is shared memory.
  template <class T>
  __device__ __forceinline__ EndingTiles(const CudaCell<T>& cell, const ClusterParams<T>& p,
                                         const ClusterPlace& at, bool backward, TileRows* tiles)
      : rows_(cell.at),
        tiles_(tiles),
        hidden_(cell.hidden),
        rises_(cell.reverse == backward),
        places_(p.places),
        last_end_(backward ? cell.at.steps : p.places.end) {
    const int all = (rows_.batch + 7) / 8, rest = all % p.slices, turn = turn_of(at.slice, all / p.slices, p);
    count_ = all / p.slices + (turn < rest ? 1 : 0);
    deal(at.slice, p);
    next_ = count_at(begin(), rises_ ? count_ : 0);
  }

  [[nodiscard]] __device__ __forceinline__ int count() const { return count_; }
  [[nodiscard]] __device__ __forceinline__ int begin() const {
    return rises_ ? places_.begin : tiles_[0].bound;
  }
  [[nodiscard]] __device__ __forceinline__ int end() const { return rises_ ? tiles_[0].bound : places_.end; }
  [[nodiscard]] __device__ __forceinline__ int batch_row(int tile, int row) const {
    return tiles_[tile].row[row].b;
  }
  [[nodiscard]] __device__ __forceinline__ RowAt row_at(int tile, int row, int place, int t) const {
    const TileRow own = tiles_[tile].row[row];
    const bool holds = place >= own.begin && place < own.end;
    const Offset at = rows_.first(holds ? t : 0) + own.b;
    return {at, at * hidden_, holds, holds, holds && place + 1 == min(own.end, last_end_)};
  }
  // Whether the state before this step is (h0, c0) again.
  [[nodiscard]] __device__ __forceinline__ bool resets_at(int tile, int row, int place, int t) const {
    if (!rows_.resets) return false;
    const RowAt at = row_at(tile, row, place, t);
    return at.holds && __ldg(rows_.resets + at.row);
  }

  __device__ __forceinline__ void go_to(int place) {
    before_ = now_, now_ = next_;
    next_ = count_at(place + 1, now_);
  }
  [[nodiscard]] __device__ __forceinline__ int working() const { return now_; }
  [[nodiscard]] __device__ __forceinline__ int busy() const { return max(before_, now_); }
  [[nodiscard]] __device__ __forceinline__ bool waits(int, int tile) const { return tile < before_; }
  [[nodiscard]] __device__ __forceinline__ bool works(int, int tile) const { return tile < now_; }
  [[nodiscard]] __device__ __forceinline__ bool goes_on(int, int tile) const { return tile < next_; }
  [[nodiscard]] __device__ __forceinline__ bool is_last(const RowAt& at, int, int) const {
    return at.is_last;
  }
  [[nodiscard]] __device__ __forceinline__ bool begins_row(const RowAt& at, int, int) const {
    return at.is_last;
  }

  // body(row, first) for the rows in memory of steps within these places that no row of this cluster has, and
  // for the first of each four units of this block. All threads share them.
  template <class Body>
  __device__ __forceinline__ void for_dead_words(const ClusterPlace& at, int hidden, const Body& body) const {
    const int thread = static_cast<int>(threadIdx.x), first_step = thread / kClusterWarps;
    const int first = at.rank * kBlockUnits + thread % kClusterWarps * kWarpUnits;
    if (rows_.starts || first >= hidden) return;
    for (int row = 0; row < count_ * 8; ++row) {
      const TileRow own = tiles_[row / 8].row[row % 8];
      if (own.b >= rows_.batch) continue;
      const int from = rises_ ? max(own.end, places_.begin) : places_.begin;
      const int to = rises_ ? places_.end : min(own.begin, places_.end);
      for (int place = from + first_step; place < to; place += kClusterThreads / kClusterWarps) {
        const int t = rises_ ? place : rows_.steps - 1 - place;
        body(static_cast<Offset>(t) * rows_.batch + own.b, first);
      }
    }
  }
  // Whether the row has no step within the places.
  [[nodiscard]] __device__ __forceinline__ bool is_idle(int tile, int row) const {
    const TileRow own = tiles_[tile].row[row];
    return max(own.begin, places_.begin) >= min(own.end, places_.end);
  }

 private:
  // Tiles take turns in this order, and back.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ static int turn_of(int slice, int round,
                                                              const ClusterParams<T>& p) {
    return round % 2 == 0 ? slice : p.slices - 1 - slice;
  }
  [[nodiscard]] __device__ __forceinline__ int length_of(int b) const {
    if (rows_.lengths) return min(max(__ldg(rows_.lengths + b), 0), rows_.steps);
    if (!rows_.starts) return rows_.steps;
    int low = 0, high = rows_.steps;  // the first step that has not the row
    while (low < high) {
      const int middle = (low + high) / 2;
      if (b < rows_.count(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  // Packed rows come in this order.
  [[nodiscard]] __device__ __forceinline__ int rank_of(int b, int length) const {
    if (!rows_.lengths) return b;
    int rank = 0;
    for (int other = 0; other < rows_.batch; ++other) {
      const int its = length_of(other);
      rank += its > length || (its == length && other < b) ? 1 : 0;
    }
    return rank;
  }
  template <class T>
  __device__ __forceinline__ void deal(int slice, const ClusterParams<T>& p) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int n = thread; n < count_ * 8; n += kClusterThreads) tiles_[n / 8].row[n % 8] = {rows_.batch, 0, 0};
    __syncthreads();
    for (int b = thread; b < rows_.batch; b += kClusterThreads) {
      const int length = length_of(b), rank = rank_of(b, length), tile = rank / 8, round = tile / p.slices;
      if (tile % p.slices != turn_of(slice, round, p)) continue;
      const int first = rises_ ? 0 : rows_.steps - length;
      tiles_[round].row[rank % 8] = {b, first, first + length};
      // Tiles begin at places of one buffer and one phase of the mailboxes.
      const int skipped = max(first - places_.begin, 0) / 4 * 4;
      if (rank % 8 == 0) {
        tiles_[round].bound = rises_ ? min(max(length, places_.begin), places_.end) : places_.begin + skipped;
      }
    }
    __syncthreads();
  }
  // The tiles that work at a place, of which there were so many at the place before.
  [[nodiscard]] __device__ __forceinline__ int count_at(int place, int count) const {
    if (place >= places_.end) return 0;
    if (rises_) {
      while (count > 0 && place >= tiles_[count - 1].bound) --count;
    } else {
      while (count < count_ && place >= tiles_[count].bound) ++count;
    }
    return count;
  }

  StepRows rows_;
  TileRows* tiles_;
  int count_, hidden_;
  bool rises_;  // t is the place
  Places places_;
  int last_end_;
  int before_ = 0, now_ = 0, next_;
};

// Sets a word of an array that may be null to 0.
template <class T>
__device__ __forceinline__ void clear_word(T* to, Offset index) {
  if (to) *reinterpret_cast<cuda::Word*>(to + index) = 0;
}

template <SweepOptions kOptions>
using TilesOf = std::conditional_t<kOptions == SweepOptions::kNone, EvenTiles, EndingTiles>;

}  // namespace warpalign::detail::recurrent
