// Host side of the CUDA path: where everything is in `saved` and in the workspace, and what is launched.
//
//   transducer()            places, if rows are packed or labels flat; rows; lattice
//   transducer_gradient()   row gradient
//
// A float32 call computes in float32 what is per row and per arc, in float64 what is per utterance.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/launch.cuh"
#include "transducer/cuda/launch.h"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

constexpr std::size_t kHeaderBytes = 256;  // the ticket

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
    lattice_ = &lattice_kernel_for<Real>(batch_);
    const int device = execution.cuda_device;
    multiprocessors_ = std::max(1, cuda::attribute(cudaDevAttrMultiProcessorCount, device));
    const int shared =
        cuda::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) - cuda::kStaticSharedBytes;
    int strips = std::min(kPanelStrips, strips_of(l.states));
    while (strips > 1 && lattice_->shared_bytes(strips, history()) > shared) --strips;
    fits_ = lattice_->shared_bytes(strips, history()) <= shared;
    batch_.panel_strips = strips;
    batch_.panels = 1;
    batch_.panels = batch_.panels_of(l.states);
  }

  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] const LatticeKernel& lattice() const { return *lattice_; }
  [[nodiscard]] int history() const { return batch_.arcs.longest + 2; }
  [[nodiscard]] bool has_places() const { return p_.packed || batch_.lattice.flat_targets; }

  // A value's call keeps the same in its workspace, without sums and outcomes.
  [[nodiscard]] Saved<Real> save(Arena& arena, bool for_gradient) const {
    const TransducerLattice& l = batch_.lattice;
    Saved<Real> saved;
    if (for_gradient && !p_.log_probs) saved.sums = arena.take<RowSum<Real>>(batch_.rows);
    saved.slots =
        arena.take<Real>(p_.packed ? most_packed_slots(batch_.rows, l.batch, l.frames, l.states, batch_.slots)
                                   : l.batch * batch_.slots_of_utterance);
    if (for_gradient) saved.outcome = arena.take<std::int32_t>(l.batch);
    if (has_places()) saved.places = arena.take<Place>(l.batch + std::size_t{1});
    return saved;
  }

  // What blocks tell each other, in front of the workspace; all one-bits before the lattice pass.
  struct Exchange {
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
  [[nodiscard]] RowPass row_pass(int labels_per_load, int element_bytes, int threads, int resident) const {
    RowPass pass{};
    pass.lanes = row_lanes(p_.labels, labels_per_load);
    pass.tile = std::max(row_tile(std::int64_t{p_.labels} * element_bytes), 32 / pass.lanes);
    const std::int64_t rows_of_block = std::int64_t{pass.tile} * (threads / 32);
    const std::int64_t needed = cuda::div_up(batch_.rows, rows_of_block);
    pass.blocks = static_cast<int>(std::min<std::int64_t>(needed, std::int64_t{multiprocessors_} * resident));
    pass.stride = row_stride(batch_.lattice, pass.blocks * rows_of_block);
    return pass;
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
  int multiprocessors_;
  bool fits_;
};

void copy_strides(std::int64_t (&to)[3], const std::int64_t* from) { std::copy(from, from + 3, to); }

template <class Storage, class Params>
int set_rows(Params& params, const Plan<cuda::Sum<Storage>>& plan, int threads, int resident) {
  const auto pass = plan.row_pass(RowChunk<Storage>::kPerLoad, sizeof(Storage), threads, resident);
  params.lanes = pass.lanes;
  params.tile = pass.tile;
  params.stride = pass.stride;
  return pass.blocks;
}

template <class Storage>
Status forward(const TransducerProblem& p, const TransducerOutputs& out, Workspace workspace,
               const Execution& execution) {
  using Real = cuda::Sum<Storage>;
  const Plan<Real> plan(p, execution);
  if (!plan.fits())
    return Status::unsupported("durations", "too little shared memory for arcs of so many frames");
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool for_gradient = out.saved != nullptr;
  Arena scratch(workspace.data);
  const auto exchange = plan.exchange(scratch, for_gradient);
  const std::size_t exchange_bytes = scratch.used();
  Arena kept(out.saved);
  const Saved<Real> saved = plan.save(for_gradient ? kept : scratch, for_gradient);
  Batch batch = plan.batch();
  batch.places = saved.places;
  if (plan.has_places()) {
    if (Status s = launch_places(batch, saved.places, stream); !s.ok()) return s;
  }
  if (batch.rows > 0) {
    RowsParams<Storage> rows{};
    rows.batch = batch;
    const int blocks = set_rows<Storage>(rows, plan, kRowThreads, kRowBlocks<Storage>);
    rows.logits = static_cast<const Storage*>(p.logits.data);
    copy_strides(rows.logits_stride, p.logits.stride);
    rows.duration_logits = static_cast<const Storage*>(p.duration_logits.data);
    copy_strides(rows.duration_stride, p.duration_logits.stride);
    rows.penalties =
        penalties_of<Real>(p.lattice, static_cast<Real>(std::log(p.lattice.star_penalty)), false);
    rows.sums = saved.sums;
    rows.slots = saved.slots;
    if (Status s = launch_rows(rows, blocks, stream); !s.ok()) return s;
  }
  LatticeParams<Real> lattice{};
  lattice.batch = batch;
  lattice.slots = saved.slots;
  lattice.loss = static_cast<Real*>(out.loss);
  lattice.outcome = saved.outcome;
  lattice.history = plan.history();
  lattice.ticket = exchange.ticket;
  lattice.records = exchange.records;
  lattice.borders = exchange.borders;
  lattice.reverse_borders = exchange.reverse_borders;
  if (Status s = cuda::set_memory(workspace.data, 0xff, exchange_bytes, stream); !s.ok()) return s;
  const int shared_bytes = plan.lattice().shared_bytes(batch.panel_strips, lattice.history);
  return plan.lattice().launch(&lattice, plan.lattice_blocks(for_gradient), shared_bytes, stream);
}

template <class Storage>
Status gradient(const TransducerProblem& p, const TransducerGradient& g, const Execution& execution) {
  using Real = cuda::Sum<Storage>;
  const Plan<Real> plan(p, execution);
  Arena kept(const_cast<void*>(g.saved));  // NOLINT: only read
  const Saved<Real> saved = plan.save(kept, true);
  GradientParams<Storage> params{};
  params.batch = plan.batch();
  params.batch.places = saved.places;
  const int blocks = set_rows<Storage>(params, plan, kGradientThreads, kGradientBlocks<Storage>);
  params.logits = static_cast<const Storage*>(p.logits.data);
  copy_strides(params.logits_stride, p.logits.stride);
  params.duration_logits = static_cast<const Storage*>(p.duration_logits.data);
  copy_strides(params.duration_stride, p.duration_logits.stride);
  params.sums = saved.sums;
  params.slots = saved.slots;
  params.outcome = saved.outcome;
  params.grad_loss = static_cast<const Real*>(g.grad_loss);
  params.grad_loss_stride = g.grad_loss_stride;
  params.label_factor = static_cast<Real>(1.0 + p.lattice.fastemit);
  params.clamp = static_cast<Real>(p.lattice.clamp);
  params.grad = static_cast<Storage*>(g.logits);
  copy_strides(params.grad_stride, g.logits_stride);
  params.duration_grad = static_cast<Storage*>(g.duration_logits);
  copy_strides(params.duration_grad_stride, g.duration_logits_stride);
  return launch_row_gradient(params, blocks, static_cast<cudaStream_t>(execution.stream));
}

}  // namespace

