// How a call on the CUDA path is planned: what follows from the problem's sizes and kinds, where everything
// is in `saved` and in the workspace, and the two passes that turn logits into losses and posteriors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "cuda/launch/check.h"
#include "cuda/launch/device.h"
#include "cuda/launch/launch.cuh"
#include "transducer/cuda/call/launch.h"

namespace warpalign::detail::transducer {
inline namespace on_device {

inline constexpr std::size_t kHeaderBytes = 256;  // the ticket

// What outlives the first call.
template <class Real>
struct Saved {
  RowSum<Real>* sums = nullptr;  // (rows,); null with log-probabilities
  Real* slots = nullptr;
  std::int32_t* outcome = nullptr;  // (B,)
  Place* places = nullptr;          // (B + 1,), or null
};

// What a call works on: everything that follows from the problem's sizes and kinds.
template <class Real>
class Plan {
 public:
  Plan(const TransducerProblem& problem, const Execution& execution) : p_(problem) {
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
    if (!p_.packed && l.frames > 0)
      batch_.slots_of_utterance = SlotLayout{l.frames, l.states, batch_.slots}.count();
    const int device = execution.cuda_device;
    multiprocessors_ = std::max(1, cuda::attribute(cudaDevAttrMultiProcessorCount, device));
    const int shared =
        cuda::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) - cuda::kStaticSharedBytes;
    // Fewer strips rather than slots from global memory.
    const struct {
      const LatticeKernel& kernel;
      bool staged;
    } ways[] = {{lattice_kernel_for<Real>(batch_), true},
                {any_arcs_kernel<Real>(), true},
                {any_arcs_kernel<Real>(), false}};
    int strips = 0;
    for (const auto& way : ways) {
      lattice_ = &way.kernel;
      shape_ = {history(), batch_.slots, way.staged};
      strips = std::min(kPanelStrips, strips_of(l.states));
      while (strips > 1 && lattice_->shared_bytes(strips, shape_) > shared) --strips;
      fits_ = lattice_->shared_bytes(strips, shape_) <= shared;
      if (fits_) break;
    }
    batch_.panel_strips = strips;
    batch_.panels = 1;
    batch_.panels = batch_.panels_of(l.states);
  }

  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] const LatticeKernel& lattice() const { return *lattice_; }
  [[nodiscard]] int history() const { return batch_.arcs.longest + 2; }
  [[nodiscard]] const SweepShape& shape() const { return shape_; }
  [[nodiscard]] bool has_places() const { return p_.packed || batch_.lattice.flat_targets; }

  [[nodiscard]] std::int64_t slot_count() const {
    const TransducerLattice& l = batch_.lattice;
    return p_.packed ? most_packed_slots(batch_.rows, l.batch, l.frames, l.states, batch_.slots)
                     : l.batch * batch_.slots_of_utterance;
  }

  // A value's call keeps the same in its workspace, without sums and outcomes.
  [[nodiscard]] Saved<Real> save(Arena& arena, bool for_gradient) const {
    const TransducerLattice& l = batch_.lattice;
    Saved<Real> saved;
    if (for_gradient && !p_.log_probs) saved.sums = arena.take<RowSum<Real>>(batch_.rows);
    saved.slots = arena.take<Real>(slot_count());
    if (for_gradient) saved.outcome = arena.take<std::int32_t>(l.batch);
    if (has_places()) saved.places = arena.take<Place>(l.batch + std::size_t{1});
    return saved;
  }

  // What blocks tell each other, in front of the workspace; all one-bits before the lattice pass.
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
    if (batch_.panels == 1) return e;
    const std::int64_t utterances = batch_.lattice.batch;
    const std::int64_t padded = utterances * (batch_.panels - 1) * batch_.lattice.frames;
    // A packed utterance of P panels has more than (P - 1) panel_strips kStrip states.
    const std::int64_t frames = p_.packed ? batch_.rows / (batch_.panel_strips * kStrip) : padded;
    e.ticket = arena.take<int>(kHeaderBytes / sizeof(int));
    e.records = arena.take<Record<Real>>(utterances);
    e.borders = arena.take<cuda::Word>(2 * frames);
    if (for_gradient) e.reverse_borders = arena.take<cuda::Word>(frames);
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

  // A row pass: lanes of a row, rows of a warp's tile, and blocks, of which a multiprocessor holds
  // `resident`.
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
  // Blocks of a kernel with a thread per element. A thread goes on to further elements.
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
  const TransducerProblem& p_;
  Batch batch_{};
  const LatticeKernel* lattice_;
  SweepShape shape_{};
  int multiprocessors_;
  bool fits_ = false;
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

// Enqueues what turns logits into arc weights in saved.slots: places, where utterances need them, then the
// rows pass. batch.places is saved.places.
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

// Enqueues the lattice pass: losses, and arc weights become posteriors if saved.outcome is there. `exchange`
// lies in front of the workspace and has exchange_bytes.
template <class Real>
Status enqueue_lattice(const Plan<Real>& plan, const Batch& batch, const Saved<Real>& saved,
                       const typename Plan<Real>::Exchange& exchange, Real* loss, cudaStream_t stream) {
  LatticeParams<Real> lattice{};
  lattice.batch = batch;
  lattice.slots = saved.slots;
  lattice.loss = loss;
  lattice.outcome = saved.outcome;
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
