// Host side of the losses. Launches:
//
//   ctc_loss()       offsets, if targets are flat; rows; sweep over whole utterances
//   ctc_gradient()   equal labels, where they are few among classes; then for each round of chunks: sweep,
//                    gradient
#include "core/visit_dtype.h"
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/call/rounds.cuh"
#include "ctc/cuda/gradient/memory.cuh"
#include "ctc/problem.h"

namespace warpalign::detail::ctc {
namespace {

// The sweep over whole utterances, reading weights of type `Element`.
template <class Element>
Status sweep_utterances(const CtcProblem& p, const CtcOutputs& out, const Plan<cuda::Sum<Element>>& plan,
                        const Batch& batch, const Emissions<Element>& from,
                        const Saved<cuda::Sum<Element>>& saved,
                        const Exchange<State<cuda::Sum<Element>>>& exchange, cudaStream_t stream) {
  using Real = cuda::Sum<Element>;
  SweepParams<Element, Sums<Real>> sweep{};
  sweep.batch = batch;
  sweep.from = from;
  sweep.chunk = std::max(cuda::div_up(p.frames, kSegment), 1) * kSegment;
  sweep.chunks = 1;
  if (saved.verdicts) sweep.saves = saved.checkpoints;
  sweep.edges = exchange.edges;
  sweep.directions = saved.verdicts ? 2 : 1;
  sweep.panels = plan.panels();
  sweep.panel_strips = plan.panel_strips();
  sweep.ticket = exchange.ticket;
  sweep.result = {static_cast<Real*>(out.loss), saved.verdicts, p.zero_infinity};
  return launch_sweep(sweep, plan.multiprocessors(), exchange.bytes, stream);
}

template <class Element>
Status loss(const CtcProblem& p, const CtcOutputs& out, const Plan<cuda::Sum<Element>>& plan, Arena scratch,
            const Execution& execution) {
  using Real = cuda::Sum<Element>;
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("ctc_loss", cuda::name_of_device(execution.cuda_device));
    plan.describe(*log);
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena kept(out.saved);
  const bool for_gradient = out.saved != nullptr;
  const Saved<Real> saved = plan.save(for_gradient ? kept : scratch, for_gradient);
  const Exchange<State<Real>> exchange =
      for_gradient && plan.keeps_whole()
          ? saved.exchange
          : plan.template panel_exchange<State<Real>>(scratch, for_gradient ? 2 : 1);
  Real* const table = plan.table(scratch);
  const Batch batch = plan.batch(saved.offsets);
  RowsParams<Element> rows = rows_of<Element>(p, batch, saved);
  rows.table = table;
  if (Status s = enqueue_rows(rows, stream); !s.ok()) return s;
  const Emissions<Element> from = emissions_of<Element>(p, batch, saved);
  if (!table) return sweep_utterances<Element>(p, out, plan, batch, from, saved, exchange, stream);
  const std::int64_t columns = plan.labels() + std::int64_t{1};
  const Emissions<Real> of_table{
      table, {columns * p.frames, columns, 1}, true, from.sums, from.stars, from.prior, false};
  return sweep_utterances<Real>(p, out, plan, batch, of_table, saved, exchange, stream);
}

template <class Element>
Status gradient(const CtcProblem& p, const CtcGradient& g, Workspace workspace, const Execution& execution) {
  using Real = cuda::Sum<Element>;
  const Plan<Real> plan(p, execution);
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("ctc_gradient", cuda::name_of_device(execution.cuda_device));
    plan.describe_sizes(*log);
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena kept(const_cast<void*>(g.saved)), arena(workspace.data);  // NOLINT: saved is only read
  const Saved<Real> saved = plan.save(kept, true);
  const Batch batch = plan.batch(saved.offsets);
  const OccupancyMemory<Real> memory(p, plan, arena);
  if (memory.first) {
    Status s = launch_equal_labels(batch, plan.labels(), memory.first, nullptr, stream);
    if (!s.ok()) return s;
  }
  GradientParams<Element> params{};
  params.slots = plan.slots();
  params.slots.first = memory.first;
  params.occupancies = memory.occupancies;
  params.grad_loss = static_cast<const Real*>(g.grad_loss);
  params.grad_loss_stride = g.grad_loss_stride;
  params.grad = static_cast<Element*>(g.logits);
  std::copy(g.logits_stride, g.logits_stride + 3, params.grad_stride);
  const int warps = plan.segment_warps(
      [&](int strips) { return gradient_shared_bytes<Real>(strips, params.slots, !params.occupancies); });
  return in_rounds<Element>(p, plan, batch, saved, arena, stream, [&](const SegmentParams<Element>& segment) {
    params.segment = segment;
    return launch_gradient(params, warps, stream);
  });
}

// The caller's pointer to losses may be null; the sweep's verdicts are always needed.
template <class Real>
struct PosteriorMemory {
  std::byte* saved;
  Real* loss;
  Arena rest;  // the workspace of the loss, then of the rounds

