// The source of costs, and the consumer of E, for series of at most F features. A lane owns W columns of y,
// in registers. The rows of x that the warp's lanes work on are in shared memory.
//
// A lane sums grad_y of its columns in registers over the whole strip. grad_x[i] = 2 sum_j E[i,j] (x[i] -
// y[j]) is summed along the row, as E is: from lane to lane, and from strip to strip through the channel. The
// left-most strip writes the complete sum. With a band, the strip with the row's first cell in the band
// writes it.
//
// With options, a lane stores the range of rows for which its columns are in the band. A missing step is NaN
// in registers and shared memory, so that its costs are NaN, which cost() replaces by 0.
//
// W: columns of a lane. F: features. kMeets: sweeps may start from both ends of a pair. kHelpers: warps that
// recompute ahead of the wave in the reverse sweep.
#pragma once

#include "soft_dtw/cuda/results/cost_range.cuh"
#include "soft_dtw/cuda/sweep/band_steps.cuh"
#include "soft_dtw/cuda/sweep/recompute.cuh"
#include "soft_dtw/cuda/tiles/metric.cuh"

namespace warpalign::detail::soft_dtw {

template <class Cell, class In_, int W, int F, Options kOptions_, bool kMeets_ = false, int kHelpers_ = 0>
class FewFeatures {
  using In = In_;
  using Real = typename Cell::Real;
  using Wave = soft_dtw::Wave<Cell, In, FewFeatures>;

 public:
  static constexpr int kColumns = W;
  static constexpr int kCarried = F;
  static constexpr int kFeatures = F;
  static constexpr CostSource kSource = CostSource::kFewFeatures;
  static constexpr int kSegment = 8;
  static constexpr int kHelpers = kHelpers_;
  static constexpr int kRoles = 1 + kHelpers;
  static_assert(kHelpers <= 2);
  static constexpr CrewKind kCrew = kHelpers == 0   ? CrewKind::kNone
                                    : kHelpers == 1 ? CrewKind::kOneHelper
                                                    : CrewKind::kTwoHelpers;
  static constexpr bool kTakesWeights = kHelpers > 0;  // weights come from other warps
  static constexpr int kPhases = kTakesWeights ? kHelpers : 1;
  static constexpr int kStartsInWork = kSegment;
  static constexpr bool kHasGradient = W <= 2;
  static constexpr Options kOptions = kOptions_;
  static constexpr bool kMeets = kMeets_;

 private:
  static constexpr bool kPaths = kOptions != Options::kNone;
  static constexpr bool kAll = kOptions == Options::kAll;
  static constexpr int kBlock = kSegment * kGroup;
  static constexpr int kRows =
      2 * kBlock;  // rows of x in shared memory, followed by a copy of the first kGroup rows
  using Queue = WeightQueue<Real, W>;
  static constexpr int kRingBytes = (kRows + kGroup) * F * sizeof(Real);  // of each role
  static_assert(kRingBytes % 16 == 0);

 public:
  static constexpr int kWarpBytes = kRoles * kRingBytes + kHelpers * static_cast<int>(sizeof(Queue));
  static constexpr int kLeastWarpBytes = kWarpBytes;
  static __device__ __forceinline__ constexpr int warp_bytes(const Params&) { return kWarpBytes; }

  __device__ explicit FewFeatures(const Wave& w)
      : w_(w),
        p_(w.params),
        scale_(static_cast<Real>(w.pair.scale)),
        ring_(reinterpret_cast<Real*>(w.source_memory + w.role * kRingBytes)),
        is_norm_(kAll && F > 1 && p_.metric == Metric::kNorm),
        distance_(kAll ? metric() : Metric::kSquared),
        slope_(kAll ? metric() : Metric::kSquared) {}

  // The largest distances of x and of y from y[0], as bits. They bound every cost. The last strip, which
  // waits longest for its first group, computes that of x.
  [[nodiscard]] __device__ int2 range_bits() const { return {x_reach_, y_reach_}; }
  static __device__ float largest_cost(const Params& p, int2 bits, double scale) {
    const float reach = __int_as_float(max(bits.x, 0)) + __int_as_float(max(bits.y, 0));
    float cost = p.dim * reach * reach;
    if (kAll && p.metric == Metric::kNorm) cost = sqrt(cost);
    if (kAll && (p.metric == Metric::kAbsolute || p.metric == Metric::kHuber)) cost = p.dim * reach;
    return cost * static_cast<float>(scale);
  }

