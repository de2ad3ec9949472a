// The source of costs, and the consumer of E, for any number of features and for cost matrices. Costs are in
// tiles of kTileRows rows by a strip's 32 columns, in shared memory. Helpers make the costs ahead of the
// wave. In the reverse sweep they compute gradients from the E that the wave writes to the tiles:
//
//             forward            reverse
//   wave      reads costs        takes weights, puts E where the costs were
//   makers    costs              some make costs, the others gradients and the alignment
//   weigher                      makes weights from costs; in crews without a weigher the wave does that
//
// Makers of costs take turns by tiles. Makers of gradients share the features.
//
// The tile with row 0 of the strip's first lane is number kTilesBefore. Earlier tiles have the rows that the
// other lanes go through before row 0. Rows of tiles are shifted as the strip's rows are.
#pragma once

#include "soft_dtw/cuda/results/cost_range.cuh"
#include "soft_dtw/cuda/results/results.cuh"
#include "soft_dtw/cuda/sweep/recompute.cuh"
#include "soft_dtw/cuda/tiles/gradients.cuh"

namespace warpalign::detail::soft_dtw {

// The classes that make costs and gradients, and their shared memory.
template <class Cell, class In, Options kOptions, class Ring_, class Crew_ = FrugalCrew>
struct PlainMakers {
  static constexpr CostSource kSource = CostSource::kTiles;
  using Crew = Crew_;
  using Ring = Ring_;
  using Memory = StripTiles<Cell, In, Ring, Crew>;
  using Costs = CostMaker<Cell, In, kOptions, Ring>;
  using Gradients = GradientMaker<Cell, In, kOptions, Ring, Crew::kGradients>;
};

template <class Cell, class In_, Options kOptions_, class Makers, bool kMeets_ = false>
class Tiles {
  using In = In_;
  using Real = typename Cell::Real;
  using Scale = typename Cell::Scale;
  using Wave = soft_dtw::Wave<Cell, In, Tiles>;
  using Ring = typename Makers::Ring;
  using Memory = typename Makers::Memory;
  using Costs = typename Makers::Costs;
  using Gradients = typename Makers::Gradients;
  using Crew = typename Makers::Crew;
  static constexpr int kDoneWithTile = cuda::kWarpSize * Crew::kGradients;  // arrivals that free a tile

 public:
  static constexpr int kColumns = 1;
  static constexpr int kCarried = 0;
  static constexpr int kFeatures = 0;  // no features in registers
  static constexpr CostSource kSource = Makers::kSource;
  static constexpr CrewKind kCrew = Crew::kKind;
  static constexpr int kSegment = kTileGroups;
  static constexpr int kRoles = 1 + Crew::kHelpers;
  static constexpr Weighing kWeighing = Crew::kWeighing;
  static constexpr bool kTakesWeights = kWeighing != Weighing::kByGroup;  // weights come by whole segments
  static constexpr bool kAsksAhead = kWeighing == Weighing::kAhead;
  static constexpr int kPhases = 1;
  static constexpr int kStartsInWork = kTakesWeights || Crew::kGradients == 0 ? 0 : kSegment;
  static constexpr bool kHasGradient = Crew::kGradients > 0;
  static constexpr Options kOptions = kOptions_;
  static constexpr bool kMeets = kMeets_;
  // Shared memory of a strip: the ring, then Memory.
  static constexpr int ring_bytes(int tiles) {
    return 32 * ring_stride(tiles) * static_cast<int>(sizeof(Real));
  }
  static constexpr int kWarpBytes = ring_bytes(kRingTiles) + static_cast<int>(sizeof(Memory));
  static constexpr int kLeastWarpBytes =
      ring_bytes(std::is_same_v<Ring, FixedRing> ? kRingTiles : kLeastRingTiles) +
      static_cast<int>(sizeof(Memory));
  static __device__ __forceinline__ int warp_bytes(const Params& p) {
    return ring_bytes_of(p) + static_cast<int>(sizeof(Memory));
  }

  __device__ explicit Tiles(const Wave& w)
      : w_(w),
        p_(w.params),
        ring_(reinterpret_cast<Real*>(w.source_memory)),
        m_(memory_of(w.params, w.source_memory)),
        scale_(static_cast<Scale>(w.pair.scale)) {}

