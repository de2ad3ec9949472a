// The kernels of decoding for every type of logits, and their host side.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/arena.h"
#include "core/plan_log.h"
#include "core/visit_dtype.h"
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/decode/greedy.cuh"
#include "ctc/cuda/decode/search.cuh"
#include "ctc/decode.h"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kTop{kKernels, "top labels", cuda::type_name<Element>(), top_kernel<Element>};
template <class Real>
const cuda::Kernel kPrefix{kKernels, "prefix search", cuda::type_name<Real>(), prefix_kernel<Real>};
const cuda::Kernel kGreedy{kKernels, "greedy search", nullptr, greedy_kernel};
const cuda::Kernel kLabels{kKernels, "labels of prefixes", nullptr, labels_kernel};

// The lists of frames in the workspace.
struct FrameLists {
  double* weight;
  std::int32_t* label;
  FrameEnds* ends;

  FrameLists(const CtcProblem& p, std::int64_t lists, std::int64_t count, Arena& arena) {
    const std::size_t rows = static_cast<std::size_t>(p.batch) * p.frames;
    weight = arena.take<double>(rows * lists * count);
    label = arena.take<std::int32_t>(rows * lists * count);
    ends = arena.take<FrameEnds>(rows);
  }
};

// Bytes of shared memory of a block of the search.
std::size_t shared_bytes(const BeamShape& shape, const RowRing& ring) {
  BlockArena arena(nullptr);
  static_cast<void>(StagedLists(shape, arena));
  static_cast<void>(BeamMemory(shape, arena));
  static_cast<void>(arena.take<cuda::Bits128>(static_cast<std::size_t>(RowRing::kRows) * ring.chunks));
  return arena.used();
}

// Rows are staged if they are short and their addresses and sizes are multiples of 16 bytes.
RowRing ring_of(const CtcProblem& p, bool own_lists) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(p.dtype)), bytes = p.classes * size;
  const bool is_whole = reinterpret_cast<std::uintptr_t>(p.logits.data) % 16 == 0 &&
                        p.logits.stride[0] * size % 16 == 0 && p.logits.stride[1] * size % 16 == 0 &&
                        p.logits.stride[2] == 1 && bytes % 16 == 0;
  const bool stages = !own_lists && is_whole && bytes <= RowRing::kMostBytes;
  return {stages ? static_cast<int>(bytes / 16) : 0};
}

// Writes the call to the thread's PlanLog, if there is one.
void begin_plan(const char* call, const Execution& execution, std::size_t workspace) {
  if (PlanLog* const log = PlanLog::current()) {
    log->begin(call, cuda::name_of_device(execution.cuda_device));
    log->memory("workspace", workspace);
  }
}

Batch batch_of(const CtcProblem& p) {
  Batch batch{};
  batch.batch = p.batch;
  batch.frames = p.frames;
  batch.classes = p.classes;
  batch.blank = p.blank;
  batch.star = -1;
  batch.logit_lengths = p.logit_lengths;
  std::copy(p.logits.stride, p.logits.stride + 3, batch.stride);
  batch.log_probs = p.log_probs;
  return batch;
}

Status find_top(const CtcProblem& p, const void* added, int lists, int count, const FrameLists& to,
                cudaStream_t stream) {
  const std::int64_t all = static_cast<std::int64_t>(p.batch) * p.frames * lists;
  if (all == 0) return {};
  const std::int64_t blocks = cuda::div_up(all, std::int64_t{kTopThreads / cuda::kWarpSize});
  if (blocks > std::numeric_limits<int>::max()) {
    return Status::unsupported("frames", "fewer than 2^33 frames of a batch");
  }
  return visit_dtype(p.dtype, [&](auto type) {
    using Element = typename decltype(type)::Type;
    TopParams<Element> params{};
    params.batch = batch_of(p);
    params.logits = static_cast<const Element*>(p.logits.data);
    params.added = static_cast<const cuda::Sum<Element>*>(added);
    params.lists = lists;
    params.count = count;
    params.weight = to.weight;
    params.label = to.label;
    params.ends = to.ends;
    return cuda::launch(kTop<Element>, {static_cast<int>(blocks), kTopThreads, 0, stream}, params);
  });
}

}  // namespace

std::size_t greedy_workspace_bytes_cuda(const CtcProblem& p, const CtcGreedy&, const Execution&) {
  Arena arena;
  static_cast<void>(FrameLists(p, 1, 1, arena));
  return arena.used();
}

Status greedy_cuda(const CtcProblem& p, const CtcGreedy& out, Workspace workspace,
                   const Execution& execution) {
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  begin_plan("ctc_greedy", execution, greedy_workspace_bytes_cuda(p, out, execution));
  Arena arena(workspace.data);
  const FrameLists lists(p, 1, 1, arena);
  if (Status s = find_top(p, nullptr, 1, 1, lists, stream); !s.ok()) return s;
  const GreedyParams params{p.frames, p.blank, p.logit_lengths, lists.weight, lists.label, lists.ends, out};
  return cuda::launch(kGreedy, {p.batch, kGreedyThreads, 0, stream}, params);
}

std::size_t beam_workspace_bytes_cuda(const CtcProblem& p, const CtcBeam& beam, const Execution&) {
  Arena arena;
  static_cast<void>(FrameLists(p, beam.label_scores ? beam.beams : 1, beam.beams + 1, arena));
  return arena.used();
}

Status beam_cuda(const CtcProblem& p, const CtcBeam& beam, Workspace workspace, const Execution& execution) {
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const BeamShape shape(beam.beams, beam.label_scores != nullptr);
  const int most = cuda::traits_of(execution.cuda_device).shared_bytes_per_block;
  RowRing ring = ring_of(p, shape.own_lists);
  if (shared_bytes(shape, ring) > static_cast<std::size_t>(most)) ring = {0};
  const std::size_t bytes = shared_bytes(shape, ring);
  if (bytes > static_cast<std::size_t>(most)) {
    return Status::unsupported("beams", "fewer beams, which this device's shared memory has room for");
  }
  begin_plan("ctc_beam", execution, beam_workspace_bytes_cuda(p, beam, execution));
  Arena arena(workspace.data);
  const int count = beam.label_scores ? beam.beams : 1;
  const FrameLists lists(p, count, shape.labels, arena);
  if (Status s = find_top(p, beam.label_scores, count, shape.labels, lists, stream); !s.ok()) return s;
  PrefixParams params{};
  params.batch = batch_of(p);
  params.dtype = p.dtype;
  params.logits = p.logits.data;
  params.beam = beam;
  params.weight = lists.weight;
  params.label = lists.label;
  params.ends = lists.ends;
  params.ring = ring;
  const cuda::LaunchConfig config{p.batch, search_threads(beam.beams), bytes, stream};
  return p.dtype == DType::kFloat64 ? cuda::launch(kPrefix<double>, config, params)
                                    : cuda::launch(kPrefix<float>, config, params);
}

Status beam_labels_cuda(const CtcBeamLabels& labels, const Execution& execution) {
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  begin_plan("ctc_beam_labels", execution, 0);
  return cuda::launch(kLabels, {labels.batch * labels.n_best, kLabelsThreads, 0, stream}, labels);
}

}  // namespace warpalign::detail::ctc