  PosteriorMemory(const CtcProblem& p, const Plan<Real>& plan, Arena arena) {
    Arena bytes;
    static_cast<void>(plan.save(bytes, true));
    saved = arena.take<std::byte>(bytes.used());
    loss = arena.take<Real>(p.batch);
    rest = arena;
  }
};

template <class Element>
Status posteriors(const CtcProblem& p, const CtcPosteriors& out, Workspace workspace,
                  const Execution& execution) {
  using Real = cuda::Sum<Element>;
  const Plan<Real> plan(p, execution);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const PosteriorMemory<Real> memory(p, plan, Arena(workspace.data));
  const CtcOutputs outputs{out.loss ? out.loss : memory.loss, memory.saved};
  if (Status s = loss<Element>(p, outputs, plan, memory.rest, execution); !s.ok()) return s;
  if (p.frames == 0 || p.labels == 0) return {};
  Arena kept(memory.saved), rest = memory.rest;
  const Saved<Real> saved = plan.save(kept, true);
  const Batch batch = plan.batch(saved.offsets);
  const int warps = plan.segment_warps(posteriors_shared_bytes<Real>);
  return in_rounds<Element>(p, plan, batch, saved, rest, stream, [&](const SegmentParams<Element>& segment) {
    const PosteriorParams<Stored<Element>> params{stored(segment), static_cast<Real*>(out.labels)};
    return launch_posteriors(params, warps, stream);
  });
}

template <class Real>
std::size_t loss_bytes(const Plan<Real>& plan, bool for_gradient, Arena arena = {}) {
  if (!for_gradient) static_cast<void>(plan.save(arena, false));
  if (!for_gradient || !plan.keeps_whole()) {
    static_cast<void>(plan.template panel_exchange<State<Real>>(arena, for_gradient ? 2 : 1));
  }
  static_cast<void>(plan.table(arena));
  return arena.used();
}
template <class Real>
std::size_t saved_bytes(const CtcProblem& p, const Execution& execution) {
  Arena arena;
  static_cast<void>(Plan<Real>(p, execution).save(arena, true));
  return arena.used();
}
template <class Real>
std::size_t gradient_bytes(const CtcProblem& p, const Execution& execution) {
  const Plan<Real> plan(p, execution);
  Arena arena;
  static_cast<void>(OccupancyMemory<Real>(p, plan, arena));
  static_cast<void>(RoundMemory<Real>(plan, arena, 0));
  return arena.used();
}
template <class Real>
std::size_t posterior_bytes(const CtcProblem& p, const Execution& execution) {
  const Plan<Real> plan(p, execution);
  const PosteriorMemory<Real> memory(p, plan, {});
  Arena rounds = memory.rest;
  static_cast<void>(RoundMemory<Real>(plan, rounds, 0));
  return std::max(loss_bytes(plan, true, memory.rest), rounds.used());
}

}  // namespace

std::size_t saved_bytes_cuda(const CtcProblem& p, const Execution& execution) {
  return p.dtype == DType::kFloat64 ? saved_bytes<double>(p, execution) : saved_bytes<float>(p, execution);
}

std::size_t loss_workspace_bytes_cuda(const CtcProblem& p, const CtcOutputs& out,
                                      const Execution& execution) {
  const bool for_gradient = out.saved != nullptr;
  return p.dtype == DType::kFloat64 ? loss_bytes(Plan<double>(p, execution), for_gradient)
                                    : loss_bytes(Plan<float>(p, execution), for_gradient);
}

Status loss_cuda(const CtcProblem& p, const CtcOutputs& out, Workspace workspace,
                 const Execution& execution) {
  if (Status s = check_way(execution, kWays, "ctc_loss() on CUDA"); !s.ok()) return s;
  return visit_dtype(p.dtype, [&](auto type) {
    using Element = typename decltype(type)::Type;
    const Plan<cuda::Sum<Element>> plan(p, execution);
    return loss<Element>(p, out, plan, Arena(workspace.data), execution);
  });
}

std::size_t gradient_workspace_bytes_cuda(const CtcProblem& p, const CtcGradient&,
                                          const Execution& execution) {
  return p.dtype == DType::kFloat64 ? gradient_bytes<double>(p, execution)
                                    : gradient_bytes<float>(p, execution);
}

Status gradient_cuda(const CtcProblem& p, const CtcGradient& g, Workspace workspace,
                     const Execution& execution) {
  if (Status s = check_way(execution, kWays, "ctc_loss() on CUDA"); !s.ok()) return s;
  if (p.frames == 0) return {};
  return visit_dtype(p.dtype, [&](auto type) {
    return gradient<typename decltype(type)::Type>(p, g, workspace, execution);
  });
}

std::size_t posteriors_workspace_bytes_cuda(const CtcProblem& p, const CtcPosteriors&,
                                            const Execution& execution) {
  return p.dtype == DType::kFloat64 ? posterior_bytes<double>(p, execution)
                                    : posterior_bytes<float>(p, execution);
}

Status posteriors_cuda(const CtcProblem& p, const CtcPosteriors& out, Workspace workspace,
                       const Execution& execution) {
  if (Status s = check_way(execution, kWays, "ctc_loss() on CUDA"); !s.ok()) return s;
  return visit_dtype(p.dtype, [&](auto type) {
    return posteriors<typename decltype(type)::Type>(p, out, workspace, execution);
  });
}

const char* way_cuda(int index) { return way_at(kWays, index); }

bool kernel_launches_cuda(int index, KernelLaunches& out) { return kKernels.read(index, out); }

}  // namespace warpalign::detail::ctc
