// Whole sweeps in one launch: the recurrent weights stay in registers, and blocks hand h, or dz, to each
// other through global memory. 16-bit types, no layer norm, no projection.
//
// A group of blocks holds R once and has a slice of the batch. A block has 16 units. Its 8 warps each have an
// eighth of the depth of the block's products. What the blocks hand over are the rows of h or dz themselves:
// they start as all one-bits, and a reader waits until no word of 4 elements is all ones. No rounded number
// has these bits, NaN included. There are no flags, fences or slots.
//
// Waiting ends because all blocks are resident: the launch is cooperative.
#pragma once

#include "cuda/shared.cuh"
#include "recurrent/cuda/block_weights.cuh"
#include "recurrent/cuda/forward.cuh"

namespace warpalign::detail::recurrent {

template <class T>
struct ResidentParams {
  CudaCell<T> cell[2];  // a layer's directions, or two layers
  int ranks;            // blocks of a group
  int groups;           // each cell has so many
  int tiles;            // of 8 rows, of a group
  int first_tile;       // the first group begins here: a large batch takes several launches
  int shared_steps;     // of the weights
};

// Partial sums of a warp: [kTiles][8 columns][20], of which 16 are rows. Distances keep banks apart.
constexpr int kColumnDistance = 20;
constexpr int warp_distance(int tiles) { return tiles * 8 * kColumnDistance + 16; }
// What a thread carries from step to step for a tile of rows: h and c, or their gradients.
struct OwnState {
  float h, c;
};
// Bytes of shared memory: two sets of partial sums, and, for each tile of rows, the threads' states.
constexpr std::size_t partials_bytes(int weight_tiles) {
  return 2 * static_cast<std::size_t>(kResidentWarps) * warp_distance(weight_tiles) * sizeof(float);
}
constexpr std::size_t kTileBytes = kResidentThreads * sizeof(OwnState);
// Weights that multiply a tile of rows, which other blocks write meanwhile.
template <class T, int kTiles, int kSteps, bool kShares>
class ResidentWeights : public BlockWeights<T, kTiles, kSteps, kShares, 1> {
  using Base = BlockWeights<T, kTiles, kSteps, kShares, 1>;
  using Base::first_;
  using Base::fragments_;
  using Base::kLanes;
  using Base::reads_;
  using Base::shared;
  using Base::shared_steps_;

 public:
  __device__ __forceinline__ ResidentWeights(Weights16* more, int shared_steps, int depth)
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
struct ResidentPlace {
  int cell, group, rank, unit, row, half;

