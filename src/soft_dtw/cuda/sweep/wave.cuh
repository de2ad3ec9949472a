// The state of a warp: its strip of a pair, its queues to the neighbouring strips, and its part of the
// block's shared memory and of the scratch.
#pragma once

#include "cuda/memory/remote.cuh"
#include "cuda/threads/ring.cuh"
#include "soft_dtw/cuda/call/params.cuh"
#include "soft_dtw/cuda/results/record.cuh"
#include "soft_dtw/cuda/sweep/group.cuh"
#include "soft_dtw/cuda/sweep/strip_groups.cuh"

namespace warpalign::detail::soft_dtw {

// A queue of groups of values to the neighbouring strip of a panel. One lane publishes, and one releases.
using Channel = cuda::Ring<kChannelGroups, 1>;
static_assert(sizeof(Channel) == kChannelBarriers * 8);

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
  // Reals per row that a strip sends to the strip on its left: E, and the source's partial sums of grad_x.
  static constexpr int kFlow = 1 + Source::kCarried;
  static constexpr CellSizes kSizes{sizeof(State), sizeof(Real)};
  static constexpr int kQueueBytes = queue_bytes(Source::kCarried, kSizes);
  static constexpr int kStateUnits = kGroup * sizeof(State) / 8;  // 8-byte words of a group's states
  static constexpr int kFlowUnits = kGroup * kFlow * sizeof(Real) / 8;

  const Params& params;
  const int lane;
  const int role;  // 0: the wave; others: the source's helpers, for the strip of the same `warp`
  const int slot;  // of the pair within the block
  const int warp;  // of the strip within the panel
  unsigned char* source_memory;
  // For segments that are recomputed; each warp that recomputes has its own.
  State* phase_states;  // [starts][W + 1][32]: lane states at the start of groups of the current segment
  State* phase_border;  // [segment * kGroup]: the column on the left, for the same groups
  // The current task.
  Record* record;
  Pair<In> pair;
  Output grad_x_from_back;  // (n, D), rows in reverse order; for sources that carry no partial sums
  bool meets;               // whether this pair is swept from both ends
  bool from_back;           // whether this sweep starts at the last step of both series
  int strip;                // counted from the sweep's start
  int strips;               // of the pair
  int shift;                // rows by which lane 0 starts late
  // The strip's groups, and those that are handed over, in this strip's numbering.
  Groups own;
  int end_row;  // the row after the last one with cells in this strip
  Groups from_left;
  Groups to_right;
  int first_row;        // with options: the first row with cells in this strip
  int right_first_row;  // with options: the same of the strip on the right

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

  // b: the pair's place in the batch. index: its place in the scratch.
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
    shift = shift_of(strip);
    if (role == 0) channel_->reset(lane);
  }

  __device__ void begin_sweep() {
    own = groups_of_strip(*this, strip, &end_row);
    from_left = has_left() ? handed_over(groups_of_strip(*this, strip - 1, nullptr), own, lag(strip - 1))
                           : Groups{0, 0};
    to_right = {0, 0};
    if (has_right()) {
      to_right = handed_over(own, groups_of_strip(*this, strip + 1, nullptr), lag(strip));
      to_right.first += lag(strip);
      to_right.end += lag(strip);
    }
    if constexpr (kOptions) {
      first_row = first_row_of(*this, strip);
      right_first_row = first_row_of(*this, strip + 1);
    }
  }

  [[nodiscard]] __device__ bool active() const { return strip < strips && (meets || !from_back); }
  [[nodiscard]] __device__ bool has_left() const { return strip > 0; }
  [[nodiscard]] __device__ bool has_right() const { return strip + 1 < strips; }
  // A neighbour in another panel is reached through global memory.
  [[nodiscard]] __device__ bool left_is_remote() const { return warp == 0; }
  [[nodiscard]] __device__ bool right_is_remote() const { return warp + 1 == params.layout.warps; }
  // The rows by which lane 0 of a strip starts late.
  [[nodiscard]] __device__ __forceinline__ int shift_of(int of_strip) const {
    return row_shift(of_strip) + (from_back ? further_shift(pair.n, strips) : 0);
  }
  [[nodiscard]] __device__ int row(int group, int q) const { return group * kGroup + q - shift - lane; }
  [[nodiscard]] __device__ int true_strip() const { return from_back ? strips - 1 - strip : strip; }

  // A warp's own channel has the data that it sends: to the right in the forward sweep, to the left in the
  // reverse sweep.
  [[nodiscard]] __device__ Channel& own_channel() const { return *channel_; }
  [[nodiscard]] __device__ Channel& channel_of(int neighbour) const { return channel_[neighbour]; }
  template <class T>
  [[nodiscard]] __device__ T* slot_of(int neighbour, int index) const {
    return reinterpret_cast<T*>(queue_ +
                                (neighbour * (kChannelGroups + 1) + index % kChannelGroups) * kQueueBytes);
  }
  // Shared memory for data from another panel.
  template <class T>
  [[nodiscard]] __device__ T* inbox() const {
    return reinterpret_cast<T*>(queue_ + kChannelGroups * kQueueBytes);
  }

  // A group's column of dead states, in the inbox.
  [[nodiscard]] __device__ const State* dead_border() const {
    __syncwarp();
    if (lane < kGroup) inbox<State>()[lane] = Cell::dead();
    __syncwarp();
    return inbox<State>();
  }

  // Scratch memory of a strip's last column, by the next strip's groups of rows. If the columns of all strips
  // are stored, sweeps that meet share the memory, and the sweep from the back fills it from its end.
  [[nodiscard]] __device__ State* border_group(int of_strip, int group, bool all_kept) const {
    const Layout& l = params.layout;
    const std::size_t column = !all_kept   ? of_strip / l.warps + (from_back ? l.panels - 1 : 0)
                               : from_back ? strips - 2 - of_strip
                                           : of_strip;
    const int place = all_kept && from_back ? l.groups - 1 - group : group;
    return borders_ + (column * l.groups + place) * kGroup;
  }
  // Scratch memory for the flow from the first strip of a panel to the panel on its left.
  [[nodiscard]] __device__ Real* flow_column(int of_strip) const {
    const Layout& l = params.layout;
    const std::size_t index = of_strip / l.warps - 1 + (from_back ? l.panels - 1 : 0);
    return flows_ + index * l.groups * kGroup * kFlow;
  }
  // The number of rows of grad_x to which the first strip of a panel has added, for sources whose strips add
  // to grad_x one after the other.
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
  [[nodiscard]] __device__ State* stored_state(int segment) const {
    const std::size_t segments = params.layout.segments;
    const int place = from_back ? params.layout.segments - 1 - segment : segment;
    return states_ + (true_strip() * segments + place) * ((W + 1) * 32) + lane;
  }
  // A lane's states of the last row of a sweep that meets another one.
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

 private:
  // This warp's; those of the panel's other warps are next to them.
  unsigned char* queue_;
  Channel* channel_;
  State* borders_;
  Real* flows_;
  int* rows_done_;
  Part* parts_;
  State* meeting_;
  State* states_;
};

}  // namespace warpalign::detail::soft_dtw
