// One warp's place in the wavefront: where its queues, its scratch and its pair are, and the step itself.
//
// Strip s holds columns 32 W s + [0, 32 W). At step s0 + q lane t computes row i = s0 + q - t of its W
// columns. Steps go in groups of kGroup, the unit in which neighbouring strips hand values over, and groups
// in phases of kPhase steps, at whose starts the lanes' states are kept for the reverse sweep.
#pragma once

#include "cuda/channel.cuh"
#include "soft_dtw/cell.cuh"
#include "soft_dtw/params.cuh"

namespace warpalign::softdtw {

static_assert(kChannelRows == cuda::kChannelGroups * kGroup && kChannelBarriers == cuda::Channel::kBarriers);

// The last lane lags by 31 rows: with its group j the rows of group j - kLag are complete, and the first row
// behind them.
constexpr int kLag = 4;
static_assert(kLag * kGroup == 32);

// What the warps of a pair tell each other at the end of the forward sweep.
template <class Cell>
struct PairResult {
  typename Cell::State last;  // Z[n-1, m-1]
  int2 range_bits;            // maxima of the source's range_bits over the warps
  int usable;                 // the value is right: the reverse sweep may run
};

// Where the last warp of a pair hands over to the first one, which works on the next round of strips.
struct WrapCounters {
  int forward;
  int reverse;
};

template <class Cell_, class In_, class Source_>
struct Wavefront {
  using Cell = Cell_;
  using In = In_;
  using Source = Source_;
  using Real = typename Cell::Real;
  using State = typename Cell::State;
  static constexpr int W = Source::kColumns;
  // Reals per row that a strip sends to the one on its left: E, and partial sums of grad_x where the source
  // carries them.
  static constexpr int kFlow = 1 + Source::kCarried;

  const Params<In>& params;
  const int lane;
  const int warps;  // per pair
  const int warp;   // within the pair
  Real* ring;       // this warp's tiles, if the source has any
  PairResult<Cell>* result;
  Pair<In> pair;
  int strips;
  int phases;
  int groups;
  State* borders;
  State* states;
  Real* flow_column;
  WrapCounters* wrap;

  __device__ Wavefront(const Params<In>& p, unsigned char* shared)
      : params(p),
        lane(threadIdx.x % 32),
        warps(p.shape.warps_per_pair),
        warp(threadIdx.x / 32 % p.shape.warps_per_pair) {
    const int slot = threadIdx.x / 32 / warps;
    const int total_warps = warps * p.shape.pairs_per_block;
    const int first_warp = slot * warps;
    constexpr CellSizes kSizes{sizeof(State), sizeof(Real)};
    constexpr int kRingBytes = ring_bytes(W, Source::kCarried, kSizes);
    constexpr int kQueueBytes = queue_bytes(Source::kCarried, kSizes);
    ring = reinterpret_cast<Real*>(shared + (first_warp + warp) * kRingBytes);
    unsigned char* queues = shared + total_warps * kRingBytes;
    queues_ = queues + first_warp * kQueueBytes;
    auto* results = reinterpret_cast<PairResult<Cell>*>(queues + total_warps * kQueueBytes);
    result = results + slot;
    barriers_ =
        reinterpret_cast<cuda::Barrier*>(results + p.shape.pairs_per_block) + first_warp * kChannelBarriers;
    if (lane < kChannelBarriers) cuda::barrier_init(barriers_ + warp * kChannelBarriers + lane);
    unsigned char* scratch =
        p.scratch + (static_cast<std::size_t>(blockIdx.x) * p.shape.pairs_per_block + slot) * p.shape.scratch;
    wrap = p.shape.borders > 0 ? reinterpret_cast<WrapCounters*>(scratch) : nullptr;
    borders = reinterpret_cast<State*>(scratch + p.shape.borders);
    states = reinterpret_cast<State*>(scratch + p.shape.states);
    flow_column = reinterpret_cast<Real*>(scratch + p.shape.flow);
  }

  __device__ void start_pair(int b) {
    pair = pair_at(params, b);
    strips = strips_of(pair.m, W);
    phases = phases_of(pair.n);
    groups = phases * (kPhase / kGroup);
    reset_channels();
    for (int k = lane; k < kChannelRows; k += 32) border_queue(warp, 0)[k] = Cell::dead();
    if (warp == 0 && lane == 0) {
      result->range_bits = {0, 0};
      result->usable = 0;
      if (wrap) *wrap = {0, 0};
    }
  }

  __device__ void reset_channels() {
    if (lane < kChannelBarriers) cuda::barrier_reset(barriers_ + warp * kChannelBarriers + lane);
  }

