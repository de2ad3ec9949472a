// Host side of alignments. Launches: the rows pass (normalisers, and the star's weights), the sweep over best
// paths, the chain of states at the boundaries of pieces, and the trace of all pieces at once.
#include "core/visit_dtype.h"
#include "ctc/cuda/align/launch.h"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/call/plan.cuh"
#include "ctc/problem.h"

namespace warpalign::detail::ctc {
namespace {

// The arrays in the workspace.
template <class Real>
struct AlignMemory {
  int piece, pieces, warps;
  Saved<Real> rows;  // its verdicts and checkpoints are not used
  Exchange<BestState> exchange;
  Checkpoints<BestState> checkpoints;
  BestEnd* ends;
  std::int32_t* states;

  AlignMemory(const CtcProblem& p, const Plan<Real>& plan, Arena& arena) {
    constexpr int kLong = 16384;  // frames; from here on pieces are longer, which takes less memory
    piece = p.frames < kLong ? kMostPiece / 2 : kMostPiece;
    pieces = std::max(cuda::div_up(p.frames, piece), 1);
    warps = std::min(piece / kStrip, plan.strips());
    rows = plan.save(arena, false);
    exchange = plan.template panel_exchange<BestState>(arena, 1);
    checkpoints = {nullptr, piece, 1, pieces - 1, plan.labels() + 1, 1};
    checkpoints.data = arena.take<Pair<BestState>>(checkpoints.size(p.batch));
    ends = arena.take<BestEnd>(p.batch);
    states = arena.take<std::int32_t>(static_cast<std::size_t>(p.batch) * (pieces + 1));
  }
};

Status fill_outputs(const CtcProblem& p, const CtcAlignment& out, std::size_t real_bytes,
                    cudaStream_t stream) {
  const std::size_t rows = static_cast<std::size_t>(p.batch) * p.frames;
  const std::size_t spans = p.flat_targets ? static_cast<std::size_t>(p.target_count)
                                           : static_cast<std::size_t>(p.batch) * p.labels;
  if (out.labels) {
    if (Status s = cuda::set_memory(out.labels, 0xff, rows * sizeof(*out.labels), stream); !s.ok()) return s;
  }
  if (out.scores) {
    if (Status s = cuda::set_memory(out.scores, 0, rows * real_bytes, stream); !s.ok()) return s;
  }
  if (!out.spans) return {};
  return cuda::set_memory(out.spans, 0xff, 2 * spans * sizeof(*out.spans), stream);
}

template <class Element>
Status align(const CtcProblem& p, const CtcAlignment& out, Workspace workspace, const Execution& execution) {
  using Real = cuda::Sum<Element>;
  const Plan<Real> plan(p, execution);
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("ctc_align", cuda::name_of_device(execution.cuda_device));
    plan.describe_sizes(*log);
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena arena(workspace.data);
  const AlignMemory<Real> memory(p, plan, arena);
  const Batch batch = plan.batch(memory.rows.offsets);
  if (Status s = fill_outputs(p, out, sizeof(Real), stream); !s.ok()) return s;
  const Emissions<Stored<Element>> from = stored(emissions_of<Element>(p, batch, memory.rows));
  RowsParams<Element> rows = rows_of<Element>(p, batch, memory.rows);
  rows.star_is_largest = true;
  rows.prior = from.prior;
  if (Status s = enqueue_rows(rows, stream); !s.ok()) return s;
  BestParams<Stored<Element>> sweep{};
  sweep.batch = batch;
  sweep.from = from;
  sweep.chunk = std::max(cuda::div_up(p.frames, kSegment), 1) * kSegment;
  sweep.chunks = 1;
  sweep.saves = memory.checkpoints;
  sweep.edges = memory.exchange.edges;
  sweep.directions = 1;
  sweep.panels = plan.panels();
  sweep.panel_strips = plan.panel_strips();
  sweep.ticket = memory.exchange.ticket;
  sweep.result = {static_cast<Real*>(out.score), memory.ends};
  if (Status s = launch_best(sweep, plan.multiprocessors(), memory.exchange.bytes, stream); !s.ok()) return s;
  if (!out.labels && !out.scores && !out.spans) return {};
  TraceParams<Stored<Element>> trace{};
  trace.batch = batch;
  trace.from = from;
  trace.checkpoints = memory.checkpoints;
  trace.piece = memory.piece;
  trace.pieces = memory.pieces;
  trace.ends = memory.ends;
  trace.states = memory.states;
  trace.labels = out.labels;
  trace.scores = static_cast<Real*>(out.scores);
  trace.spans = out.spans;
  return launch_trace(trace, memory.warps, stream);
}

template <class Real>
std::size_t align_bytes(const CtcProblem& p, const Execution& execution) {
  const Plan<Real> plan(p, execution);
  Arena arena;
  static_cast<void>(AlignMemory<Real>(p, plan, arena));
  return arena.used();
}

}  // namespace

std::size_t align_workspace_bytes_cuda(const CtcProblem& p, const CtcAlignment&, const Execution& execution) {
  return p.dtype == DType::kFloat64 ? align_bytes<double>(p, execution) : align_bytes<float>(p, execution);
}

Status align_cuda(const CtcProblem& p, const CtcAlignment& out, Workspace workspace,
                  const Execution& execution) {
  if (Status s = check_way(execution, kWays, "ctc_loss() on CUDA"); !s.ok()) return s;
  return visit_dtype(
      p.dtype, [&](auto type) { return align<typename decltype(type)::Type>(p, out, workspace, execution); });
}

}  // namespace warpalign::detail::ctc
