// One warp's place in the wavefront: its strip of a pair, its queues to the neighbouring strips, its part of
// the scratch, and what the blocks of a pair tell each other.
#pragma once

#include <math_constants.h>

#include "cuda/remote.cuh"
#include "cuda/ring.cuh"
#include "soft_dtw/cuda/group.cuh"
#include "soft_dtw/cuda/params.cuh"

namespace warpalign::detail::soft_dtw {

// Groups of values on their way to the neighbouring strip of a panel. One lane publishes, and one releases.
using Channel = cuda::Ring<kChannelGroups, 1>;
static_assert(sizeof(Channel) == kChannelBarriers * 8);

// What is known of a pair in flight. Counters and bits start at -1.
template <class Cell>
struct PairRecord {
  typename Cell::State last;  // Z[n-1, m-1]
  int range_bits[2];          // maxima of the source's range_bits over the strips
  int done;                   // panels whose forward sweep is over
  int usable;  // 1: the value is right, the reverse sweep may run; 0: it is not; -1: not known yet
  int swept;   // panels whose reverse sweep is over
  int best;    // of a subsequence: the column of the least R in the last row,
  double sum;  // and log2 of the sum of that row's Z
};
static_assert(sizeof(PairRecord<Cell32>) <= kRecordBytes && sizeof(PairRecord<Cell64>) <= kRecordBytes);

// What a strip adds: of a subsequence, log2 of the sum of its Z in the last row and the column of the largest
// one; on the way back, the entropy of its transitions.
struct Part {
  double sum;
  int best;
};
static_assert(sizeof(Part) <= kPartBytes);

// Groups of steps of one strip: first <= group < end.
struct Groups {
  int first;
  int end;
  [[nodiscard]] __device__ __forceinline__ bool hold(int group) const {
    return group >= first && group < end;
  }
};

template <class Cell_, class In_, class Source_>
struct Wave {
  using Cell = Cell_;
  using In = In_;
  using Output = typename Storage<In>::Output;
  using Source = Source_;
  using Real = typename Cell::Real;
  using State = typename Cell::State;
  using Record = PairRecord<Cell>;
  static constexpr int W = Source::kColumns;
  static constexpr bool kOptions = Source::kOptions != Options::kNone;
  static constexpr bool kAll = Source::kOptions == Options::kAll;
  static constexpr bool kMeets = Source::kMeets;
  // Reals per row that a strip sends to the one on its left: E, and partial sums of grad_x where the source
  // carries them.
  static constexpr int kFlow = 1 + Source::kCarried;
  static constexpr CellSizes kSizes{sizeof(State), sizeof(Real)};
  static constexpr int kQueueBytes = queue_bytes(Source::kCarried, kSizes);
  static constexpr int kStateUnits = kGroup * sizeof(State) / 8;  // of a group, in 8-byte words
  static constexpr int kFlowUnits = kGroup * kFlow * sizeof(Real) / 8;

  const Params& params;
  const int lane;
  const int
      role;  // 0: the wavefront itself; others: the source's helpers, each for the strip of the same place
  const int slot;  // of the pair within the block
  const int warp;  // of the strip within the panel
  unsigned char* source_memory;
  // Of each warp that recomputes:
  State* phase_states;  // [starts][W + 1][32]: lane states at the start of groups of the segment in work
  State* phase_border;  // [segment * kGroup]: the column on the left, for the same groups
  // Of the task in work.
  Record* record;
  Pair<In> pair;
  Output grad_x_from_back;  // (n, D), in its own order of rows: where strips add to it one after the other
  bool meets;               // this pair is swept from both ends,
  bool from_back;           // and this sweep is the one that started at the last step of both series
  int strip;                // from where the sweep started
  int strips;
  int shift;  // rows
  // What there is to do: a band leaves some groups of each strip. Hand-overs with the neighbours, in groups
  // of this strip.
  Groups own;
  int end_row;  // of those with cells here
  Groups from_left;
  Groups to_right;
  // With options: the first row with cells here, and on the right.
  int first_row;
  int right_first_row;