  __device__ void begin_forward() {
    begin_strip();
    x_reach_ = 0;
    y_reach_ = 0;
    if (w_.from_back) return;  // the other sweep computes them
    const In* const first = w_.pair.y + (kAll ? first_present() * p_.y_stride[1] : 0);
#pragma unroll
    for (int f = 0; f < F; ++f) {
      const Real origin = feature(first, p_.y_stride[2], f);
      for (int i = w_.lane; i < w_.pair.n && !w_.has_right(); i += 32) {
        if (kAll && is_missing(p_.x_mask, w_.pair.index, p_.n, i)) continue;
        x_reach_ =
            largest_bits(x_reach_, feature(w_.pair.x + i * p_.x_stride[1], p_.x_stride[2], f) - origin);
      }
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if (kAll && is_missing_column(k)) continue;
        y_reach_ = largest_bits(y_reach_, y_[k][f] - origin);
      }
    }
  }

  // Writes zeros, to which the sweeps that meet add. At most two sweeps add to an element, so that the result
  // does not depend on their order.
  __device__ void clear_gradients() const {
    const auto clear = [&](In* to, int row) {
      for (int f = 0; f < p_.dim; ++f) to[static_cast<std::int64_t>(row) * p_.dim + f] = In(0);
    };
    for (int i = w_.strip * 32 + w_.lane; w_.pair.grad_x && i < w_.pair.n; i += w_.strips * 32) {
      clear(w_.pair.grad_x, i);
    }
    for (int j = column_; w_.pair.grad_y && j < min(column_ + W, w_.pair.m); ++j) clear(w_.pair.grad_y, j);
  }

  __device__ void begin_reverse() {
    begin_strip();
#pragma unroll
    for (int k = 0; k < W; ++k) {
#pragma unroll
      for (int f = 0; f < F; ++f) grad_y_[k][f] = Real(0);
    }
    if constexpr (kPaths) {
      const bool writes = w_.lane == 0 && w_.pair.grad_x;
      const auto before = [&] { return rows_in_band(w_, w_.strip * 32 * W - 1).end; };
      own_rows_ = rows_as_steps(w_, writes && w_.has_left() ? before() : 0, writes ? w_.end_row : 0);
    }
  }

  // A band's first group. Segments are counted from the band's end, so that the reverse sweep begins with a
  // whole segment. It recomputes the states of that segment before it waits for its neighbour.
  static __device__ int first_band_group(int least, int end) {
    return max(end - div_up(end - least, kSegment) * kSegment, 0);
  }
  // The lanes' rows of a segment are in its own block of x and in the block before. Blocks are counted from
  // the first lane's first row. A block is loaded one segment in advance.
  __device__ void begin_forward_segment(int segment) {
    if (segment == 0) {
      Real before[kPerLane];
      ask(-1, before);
      ask(0, ahead_);
      put(-1, before);
    }
    put(segment, ahead_);
    ask(segment + 1, ahead_);
  }
  __device__ void begin_reverse_segment(int segment, bool is_first) {
    if (is_first) {
      Real last[kPerLane];
      ask(segment, last);
      ask(segment - 1, ahead_);
      put(segment, last);
    }
    put(segment - 1, ahead_);
    ask(segment - 2, ahead_);
  }
  __device__ __forceinline__ void begin_forward_group(int group) { begin_group(group); }
  __device__ __forceinline__ void begin_reverse_group(int group) {
    begin_group(group);
    if constexpr (kPaths) {
      writes_ = steps_of_group(own_rows_, group);
      first_row_ = group * kGroup - w_.shift;
    }
  }
  __device__ void end_forward_group(int) const {}
  __device__ void end_reverse_group(int) const {}
  static __device__ void init(const Params&, unsigned char* memory, int lane) {
    for (int h = 0; h < kHelpers; ++h) queue_in(memory, h).init(lane);
  }
  __device__ void begin_panel() const {
    for (int h = 0; h < kHelpers; ++h) queue(h).reset(w_.lane);
  }
  [[nodiscard]] __device__ __forceinline__ Queue& queue(int helper) const {
    return queue_in(w_.source_memory, helper);
  }
  __device__ void help_forward(int) const {}
  __device__ void help_reverse(int helper) {
    if constexpr (kTakesWeights) recompute_strip(w_, *this, queue(helper), helper);
  }
  __device__ void begin_taking(const Recomputation<Wave>&, int order, int segment) {
    begin_reverse_segment(segment, order == 0);
  }
  // The weights of group i of a segment. `order` counts segments from the last one.
  __device__ __forceinline__ void take_weights(int order, int i, int group,
                                               Weights<Real> (&weights)[kGroup][W]) {
    using Strip = Recomputation<Wave>;
    const int count = Strip::groups(w_, Strip::segments(w_) - 1 - order);
    queue(order % kPhases).take(groups_of_helper_before(w_, order) + count - 1 - i, w_.lane, weights);
    begin_reverse_group(group);
  }
  __device__ __forceinline__ void begin_group(int group) {
    x_ = ring_ + (((group - first_group()) * kGroup - w_.lane) & (kRows - 1)) * F;
    if constexpr (kPaths) in_band_.begin_group(group);
  }

