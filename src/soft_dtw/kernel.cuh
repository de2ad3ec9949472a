// The soft-DTW wavefront: one block works through pairs of the batch, one warp through strips of a pair's
// columns.
//
// Forward: at step s lane t computes row i = s - t of its W columns,
//   Z[i,j] = 2^-c[i,j] (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]),   0 <= i < n, 0 <= j < m,   Z[-1,-1] = 1,
// where Z[i,j-1] comes from lane t - 1 by a shuffle, or for lane 0 from the strip on the left through a
// channel in shared memory. Rows outside [0, n) are computed too: before row 0 everything is out of reach and
// stays so, and what lies behind row n - 1 reaches nothing, so that no step needs a branch.
//
// Gradient: the forward keeps every strip's last column and the lanes' states every kPhase steps. The reverse
// sweep takes phases from the last to the first, recomputes one from its state with the transition weights p,
// and sweeps it:
//   E[n-1,m-1] = 1,   E[i,j] = p_up[i+1,j] E[i+1,j] + p_left[i,j+1] E[i,j+1] + p_diagonal[i+1,j+1]
//   E[i+1,j+1].
// The weights lie in [0, 1] and sum to 1: no logarithm and no overflow for any gamma. Nothing of size N M is
// stored. A finished tile of E takes the place of its costs and is turned into input gradients by tile.cuh.
#pragma once

#include <math_constants.h>

#include "cuda/channel.cuh"
#include "soft_dtw/tile.cuh"

namespace warpalign::softdtw {

// What the warps of a pair tell each other at the end of the forward sweep.
template <class Cell>
struct PairResult {
  typename Cell::State last;  // Z[n-1, m-1]
  int range_bits;             // maximum of CostRange over the warps
  int usable;                 // the value is right: the reverse sweep may run
};

static_assert(kChannelRows == cuda::kChannelGroups * kGroup && kChannelBarriers == cuda::Channel::kBarriers);

// Where the last warp of a pair hands over to the first one, which works on the next round of strips.
struct WrapCounters {
  int forward;
  int reverse;
};

template <class Cell, class In, int W>
class Wavefront {
  using Real = typename Cell::Real;
  using State = typename Cell::State;

 public:
  __device__ Wavefront(const Params<In>& params, unsigned char* shared)
      : p_(params),
        lane_(threadIdx.x % 32),
        warps_(params.shape.warps_per_pair),
        warp_(threadIdx.x / 32 % warps_) {
    const int slot = threadIdx.x / 32 / warps_;
    const int total_warps = warps_ * p_.shape.pairs_per_block;
    const int first_warp = slot * warps_;
    auto* rings = reinterpret_cast<Real*>(shared);
    auto* queues = reinterpret_cast<State*>(rings + total_warps * kRingRows * 32 * W);
    auto* results = reinterpret_cast<PairResult<Cell>*>(queues + total_warps * kChannelRows);
    ring_ = rings + (first_warp + warp_) * kRingRows * 32 * W;
    queues_ = queues + first_warp * kChannelRows;
    result_ = results + slot;
    barriers_ =
        reinterpret_cast<cuda::Barrier*>(results + p_.shape.pairs_per_block) + first_warp * kChannelBarriers;
    if (lane_ < kChannelBarriers) cuda::barrier_init(barriers_ + warp_ * kChannelBarriers + lane_);
    unsigned char* scratch =
        p_.scratch +
        (static_cast<std::size_t>(blockIdx.x) * p_.shape.pairs_per_block + slot) * p_.shape.scratch;
    wrap_ = p_.shape.borders > 0 ? reinterpret_cast<WrapCounters*>(scratch) : nullptr;
    borders_ = reinterpret_cast<State*>(scratch + p_.shape.borders);
    states_ = reinterpret_cast<State*>(scratch + p_.shape.states);
    flow_ = reinterpret_cast<Real*>(scratch + p_.shape.flow);
  }

