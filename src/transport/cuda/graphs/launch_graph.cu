// Host side of knn_graph() on CUDA.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "cuda/launch/launch.cuh"
#include "transport/cuda/graphs/graph_nearest.cuh"
#include "transport/cuda/graphs/graph_rows.cuh"
#include "transport/cuda/solve/kernels.cuh"
#include "transport/graph.h"

namespace warpalign::detail::transport {
namespace {

template <class Real>
inline const cuda::Kernel kNearest{kKernels, "graph, nearest points", cuda::type_name<Real>(),
                                   graph_nearest_kernel<Real>};
template <class Real>
inline const cuda::Kernel kJoin{kKernels, "graph, joined components", cuda::type_name<Real>(),
                                graph_join_kernel<Real>};
const cuda::Kernel kCount{kKernels, "graph, counted edges", nullptr, graph_count_kernel};
const cuda::Kernel kBegins{kKernels, "graph, row begins", nullptr, graph_begins_kernel};
const cuda::Kernel kEdges{kKernels, "graph, edges", nullptr, graph_edges_kernel};
template <class Real>
inline const cuda::Kernel kSort{kKernels, "graph, sorted rows", cuda::type_name<Real>(),
                                graph_sort_kernel<Real>};

constexpr int kMostLoopBlocks = 4096;  // the most blocks of kernels with grid-stride loops

// The arrays in the workspace.
struct KnnMemory {
  int* near;
  int* others;
  JoinCounters* counters = nullptr;
  int* parent = nullptr;
  int* label = nullptr;
  double* square = nullptr;
  int* outside = nullptr;
  cuda::Word* shortest = nullptr;
  cuda::Word* ends = nullptr;
  cuda::Word* joints = nullptr;

  KnnMemory(Arena& arena, const KnnProblem& p) {
    const std::size_t n = static_cast<std::size_t>(p.n);
    near = arena.take<int>(n * static_cast<std::size_t>(p.k));
    others = arena.take<int>(n);
    if (!p.joins_components) return;
    counters = arena.take<JoinCounters>(1);
    parent = arena.take<int>(n);
    label = arena.take<int>(n);
    square = arena.take<double>(n);
    outside = arena.take<int>(n);
    shortest = arena.take<cuda::Word>(n);
    ends = arena.take<cuda::Word>(n);
    joints = arena.take<cuda::Word>(n);
  }
};

template <class Real>
Status join_components(const KnnMemory& m, const GraphPoints<Real>& points, int k, cudaStream_t stream) {
  if (Status s = cuda::set_memory(m.counters, 0, sizeof(JoinCounters), stream); !s.ok()) return s;
  cuda::LaunchConfig config{1, kScanThreads, 0, stream};
  int resident = 0;
  if (Status s = cuda::resident_blocks(kJoin<Real>.function(), config, &resident); !s.ok()) return s;
  config.blocks = std::clamp(cuda::div_up(points.n, kScanRows), 1, std::max(resident, 1));
  config.cooperative = true;
  const JoinParams<Real> params{points,   k,         m.near,     m.counters, m.parent, m.label,
                                m.square, m.outside, m.shortest, m.ends,     m.joints};
  return cuda::launch(kJoin<Real>, config, params);
}

template <class Real>
Status find_graph(const KnnProblem& p, const KnnOutputs& out, Workspace workspace, cudaStream_t stream) {
  Arena arena(workspace.data);
  const KnnMemory m(arena, p);
  const GraphPoints<Real> points{
      static_cast<const Real*>(p.x.data), {p.x.stride[0], p.x.stride[1]}, p.n, p.dim};
  for (int done = 0; done < p.k; done += kNearestOfPass) {
    const NearestParams<Real> params{points, p.k, done, m.near};
    const cuda::LaunchConfig config{cuda::div_up(p.n, kScanRows), kScanThreads, 0, stream};
    if (Status s = cuda::launch(kNearest<Real>, config, params); !s.ok()) return s;
  }
  if (p.joins_components) {
    if (Status s = join_components(m, points, p.k, stream); !s.ok()) return s;
  }
  if (Status s = cuda::set_memory(m.others, 0, sizeof(int) * static_cast<std::size_t>(p.n), stream);
      !s.ok()) {
    return s;
  }
  const RowsParams rows{p.n, p.k, m.near, m.counters, m.joints, m.others, out.row_begins, out.neighbors};
  const std::int64_t most = std::max<std::int64_t>(std::int64_t{p.n} * p.k, p.n);
  const int blocks =
      static_cast<int>(std::min<std::int64_t>(cuda::div_up(most, kSetThreads), kMostLoopBlocks));
  if (Status s = cuda::launch(kCount, {blocks, kSetThreads, 0, stream}, rows); !s.ok()) return s;
  if (Status s = cuda::launch(kBegins, {1, kSumThreads, 0, stream}, rows); !s.ok()) return s;
  if (Status s = cuda::launch(kEdges, {blocks, kSetThreads, 0, stream}, rows); !s.ok()) return s;
  const SortParams<Real> sort{points, out.row_begins, out.neighbors, static_cast<Real*>(out.lengths)};
  return cuda::launch(kSort<Real>, {cuda::div_up(p.n, kRowsOfBlock), kSetThreads, 0, stream}, sort);
}

}  // namespace

std::size_t knn_graph_cuda_workspace_bytes(const KnnProblem& p) {
  Arena arena;
  const KnnMemory memory(arena, p);
  return arena.used();
}

Status knn_graph_cuda(const KnnProblem& p, const KnnOutputs& out, Workspace workspace,
                      const Execution& execution) {
  if (Status s = cuda::check_device(execution.cuda_device); !s.ok()) return s;
  return visit_float32_float64(p.dtype, [&](auto type) {
    return find_graph<typename decltype(type)::Type>(p, out, workspace,
                                                     static_cast<cudaStream_t>(execution.stream));
  });
}

}  // namespace warpalign::detail::transport
