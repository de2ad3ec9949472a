// Host side of passes over segments, in rounds: a round sweeps some chunks again for the states at the
// boundaries of their segments.
#pragma once

#include "ctc/cuda/call/plan.cuh"

namespace warpalign::detail::ctc {

// The results of a round's sweep, which the passes over its segments read.
template <class Real>
struct RoundMemory {
  Exchange<State<Real>> exchange = {};
  Checkpoints<State<Real>> checkpoints = {};

  RoundMemory(const Plan<Real>& plan, Arena& arena, int first_chunk) {
    if (!plan.refills()) return;
    exchange = plan.strip_exchange(arena, first_chunk);
    checkpoints = plan.round_checkpoints(arena, first_chunk);
  }
};

// The slots in which the gradient adds posteriors of equal labels.
template <class Real>
struct OccupancyMemory {
  std::int32_t* first = nullptr;
  Real* occupancies = nullptr;

  OccupancyMemory(const CtcProblem& p, const Plan<Real>& plan, Arena& arena) {
    if (!plan.slots().dense) {
      first = arena.take<std::int32_t>(static_cast<std::size_t>(p.batch) * plan.labels(),
                                       "first of equal labels");
    }
    occupancies = plan.occupancies(arena);
  }
};

// For each round, enqueues its sweep and then pass(segment) for its segments. Rounds use the memory after
// `arena`, one after the other.
template <class Element, class Pass>
Status in_rounds(const CtcProblem& p, const Plan<cuda::Sum<Element>>& plan, const Batch& batch,
                 const Saved<cuda::Sum<Element>>& saved, const Arena& arena, cudaStream_t stream,
                 const Pass& pass) {
  using Real = cuda::Sum<Element>;
  const int segments_of_chunk = plan.chunk() / kSegment;
  const int all_segments = cuda::div_up(p.frames, kSegment);
  for (int chunk = 0; chunk < plan.chunks(); chunk += plan.round_chunks()) {
    Arena scratch = arena;
    const RoundMemory<Real> memory(plan, scratch, chunk);
    const int chunks = std::min(plan.round_chunks(), plan.chunks() - chunk);
    SegmentParams<Element> segment{};
    segment.batch = batch;
    segment.from = emissions_of<Element>(p, batch, saved);
    segment.checkpoints = saved.checkpoints;
    segment.edges = saved.exchange.edges;
    segment.verdicts = saved.verdicts;
    segment.first_segment = chunk * segments_of_chunk;
    segment.segments = std::min(chunks * segments_of_chunk, all_segments - segment.first_segment);
    if (plan.refills()) {
      SweepParams<Element, Sums<Real>> sweep{};
      sweep.batch = batch;
      sweep.from = segment.from;
      sweep.chunk = plan.chunk();
      sweep.first_chunk = chunk;
      sweep.chunks = chunks;
      sweep.starts = saved.checkpoints;
      sweep.saves = segment.checkpoints = memory.checkpoints;
      sweep.edges = segment.edges = memory.exchange.edges;
      sweep.directions = 2;
      sweep.panels = plan.panels();
      sweep.panel_strips = plan.panel_strips();
      sweep.ticket = memory.exchange.ticket;
      Status s = launch_sweep(sweep, plan.multiprocessors(), memory.exchange.bytes, stream);
      if (!s.ok()) return s;
    }
    if (Status s = pass(segment); !s.ok()) return s;
  }
  return {};
}

}  // namespace warpalign::detail::ctc