  __device__ Wave(const Params& p, unsigned char* shared)
      : params(p),
        lane(threadIdx.x % 32),
        role(threadIdx.x / 32 / (p.layout.warps * p.layout.pairs_per_block)),
        slot(threadIdx.x / 32 / p.layout.warps % p.layout.pairs_per_block),
        warp(threadIdx.x / 32 % p.layout.warps) {
    const int warps = p.layout.warps * p.layout.pairs_per_block;
    const int index = slot * p.layout.warps + warp;
    constexpr int segment = Source::kSegment;
    constexpr int starts = Source::kStartsInWork;
    constexpr int phases = Source::kPhases;
    const int phase = index * phases + (phases > 1 && role > 0 ? role - 1 : 0);
    source_memory = shared + index * Source::warp_bytes(p);
    unsigned char* next = shared + warps * Source::warp_bytes(p);
    phase_states = reinterpret_cast<State*>(next) + phase * starts * (W + 1) * 32;
    next += warps * phases * starts * (W + 1) * 32 * sizeof(State);
    phase_border = reinterpret_cast<State*>(next) + phase * segment * kGroup;
    next += warps * phases * segment * kGroup * sizeof(State);
    queue_ = next + index * (kChannelGroups + 1) * kQueueBytes;
    next += warps * (kChannelGroups + 1) * kQueueBytes;
    channel_ = reinterpret_cast<Channel*>(next) + index;
    if (role != 0) return;
    channel_->init(lane);
    Source::init(p, source_memory, lane);
  }

  // index: of the pair in the scratch.
  __device__ void begin_pair(int b, int index, bool is_from_back) {
    pair = pair_at<Cell, In>(params, b);
    strips = strips_of(pair.m, W);
    pair.columns = strips * 32 * W;
    pair.from_back = from_back = kMeets && is_from_back;
    meets = kMeets && params.layout.meets && pair.n >= kShortestMeeting;
    const Layout& l = params.layout;
    record = reinterpret_cast<Record*>(params.scratch + kHeaderBytes + index * kRecordBytes);
    unsigned char* columns = params.scratch + l.columns + index * l.column_bytes;
    borders_ = reinterpret_cast<State*>(columns);
    flows_ = reinterpret_cast<Real*>(columns + l.flow);
    rows_done_ = reinterpret_cast<int*>(columns + l.rows_done);
    if constexpr (kAll) parts_ = reinterpret_cast<Part*>(columns + l.parts);
    if constexpr (kMeets) meeting_ = reinterpret_cast<State*>(columns + l.meeting);
    states_ = reinterpret_cast<State*>(params.scratch + l.states + index * l.state_bytes);
    if constexpr (kMeets && Source::kCarried == 0) {
      grad_x_from_back = reinterpret_cast<In*>(params.scratch + l.grad_x + index * l.grad_x_bytes);
      if (from_back && pair.grad_x) pair.grad_x = grad_x_from_back;
    }
  }
  __device__ void begin_panel(int panel) {
    strip = panel * params.layout.warps + warp;
    shift = row_shift(strip) + (from_back ? further_shift(pair.n, strips) : 0);
    if (role == 0) channel_->reset(lane);
  }

  __device__ void begin_sweep() {
    own = groups_of_strip(strip, &end_row);
    from_left =
        has_left() ? handed_over(groups_of_strip(strip - 1, nullptr), own, lag(strip - 1)) : Groups{0, 0};
    to_right = {0, 0};
    if (has_right()) {
      to_right = handed_over(own, groups_of_strip(strip + 1, nullptr), lag(strip));
      to_right.first += lag(strip);
      to_right.end += lag(strip);
    }
    if constexpr (kOptions) {
      first_row = first_row_of(strip);
      right_first_row = first_row_of(strip + 1);
    }
  }