  // A band's first group, so that its tiles are whole.
  static __device__ int first_band_group(int least, int) { return least / kSegment * kSegment; }
  // The wave's warp calls init() once in a kernel, and begin_panel() before every sweep of a panel.
  static __device__ void init(const Params& p, unsigned char* memory, int lane) {
    Memory& m = memory_of(p, memory);
    if (lane < kRingTiles) {
      cuda::barrier_init<cuda::kWarpSize>(m.full(lane));
      cuda::barrier_init<cuda::kWarpSize>(m.done(lane));
      if constexpr (kHasGradient) cuda::barrier_init<kDoneWithTile>(m.free(lane));
    }
    m.weights.init(lane);
    m.init(lane);
  }
  __device__ void begin_panel() const {
    if (w_.lane < kRingTiles) {
      cuda::barrier_reset<cuda::kWarpSize>(m_.full(w_.lane));
      cuda::barrier_reset<cuda::kWarpSize>(m_.done(w_.lane));
      if constexpr (kHasGradient) cuda::barrier_reset<kDoneWithTile>(m_.free(w_.lane));
    }
    m_.weights.reset(w_.lane);
    if constexpr (kHasGradient) {
      if (w_.lane < Crew::kGradients) m_.rows_done.of[w_.lane] = -1;
    }
    m_.reset(w_.lane);
  }

  __device__ void clear_gradients() const {}  // done by a helper: clear_sums()
  static __device__ float largest_cost(const Params&, int2 bits, double scale) {
    return __int_as_float(max(bits.x, 0)) * static_cast<float>(scale);
  }
  [[nodiscard]] __device__ int2 range_bits() const { return {-1, -1}; }  // helpers record the range
  [[nodiscard]] __device__ __forceinline__ Scale scale() const { return scale_; }

  // Functions of the wave.
  __device__ void begin_forward() {
    reverse_ = false;
    if (tiles() == 0) return;
    await_costs(0);
    await_costs(1);
  }
  __device__ void begin_forward_segment(int) const {}
  __device__ __forceinline__ void begin_forward_group(int group) {
    if (group % 2 == 0) {
      const int tile = group / 2 - base() + kTilesBefore;
      await_costs(tile);
    }
    load_costs(group);
  }
  __device__ __forceinline__ void end_forward_group(int group) const {
    if (group % 2 == 0) return;
    cuda::barrier_arrive(m_.done(place((group - 1) / 2 - base())));
  }
  __device__ void begin_reverse() {
    reverse_ = true;
    waited_ = 0;
    first_count_ = (w_.own.end - w_.own.first - 1) % kSegment + 1;
  }
  __device__ void begin_reverse_segment(int segment, bool) {
    for (const int needed = tiles() - kSegment / 2 * segment; waited_ < needed; ++waited_) {
      await_costs(waited_);
    }
  }
  __device__ __forceinline__ void begin_reverse_group(int group) { load_costs(group); }
  // Stores the weights of group i of a segment, which take_weights() reads. `order` counts segments from the
  // last one.
  __device__ __forceinline__ void put_weights(int order, int i, const Weights<Real> (&weights)[kGroup][1]) {
    m_.weights.put(order, i, first_count_, w_.lane, here_, weights);
  }
  // Called before the wave takes the weights of a segment's groups.
  __device__ __forceinline__ void begin_taking(Recomputation<Wave>& recomputed, int order, int segment) {
    if constexpr (kWeighing == Weighing::kBySegment) {
      recomputed.ask(segment);
      weigh_segment(recomputed, *this, order, segment);
    }
  }
  __device__ __forceinline__ void take_weights(int order, int i, int group,
                                               Weights<Real> (&weights)[kGroup][1]) {
    find_costs(group);
    m_.weights.take(order, i, first_count_, w_.lane, here_, weights);
  }
  __device__ __forceinline__ void end_reverse_group(int group) {
    if (Wave::kAll && p_.metric == Metric::kNorm && (w_.pair.grad_x || w_.pair.grad_y)) divide_by_costs();
    store_e(group);
    if (group % 2 != 0) return;
    cuda::barrier_arrive(m_.done(place(order_of(group / 2 - base() + kTilesBefore))));
  }
  __device__ void end_reverse() const {}

  [[nodiscard]] __device__ __forceinline__ Real cost(int q, int) const { return costs_[q]; }
  // Cell64 and CellHard compute with an infinite cost; Cell32 needs this flag.
  [[nodiscard]] __device__ __forceinline__ bool forbids(int q, int) const {
    return Cell::kCertifies && value_of(costs_[q]) == CUDART_INF_F;
  }
  __device__ __forceinline__ void take(int q, int, Real e, Real*) { e_[q] = e; }
  __device__ void finish_rows(int, const Real*) const {}