  [[nodiscard]] __device__ __forceinline__ Real scale() const { return scale_; }
  [[nodiscard]] __device__ __forceinline__ Real cost(int q, int k) const {
    Real sum = 0;
#pragma unroll
    for (int f = 0; f < F; ++f) {
      const Real difference = x_[q * F + f] - y_[k][f];
      sum += kAll ? distance_.of(difference) : difference * difference;
    }
    if (is_norm_) sum = cuda::sqrt_fast(sum);
    return kAll ? max(sum, Real(0)) : sum;  // max() returns 0 for NaN
  }
  [[nodiscard]] __device__ __forceinline__ bool forbids(int q, int k) const {
    return kPaths && !in_band_.hold(q, k);
  }

  // carried: F partial sums of grad_x over the columns on the right.
  __device__ __forceinline__ void take(int q, int k, Real e, Real* carried) {
    const Real weight = kAll ? weight_of(q, k, e) : e + e;
#pragma unroll
    for (int f = 0; f < F; ++f) {
      const Real difference = x_[q * F + f] - y_[k][f];
      const Real g = weight * (kAll ? slope_.of(weight, difference) : difference);
      grad_y_[k][f] -= g;
      carried[f] += g;
    }
    if (kPaths && k == 0 && writes_ >> q & 1) {
#pragma unroll
      for (int f = 0; f < F; ++f) {
        if (f < p_.dim) put_gradient(w_.pair.grad_x, w_.pair.true_row(first_row_ + q), f, carried[f]);
      }
    }
  }

  // Called by the left-most strip. rows[q][1 + f]: the complete sum of grad_x of row first + q and feature f.
  __device__ __forceinline__ void finish_rows(int first, const Real* rows) const {
    if constexpr (!kPaths) {  // with a band, take() has written the row
      if (!w_.pair.grad_x) return;
      for (int i = w_.lane; i < kGroup * F; i += cuda::kWarpSize) {
        const int row = first + i / F;
        const int f = i % F;
        if (row >= 0 && row < w_.pair.n && f < p_.dim) {
          put_gradient(w_.pair.grad_x, w_.pair.true_row(row), f, rows[i / F * (1 + F) + 1 + f]);
        }
      }
    }
  }