  // The queue from a warp to the next one: its barriers, and the slot of a group in its values, which are the
  // strip's last column of Z in the forward sweep and kFlow reals a row in the reverse.
  [[nodiscard]] __device__ cuda::Channel channel(int from) const {
    return cuda::Channel(barriers_ + from * kChannelBarriers);
  }
  [[nodiscard]] __device__ State* border_queue(int from, int group) const {
    return reinterpret_cast<State*>(queue(from)) + group % cuda::kChannelGroups * kGroup;
  }
  [[nodiscard]] __device__ Real* flow_queue(int from, int group) const {
    return reinterpret_cast<Real*>(queue(from)) + group % cuda::kChannelGroups * (kGroup * kFlow);
  }

  // The strip's last column of Z in scratch: kept for the reverse sweep, and the way from one round to the
  // next.
  [[nodiscard]] __device__ State* border_column(int strip, bool keep) const {
    return borders + (keep ? static_cast<std::size_t>(strip) * params.n : 0);
  }
  [[nodiscard]] __device__ State* state_at(int strip, int phase) const {
    return states + (static_cast<std::size_t>(strip) * phases + phase) * (W + 1) * 32 + lane;
  }

  // One step. cost(k): of this lane's column k; border: Z left of the strip, for lane 0.
  template <bool kWantWeights, class Cost>
  __device__ __forceinline__ void step(const Cost& cost, State border, State (&above)[W], State& diagonal,
                                       Weights<Real>* weights) const {
    State left = Cell::shuffle_up(above[W - 1]);
    left = lane == 0 ? border : left;
    State corner = diagonal;
    diagonal = left;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const State here = Cell::template advance<kWantWeights>(cost(k), above[k], left, corner, weights + k);
      corner = above[k];
      above[k] = here;
      left = here;
    }
  }

  // By one thread of the pair, after the forward sweep. Cell32: is the value certain to be right?
  __device__ void finish_forward() const {
    const double log2_z = Cell::log2_of(result->last);
    double value = -log2_z / params.scale;
    bool usable;
    if constexpr (sizeof(Real) == 4) {
      usable = certified(log2_z);
      params.uncertified[pair.index] = !usable;
    } else {
      const bool reachable = log2_z > -1e298;
      usable = result->range_bits.x == 0 && reachable;
      if (!reachable) value = CUDART_INF;
      if (result->range_bits.x != 0) value = CUDART_NAN;
    }
    result->usable = usable;
    if (usable || sizeof(Real) == 8) params.value[pair.index] = static_cast<In>(value);
  }

  // Zeros behind the true lengths; where there is no gradient, what stands in for it: NaN, or 0 if no path is
  // finite.
  __device__ void fill_outside() const {
    fill(pair.grad_x, params.n, params.dim, pair.n, params.dim);
    fill(pair.grad_y, params.m, params.dim, pair.m, params.dim);
    fill(pair.alignment, params.n, params.m, pair.n, pair.m);
  }

 private:
  [[nodiscard]] __device__ unsigned char* queue(int from) const {
    return queues_ + from * queue_bytes(Source::kCarried, {sizeof(State), sizeof(Real)});
  }

  // |c| < 2^22 keeps the cost's rounding exact. Saturated exponents do not matter where the whole range of R
  // stays below 2^29, or, with costs that are never negative, where the last exponent is far from saturation.
  [[nodiscard]] __device__ bool certified(double log2_z) const {
    const float largest = Source::largest_cost(result->range_bits, params);
    if (!(largest < 4194304.0f)) return false;
    constexpr double kSafe = 1 << 29;
    return (static_cast<double>(pair.n) + pair.m) * largest < kSafe || (!params.cost && log2_z > -kSafe);
  }

  __device__ void fill(In* out, int rows, int columns, int true_rows, int true_columns) const {
    const bool whole = !result->usable;
    if (!out || (!whole && rows == true_rows && columns == true_columns)) return;
    const In inside = result->range_bits.x != 0 ? static_cast<In>(CUDART_NAN) : In(0);
    const std::size_t size = static_cast<std::size_t>(rows) * columns;
    for (std::size_t k = warp * 32 + lane; k < size; k += warps * 32) {
      const bool is_inside =
          static_cast<int>(k / columns) < true_rows && static_cast<int>(k % columns) < true_columns;
      if (!is_inside || whole) out[k] = is_inside ? inside : In(0);
    }
  }

  unsigned char* queues_;  // of the pair's warps, each towards the next one
  cuda::Barrier* barriers_;
};

}  // namespace warpalign::softdtw
