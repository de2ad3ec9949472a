// The plan of a call on the CUDA path: its sizes, the layout of `saved` and of the workspace, and the
// launches of the two passes that compute losses and posteriors from logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/arena.h"
#include "core/plan_log.h"
#include "core/ways.h"
#include "cuda/launch/check.h"
#include "cuda/launch/device.h"
#include "cuda/launch/launch.cuh"
#include "transducer/cuda/call/launch.h"
#include "transducer/cuda/pruned/launch_band.h"

namespace warpalign::detail::transducer {
inline namespace on_device {

inline constexpr std::size_t kHeaderBytes = 256;  // the ticket

// The memory that the first call saves for the second.
template <class Real>
struct Saved {
  RowSum<Real>* sums = nullptr;  // (rows,); null with log-probabilities
  Real* slots = nullptr;
  std::int32_t* outcome = nullptr;  // (B,)
  Place* places = nullptr;          // (B + 1,), or null
};

// The sizes of a call. They depend on the problem's sizes and options, and on the device.
template <class Real>
class Plan {
 public:
  // way: an index of kLatticeWays that the caller has named; -1: the plan chooses. band: the nodes that
  // alone have slots and sums; none: all nodes have.
  Plan(const TransducerProblem& problem, const Execution& execution, int way = -1, const Band& band = {})
      : p_(problem), is_named_(way >= 0) {
    const TransducerLattice& l = p_.lattice;
    batch_.lattice = l;
    batch_.arcs = arc_table(l);
    batch_.plain = plain_arc_table(l);
    batch_.slots = slots_of(l);
    batch_.labels = p_.labels;
    batch_.packed = p_.packed;
    batch_.log_probs = p_.log_probs;
    const std::int64_t utterances = l.batch;
    batch_.rows = p_.packed ? p_.packed_rows : utterances * l.frames * l.states;
    batch_.band = band;
    if (!p_.packed && l.frames > 0) {
      const std::int32_t states = band ? band.width : l.states;
      batch_.slots_of_utterance = SlotLayout{l.frames, states, batch_.slots}.count();
    }
    const cuda::DeviceTraits device = cuda::traits_of(execution.cuda_device);
    multiprocessors_ = std::max(1, device.multiprocessors);
    const int strips = choose(way, device.shared_bytes_per_block);
    batch_.panel_strips = strips;
    batch_.panels = 1;
    batch_.panels = batch_.panels_of(l.states);
  }

  // ok, or the reason why no way, or not the way that the caller has named, can serve the problem.
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] const LatticeKernel& lattice() const { return *lattice_; }
  [[nodiscard]] int history() const { return batch_.arcs.longest + 2; }
  [[nodiscard]] const SweepShape& shape() const { return shape_; }
  [[nodiscard]] bool has_places() const { return p_.packed || batch_.lattice.flat_targets; }

  // The way of the lattice pass, and its sizes.
  void describe(PlanLog& log) const {
    const TransducerLattice& l = batch_.lattice;
    const char* why = "the kernel of the fewest arcs that suffices";
    if (way_ != lattice_way_for(batch_)) why = "kernels of fewer arcs need more shared memory";
    if (batch_.band) {
      log.way("band", "RNN-T with few states of a frame, which are swept alone");
    } else {
      log.way(kLatticeWays[static_cast<int>(way_)], is_named_ ? "named by Execution::way" : why);
    }
    log.line("sizes", std::to_string(l.batch) + " utterances of " + std::to_string(l.frames) + " frames x " +
                          std::to_string(l.states) + " states, " + std::to_string(batch_.rows) + " rows of " +
                          std::to_string(p_.labels) + " labels, " + std::to_string(batch_.slots) +
                          " arcs a node");
    if (batch_.band) return;
    log.line("lattice", std::to_string(batch_.panels) + " blocks of " + std::to_string(batch_.panel_strips) +
                            " strips an utterance");
  }

  [[nodiscard]] std::int64_t slot_count() const {
    const TransducerLattice& l = batch_.lattice;
    return p_.packed ? most_packed_slots(batch_.rows, l.batch, l.frames, l.states, batch_.slots)
                     : l.batch * batch_.slots_of_utterance;
  }

  // A call for losses alone keeps the same in its workspace, without sums and outcomes.
  [[nodiscard]] Saved<Real> save(Arena& arena, bool for_gradient) const {
    const TransducerLattice& l = batch_.lattice;
    Saved<Real> saved;
    if (for_gradient && !p_.log_probs) {
      const std::int64_t of_band = std::int64_t{l.batch} * l.frames * batch_.band.width;
      saved.sums = arena.take<RowSum<Real>>(batch_.band ? of_band : batch_.rows, "saved: sums of rows");
    }
    saved.slots = arena.take<Real>(slot_count(), "saved: arcs");
    if (for_gradient) saved.outcome = arena.take<std::int32_t>(l.batch, "saved: outcomes");
    if (has_places())
      saved.places = arena.take<Place>(l.batch + std::size_t{1}, "saved: places of utterances");
    return saved;
  }

  // The exchange between blocks, at the beginning of the workspace. All bits are 1 before the lattice pass.
  struct Exchange {
    void* begin = nullptr;
    std::size_t bytes = 0;
    int* ticket = nullptr;
    Record<Real>* records = nullptr;
    cuda::Word* borders = nullptr;
    cuda::Word* reverse_borders = nullptr;
  };
  [[nodiscard]] Exchange exchange(Arena& arena, bool for_gradient) const {
    Exchange e;
    if (batch_.panels == 1 || batch_.band) return e;
    const std::int64_t utterances = batch_.lattice.batch;
    const std::int64_t padded = utterances * (batch_.panels - 1) * batch_.lattice.frames;
    // A packed utterance of P panels has more than (P - 1) panel_strips kStrip states.
    const std::int64_t frames = p_.packed ? batch_.rows / (batch_.panel_strips * kStrip) : padded;
    e.ticket = arena.take<int>(kHeaderBytes / sizeof(int), "ticket");
    e.records = arena.take<Record<Real>>(utterances, "records of utterances");
    e.borders = arena.take<cuda::Word>(2 * frames, "borders of panels");
    if (for_gradient) e.reverse_borders = arena.take<cuda::Word>(frames, "borders of panels, backward");
    e.begin = e.ticket;
    e.bytes = arena.used();
    return e;
  }

  [[nodiscard]] std::size_t saved_bytes() const {
    Arena arena;
    static_cast<void>(save(arena, true));
    return arena.used();
  }
  [[nodiscard]] std::size_t workspace_bytes(bool for_gradient) const {
    Arena arena;
    static_cast<void>(exchange(arena, for_gradient));
    if (!for_gradient) static_cast<void>(save(arena, false));
    return arena.used();
  }

  // A row pass: lanes of a row, rows of a warp's tile, and the number of blocks. `resident`: blocks that a
  // multiprocessor holds.
  struct RowPass {
    int lanes, tile, blocks;
    RowStride stride;
  };
  [[nodiscard]] RowPass row_pass(int columns_of_lane, int element_bytes, int threads, int resident) const {
    RowPass pass{};
    pass.lanes = row_lanes(p_.labels, columns_of_lane);
    pass.tile = std::max(row_tile(std::int64_t{p_.labels} * element_bytes), 32 / pass.lanes);
    const std::int64_t rows_of_block = std::int64_t{pass.tile} * (threads / 32);
    const std::int64_t needed = cuda::div_up(batch_.rows, rows_of_block);
    pass.blocks = static_cast<int>(std::min<std::int64_t>(needed, std::int64_t{multiprocessors_} * resident));
    pass.stride = row_stride(batch_.lattice, pass.blocks * rows_of_block);
    return pass;
  }
  // The number of blocks of a kernel with a thread per element, in a grid-stride loop.
  [[nodiscard]] int blocks_for(std::int64_t elements, int threads) const {
    constexpr std::int64_t kResident = 8;
    return static_cast<int>(
        std::min<std::int64_t>(cuda::div_up(elements, std::int64_t{threads}), multiprocessors_ * kResident));
  }
  [[nodiscard]] int lattice_blocks(bool for_gradient) const {
    if (batch_.panels == 1) return batch_.lattice.batch;
    constexpr std::int64_t kResident = 4;  // about as many as registers allow
    const std::int64_t tasks = std::int64_t{batch_.lattice.batch} * batch_.panels * (for_gradient ? 2 : 1);
    return static_cast<int>(std::min(tasks, kResident * multiprocessors_));
  }

 private:
  // Tries a way with as many strips as fit into the shared memory. Returns 0 if not even one does.
  int strips_that_fit(LatticeWay way, int shared) {
    way_ = way;
    lattice_ = &lattice_kernel<Real>(way);
    shape_ = {history(), batch_.slots, way != LatticeWay::kAnyArcsUnstaged};
    int strips = std::min(kPanelStrips, strips_of(batch_.lattice.states));
    while (strips > 0 && lattice_->shared_bytes(strips, shape_) > shared) --strips;
    return strips;
  }
  // Chooses a way, and returns the number of strips of a block. Prefers fewer strips to slots from global
  // memory.
  int choose(int named, int shared) {
    const auto why_not = [&](int way) -> const char* {
      if (!has_arcs(LatticeWay(way), batch_)) return "its kernel has other arcs than the problem";
      return strips_that_fit(LatticeWay(way), shared) > 0 ? nullptr : kTooLittleMemory;
    };
    status_ = check_serves(named, kLatticeWays, why_not);
    const LatticeWay first = named >= 0 ? LatticeWay(named) : lattice_way_for(batch_);
    for (const LatticeWay way : {first, LatticeWay::kAnyArcs, LatticeWay::kAnyArcsUnstaged}) {
      if (!has_arcs(way, batch_)) continue;
      if (const int strips = strips_that_fit(way, shared); strips > 0) return strips;
      if (named >= 0) return 1;
    }
    if (status_.ok()) status_ = Status::unsupported("durations", kTooLittleMemory);
    return 1;
  }

  static constexpr const char* kTooLittleMemory = "too little shared memory for arcs of so many frames";

  const TransducerProblem& p_;
  const bool is_named_;
  Batch batch_{};
  LatticeWay way_ = LatticeWay::kPlain;
  const LatticeKernel* lattice_ = nullptr;
  SweepShape shape_{};
  int multiprocessors_;
  Status status_;
};

inline void copy_strides(std::int64_t (&to)[3], const std::int64_t* from) { std::copy(from, from + 3, to); }

template <class Storage, class Params>
int set_rows(Params& params, const Plan<cuda::Sum<Storage>>& plan, int threads, int resident) {
  const auto pass = plan.row_pass(RowChunk<Storage>::kColumns, sizeof(Storage), threads, resident);
  params.lanes = pass.lanes;
  params.tile = pass.tile;
  if constexpr (requires { params.stride; }) params.stride = pass.stride;
  return pass.blocks;
}

// Enqueues the kernels that compute arc weights in saved.slots from logits: places, if utterances need them,
// then the rows pass. batch.places is saved.places.
template <class Storage>
Status enqueue_rows(const TransducerProblem& p, const Plan<cuda::Sum<Storage>>& plan, const Batch& batch,
                    const Saved<cuda::Sum<Storage>>& saved, cudaStream_t stream) {
  using Real = cuda::Sum<Storage>;
  if (plan.has_places()) {
    if (Status s = launch_places(batch, saved.places, stream); !s.ok()) return s;
  }
  if (batch.rows == 0) return {};
  RowsParams<Storage> rows{};
  rows.batch = batch;
  const int blocks = set_rows<Storage>(rows, plan, kRowThreads, kRowBlocks<Storage>);
  rows.logits = static_cast<const Storage*>(p.logits.data);
  copy_strides(rows.logits_stride, p.logits.stride);
  rows.duration_logits = static_cast<const Storage*>(p.duration_logits.data);
  copy_strides(rows.duration_stride, p.duration_logits.stride);
  rows.penalties = penalties_of<Real>(p.lattice, static_cast<Real>(std::log(p.lattice.star_penalty)), false);
  rows.sums = saved.sums;
  rows.slots = saved.slots;
  return launch_rows(rows, blocks, stream);
}

// Enqueues the lattice pass, which computes losses and, unless saved.outcome is null, replaces arc weights by
// posteriors. `exchange` is the beginning of the workspace, of exchange_bytes.
template <class Real>
Status enqueue_lattice(const Plan<Real>& plan, const Batch& batch, const Saved<Real>& saved,
                       const typename Plan<Real>::Exchange& exchange, Real* loss, cudaStream_t stream) {
  LatticeParams<Real> lattice{};
  lattice.batch = batch;
  lattice.slots = saved.slots;
  lattice.loss = loss;
  lattice.outcome = saved.outcome;
  if constexpr (std::is_same_v<Real, float>) {
    if (batch.band) return launch_band_sweep(lattice, stream);
  }
  lattice.shape = plan.shape();
  lattice.ticket = exchange.ticket;
  lattice.records = exchange.records;
  lattice.borders = exchange.borders;
  lattice.reverse_borders = exchange.reverse_borders;
  if (Status s = cuda::set_memory(exchange.begin, 0xff, exchange.bytes, stream); !s.ok()) return s;
  const int shared_bytes = plan.lattice().shared_bytes(batch.panel_strips, lattice.shape);
  return plan.lattice().launch(&lattice, plan.lattice_blocks(saved.outcome != nullptr), shared_bytes, stream);
}

}  // namespace on_device
}  // namespace warpalign::detail::transducer
