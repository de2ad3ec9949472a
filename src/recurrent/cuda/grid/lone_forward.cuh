// The forward sweep of a layer on the whole grid where each group has one tile of rows, as small batches do:
// two threads finish a unit of a row, where a pair of tiles has one. Rows have every step.
#pragma once

#include "recurrent/cuda/grid/resident.cuh"

namespace warpalign::detail::recurrent {

// Weights that multiply a tile of rows, which other blocks write meanwhile.
template <class T, int kTiles, int kSteps, bool kShares>
class LoneWeights : public BlockWeights<T, kTiles, kSteps, kShares, 1> {
  using Base = BlockWeights<T, kTiles, kSteps, kShares, 1>;
  using Base::first_;
  using Base::fragments_;
  using Base::kLanes;
  using Base::reads_;
  using Base::shared;
  using Base::shared_steps_;

 public:
  __device__ __forceinline__ LoneWeights(Weights16* more, int shared_steps, int depth)
      : Base(more, shared_steps, depth) {}

  // sums += weights times 8 rows. row: where this lane's row (lane / 4) begins; null: 0. Words that are all
  // ones are not there yet.
  __device__ __forceinline__ void multiply(const T* row, float (&sums)[kTiles][4]) const {
    const Source from{reinterpret_cast<const Word*>(row) + first_, row ? reads_ : 0};
    Word now[kChunk], next[kChunk];
    ask(from, 0, now);
#pragma unroll
    for (int begin = 0; begin < kSteps; begin += kChunk) {
      if (kShares || begin + kChunk < kSteps) ask(from, begin + kChunk, next);
      wait(from, begin, now);
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) fragments_[m][begin + k].template multiply<T>(now[k], sums[m]);
      }
#pragma unroll
      for (int k = 0; k < kChunk; ++k) now[k] = next[k];
    }
    if constexpr (kShares) {
      for (int begin = 0; begin < shared_steps_; begin += kChunk) {
        ask(from, kSteps + begin + kChunk, next);
        wait(from, kSteps + begin, now);
#pragma unroll
        for (int k = 0; k < kChunk; ++k) {
          if (begin + k >= shared_steps_) continue;  // the same for all threads
#pragma unroll
          for (int m = 0; m < kTiles; ++m) shared(m, begin + k).template multiply<T>(now[k], sums[m]);
        }
#pragma unroll
        for (int k = 0; k < kChunk; ++k) now[k] = next[k];
      }
    }
  }

 private:
  static constexpr int kChunk = kSteps < 8 ? kSteps : 8;
  static_assert(kSteps % kChunk == 0);

  // Where the lane's words of a row begin, and how many there are.
  struct Source {
    const Word* words;
    int steps;
  };

  __device__ __forceinline__ static void ask(const Source& from, int begin, Word (&to)[kChunk]) {
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
      to[k] = begin + k < from.steps ? cuda::load_relaxed(from.words + (begin + k) * kLanes) : 0;
    }
  }
  __device__ __forceinline__ static void wait(const Source& from, int begin, Word (&words)[kChunk]) {
    while (true) {
      bool waits = false;
#pragma unroll
      for (int k = 0; k < kChunk; ++k) waits |= words[k] == kNotYet;
      if (!__any_sync(cuda::kFullWarp, waits)) return;
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        if (words[k] == kNotYet) words[k] = cuda::load_relaxed(from.words + (begin + k) * kLanes);
      }
    }
  }
};

// Who a thread is. Threads 2 p and 2 p + 1 finish unit p % 16 of row p / 16: both compute the same, and share
// the writing.
struct LonePlace {
  int cell, group, rank, unit, row, half;

  template <class T>
  __device__ __forceinline__ explicit LonePlace(const ResidentParams<T>& p) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    rank = block % p.ranks;
    group = block / p.ranks % p.groups;
    cell = block / p.ranks / p.groups;
    unit = rank * kOwnUnits + thread / 2 % kOwnUnits;
    row = thread / 32;
    half = thread % 2;
  }
  // Row b of the batch, of the group's tile.
  template <class T>
  __device__ __forceinline__ int batch_row(const ResidentParams<T>& p, int r) const {
    return (p.first_tile + group) * 8 + r;
  }
};