  __device__ void start_pair(int b) {
    pair_ = pair_at(p_, b);
    strips_ = strips_of(pair_.m, W);
    phases_ = phases_of(pair_.n);
    groups_ = phases_ * (kPhase / kGroup);
    reset_channels();
    for (int k = lane_; k < kChannelRows; k += 32) queue(warp_)[k] = Cell::dead();
    if (warp_ == 0 && lane_ == 0) {
      result_->range_bits = 0;
      result_->usable = 0;
      if (wrap_) *wrap_ = {0, 0};
    }
  }

  __device__ void reset_channels() {
    if (lane_ < kChannelBarriers) cuda::barrier_reset(barriers_ + warp_ * kChannelBarriers + lane_);
  }

  template <bool kKeep>
  __device__ void forward() {
    CostRange<Cell> range;
    for (int strip = warp_, base = 0; strip < strips_; strip += warps_, base += groups_) {
      forward_strip<kKeep>(strip, base, range);
    }
    atomicMax(&result_->range_bits, range.bits);
  }

  // By one thread of the pair, after all its warps have ended forward(). Cell32: is the value certain to be
  // right?
  __device__ void finish_forward() {
    const double log2_z = Cell::log2_of(result_->last);
    double value = -log2_z / p_.scale;
    bool usable;
    if constexpr (sizeof(Real) == 4) {
      usable = certified(log2_z);
      p_.uncertified[pair_.index] = !usable;
    } else {
      const bool reachable = log2_z > -1e298;
      usable = result_->range_bits == 0 && reachable;
      if (!reachable) value = CUDART_INF;
      if (result_->range_bits != 0) value = CUDART_NAN;
    }
    result_->usable = usable;
    if (usable || sizeof(Real) == 8) p_.value[pair_.index] = static_cast<In>(value);
  }

  [[nodiscard]] __device__ bool usable() const { return result_->usable; }

  // Zeros behind the true lengths; where there is no gradient, what stands in for it: NaN, or 0 if no path is
  // finite.
  __device__ void fill_outside() {
    const bool whole = !usable();
    const In inside = result_->range_bits != 0 ? static_cast<In>(CUDART_NAN) : In(0);
    fill(pair_.grad_x, p_.n, p_.dim, pair_.n, p_.dim, whole, inside);
    fill(pair_.grad_y, p_.m, p_.dim, pair_.m, p_.dim, whole, inside);
    fill(pair_.alignment, p_.n, p_.m, pair_.n, pair_.m, whole, inside);
  }

  __device__ void reverse() {
    const int groups = groups_ + 1;  // the last one says that the strip is done with grad_x
    for (int order = warp_, base = 0; order < strips_; order += warps_, base += groups) {
      reverse_strip(strips_ - 1 - order, base, groups);
    }
  }

 private:
  // The queue from a warp to the next one: its values and its barriers.
  [[nodiscard]] __device__ State* queue(int warp) const { return queues_ + warp * kChannelRows; }
  [[nodiscard]] __device__ cuda::Channel channel(int warp) const {
    return cuda::Channel(barriers_ + warp * kChannelBarriers);
  }

  // |c| < 2^22 keeps the cost's rounding exact. Saturated exponents do not matter where the whole range of R
  // stays below 2^29, or, with costs that are never negative, where the last exponent is far from saturation.
  [[nodiscard]] __device__ bool certified(double log2_z) const {
    const float largest = __int_as_float(result_->range_bits);
    if (!(largest < 4194304.0f)) return false;
    constexpr double kSafe = 1 << 29;
    return (static_cast<double>(pair_.n) + pair_.m) * largest < kSafe || (!p_.cost && log2_z > -kSafe);
  }

  __device__ void fill(In* out, int rows, int columns, int true_rows, int true_columns, bool whole,
                       In inside) {
    if (!out || (!whole && rows == true_rows && columns == true_columns)) return;
    const std::size_t size = static_cast<std::size_t>(rows) * columns;
    for (std::size_t k = warp_ * 32 + lane_; k < size; k += warps_ * 32) {
      const bool is_inside =
          static_cast<int>(k / columns) < true_rows && static_cast<int>(k % columns) < true_columns;
      if (!is_inside || whole) out[k] = is_inside ? inside : In(0);
    }
  }

