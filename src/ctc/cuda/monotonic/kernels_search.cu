// Monotonic alignment search: its kernels for every type of scores, and their host side.
#include <algorithm>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/monotonic/search.cuh"
#include "ctc/problem.h"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kSearch{kKernels, "monotonic alignment search", cuda::type_name<Element>(),
                           search_kernel<Element>};

// The arrays in the workspace.
struct SearchMemory {
  int strips, warps;
  unsigned* moves;
  double* borders = nullptr;
  std::int32_t* begins;

  SearchMemory(const MonotonicAlignmentProblem& p, Arena& arena)
      : strips(cuda::div_up(p.positions, cuda::kWarpSize)), warps(std::clamp(strips, 1, kSearchWarps)) {
    const std::size_t rows = static_cast<std::size_t>(p.batch) * p.frames;
    moves = arena.take<unsigned>(rows * strips);
    if (strips > warps) borders = arena.take<double>(2 * rows);
    begins = arena.take<std::int32_t>(static_cast<std::size_t>(p.batch) * p.positions);
  }
};

template <class Element>
Status search(const MonotonicAlignmentProblem& p, const MonotonicAlignment& out, Workspace workspace,
              cudaStream_t stream) {
  Arena arena(workspace.data);
  const SearchMemory memory(p, arena);
  const std::size_t positions = static_cast<std::size_t>(p.batch) * p.positions;
  if (out.durations) {
    Status s = cuda::set_memory(out.durations, 0, positions * sizeof(*out.durations), stream);
    if (!s.ok()) return s;
  }
  if (out.path) {
    if (Status s = cuda::set_memory(out.path, 0, positions * p.frames, stream); !s.ok()) return s;
  }
  SearchParams<Element> params{};
  params.positions = p.positions;
  params.frames = p.frames;
  params.text_lengths = p.text_lengths;
  params.frame_lengths = p.frame_lengths;
  params.scores = static_cast<const Element*>(p.scores.data);
  std::copy(p.scores.stride, p.scores.stride + 3, params.stride);
  params.score = static_cast<cuda::Sum<Element>*>(out.score);
  params.durations = out.durations;
  params.path = out.path;
  params.moves = memory.moves;
  params.borders = memory.borders;
  params.begins = memory.begins;
  return cuda::launch(kSearch<Element>, {p.batch, memory.warps * 32, 0, stream}, params);
}

}  // namespace

std::size_t monotonic_workspace_bytes_cuda(const MonotonicAlignmentProblem& p, const MonotonicAlignment&,
                                           const Execution&) {
  Arena arena;
  static_cast<void>(SearchMemory(p, arena));
  return arena.used();
}

Status monotonic_cuda(const MonotonicAlignmentProblem& p, const MonotonicAlignment& out, Workspace workspace,
                      const Execution& execution) {
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("monotonic_alignment", cuda::name_of_device(execution.cuda_device));
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  return visit_dtype(
      p.dtype, [&](auto type) { return search<typename decltype(type)::Type>(p, out, workspace, stream); });
}

}  // namespace warpalign::detail::ctc
