// Host side of shortest_paths(), farthest_landmarks() and connected_components() on CUDA.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/visit_dtype.h"
#include "cuda/launch/launch.cuh"
#include "transport/cuda/graphs/graph_components.cuh"
#include "transport/cuda/graphs/graph_search.cuh"
#include "transport/cuda/solve/kernels.cuh"
#include "transport/graph.h"

namespace warpalign::detail::transport {
namespace {

template <class Real>
inline const cuda::Kernel kSearch{kKernels, "graph, shortest paths", cuda::type_name<Real>(),
                                  graph_search_kernel<Real>};
template <class Real>
inline const cuda::Kernel kJoin{kKernels, "components, joined", cuda::type_name<Real>(),
                                components_join_kernel<Real>};
const cuda::Kernel kStart{kKernels, "components, start", nullptr, components_start_kernel};
const cuda::Kernel kNumber{kKernels, "components, numbered", nullptr, components_number_kernel};

template <class Real>
GraphEdges<Real> edges_of(const GraphView& graph) {
  return {graph.nodes, graph.edges, graph.row_begins, graph.neighbors,
          static_cast<const Real*>(graph.lengths)};
}

SearchLayout layout_of(const GraphView& graph, bool landmarks, const Execution& execution) {
  return {graph.nodes, landmarks, cuda::traits_of(execution.cuda_device)};
}

// The number of blocks: as many as are resident; each takes several sources.
template <class Real>
Status blocks_of(const SearchLayout& layout, std::int32_t count, int* blocks) {
  const cuda::LaunchConfig config{1, layout.threads, static_cast<std::size_t>(layout.shared_bytes)};
  if (Status s = cuda::resident_blocks(kSearch<Real>.function(), config, blocks); !s.ok()) return s;
  *blocks = std::clamp(*blocks, 1, count);
  return {};
}

template <class Real>
Status search(const SearchParams<Real>& params, int blocks, const Execution& execution) {
  const SearchLayout& layout = params.layout;
  return cuda::launch(kSearch<Real>,
                      {blocks, layout.threads, static_cast<std::size_t>(layout.shared_bytes),
                       static_cast<cudaStream_t>(execution.stream)},
                      params);
}

}  // namespace

std::size_t shortest_paths_cuda_workspace_bytes(const GraphView& graph, std::int32_t count,
                                                const Execution& execution) {
  const SearchLayout layout = layout_of(graph, false, execution);
  int blocks = 0;
  const Status status = visit_float32_float64(graph.dtype, [&](auto type) {
    return blocks_of<typename decltype(type)::Type>(layout, count, &blocks);
  });
  return status.ok() ? static_cast<std::size_t>(layout.scratch_bytes * blocks) : 0;
}

Status shortest_paths_cuda(const GraphView& graph, const std::int32_t* sources, std::int32_t count,
                           void* distances, Workspace workspace, const Execution& execution) {
  if (Status s = cuda::check_device(execution.cuda_device); !s.ok()) return s;
  return visit_float32_float64(graph.dtype, [&](auto type) -> Status {
    using Real = typename decltype(type)::Type;
    const SearchLayout layout = layout_of(graph, false, execution);
    int blocks = 0;
    if (Status s = blocks_of<Real>(layout, count, &blocks); !s.ok()) return s;
    const SearchParams<Real> params{edges_of<Real>(graph),
                                    layout,
                                    static_cast<unsigned char*>(workspace.data),
                                    count,
                                    sources,
                                    0,
                                    nullptr,
                                    static_cast<Real*>(distances)};
    return search(params, blocks, execution);
  });
}

std::size_t farthest_landmarks_cuda_workspace_bytes(const GraphView& graph, const Execution& execution) {
  return static_cast<std::size_t>(layout_of(graph, true, execution).scratch_bytes);
}

Status farthest_landmarks_cuda(const GraphView& graph, std::int32_t count, std::int32_t start,
                               std::int32_t* chosen, void* distances, Workspace workspace,
                               const Execution& execution) {
  if (Status s = cuda::check_device(execution.cuda_device); !s.ok()) return s;
  return visit_float32_float64(graph.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const SearchParams<Real> params{edges_of<Real>(graph),
                                    layout_of(graph, true, execution),
                                    static_cast<unsigned char*>(workspace.data),
                                    count,
                                    nullptr,
                                    start,
                                    chosen,
                                    static_cast<Real*>(distances)};
    return search(params, 1, execution);
  });
}

Status connected_components_cuda(const GraphView& graph, std::int32_t* labels, std::int32_t* components,
                                 const Execution& execution) {
  if (Status s = cuda::check_device(execution.cuda_device); !s.ok()) return s;
  auto* const stream = static_cast<cudaStream_t>(execution.stream);
  if (graph.nodes == 0) return cuda::set_memory(components, 0, sizeof(std::int32_t), stream);
  const cuda::LaunchConfig config{cuda::div_up(graph.nodes, kSetThreads), kSetThreads, 0, stream};
  if (Status s = cuda::launch(kStart, config, graph.nodes, labels); !s.ok()) return s;
  const Status joined = visit_float32_float64(graph.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    return cuda::launch(kJoin<Real>, config, edges_of<Real>(graph), labels);
  });
  if (!joined.ok()) return joined;
  return cuda::launch(kNumber, {1, kSumThreads, 0, stream}, graph.nodes, labels, components);
}

}  // namespace warpalign::detail::transport