  // Costs of this lane's row and columns, or the place of its E. row0 is the ring row of this lane at the
  // phase's start.
  [[nodiscard]] __device__ __forceinline__ Real* cells(int row0, int q) const {
    int row = row0 + q;
    row = row >= kRingRows ? row - kRingRows : row;
    return ring_ + row * 32 * W + lane_ * W;
  }

  // One step of the wavefront. border: Z[i, first column - 1] for lane 0.
  template <bool kWantWeights>
  __device__ __forceinline__ void step(const Real* cost, State border, State (&above)[W], State& diagonal,
                                       Weights<Real>* weights) {
    State left = Cell::shuffle_up(above[W - 1]);
    left = lane_ == 0 ? border : left;
    State corner = diagonal;
    diagonal = left;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const State here = Cell::template advance<kWantWeights>(cost[k], above[k], left, corner, weights + k);
      corner = above[k];
      above[k] = here;
      left = here;
    }
  }

  // Rows of group g are g * kGroup + [0, kGroup). Lane 31 lags by 31 rows, so that with its group j the rows
  // of group j - kLag are complete, and the first row of the group behind that.
  static constexpr int kLag = 4;
  static_assert(kLag * kGroup == 32);

  // base: number of the strip's first group, in the counting of this warp's channels.
  template <bool kKeep>
  __device__ void forward_strip(int strip, int base, CostRange<Cell>& range) {
    const int n = pair_.n;
    const int column0 = strip * 32 * W;
    const bool has_left = strip > 0;
    const bool has_right = strip + 1 < strips_;
    const bool left_wraps = has_left && warp_ == 0;
    const bool right_wraps = has_right && warp_ + 1 == warps_;
    const bool right_in_block = has_right && !right_wraps;
    const State* left_column = borders_ + (kKeep ? static_cast<std::size_t>(strip - 1) * p_.n : 0);
    State* column = borders_ + (kKeep ? static_cast<std::size_t>(strip) * p_.n : 0);

    const int last_column = pair_.m - 1 - column0;  // within the strip, if it is the last one
    const int result_step = !has_right && last_column / W == lane_ ? n - 1 + lane_ : -1;

    State above[W];
#pragma unroll
    for (int k = 0; k < W; ++k) above[k] = Cell::dead();
    State diagonal = strip == 0 && lane_ == 0 ? Cell::one() : Cell::dead();

    cost_tile<Cell, In, W>(p_, pair_, -2 * kPhase, column0, lane_, ring_, range);
    cost_tile<Cell, In, W>(p_, pair_, -kPhase, column0, lane_, ring_, range);
    for (int group = 0; group < groups_; ++group) {
      const int s0 = group * kGroup;
      if (s0 % kPhase == 0) {
        __syncwarp();
        if (s0 < n) cost_tile<Cell, In, W>(p_, pair_, s0, column0, lane_, ring_, range);
        __syncwarp();
        if (kKeep) save(strip, s0 / kPhase, above, diagonal);
      }
      State border[kGroup];
      receive_border(left_column, has_left, left_wraps, base, group, border);
      const int row0 = ring_row(s0 - lane_);
      State out[kGroup];
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        step<false>(cells(row0, q), border[q], above, diagonal, nullptr);
        out[q] = above[W - 1];
        if (s0 + q == result_step) {
#pragma unroll
          for (int k = 0; k < W; ++k) {
            if (k == last_column % W) result_->last = above[k];
          }
        }
      }
      const int row = s0 - 31;  // of lane 31
      if (right_in_block && group >= kLag - 1) channel(warp_).reserve(base + group - (kLag - 1));
      if (lane_ == 31 && has_right) {
#pragma unroll
        for (int q = 0; q < kGroup; ++q) {
          if (row + q < 0) continue;
          if (right_in_block) queue(warp_)[(base * kGroup + row + q) % kChannelRows] = out[q];
          if ((kKeep || right_wraps) && row + q < n) column[row + q] = out[q];
        }
        if (group >= kLag) publish_forward(right_wraps, base + group - kLag);
      }
    }
    if (!has_right) return;
    for (int group = groups_ - kLag; group < groups_; ++group) {
      if (right_in_block) channel(warp_).reserve(base + group + 1);
      if (lane_ == 31) publish_forward(right_wraps, base + group);
    }
  }

  __device__ __forceinline__ void publish_forward(bool wraps, int group) {
    if (wraps) {
      cuda::publish_count(&wrap_->forward, group + 1);
    } else {
      channel(warp_).publish(group);
    }
  }

  // Z of the column left of the strip, for lane 0.
  __device__ __forceinline__ void receive_border(const State* left_column, bool has_left, bool left_wraps,
                                                 int base, int group, State (&border)[kGroup]) {
    const cuda::Channel from = channel(warp_ - 1);
    if (left_wraps) {
      cuda::await_count(&wrap_->forward, base - groups_ + group + 1);
    } else if (has_left) {
      from.receive(base + group);
    }
    const int row = group * kGroup;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      border[q] = Cell::dead();
      if (has_left && lane_ == 0) {
        border[q] = left_wraps ? left_column[min(row + q, pair_.n - 1)]
                               : queue(warp_ - 1)[(base * kGroup + row + q) % kChannelRows];
      }
    }
    if (has_left && !left_wraps && lane_ == 0) from.release(base + group);
  }

  [[nodiscard]] __device__ State* state_at(int strip, int phase) const {
    return states_ + (static_cast<std::size_t>(strip) * phases_ + phase) * (W + 1) * 32 + lane_;
  }

  __device__ void save(int strip, int phase, const State (&above)[W], State diagonal) {
    State* state = state_at(strip, phase);
#pragma unroll
    for (int k = 0; k < W; ++k) state[k * 32] = above[k];
    state[W * 32] = diagonal;
  }

  // Weights of one phase's cells, recomputed from its kept state.
  __device__ __forceinline__ void recompute(int strip, int phase, int row0,
                                            Weights<Real> (&weights)[kPhase][W]) {
    const State* state = state_at(strip, phase);
    State above[W];
#pragma unroll
    for (int k = 0; k < W; ++k) above[k] = state[k * 32];
    State diagonal = state[W * 32];
    const State* left_column = borders_ + static_cast<std::size_t>(strip - 1) * p_.n;
#pragma unroll
    for (int group = 0; group < kPhase; group += kGroup) {
      State border[kGroup];
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        border[q] = Cell::dead();
        if (strip > 0 && lane_ == 0) border[q] = left_column[min(phase * kPhase + group + q, pair_.n - 1)];
      }
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        step<true>(cells(row0, group + q), border[q], above, diagonal, weights[group + q]);
      }
    }
  }

  // E on its way through a lane: what row i + 1 sends up to row i of each column, and diagonally to the
  // column before; sideways is what goes to the lane before, for the row that it is about to compute.
  struct Flow {
    Real up[W] = {};
    Real diagonal[W] = {};
    Real sideways = 0;
  };

  __device__ __forceinline__ void sweep_step(Flow& flow, Real from_right, const Weights<Real> (&weights)[W],
                                             const Real (&inject)[W], bool inject_now, Real* e_out) {
    Real incoming = __shfl_down_sync(cuda::kFullWarp, flow.sideways, 1);
    incoming = lane_ == 31 ? from_right : incoming;
#pragma unroll
    for (int k = W - 1; k >= 0; --k) {
      Real e = flow.up[k] + incoming;
      if (inject_now) e += inject[k];
      const Real e_up = e * weights[k].up;
      const Real e_left = e * weights[k].left;
      flow.up[k] = e_up;
      incoming = e_left + flow.diagonal[k];
      flow.diagonal[k] = e - e_up - e_left;
      e_out[k] = e;
    }
    flow.sideways = incoming;
  }

  // Groups are counted in the order of the sweep: group j holds rows (groups_ - 1 - j) * kGroup + [0,
  // kGroup).
  __device__ void reverse_strip(int strip, int base, int groups_per_strip) {
    const int column0 = strip * 32 * W;
    const bool has_left = strip > 0;
    const bool has_right = strip + 1 < strips_;
    const bool right_wraps = has_right && warp_ == 0;
    const bool left_wraps = has_left && warp_ + 1 == warps_;
    const int right_base = right_wraps ? base - groups_per_strip : base;

    const int last_column = pair_.m - 1 - column0;
    const int inject_step = !has_right && last_column / W == lane_ ? pair_.n - 1 + lane_ : -1;
    Real inject[W];
#pragma unroll
    for (int k = 0; k < W; ++k) inject[k] = Real(k == last_column % W);

    CostRange<Cell> unused;
    const int top = (phases_ - 1) * kPhase;
    __syncwarp();
    cost_tile<Cell, In, W>(p_, pair_, top, column0, lane_, ring_, unused);
    cost_tile<Cell, In, W>(p_, pair_, top - kPhase, column0, lane_, ring_, unused);
    Flow flow;
    for (int phase = phases_ - 1; phase >= 0; --phase) {
      const int start = phase * kPhase;
      cost_tile<Cell, In, W>(p_, pair_, start - 2 * kPhase, column0, lane_, ring_, unused);
      __syncwarp();
      const int row0 = ring_row(start - lane_);
      Weights<Real> weights[kPhase][W];
      recompute(strip, phase, row0, weights);
#pragma unroll
      for (int offset = kPhase - kGroup; offset >= 0; offset -= kGroup) {
        const int s0 = start + offset;
        const int group = groups_ - 1 - s0 / kGroup;
        Real from_right[kGroup] = {};
        if (has_right) receive_flow(right_wraps, right_base, group, s0 - 31, from_right);
        Real out[kGroup];
#pragma unroll
        for (int q = kGroup - 1; q >= 0; --q) {
          sweep_step(flow, from_right[q], weights[offset + q], inject, s0 + q == inject_step,
                     cells(row0, offset + q));
          out[q] = flow.sideways;
        }
        if (!has_left) continue;
        Real* to = left_wraps ? flow_ + s0 : flow_queue(warp_, base + group);
        if (!left_wraps) channel(warp_).reserve(base + group);
        if (lane_ == 0) {
#pragma unroll
          for (int q = 0; q < kGroup; ++q) to[q] = out[q];
          publish_reverse(left_wraps, base + group);
        }
      }
      __syncwarp();
      // Strips add to grad_x in order, from the right-most to the left-most: the same bits every time. What
      // the strip on the right has sent so far shows that it is done with this tile, but for the last one.
      if (phase == 0 && has_right) receive_done(right_wraps, right_base + groups_);
      if (start < pair_.n) consume_tile(start, column0, !has_right, start + kPhase >= pair_.n);
      __syncwarp();
    }
    if (!has_left) return;
    if (!left_wraps) channel(warp_).reserve(base + groups_);
    if (lane_ == 0) publish_reverse(left_wraps, base + groups_);
  }

  __device__ __forceinline__ void publish_reverse(bool wraps, int group) {
    if (wraps) {
      cuda::publish_count(&wrap_->reverse, group + 1);
    } else {
      channel(warp_).publish(group);
    }
  }

  [[nodiscard]] __device__ Real* flow_queue(int warp, int group) const {
    return reinterpret_cast<Real*>(queue(warp)) + group % cuda::kChannelGroups * kGroup;
  }

  // Flow into the strip's last column, for lane 31, which at this group needs rows row + [0, kGroup): all of
  // them but the last from group + kLag, where they start at the second, the last from the group before that.
  __device__ __forceinline__ void receive_flow(bool wraps, int base, int group, int row,
                                               Real (&from_right)[kGroup]) {
    const cuda::Channel from = channel(warp_ - 1);
    const int newest = group + kLag;
    const auto receive = [&](int g) {
      if (wraps) {
        cuda::await_count(&wrap_->reverse, base + g + 1);
      } else {
        from.receive(base + g);
      }
    };
    if (group == 0) receive(kLag - 1);
    if (newest < groups_) receive(newest);
    if (lane_ == 31) {
      const Real* first = wraps ? flow_ + row - 1 : flow_queue(warp_ - 1, base + newest);
      const Real* last = wraps ? flow_ + row + kGroup - 1 : flow_queue(warp_ - 1, base + newest - 1);
#pragma unroll
      for (int q = 0; q + 1 < kGroup; ++q) {
        if (row >= 0) from_right[q] = first[q + 1];
      }
      if (row + kGroup - 1 >= 0) from_right[kGroup - 1] = *last;
    }
    if (wraps || lane_ != 31) return;
    if (group == 0) {
      for (int g = 0; g < kLag - 1; ++g) from.release(base + g);
    }
    if (newest <= groups_) from.release(base + newest - 1);
  }

  __device__ void receive_done(bool wraps, int group) {
    if (wraps) {
      cuda::await_count(&wrap_->reverse, group + 1);
      return;
    }
    channel(warp_ - 1).receive(group);
    if (lane_ == 31) channel(warp_ - 1).release(group);
  }

  __device__ void consume_tile(int start, int column0, bool first_strip, bool first_tile) {
    const Real* tile = ring_ + ring_row(start) * 32 * W;
    if (pair_.alignment) store_alignment<Real, In, W>(p_, pair_, start, column0, lane_, tile);
    if (!pair_.grad_x && !pair_.grad_y) return;
    if (p_.dim <= kFewFeatures) {
      gradient_by_column<Cell, In, W>(p_, pair_, start, column0, lane_, tile, first_strip, first_tile);
    } else {
      gradient_by_feature<Cell, In, W>(p_, pair_, start, column0, lane_, tile, first_strip, first_tile);
    }
  }

  const Params<In>& p_;
  const int lane_;
  const int warps_;  // per pair
  const int warp_;   // within the pair
  Real* ring_;       // this warp's tiles
  State* queues_;    // of the pair's warps, each towards the next one
  cuda::Barrier* barriers_;
  PairResult<Cell>* result_;
  WrapCounters* wrap_;
  State* borders_;
  State* states_;
  Real* flow_;
  Pair<In> pair_;
  int strips_;
  int phases_;
  int groups_;
};

