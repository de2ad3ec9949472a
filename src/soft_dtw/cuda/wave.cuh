// One warp's place in the wavefront: its strip of a pair, its queues to the neighbouring strips, its part of
// the scratch, and what the blocks of a pair tell each other.
#pragma once

#include <math_constants.h>

#include "cuda/channel.cuh"
#include "cuda/remote.cuh"
#include "soft_dtw/cuda/group.cuh"
#include "soft_dtw/cuda/params.cuh"

namespace warpalign::softdtw {

static_assert(kChannelGroups == cuda::kChannelGroups && kChannelBarriers == cuda::Channel::kBarriers);

// What is known of a pair in flight. Counters and bits start at -1.
template <class Cell>
struct PairRecord {
  typename Cell::State last;  // Z[n-1, m-1]
  int range_bits[2];          // maxima of the source's range_bits over the strips
  int done;                   // panels whose forward sweep is over
  int usable;  // 1: the value is right, the reverse sweep may run; 0: it is not; -1: not known yet
};
static_assert(sizeof(PairRecord<Cell32>) <= kRecordBytes && sizeof(PairRecord<Cell64>) <= kRecordBytes);

template <class Cell_, class In_, class Source_>
struct Wave {
  using Cell = Cell_;
  using In = In_;
  using Source = Source_;
  using Real = typename Cell::Real;
  using State = typename Cell::State;
  using Record = PairRecord<Cell>;
  static constexpr int W = Source::kColumns;
  // Reals per row that a strip sends to the one on its left: E, and partial sums of grad_x where the source
  // carries them.
  static constexpr int kFlow = 1 + Source::kCarried;
  static constexpr CellSizes kSizes{sizeof(State), sizeof(Real)};
  static constexpr int kQueueBytes = queue_bytes(Source::kCarried, kSizes);
  static constexpr int kStateUnits = kGroup * sizeof(State) / 8;  // of a group, in 8-byte words
  static constexpr int kFlowUnits = kGroup * kFlow * sizeof(Real) / 8;

  const Params<In>& params;
  const int lane;
  const int
      role;  // 0: the wavefront itself; others: the source's helpers, each for the strip of the same place
  const int slot;  // of the pair within the block
  const int warp;  // of the strip within the panel
  unsigned char* source_memory;
  State* phase_states;  // [segment][W + 1][32]: lane states at the start of each group of the segment in work
  State* phase_border;  // [segment * kGroup]: the column on the left, for the same groups
  // Of the task in work.
  Record* record;
  Pair<In> pair;
  int strip;
  int strips;
  int groups;
  int shift;  // rows

  __device__ Wave(const Params<In>& p, unsigned char* shared)
      : params(p),
        lane(threadIdx.x % 32),
        role(threadIdx.x / 32 / (p.layout.warps * p.layout.pairs_per_block)),
        slot(threadIdx.x / 32 / p.layout.warps % p.layout.pairs_per_block),
        warp(threadIdx.x / 32 % p.layout.warps) {
    const int warps = p.layout.warps * p.layout.pairs_per_block;
    const int index = slot * p.layout.warps + warp;
    constexpr int segment = Source::kSegment;
    source_memory = shared + index * Source::kWarpBytes;
    unsigned char* next = shared + warps * Source::kWarpBytes;
    phase_states = reinterpret_cast<State*>(next) + index * segment * (W + 1) * 32;
    next += warps * segment * (W + 1) * 32 * sizeof(State);
    phase_border = reinterpret_cast<State*>(next) + index * segment * kGroup;
    next += warps * segment * kGroup * sizeof(State);
    queue_ = next + index * (kChannelGroups + 1) * kQueueBytes;
    next += warps * (kChannelGroups + 1) * kQueueBytes;
    barriers_ = reinterpret_cast<cuda::Barrier*>(next) + index * kChannelBarriers;
    if (role != 0) return;
    if (lane < kChannelBarriers) cuda::barrier_init(barriers_ + lane);
    Source::init(source_memory, lane);
  }

  // index: of the pair in the scratch.
  __device__ void begin_pair(int b, int index) {
    pair = pair_at(params, b);
    strips = strips_of(pair.m, W);
    groups = groups_of(pair.n);
    const Layout& l = params.layout;
    record = reinterpret_cast<Record*>(params.scratch + kHeaderBytes + index * kRecordBytes);
    unsigned char* columns = params.scratch + l.columns + index * l.column_bytes;
    borders_ = reinterpret_cast<State*>(columns);
    flows_ = reinterpret_cast<Real*>(columns + l.flow);
    rows_done_ = reinterpret_cast<int*>(columns + l.rows_done);
    states_ = reinterpret_cast<State*>(params.scratch + l.states + index * l.state_bytes);
  }
  __device__ void begin_panel(int panel) {
    strip = panel * params.layout.warps + warp;
    shift = row_shift(strip);
    if (role == 0 && lane < kChannelBarriers) cuda::barrier_reset(barriers_ + lane);
  }

  [[nodiscard]] __device__ bool active() const { return strip < strips; }
  [[nodiscard]] __device__ bool has_left() const { return strip > 0; }
  [[nodiscard]] __device__ bool has_right() const { return strip + 1 < strips; }
  // Neighbours in another panel are reached through global memory.
  [[nodiscard]] __device__ bool left_is_remote() const { return warp == 0; }
  [[nodiscard]] __device__ bool right_is_remote() const { return warp + 1 == params.layout.warps; }
  [[nodiscard]] __device__ int row(int group, int q) const { return group * kGroup + q - shift - lane; }