// Joins the warps' partial sums in shared memory. `turn` counts the calls: two sets of places take turns.
template <int kTiles>
__device__ __forceinline__ void join_sums(const float (&sums)[kTiles][4], float* partials, int turn,
                                          float (&totals)[kTiles]) {
  constexpr int kWarp = warp_distance(kTiles);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  float* const places = partials + turn % 2 * kResidentWarps * kWarp;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    float* const to = places + warp * kWarp + (m * 8 + 2 * (lane % 4)) * kColumnDistance + lane / 4;
    to[0] = sums[m][0], to[kColumnDistance] = sums[m][1];
    to[8] = sums[m][2], to[kColumnDistance + 8] = sums[m][3];
  }
  __syncthreads();
  const int unit = lane / 2, half = lane % 2, row = warp;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kResidentWarps; k += 2) {
      sum += places[(k + half) * kWarp + (m * 8 + row) * kColumnDistance + unit];
    }
    const float other = cuda::shuffle_xor(sum, 1);
    totals[m] = half == 0 ? sum + other : other + sum;
  }
}

// The word of four neighbouring units, in each fourth unit's lanes. Lanes of one half exchange with each
// other.
template <class T>
__device__ __forceinline__ Word word_of_units(T v) {
  const std::uint32_t own = v.bits, second = cuda::shuffle_xor(own, 2);
  const Word pair = own | static_cast<Word>(second) << 16, other = cuda::shuffle_xor(pair, 4);
  return pair | other << 32;
}

template <class T, int kSteps, bool kShares>
__global__ void __launch_bounds__(kResidentThreads, 1) lone_forward_kernel(ResidentParams<T> p) {
  const LonePlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<true>(cell.at);
  const int hidden = cell.hidden, steps = cell.at.steps, lane = static_cast<int>(threadIdx.x) % 32;
  const int b = at.batch_row(p, at.row), source = at.batch_row(p, lane / 4);
  const bool has_row = at.unit < hidden && b < cell.at.batch;
  const Offset index = static_cast<Offset>(b) * hidden + at.unit;
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + partials_of_pair(4));
  LoneWeights<T, 4, kSteps, kShares> weights(more, p.shared_steps, hidden);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int gate, int r) -> const T* {
    const int unit = at.rank * kOwnUnits + r;
    if (unit >= hidden) return nullptr;
    return cell.hh + (static_cast<Offset>(gate) * hidden + unit) * cell.output_stride;
  });
  __syncthreads();  // the places become those of sums
  float bias[4], c = has_row ? cell.c[index] : 0.0f;
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) {
    bias[gate] = at.unit < hidden ? bias_of(cell, gate * hidden + at.unit) : 0.0f;
  }
  for (int place = 0; place < steps; ++place) {
    const int t = cell.step_at(place);
    const Offset row = has_row ? rows.first(t) + b : 0;
    // Before the wait, so that it hides the way to memory.
    T asked[4] = {};
    if (has_row) {
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) asked[gate] = cell.gates[(row * 4 + gate) * hidden + at.unit];
    }
    float sums[4][4] = {}, totals[4], z[4], values[4];
    weights.multiply(state_before(cell, rows, place, t, source), sums);
    join_sums(sums, partials, place, totals);
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) z[gate] = cuda::widen(asked[gate]) + bias[gate] + totals[gate];
    cell.activation.gates(z, values);
    c = has_row ? values[1] * c + values[0] * values[2] : 0.0f;
    const T h = cuda::narrow<T>(has_row ? values[3] * cell.activation.squash(c) : 0.0f);
    const Word word = word_of_units(h);
    if (!has_row) continue;
    if (lane % 8 == 0) {
      cuda::store_relaxed(reinterpret_cast<Word*>(cell.h_rows + row * cell.h_stride + at.unit), word);
    }
    // Now what nobody waits for.
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      if (gate / 2 == at.half)
        cell.gates[(row * 4 + gate) * hidden + at.unit] = cuda::narrow<T>(values[gate]);
    }
    if (at.half == 0) {
      if (cell.tape_c) cell.tape_c[row * hidden + at.unit] = cuda::narrow<T>(c);
      if (cell.c_all) cell.write_cell(cell.c_all, row * hidden + at.unit, c);
    } else if (cell.h_all) {
      cell.h_all[row * hidden + at.unit] = h;
    }
    if (at.half == 0 && place + 1 == steps) {
      h_behind(cell)[static_cast<Offset>(b) * cell.output_stride + at.unit] = h;
      cell.c[index] = c;
    }
  }
}

}  // namespace warpalign::detail::recurrent