// Registers for a whole phase of weights: wider lanes and wider reals leave room for fewer warps.
template <class Cell, int W>
constexpr int max_warps() {
  return kMaxWarps / (sizeof(typename Cell::Real) / 4 * W);
}

template <class Cell, class In, int W, bool kGradient>
__global__ void __launch_bounds__((32 * max_warps<Cell, W>()))
    soft_dtw_kernel(const __grid_constant__ Params<In> p) {
  extern __shared__ __align__(16) unsigned char shared[];
  Wavefront<Cell, In, W> wave(p, shared);
  const int slot = threadIdx.x / 32 / p.shape.warps_per_pair;
  const bool leader = threadIdx.x % (32 * p.shape.warps_per_pair) == 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * p.shape.pairs_per_block;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * p.shape.pairs_per_block; first < p.batch;
       first += stride) {
    const std::int64_t b = first + slot;
    const bool rerun = sizeof(typename Cell::Real) == 8 && p.uncertified;
    const bool active = b < p.batch && (!rerun || p.uncertified[b]);
    if (active) wave.start_pair(static_cast<int>(b));
    __syncthreads();
    if (active) wave.template forward<kGradient>();
    __syncthreads();
    if (active && leader) wave.finish_forward();
    if constexpr (kGradient) {
      if (active) wave.reset_channels();
      __syncthreads();
      if (active) wave.fill_outside();
      if (active && wave.usable()) wave.reverse();
    }
    __syncthreads();
  }
}

}  // namespace warpalign::softdtw