  [[nodiscard]] __device__ bool active() const { return strip < strips && (meets || !from_back); }
  [[nodiscard]] __device__ bool has_left() const { return strip > 0; }
  [[nodiscard]] __device__ bool has_right() const { return strip + 1 < strips; }
  // Neighbours in another panel are reached through global memory.
  [[nodiscard]] __device__ bool left_is_remote() const { return warp == 0; }
  [[nodiscard]] __device__ bool right_is_remote() const { return warp + 1 == params.layout.warps; }
  [[nodiscard]] __device__ int row(int group, int q) const { return group * kGroup + q - shift - lane; }
  [[nodiscard]] __device__ int true_strip() const { return from_back ? strips - 1 - strip : strip; }

  // Channels hold what a warp sends: to the right in the forward sweep, to the left in the reverse one.
  [[nodiscard]] __device__ Channel& own_channel() const { return *channel_; }
  [[nodiscard]] __device__ Channel& channel_of(int neighbour) const { return channel_[neighbour]; }
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

  // A column that is out of reach, in the inbox.
  [[nodiscard]] __device__ const State* dead_border() const {
    __syncwarp();
    if (lane < kGroup) inbox<State>()[lane] = Cell::dead();
    __syncwarp();
    return inbox<State>();
  }

  // The last column of a strip, in the next strip's groups of rows. Where all are kept, sweeps that meet
  // share the memory: the second one fills it from its end.
  [[nodiscard]] __device__ State* border_group(int of_strip, int group, bool all_kept) const {
    const Layout& l = params.layout;
    const std::size_t column = !all_kept   ? of_strip / l.warps + (from_back ? l.panels - 1 : 0)
                               : from_back ? strips - 2 - of_strip
                                           : of_strip;
    const int place = all_kept && from_back ? l.groups - 1 - group : group;
    return borders_ + (column * l.groups + place) * kGroup;
  }
  // What the first strip of a panel sends to the panel on its left.
  [[nodiscard]] __device__ Real* flow_column(int of_strip) const {
    const Layout& l = params.layout;
    const std::size_t index = of_strip / l.warps - 1 + (from_back ? l.panels - 1 : 0);
    return flows_ + index * l.groups * kGroup * kFlow;
  }
  // Progress of the first strip of a panel on grad_x, where strips add to it one after the other.
  [[nodiscard]] __device__ int* rows_done_of(int of_strip, int helper) const {
    const int panel = of_strip / params.layout.warps + (from_back ? params.layout.panels : 0);
    return rows_done_ + panel * Source::kRoles + helper;
  }
  [[nodiscard]] __device__ Part& part(int of_strip) const { return parts_[of_strip]; }
  [[nodiscard]] __device__ StepOptions<Cell> step_options() const {
    StepOptions<Cell> options{{}, -1};
    if constexpr (kOptions) options.penalty = Cell::penalty(params.step_penalty * (pair.scale / params.half));
    return options;
  }
  [[nodiscard]] __device__ State* kept(int segment) const {
    const std::size_t segments = params.layout.segments;
    const int place = from_back ? params.layout.segments - 1 - segment : segment;
    return states_ + (true_strip() * segments + place) * ((W + 1) * 32) + lane;
  }
  // States of this lane, or another one, behind the last row of a sweep that is met by another.
  [[nodiscard]] __device__ State* last_states(int of_true_strip, bool of_back, int of_lane) const {
    return meeting_ + (of_true_strip * 2 + of_back) * ((W + 1) * 32) + of_lane;
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

  __device__ void clear_record() const { *record = {Cell::dead(), {-1, -1}, -1, -1, -1, -1, 0.0}; }

  __device__ void note_range(int2 bits) const {
    atomicMax(&record->range_bits[0], bits.x);
    atomicMax(&record->range_bits[1], bits.y);
  }

  // By one thread, when all of the pair's forward sweep is over. Cell32: is the value certain to be right?
  __device__ __forceinline__ int finish_forward() const {
    const auto* r = const_cast<const volatile Record*>(record);
    State last;
    for (int k = 0; k < static_cast<int>(sizeof(State) / 8); ++k) {
      reinterpret_cast<cuda::Word*>(&last)[k] =
          cuda::load_relaxed(reinterpret_cast<const cuda::Word*>(&record->last) + k);
    }
    int2 bits{r->range_bits[0], r->range_bits[1]};
    double log2_z = Cell::log2_of(last);
    if (kAll && params.subsequence) log2_z = join_ends();
    double value = (0.0 - log2_z) * params.half / pair.scale;  // not -0 of log2_z = 0
    if constexpr (Cell::kDual) value = -last.tangent * params.half / pair.scale;
    bool usable;
    if constexpr (Cell::kCertifies) {
      usable = certified(log2_z, bits);
      params.uncertified[pair.index] = !usable;
      if (!usable) return false;
    } else {
      const bool has_scale = pair.scale > 0 && pair.scale < CUDART_INF;
      if (!has_scale) record->range_bits[0] = bits.x = 1;  // counts as a NaN
      const bool reachable = log2_z > -1e298;
      usable = bits.x <= 0 && reachable;
      if (!reachable) value = Cell::kDual ? 0.0 : CUDART_INF;
      if (bits.x > 0) value = CUDART_NAN;
    }
    store_result(output(params.value) + pair.index, value);
    if (kAll && !usable && params.end_values) {
      for (int j = 0; j < pair.m; ++j) store_result(end_values() + j, value);
    }
    return usable;
  }
  [[nodiscard]] __device__ Output output(void* at) const {
    return Storage<In>::output(at, params.is_float64);
  }
  [[nodiscard]] __device__ Output true_grad_x() const {
    return output(params.grad_x) + static_cast<std::int64_t>(pair.index) * params.n * params.dim;
  }
  [[nodiscard]] __device__ Output end_values() const {
    return output(params.end_values) + static_cast<std::int64_t>(pair.index) * params.m;
  }

  // By one thread, when all of the pair's reverse sweep is over.
  __device__ __forceinline__ void finish_reverse() const {
    double bits = 0;
    for (int k = 0; k < strips; ++k) bits += *const_cast<const volatile double*>(&part(k).sum);
    store_result(output(params.grad_gamma) + pair.index, bits * -0.69314718055994530942);
  }

  // Zeros behind the true lengths; where there is no gradient, what stands in for it: NaN, or 0 if no path is
  // finite.
  __device__ void fill_outside(bool usable) const {
    const bool has_nan = const_cast<const volatile Record*>(record)->range_bits[0] > 0;
    const float inside = has_nan && !Cell::kCertifies ? CUDART_NAN_F : 0.0f;
    fill(pair.grad_x, params.n, params.dim, pair.n, params.dim, usable, inside);
    fill(pair.grad_y, params.m, params.dim, pair.m, params.dim, usable, inside);
    fill(pair.alignment, params.n, params.m, pair.n, pair.m, usable, inside);
    if constexpr (kAll) fill(behind(output(params.grad_gamma), pair.index), 1, 1, 1, 1, usable, inside);
  }

 private:
  // |c| < 2^22 keeps the cost's rounding exact. Saturated exponents do not matter where the whole range of R
  // stays below 2^29, or, with costs that are never negative, where the last exponent is far from saturation.
  // What a band leaves no path to is out of reach, and Cell64's to tell.
  [[nodiscard]] __device__ bool certified(double log2_z, int2 bits) const {
    double largest = Source::largest_cost(params, bits, pair.scale);
    constexpr double kSafe = 1 << 29;
    if constexpr (kOptions) {
      const double penalty = params.step_penalty * (pair.scale / params.half);
      if (!(penalty < 4194304.0) || !(log2_z > -kSafe)) return false;
      largest += penalty;
    }
    if (!(largest < 4194304.0) || !(pair.scale > 0)) return false;
    if ((static_cast<double>(pair.n) + pair.m) * largest < kSafe) return true;
    const bool only_sum_counts = !kAll || !params.end_values;
    return !params.cost && only_sum_counts && log2_z > -kSafe;
  }

  // Of a subsequence, from the parts of its strips.
  [[nodiscard]] __device__ double join_ends() const {
    double top = -CUDART_INF;
    int best = 0;
    for (int k = 0; k < strips; ++k) {
      const double one = *const_cast<const volatile double*>(&part(k).sum);
      if (one > top) {
        top = one;
        best = *const_cast<const volatile int*>(&part(k).best);
      }
    }
    double sum = 0;
    for (int k = 0; k < strips && top > -CUDART_INF; ++k)
      sum += exp2(*const_cast<const volatile double*>(&part(k).sum) - top);
    record->best = best;
    record->sum = Cell::kHard || !(sum > 0) ? top : top + log2(sum);
    return record->sum;
  }

  // What both have to do, in groups of the one on the right.
  static __device__ __forceinline__ Groups handed_over(Groups left, Groups right, int by) {
    return {max(right.first, left.first - by), min(right.end, left.end - by)};
  }

  // All, or those in which a lane meets the band, or the row above it, from the start of a segment.
  // end_row_of: gets the row behind the last one.
  [[nodiscard]] __device__ __forceinline__ Groups groups_of_strip(int of_strip, int* end_row_of) const {
    if (end_row_of) *end_row_of = pair.n;
    if constexpr (kOptions) {
      if (params.band.kind != BandKind::kNone) return groups_in_band(of_strip, end_row_of);
    }
    if (!meets) return {0, groups_of(pair.n)};
    const int k = from_back ? strips - 1 - of_strip : of_strip;
    const int before = groups_before_meeting(pair.n, strips, k);
    return {0, from_back ? groups_of_both(pair.n, strips, k) - before : before};
  }
  [[nodiscard]] __device__ int first_row_of(int of_strip) const {
    if (params.band.kind == BandKind::kNone) return 0;
    return first_row_where(
        [&](int i) { return band_columns(params.band, i, pair.n, pair.m).end > of_strip * 32 * W; });
  }
  [[nodiscard]] __device__ Groups groups_in_band(int of_strip, int* end_row_of) const {
    const int last_column = min((of_strip + 1) * 32 * W - 1, pair.m - 1);
    const auto columns = [&](int i) { return band_columns(params.band, i, pair.n, pair.m); };
    const int first = first_row_of(of_strip);
    const int end = first_row_where([&](int i) { return columns(i).begin > last_column; });
    if (end_row_of) *end_row_of = end;
    if (first >= end) return {0, 0};
    const int shifted = row_shift(of_strip);
    const int end_group = min((end + 30 + shifted) / kGroup + 1, groups_of(pair.n));
    return {Source::first_band_group(max(first - 1 + shifted, 0) / kGroup, end_group), end_group};
  }
  // The first row that is past, by the whole warp; so are all behind it.
  template <class Past>
  [[nodiscard]] __device__ int first_row_where(const Past& past) const {
    int low = 0;
    int high = pair.n;
    while (low < high) {
      const int step = div_up(high - low, 32);
      const int row = low + lane * step;
      const unsigned hits = __ballot_sync(cuda::kFullWarp, row >= high || past(row));
      const int hit = hits ? __ffs(hits) - 1 : 32;
      if (hit < 32) high = min(high, low + hit * step);
      low = hit == 0 ? high : low + (hit - 1) * step + 1;
    }
    return low;
  }

  __device__ __forceinline__ void fill(Output out, int rows, int columns, int true_rows, int true_columns,
                                       bool usable, float inside) const {
    if (!out || (usable && rows == true_rows && columns == true_columns)) return;
    const std::size_t size = static_cast<std::size_t>(rows) * columns;
    const int threads = params.layout.warps * Source::kRoles * 32;
    for (std::size_t k = (role * params.layout.warps + warp) * 32 + lane; k < size; k += threads) {
      const bool is_inside =
          static_cast<int>(k / columns) < true_rows && static_cast<int>(k % columns) < true_columns;
      if (!is_inside || !usable) store_result(out + k, is_inside ? inside : 0.0f);
    }
  }

  unsigned char* queue_;  // of this warp; those of the others of the panel beside it
  Channel* channel_;      // likewise
  State* borders_;
  Real* flows_;
  int* rows_done_;
  Part* parts_;
  State* meeting_;
  State* states_;
};

}  // namespace warpalign::detail::soft_dtw