  __device__ void end_reverse() const {
    if (!w_.pair.grad_y) return;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const int column = w_.pair.true_column(column_ + k);
      if (column >= w_.pair.m) continue;
#pragma unroll
      for (int f = 0; f < F; ++f) {
        if (f < p_.dim) put_gradient(w_.pair.grad_y, column, f, grad_y_[k][f]);
      }
    }
  }

 private:
  static constexpr int kPerLane = kBlock * F / 32;
  [[nodiscard]] static __device__ __forceinline__ Queue& queue_in(unsigned char* memory, int helper) {
    return reinterpret_cast<Queue*>(memory + kRoles * kRingBytes)[helper];
  }
  [[nodiscard]] __device__ __forceinline__ Real feature(const In* at, std::int64_t stride, int f) const {
    return F == 1 || f < p_.dim ? Real(__ldg(at + f * stride)) : Real(0);
  }

  __device__ __forceinline__ void put_gradient(In* gradient, int row, int f, Real value) const {
    In* const to = gradient + static_cast<std::int64_t>(row) * p_.dim + f;
    if (kMeets && w_.meets) {
      atomicAdd(to, value);
    } else {
      *to = static_cast<In>(value);
    }
  }

  // The Euclidean distance of one feature is the absolute difference.
  [[nodiscard]] __device__ Metric metric() const {
    return F == 1 && p_.metric == Metric::kNorm ? Metric::kAbsolute : p_.metric;
  }
  // The factor of the slopes, which is E inside the pair. With subsequences, rows before row 0 also have E.
  [[nodiscard]] __device__ __forceinline__ Real weight_of(int q, int k, Real e) const {
    Real weight = forbids(q, k) || isnan(x_[q * F] - y_[k][0]) ? Real(0) : slope_.factor * e;
    if (is_norm_) {
      Real squares = 0;
#pragma unroll
      for (int f = 0; f < F; ++f) squares += (x_[q * F + f] - y_[k][f]) * (x_[q * F + f] - y_[k][f]);
      weight = squares > 0 ? weight * cuda::reciprocal_root_fast(squares) : Real(0);
    }
    return weight;
  }

  // The first step of y that is not missing. Distances are not measured from a missing step, which may
  // contain any numbers.
  [[nodiscard]] __device__ int first_present() const {
    for (int j = 0; p_.y_mask && j < w_.pair.m; j += 32) {
      const bool there = j + w_.lane < w_.pair.m && !is_missing(p_.y_mask, w_.pair.index, p_.m, j + w_.lane);
      const unsigned present = __ballot_sync(cuda::kFullWarp, there);
      if (present) return j + __ffs(present) - 1;
    }
    return 0;
  }
  [[nodiscard]] __device__ bool is_missing_column(int k) const {
    return is_missing(p_.y_mask, w_.pair.index, p_.m, min(column_ + k, w_.pair.m - 1));
  }

  [[nodiscard]] __device__ __forceinline__ int first_group() const { return kPaths ? w_.own.first : 0; }
  // Loads kBlock rows of x from row block * kBlock - shift on, 2 F values a lane. With a band, rows are
  // counted from its first group. Rows outside the pair repeat the first or the last row.
  __device__ __forceinline__ void ask(int block, Real (&values)[kPerLane]) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int element = i * 32 + w_.lane;
      const int step = block * kBlock + element / F;
      const int row = min(max(step - w_.shift + first_group() * kGroup, 0), w_.pair.n - 1);
      values[i] = feature(w_.pair.x + w_.pair.true_row(row) * p_.x_stride[1], p_.x_stride[2], element % F);
      if (kAll && is_missing(p_.x_mask, w_.pair.index, p_.n, row)) values[i] = Real(CUDART_NAN_F);
    }
  }
  __device__ __forceinline__ void put(int block, const Real (&values)[kPerLane]) const {
    Real* const to = ring_ + (block & 1) * kBlock * F;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int element = i * 32 + w_.lane;
      to[element] = values[i];
      // A copy of the first rows follows the last ones, so that a lane's rows of a group never wrap around.
      if (!(block & 1) && element < kGroup * F) to[kRows * F + element] = values[i];
    }
    __syncwarp();
  }

  __device__ void begin_strip() {
    column_ = w_.strip * 32 * W + w_.lane * W;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const In* y = w_.pair.y + min(w_.pair.true_column(column_ + k), w_.pair.m - 1) * p_.y_stride[1];
#pragma unroll
      for (int f = 0; f < F; ++f) y_[k][f] = feature(y, p_.y_stride[2], f);
      if (kAll && is_missing_column(k)) y_[k][0] = Real(CUDART_NAN_F);
    }
    if constexpr (kPaths) in_band_.begin_strip(w_, column_);
  }

  const Wave& w_;
  const Params& p_;
  const Real scale_;
  Real* const ring_;
  int column_ = 0;  // the lane's first one
  int x_reach_ = 0;
  int y_reach_ = 0;
  Real y_[W][F];
  const Real* x_ = nullptr;  // the lane's row of x at the group's first step
  Real ahead_[kPerLane];
  Real grad_y_[W][F];

  // Used with options only.
  static_assert(!kAll || W == 1);
  const bool is_norm_;
  const Distance<Real> distance_;
  const Slope<Real> slope_;
  BandSteps<W> in_band_;
  Steps own_rows_;   // rows whose grad_x this lane writes
  unsigned writes_;  // the same for the current group, a bit for each step
  int first_row_;    // lane 0's row at the group's first step
};

}  // namespace warpalign::detail::soft_dtw