  // Functions of the helpers.
  __device__ void help_forward(int helper) {
    if (helper < Crew::kMakers) m_.prepare(p_, w_.pair, w_.strip, w_.lane, helper);
    if (helper == Crew::kHelpers - 1 && w_.meets) clear_sums();
    const int makers = Costs::template makers<Crew>(p_);
    if (helper >= makers) return;
    reverse_ = false;
    Costs maker(p_, w_.pair, w_.strip, w_.lane, m_, helper, true);
    for (int tile = helper; tile < tiles(); tile += makers) {
      if (turn(tile) > 0) cuda::barrier_wait(m_.done(place(tile)), turn(tile) - 1);
      maker.make(first_row(tile), tile_at(tile));
      repeat_first_rows(tile);
      cuda::barrier_arrive(m_.full(place(tile)));
    }
    note_range(w_, {maker.range_bits(), -1});
  }
  __device__ void help_reverse(int helper) {
    if constexpr (kWeighing == Weighing::kAhead) {
      if (helper == Crew::kMakers) return weigh_strip(w_, *this);
    }
    m_.prepare(p_, w_.pair, w_.strip, w_.lane, helper);
    reverse_ = true;
    if (helper < Crew::kCosts) {
      Costs maker(p_, w_.pair, w_.strip, w_.lane, m_, helper, false);
      for (int order = helper; order < tiles(); order += Crew::kCosts) {
        if (turn(order) > 0) cuda::barrier_wait(m_.free(place(order)), turn(order) - 1);
        const int tile = tiles() - 1 - order;
        maker.make(first_row(tile), tile_at(tile));
        if (w_.meets) clear_behind_meeting(first_row(tile), tile_at(tile));
        repeat_first_rows(tile);
        cuda::barrier_arrive(m_.full(place(order)));
      }
      return;
    }
    const bool has_band = Wave::kOptions && p_.band.kind != BandKind::kNone;
    const int part = helper - Crew::kCosts;
    Gradients maker(p_, w_.pair, w_.strip * 32, w_.lane, part, w_.has_right() || has_band || w_.meets, m_,
                    w_.meets);
    const int last = tiles() - kTilesBefore - 1;
    for (int order = 0; order <= last; ++order) {
      const int tile = tiles() - 1 - order;
      const int row0 = first_row(tile);
      maker.look_ahead(row0);
      cuda::barrier_wait(m_.done(place(order)), turn(order));
      if (has_cells(row0)) consume(maker, row0, tile_at(tile), part);
      cuda::barrier_arrive(m_.free(place(order)));
    }
    maker.finish();
    // The remaining rows have no cells in this strip, nor in the strip on the right.
    if ((has_band || w_.meets) && w_.pair.grad_x && w_.has_left()) tell_left(w_.pair.n, part);
  }

 private:
  static __device__ __forceinline__ int ring_bytes_of(const Params& p) {
    return 32 * Ring::stride(p) * static_cast<int>(sizeof(Real));
  }
  static __device__ __forceinline__ Memory& memory_of(const Params& p, unsigned char* source_memory) {
    return *reinterpret_cast<Memory*>(source_memory + ring_bytes_of(p));
  }

  // The place of a tile in the ring. Memory is indexed by the tile's number, barriers by its order in the
  // sweep.
  [[nodiscard]] __device__ __forceinline__ int place(int tile) const { return Ring::place(p_, tile); }
  [[nodiscard]] __device__ __forceinline__ int turn(int tile) const { return Ring::turn(p_, tile); }
  // Row 0 of column 0 of a tile.
  [[nodiscard]] __device__ __forceinline__ Real* tile_at(int tile) const {
    return ring_ + place(tile) * kTileRows;
  }
  // Called when a tile's costs are complete. Each lane owns a column.
  __device__ __forceinline__ void repeat_first_rows(int tile) const {
    if (place(tile) != 0) return;
    __syncwarp();
    Real* const column = ring_ + w_.lane * Ring::stride(p_);
#pragma unroll
    for (int r = 0; r < kGroup; ++r) column[Ring::rows(p_) + r] = column[r];
  }
  __device__ __forceinline__ void await_costs(int order) const {
    cuda::barrier_wait(m_.full(place(order)), turn(order));
  }

  // Writes zeros, to which both sweeps add.
  __device__ void clear_sums() const {
    const auto clear = [&](typename Storage<In>::Output sums, int begin, int end) {
      if (!sums) return;
      for (int row = begin; row < end; ++row) {
        for (int d = w_.lane; d < p_.dim; d += 32)
          store_result(sums + (static_cast<std::int64_t>(row) * p_.dim + d), 0.0f);
      }
    };
    const int rows = div_up(w_.pair.n, w_.strips);
    clear(w_.pair.grad_x, w_.strip * rows, min((w_.strip + 1) * rows, w_.pair.n));
    if (!w_.from_back) clear(w_.pair.grad_y, w_.strip * 32, min((w_.strip + 1) * 32, w_.pair.m));
  }
  // Writes zeros to the cells past the meeting, which belong to the other sweep: the wave writes no E there.
  __device__ __forceinline__ void clear_behind_meeting(int row0, Real* tile) const {
    const int end = w_.own.end * kGroup - w_.shift;  // the row after lane 0's last one
    if (row0 + kTileRows + 31 <= end) return;
    __syncwarp();
    for (int r = max(0, end - w_.lane - row0); r < kTileRows; ++r)
      tile[w_.lane * Ring::stride(p_) + r] = Real(0);
    __syncwarp();
  }