  template <class T>
  __device__ __forceinline__ explicit ResidentPlace(const ResidentParams<T>& p) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    rank = block % p.ranks;
    group = block / p.ranks % p.groups;
    cell = block / p.ranks / p.groups;
    unit = rank * kOwnUnits + thread / 2 % kOwnUnits;
    row = thread / 32;
    half = thread % 2;
  }
  // Row b of the batch, of tile `tile` of the group's slice.
  template <class T>
  __device__ __forceinline__ int batch_row(const ResidentParams<T>& p, int tile, int r) const {
    return (p.first_tile + group * p.tiles + tile) * 8 + r;
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

// Where a row's state is before step t, for products: h of the step before, or h0.
template <class T, class Rows>
__device__ __forceinline__ const T* state_before(const CudaCell<T>& cell, const Rows& rows, int place, int t,
                                                 int b) {
  if (b >= rows.batch || !rows.has_row(t, b)) return nullptr;
  const int last = cell.step_at(place - 1);
  if (!rows.holds(last, b) || rows.resets_at(t, b)) {
    return cell.h0 + static_cast<Offset>(b) * cell.output_stride;
  }
  return cell.h_rows + (rows.first(last) + b) * cell.h_stride;
}

// kPlain: no lengths, packed rows, resets or zoneout.
template <class T, int kSteps, bool kShares, bool kPlain>
__global__ void __launch_bounds__(kResidentThreads, 1) resident_forward_kernel(ResidentParams<T> p) {
  const ResidentPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, batch = cell.at.batch, steps = cell.at.steps;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const bool has_unit = at.unit < hidden;
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + 2 * kResidentWarps * warp_distance(4));
  OwnState* const own = reinterpret_cast<OwnState*>(more + 4 * p.shared_steps * kResidentThreads);
  ResidentWeights<T, 4, kSteps, kShares> weights(more, p.shared_steps, hidden);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int gate, int r) -> const T* {
    const int unit = at.rank * kOwnUnits + r;
    if (unit >= hidden) return nullptr;
    return cell.hh + (static_cast<Offset>(gate) * hidden + unit) * cell.output_stride;
  });
  __syncthreads();  // the places become those of sums
  float bias[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) bias[gate] = has_unit ? bias_of(cell, gate * hidden + at.unit) : 0.0f;
  for (int tile = 0; tile < p.tiles; ++tile) {
    const int b = at.batch_row(p, tile, at.row);
    const bool is_own = has_unit && b < batch;
    own[tile * kResidentThreads + thread] = {
        is_own ? cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + at.unit]) : 0.0f,
        is_own ? cell.c[static_cast<Offset>(b) * hidden + at.unit] : 0.0f};
  }
  int turn = 0;
  for (int place = 0; place < steps; ++place) {
    const int t = cell.step_at(place);
    for (int tile = 0; tile < p.tiles; ++tile, ++turn) {
      const int b = at.batch_row(p, tile, at.row);
      const bool has_row = has_unit && rows.has_row(t, b), holds = has_row && rows.holds(t, b);
      const Offset row = has_row ? rows.first(t) + b : 0;
      OwnState& state = own[tile * kResidentThreads + thread];
      // Before the wait, so that it hides the way to memory.
      T asked[4] = {};
      if (holds) {
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) asked[gate] = cell.gates[(row * 4 + gate) * hidden + at.unit];
        if (rows.resets_at(t, b)) {
          state = {cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + at.unit]),
                   cell.c0[static_cast<Offset>(b) * hidden + at.unit]};
        }
      }
      float sums[4][4] = {}, totals[4], z[4];
      weights.multiply(state_before(cell, rows, place, t, at.batch_row(p, tile, lane / 4)), sums);
      join_sums(sums, partials, turn, totals);
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) z[gate] = cuda::widen(asked[gate]) + bias[gate] + totals[gate];
      const Activation<T>& a = cell.activation;
      float values[4];
      a.gates(z, values);
      float c = values[1] * state.c + values[0] * values[2], fresh = values[3] * a.squash(c);
      if (!kPlain && cell.zoneout_hidden.probability != 0) {
        const float keep = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, at.unit);
        fresh = keep * state.h + (1 - keep) * fresh;
      }
      if (!kPlain && cell.zoneout_cell.probability != 0) {
        const float keep = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, at.unit);
        c = keep * state.c + (1 - keep) * c;
      }
      if (!holds) c = 0, fresh = 0;
      const T h = cuda::narrow<T>(fresh);
      const Word word = word_of_units(h);
      if (has_row && lane % 8 == 0) {
        cuda::store_relaxed(reinterpret_cast<Word*>(cell.h_rows + row * cell.h_stride + at.unit), word);
      }
      // Now what nobody waits for.
      if (has_row) {
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) {
          if (holds && gate / 2 == at.half) {
            cell.gates[(row * 4 + gate) * hidden + at.unit] = cuda::narrow<T>(values[gate]);
          }
        }
        if (at.half == 0) {
          if (cell.tape_c) cell.tape_c[row * hidden + at.unit] = cuda::narrow<T>(c);
          if (cell.c_all) cell.write_cell(cell.c_all, row * hidden + at.unit, c);
        } else if (cell.h_all) {
          cell.h_all[row * hidden + at.unit] = h;
        }
      }
      if (holds) {
        state = {cuda::widen(h), c};
        if (at.half == 0 && !rows.holds(cell.step_at(place + 1), b)) {
          h_behind(cell)[static_cast<Offset>(b) * cell.output_stride + at.unit] = h;
          cell.c[static_cast<Offset>(b) * hidden + at.unit] = c;
        }
      }
    }
  }
}