std::size_t saved_bytes_cuda(const TransducerProblem& p, const Execution& execution) {
  return p.dtype == DType::kFloat64 ? Plan<double>(p, execution).saved_bytes()
                                    : Plan<float>(p, execution).saved_bytes();
}

std::size_t workspace_bytes_cuda(const TransducerProblem& p, const TransducerOutputs& out,
                                 const Execution& execution) {
  const bool for_gradient = out.saved != nullptr;
  return p.dtype == DType::kFloat64 ? Plan<double>(p, execution).workspace_bytes(for_gradient)
                                    : Plan<float>(p, execution).workspace_bytes(for_gradient);
}

std::size_t gradient_workspace_bytes_cuda(const TransducerProblem&, const TransducerGradient&,
                                          const Execution&) {
  return 0;
}

Status forward_cuda(const TransducerProblem& p, const TransducerOutputs& out, Workspace workspace,
                    const Execution& execution) {
  switch (p.dtype) {
    case DType::kFloat64:
      return forward<double>(p, out, workspace, execution);
    case DType::kFloat16:
      return forward<cuda::Float16>(p, out, workspace, execution);
    case DType::kBFloat16:
      return forward<cuda::BFloat16>(p, out, workspace, execution);
    default:
      return forward<float>(p, out, workspace, execution);
  }
}

Status gradient_cuda(const TransducerProblem& p, const TransducerGradient& g, Workspace,
                     const Execution& execution) {
  switch (p.dtype) {
    case DType::kFloat64:
      return gradient<double>(p, g, execution);
    case DType::kFloat16:
      return gradient<cuda::Float16>(p, g, execution);
    case DType::kBFloat16:
      return gradient<cuda::BFloat16>(p, g, execution);
    default:
      return gradient<float>(p, g, execution);
  }
}

}  // namespace warpalign::detail::transducer
