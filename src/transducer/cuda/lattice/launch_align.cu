// Host side of alignments on CUDA. Launches: places, if rows are packed or labels flat; rows; best path;
// then, for posteriors, the lattice pass of the losses, and the copy of posteriors to the caller's layout.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/plan.cuh"
#include "transducer/cuda/lattice/best_path.cuh"
#include "transducer/cuda/lattice/posteriors.cuh"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

template <class Real>
const cuda::Kernel kBestPath{kKernels, "best path", cuda::type_name<Real>(), best_path_kernel<Real>};
template <class Real>
const cuda::Kernel kPosteriors{kKernels, "posteriors", cuda::type_name<Real>(), posteriors_kernel<Real>};

bool wants_posteriors(const TransducerAlignment& out) {
  return out.blank_posteriors || out.label_posteriors || out.big_blank_posteriors || out.duration_posteriors;
}

// The strips of a pass, and whether slots are staged, limited by a block's shared memory.
struct PathShape {
  int strips;
  bool staged;
  int shared_bytes;  // 0: not one strip fits
};
template <class Real>
PathShape path_shape(const Plan<Real>& plan, const Execution& execution) {
  const Batch& batch = plan.batch();
  const int most = cuda::traits_of(execution.cuda_device).shared_bytes_per_block;
  for (const bool staged : {true, false}) {
    const auto memory = BestPathMemory::of<Real>(plan.history(), batch.slots, staged);
    int strips = std::min(kPathStrips, strips_of(batch.lattice.states));
    while (strips > 1 && memory.of_block(strips) > most) --strips;
    if (memory.of_block(strips) <= most) return {strips, staged, memory.of_block(strips)};
  }
  return {1, false, 0};
}

// The arrays in the workspace.
template <class Real>
struct Memory {
  typename Plan<Real>::Exchange exchange;
  Saved<Real> saved;
  Real* loss;  // written by the lattice pass, and not used
  std::uint8_t* steps;
  double* borders;

  Memory(const TransducerProblem& p, const Plan<Real>& plan, const PathShape& shape, bool for_posteriors,
         Arena& arena) {
    const TransducerLattice& l = p.lattice;
    if (for_posteriors) exchange = plan.exchange(arena, true);
    saved = plan.save(arena, false);
    if (for_posteriors) saved.outcome = arena.take<std::int32_t>(l.batch, "outcomes");
    loss = arena.take<Real>(for_posteriors ? l.batch : 0, "losses");
    steps = arena.take<std::uint8_t>(plan.slot_count() / plan.batch().slots, "steps");
    borders = arena.take<double>(plan.batch().rows / (shape.strips * kStrip) + 1, "borders of the best path");
  }
};

template <class Storage>
Status align(const TransducerProblem& p, const TransducerAlignment& out, Workspace workspace,
             const Execution& execution) {
  using Real = cuda::Sum<Storage>;
  const TransducerLattice& l = p.lattice;
  const Plan<Real> plan(p, execution);
  const PathShape shape = path_shape(plan, execution);
  if (!plan.status().ok()) return plan.status();
  if (shape.shared_bytes == 0)
    return Status::unsupported("durations", "too little shared memory for arcs of so many frames");
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("transducer_align", cuda::name_of_device(execution.cuda_device));
    plan.describe(*log);
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool for_posteriors = wants_posteriors(out);
  Arena arena(workspace.data);
  const Memory<Real> memory(p, plan, shape, for_posteriors, arena);
  Batch batch = plan.batch();
  batch.places = memory.saved.places;
  const std::int64_t labels = l.flat_targets ? l.target_count : std::int64_t{l.batch} * (l.states - 1);
  const std::int64_t frames = p.packed ? p.packed_rows : std::int64_t{l.batch} * l.frames;
  const struct {
    std::int32_t* to;
    std::int64_t count;
  } integers[] = {{out.frames, labels}, {out.durations, labels}, {out.blanks, frames}};
  for (const auto& one : integers) {
    if (!one.to) continue;
    const std::size_t bytes = static_cast<std::size_t>(one.count) * sizeof(std::int32_t);
    if (Status s = cuda::set_memory(one.to, 0xff, bytes, stream); !s.ok()) return s;
  }
  if (Status s = enqueue_rows<Storage>(p, plan, batch, memory.saved, stream); !s.ok()) return s;
  const BestPathParams<Real> path{batch,
                                  preferred_order(batch.arcs),
                                  preferred_order(batch.plain),
                                  memory.saved.slots,
                                  shape.strips,
                                  plan.history(),
                                  shape.staged,
                                  memory.steps,
                                  memory.borders,
                                  static_cast<Real*>(out.score),
                                  out.frames,
                                  out.durations,
                                  out.blanks};
  const auto shared_bytes = static_cast<std::size_t>(shape.shared_bytes);
  if (Status s = cuda::launch(kBestPath<Real>, {l.batch, kStrip * shape.strips, shared_bytes, stream}, path);
      !s.ok()) {
    return s;
  }
  if (!for_posteriors || batch.rows == 0) return {};
  if (Status s = enqueue_lattice(plan, batch, memory.saved, memory.exchange, memory.loss, stream); !s.ok())
    return s;
  const int blocks = plan.blocks_for(batch.rows, kPosteriorThreads);
  void* const grouped = l.tdt ? out.duration_posteriors : out.big_blank_posteriors;
  const PosteriorParams<Real> posteriors{
      batch,
      row_stride(l, std::int64_t{blocks} * kPosteriorThreads),
      memory.saved.slots,
      memory.saved.outcome,
      static_cast<Real*>(out.blank_posteriors),
      static_cast<Real*>(out.label_posteriors),
      static_cast<Real*>(grouped),
  };
  return cuda::launch(kPosteriors<Real>, {blocks, kPosteriorThreads, 0, stream}, posteriors);
}

template <class Real>
std::size_t workspace_bytes(const TransducerProblem& p, const TransducerAlignment& out,
                            const Execution& execution) {
  const Plan<Real> plan(p, execution);
  Arena arena;
  static_cast<void>(Memory<Real>(p, plan, path_shape(plan, execution), wants_posteriors(out), arena));
  return arena.used();
}

}  // namespace

std::size_t align_workspace_bytes_cuda(const TransducerProblem& p, const TransducerAlignment& out,
                                       const Execution& execution) {
  return p.dtype == DType::kFloat64 ? workspace_bytes<double>(p, out, execution)
                                    : workspace_bytes<float>(p, out, execution);
}

Status align_cuda(const TransducerProblem& p, const TransducerAlignment& out, Workspace workspace,
                  const Execution& execution) {
  if (Status s = check_way(execution, kLatticeWays, "transducer() on CUDA"); !s.ok()) return s;
  switch (p.dtype) {
    case DType::kFloat64:
      return align<double>(p, out, workspace, execution);
    case DType::kFloat16:
      return align<cuda::Float16>(p, out, workspace, execution);
    case DType::kBFloat16:
      return align<cuda::BFloat16>(p, out, workspace, execution);
    default:
      return align<float>(p, out, workspace, execution);
  }
}

}  // namespace warpalign::detail::transducer