  // Tiles before the first one of a band.
  [[nodiscard]] __device__ __forceinline__ int base() const { return Wave::kOptions ? w_.own.first / 2 : 0; }
  [[nodiscard]] __device__ int tiles() const {
    if ((Wave::kOptions || kMeets) && w_.own.first >= w_.own.end) return 0;
    return (w_.own.end - 1) / 2 + 1 + kTilesBefore - base();
  }
  [[nodiscard]] __device__ int first_row(int tile) const {
    return (tile - kTilesBefore + base()) * kTileRows - w_.shift;
  }
  // A tile's order in the sweep: its number in the forward sweep, counted from the last tile in the reverse
  // one.
  [[nodiscard]] __device__ __forceinline__ int order_of(int tile) const {
    return reverse_ ? tiles() - 1 - tile : tile;
  }

  __device__ __forceinline__ void find_costs(int group) {
    const int row = group * kGroup - w_.lane + (kTilesBefore - base()) * kTileRows;
    here_ = ring_ + w_.lane * Ring::stride(p_) + (row & (Ring::rows(p_) - 1));
  }
  __device__ __forceinline__ void load_costs(int group) {
    find_costs(group);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) costs_[q] = here_[q];
  }
  // Overwrites costs with E. In the groups at the start of the ring, some lanes' rows wrap around.
  __device__ __forceinline__ void store_e(int group) const {
    if ((group + 2 * (kTilesBefore - base())) % (Ring::rows(p_) / kGroup) < 32 / kGroup) {
      const int left = static_cast<int>(ring_ + w_.lane * Ring::stride(p_) + Ring::rows(p_) - here_);
#pragma unroll
      for (int q = 0; q < kGroup; ++q) here_[q < left ? q : q - Ring::rows(p_)] = e_[q];
    } else {
#pragma unroll
      for (int q = 0; q < kGroup; ++q) here_[q] = e_[q];
    }
  }

  // Whether a tile that starts at this row has cells of the pair, within the band.
  [[nodiscard]] __device__ __forceinline__ bool has_cells(int row0) const {
    if constexpr (!Wave::kOptions) return row0 < w_.pair.n;
    return row0 < w_.end_row && row0 + kTileRows > w_.first_row;
  }
  // E / C of a group, for the gradient of the Euclidean distance.
  __device__ __forceinline__ void divide_by_costs() {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      e_[q] = value_of(costs_[q]) > 0 ? e_[q] / costs_[q] : Real(0);
    }
  }

  __device__ __forceinline__ void consume(Gradients& maker, int row0, const Real* tile, int helper) {
    const Pair<In>& pair = w_.pair;
    if (pair.alignment && helper == 0)
      store_alignment<Ring>(p_, pair, row0, w_.end_row, w_.strip * 32, w_.lane, tile);
    if (!pair.grad_x && !pair.grad_y) return;
    // Strips add to grad_x from the right to the left, so that the order of the sum is fixed.
    const int done = pair.n - max(row0, 0);
    maker.add(row0, w_.end_row, tile, [&] {
      // The first tile on the right may begin up to a tile before its first row there.
      if (!Wave::kOptions || row0 + 2 * kTileRows > w_.right_first_row) await_right(done, helper);
    });
    if (pair.grad_x && w_.has_left()) tell_left(done, helper);
  }
  __device__ __forceinline__ void await_right(int rows, int helper) const {
    if (!w_.has_right()) return;
    if (!w_.right_is_remote()) {
      if (w_.lane == 0) {
        int* const theirs = memory_of(p_, w_.source_memory + warp_bytes(p_)).rows_done.of + helper;
        while (atomicAdd(theirs, 0) < rows) {
        }
        __threadfence_block();
      }
    } else if (p_.layout.tickets) {
      while (cuda::load_acquire(w_.rows_done_of(w_.strip + 1, helper)) < rows) {
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ void tell_left(int rows, int helper) const {
    __syncwarp();
    if (w_.lane != 0) return;
    if (!w_.left_is_remote()) {
      __threadfence_block();
      atomicExch(m_.rows_done.of + helper, rows);
    } else if (p_.layout.tickets) {
      __threadfence();
      *const_cast<volatile int*>(w_.rows_done_of(w_.strip, helper)) = rows;
    }
  }

  const Wave& w_;
  const Params& p_;
  Real* const ring_;
  Memory& m_;
  const Scale scale_;
  bool reverse_ = false;
  int waited_ = 0;        // number of tiles that the reverse sweep has waited for
  int first_count_ = 0;   // groups of the first segment of the reverse sweep
  Real* here_ = nullptr;  // the lane's cost in its first row of the group
  Real costs_[kGroup];
  Real e_[kGroup];
};

}  // namespace warpalign::detail::soft_dtw