  // Channels hold what a warp sends: to the right in the forward sweep, to the left in the reverse one.
  [[nodiscard]] __device__ cuda::Channel own_channel() const { return cuda::Channel(barriers_); }
  [[nodiscard]] __device__ cuda::Channel channel_of(int neighbour) const {
    return cuda::Channel(barriers_ + neighbour * kChannelBarriers);
  }
  template <class T>
  [[nodiscard]] __device__ T* slot_of(int neighbour, int index) const {
    return reinterpret_cast<T*>(queue_ +
                                (neighbour * (kChannelGroups + 1) + index % kChannelGroups) * kQueueBytes);
  }
  // Where what comes from another panel is put down.
  template <class T>
  [[nodiscard]] __device__ T* inbox() const {
    return reinterpret_cast<T*>(queue_ + kChannelGroups * kQueueBytes);
  }

  // The last column of a strip, in the next strip's groups of rows.
  [[nodiscard]] __device__ State* border_column(int of_strip, bool all_kept) const {
    const std::size_t index = all_kept ? of_strip : of_strip / params.layout.warps;
    return borders_ + index * params.layout.groups * kGroup;
  }
  // What the first strip of a panel sends to the panel on its left.
  [[nodiscard]] __device__ Real* flow_column(int of_strip) const {
    const std::size_t index = of_strip / params.layout.warps - 1;
    return flows_ + index * params.layout.groups * kGroup * kFlow;
  }
  // Progress of the first strip of a panel on grad_x, where strips add to it one after the other.
  [[nodiscard]] __device__ int* rows_done_of(int of_strip, int helper) const {
    return rows_done_ + of_strip / params.layout.warps * Source::kRoles + helper;
  }
  [[nodiscard]] __device__ State* kept(int segment) const {
    const std::size_t segments = div_up(params.layout.groups, Source::kSegment);
    return states_ + (strip * segments + segment) * ((W + 1) * 32) + lane;
  }

  __device__ __forceinline__ void store(State* to, const Lane<Cell, W>& z) const {
#pragma unroll
    for (int k = 0; k < W; ++k) to[k * 32] = z.above[k];
    to[W * 32] = z.corner;
  }
  __device__ __forceinline__ void load(const State* from, Lane<Cell, W>& z) const {
#pragma unroll
    for (int k = 0; k < W; ++k) z.above[k] = from[k * 32];
    z.corner = from[W * 32];
  }

  __device__ void clear_record() const { *record = {Cell::dead(), {-1, -1}, -1, -1}; }

  __device__ void note_range(int2 bits) const {
    atomicMax(&record->range_bits[0], bits.x);
    atomicMax(&record->range_bits[1], bits.y);
  }

  // By one thread, when all of the pair's forward sweep is over. Cell32: is the value certain to be right?
  __device__ __forceinline__ int finish_forward() const {
    const auto* r = const_cast<const volatile Record*>(record);
    const State last{r->last.mantissa, r->last.exponent};
    const int2 bits{r->range_bits[0], r->range_bits[1]};
    const double log2_z = Cell::log2_of(last);
    double value = -log2_z / params.scale;
    bool usable;
    if constexpr (sizeof(Real) == 4) {
      usable = certified(log2_z, bits);
      params.uncertified[pair.index] = !usable;
    } else {
      const bool reachable = log2_z > -1e298;
      usable = bits.x <= 0 && reachable;
      if (!reachable) value = CUDART_INF;
      if (bits.x > 0) value = CUDART_NAN;
    }
    if (usable || sizeof(Real) == 8) params.value[pair.index] = static_cast<In>(value);
    return usable;
  }

  // Zeros behind the true lengths; where there is no gradient, what stands in for it: NaN, or 0 if no path is
  // finite.
  __device__ void fill_outside(bool usable) const {
    fill(pair.grad_x, params.n, params.dim, pair.n, params.dim, usable);
    fill(pair.grad_y, params.m, params.dim, pair.m, params.dim, usable);
    fill(pair.alignment, params.n, params.m, pair.n, pair.m, usable);
  }

 private:
  // |c| < 2^22 keeps the cost's rounding exact. Saturated exponents do not matter where the whole range of R
  // stays below 2^29, or, with costs that are never negative, where the last exponent is far from saturation.
  [[nodiscard]] __device__ bool certified(double log2_z, int2 bits) const {
    const float largest = Source::largest_cost(bits, params);
    if (!(largest < 4194304.0f)) return false;
    constexpr double kSafe = 1 << 29;
    return (static_cast<double>(pair.n) + pair.m) * largest < kSafe || (!params.cost && log2_z > -kSafe);
  }

  __device__ __forceinline__ void fill(In* out, int rows, int columns, int true_rows, int true_columns,
                                       bool usable) const {
    if (!out || (usable && rows == true_rows && columns == true_columns)) return;
    const In inside =
        const_cast<const volatile Record*>(record)->range_bits[0] > 0 ? static_cast<In>(CUDART_NAN) : In(0);
    const std::size_t size = static_cast<std::size_t>(rows) * columns;
    const int threads = params.layout.warps * Source::kRoles * 32;
    for (std::size_t k = (role * params.layout.warps + warp) * 32 + lane; k < size; k += threads) {
      const bool is_inside =
          static_cast<int>(k / columns) < true_rows && static_cast<int>(k % columns) < true_columns;
      if (!is_inside || !usable) out[k] = is_inside ? inside : In(0);
    }
  }

  unsigned char* queue_;  // of this warp; those of the others of the panel beside it
  cuda::Barrier* barriers_;
  State* borders_;
  Real* flows_;
  int* rows_done_;
  State* states_;
};

}  // namespace warpalign::softdtw