template <class T, int kSteps, bool kShares, bool kPlain>
__global__ void __launch_bounds__(kResidentThreads, 1) resident_backward_kernel(ResidentParams<T> p) {
  const ResidentPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, batch = cell.at.batch, steps = cell.at.steps, depth = cell.gates_stride;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const bool has_unit = at.unit < hidden;
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + 2 * kResidentWarps * warp_distance(1));
  OwnState* const own = reinterpret_cast<OwnState*>(more + p.shared_steps * kResidentThreads);
  ResidentWeights<T, 1, kSteps, kShares> weights(more, p.shared_steps, depth);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int, int r) -> const T* {
    const int unit = at.rank * kOwnUnits + r;
    return unit < hidden ? cell.hh_across + static_cast<Offset>(unit) * depth : nullptr;
  });
  __syncthreads();  // the places become those of sums
  for (int tile = 0; tile < p.tiles; ++tile) {
    const int b = at.batch_row(p, tile, at.row);
    const bool is_own = has_unit && b < batch;
    const Offset index = static_cast<Offset>(b) * hidden + at.unit;
    own[tile * kResidentThreads + thread] = {is_own ? cell.dh[index] : 0.0f, is_own ? cell.dc[index] : 0.0f};
  }
  int turn = 0;
  for (int place = 0; place <= steps; ++place) {
    const int t = cell.step_back_at(place), later = cell.step_back_at(place - 1);
    for (int tile = 0; tile < p.tiles; ++tile, ++turn) {
      const int b = at.batch_row(p, tile, at.row), source = at.batch_row(p, tile, lane / 4);
      const bool has_row = has_unit && rows.has_row(t, b), holds = has_row && rows.holds(t, b);
      const Offset row = has_row ? rows.first(t) + b : 0;
      const Offset index = static_cast<Offset>(b) * hidden + at.unit;
      OwnState& state = own[tile * kResidentThreads + thread];  // dh and dc
      // Before the wait, so that it hides the way to memory.
      T asked[4] = {}, asked_before{}, asked_dy{};
      float first_before = 0, all_dh = 0, dc = state.c;
      bool resets = false;
      if (holds) {
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) asked[gate] = cell.gates[(row * 4 + gate) * hidden + at.unit];
        resets = rows.resets_at(t, b);
        const int last = cell.reverse ? t + 1 : t - 1;
        if (resets || !rows.holds(last, b)) {
          first_before = cell.c0[index];
        } else {
          asked_before = cell.tape_c[(rows.first(last) + b) * hidden + at.unit];
        }
        if (cell.dy) asked_dy = cell.dy[row * cell.dy_stride + at.unit];
        if (cell.dh_all) all_dh = cuda::widen(cell.dh_all[row * hidden + at.unit]);
        if (cell.dc_all) dc += cell.read_cell(cell.dc_all, row * hidden + at.unit);
      }
      const bool carries = has_unit && rows.holds(later, b);
      const bool carries_to_start = carries && rows.resets_at(later, b);
      const T* const dz_later =
          rows.has_row(later, source) ? cell.dz + (rows.first(later) + source) * depth : nullptr;
      float sums[1][4] = {}, totals[1];
      weights.multiply(dz_later, sums);
      join_sums(sums, partials, turn, totals);
      float dh = carries ? state.h + totals[0] : state.h;
      if (carries_to_start) {
        if (at.half == 0) cell.dh0[index] += dh;
        dh = 0;
      }
      if (place == steps) {
        if (has_unit && b < batch && at.half == 0) cell.dh[index] = dh, cell.dc[index] = state.c;
        continue;  // every thread does
      }
      float keep_h = 0, keep_c = 0;
      if (!kPlain && cell.zoneout_hidden.probability != 0) {
        keep_h = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, at.unit);
      }
      if (!kPlain && cell.zoneout_cell.probability != 0) {
        keep_c = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, at.unit);
      }
      const Activation<T>& a = cell.activation;
      const float gates[4] = {cuda::widen(asked[0]), cuda::widen(asked[1]), cuda::widen(asked[2]),
                              cuda::widen(asked[3])};
      const float i = gates[0], f = gates[1], g = gates[2], o = gates[3];
      float slopes[4];
      a.slopes(gates, slopes);
      const float before = first_before + cuda::widen(asked_before);  // one of them is 0
      float dy = cuda::widen(asked_dy);
      if (cell.dropout.factor != 0 && holds) dy *= cell.dropout.of(cell.masks, t, b, at.unit);
      dy += all_dh;
      const float squashed = a.squash(f * before + i * g);
      const float all = dh + dy, dm = (1 - keep_h) * all;
      const float dcell = (1 - keep_c) * dc + dm * o * a.squash_slope(squashed);
      const float values[4] = {dcell * g * slopes[0], dcell * before * slopes[1], dcell * i * slopes[2],
                               dm * squashed * slopes[3]};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float dz = at.half == 0 ? values[k] : values[2 + k];
        const Word word = word_of_units(cuda::narrow<T>(holds ? dz : 0.0f));
        T* const to = cell.dz + row * depth + static_cast<Offset>(2 * at.half + k) * hidden + at.unit;
        if (has_row && lane % 8 < 2) cuda::store_relaxed(reinterpret_cast<Word*>(to), word);
      }
      if (holds) {
        state = {keep_h * all, keep_c * dc + dcell * f};
        if (resets) {
          if (at.half == 0) cell.dc0[index] += state.c;
          state.c = 0;
        }
      } else {
        state.h = dh;
      }
    }
  }
}

}  // namespace warpalign::detail::recurrent
