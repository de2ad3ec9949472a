// The functions of warpalign/neighbor_graph.h: they check the contract, then hand over to a device's
// path. Values are checked only in host memory.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/visit_dtype.h"
#include "cpu/describe.h"
#include "transport/contract.h"
#include "transport/graph.h"

namespace warpalign {
namespace {

using namespace detail;             // NOLINT: the checks of every operator
using namespace detail::transport;  // NOLINT: the checks of this one

constexpr std::int32_t kMostNodes = 1 << 29;
constexpr std::int32_t kMostFeatures = 1 << 20;

bool is_float(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

// Checks the arguments that determine sizes of workspaces.
bool has_sizes(const KnnProblem& p) {
  return p.n >= 1 && p.n <= kMostNodes && p.dim >= 1 && p.dim <= kMostFeatures && p.k >= 0 && p.k < p.n;
}
bool has_sizes(const GraphView& graph) { return graph.nodes >= 1 && graph.nodes <= kMostNodes; }

Status check_points(const KnnProblem& p) {
  if (!is_float(p.dtype)) {
    return Status::invalid("dtype", "kFloat32 or kFloat64", static_cast<double>(p.dtype));
  }
  if (p.n < 1 || p.n > kMostNodes) return Status::invalid("n", "1 to 2^29 points", p.n);
  if (p.dim < 1 || p.dim > kMostFeatures) return Status::invalid("dim", "1 to 2^20 features", p.dim);
  if (p.k < 0 || p.k >= p.n) return Status::invalid("k", "0 to N - 1 neighbours", p.k);
  if (!few_enough({p.n, p.dim})) return Status::invalid("dim", "at most 2^48 elements, N D", p.dim);
  if (Status s = check_not_null("x", p.x.data); !s.ok()) return s;
  if (Status s = check_strides("x", p.x); !s.ok()) return s;
  return check_aligned("x", p.x.data, size_of(p.dtype));
}

Status check_coordinates(const KnnProblem& p) {
  constexpr double kLimit = 0x1p500;  // squared distances in 2^20 dimensions are finite
  return visit_float32_float64(p.dtype, [&](auto type) -> Status {
    const auto* const points = static_cast<const typename decltype(type)::Type*>(p.x.data);
    for (int i = 0; i < p.n; ++i) {
      for (int d = 0; d < p.dim; ++d) {
        const auto v = points[i * p.x.stride[0] + d * p.x.stride[1]];
        if (!std::isfinite(v)) return Status::invalid("x", "finite numbers", static_cast<double>(v), i);
        if (std::abs(static_cast<double>(v)) >= kLimit) {
          return Status::invalid("x", "magnitudes below 2^500", static_cast<double>(v), i);
        }
      }
    }
    return {};
  });
}

Status check_edges(const GraphView& graph) {
  return visit_float32_float64(graph.dtype, [&](auto type) -> Status {
    const auto* const lengths = static_cast<const typename decltype(type)::Type*>(graph.lengths);
    const std::int64_t* const begins = graph.row_begins;
    if (begins[0] != 0)
      return Status::invalid("row_begins", "0 as the first", static_cast<double>(begins[0]));
    for (int i = 0; i < graph.nodes; ++i) {
      if (begins[i + 1] < begins[i]) {
        return Status::invalid("row_begins", "numbers that never fall", static_cast<double>(begins[i + 1]),
                               i + 1);
      }
    }
    for (std::int64_t e = 0; e < begins[graph.nodes]; ++e) {
      if (graph.neighbors[e] < 0 || graph.neighbors[e] >= graph.nodes) {
        return Status::invalid("neighbors", "nodes from 0 to N - 1", graph.neighbors[e]);
      }
      if (!(lengths[e] >= 0))
        return Status::invalid("lengths", "numbers >= 0", static_cast<double>(lengths[e]));
    }
    return {};
  });
}

Status check_graph(const GraphView& graph, const Execution& execution) {
  if (!is_float(graph.dtype)) {
    return Status::invalid("dtype", "kFloat32 or kFloat64", static_cast<double>(graph.dtype));
  }
  if (graph.nodes < 0 || graph.nodes > kMostNodes)
    return Status::invalid("nodes", "0 to 2^29 nodes", graph.nodes);
  if (graph.nodes == 0) return {};
  if (Status s = check_not_null("row_begins", graph.row_begins); !s.ok()) return s;
  if (Status s = check_aligned("row_begins", graph.row_begins, sizeof(std::int64_t)); !s.ok()) return s;
  const bool on_host = execution.device == Device::kHost;
  if (!on_host && graph.edges < 0) {
    return Status::invalid("edges", "the number of edges that there is room for, at least 0",
                           static_cast<double>(graph.edges));
  }
  if ((on_host ? graph.row_begins[graph.nodes] : graph.edges) > 0) {
    if (Status s = check_not_null("neighbors", graph.neighbors); !s.ok()) return s;
    if (Status s = check_not_null("lengths", graph.lengths); !s.ok()) return s;
  }
  if (Status s = check_aligned("neighbors", graph.neighbors, sizeof(std::int32_t)); !s.ok()) return s;
  if (Status s = check_aligned("lengths", graph.lengths, size_of(graph.dtype)); !s.ok()) return s;
  return on_host ? check_edges(graph) : Status{};
}

Status check_device(const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  return {};
#else
  return execution.device == Device::kHost ? Status{} : kNoCudaPath;
#endif
}

}  // namespace

std::int64_t knn_graph_most_edges(const KnnProblem& p) {
  if (!has_sizes(p)) return 0;
  return 2 * (std::int64_t{p.n} * p.k + (p.joins_components ? p.n - 1 : 0));
}

std::size_t knn_graph_workspace_bytes(const KnnProblem& problem, const Execution& execution) {
  if (!has_sizes(problem)) return 0;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return knn_graph_cuda_workspace_bytes(problem);
#endif
  return knn_graph_cpu_workspace_bytes(problem, execution);
}

Status knn_graph(const KnnProblem& p, const KnnOutputs& out, Workspace workspace,
                 const Execution& execution) {
  if (Status s = check_device(execution); !s.ok()) return s;
  if (Status s = check_points(p); !s.ok()) return s;
  if (execution.device == Device::kHost) {
    if (Status s = check_coordinates(p); !s.ok()) return s;
  }
  if (Status s = check_not_null("row_begins", out.row_begins); !s.ok()) return s;
  const std::size_t edges = knn_graph_most_edges(p), size = size_of(p.dtype);
  if (edges > 0) {
    if (Status s = check_not_null("neighbors", out.neighbors); !s.ok()) return s;
    if (Status s = check_not_null("lengths", out.lengths); !s.ok()) return s;
  }
  const std::size_t needed = knn_graph_workspace_bytes(p, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const std::size_t begins = (static_cast<std::size_t>(p.n) + 1) * sizeof(std::int64_t);
  const WrittenMemory places[] = {
      {"row_begins", out.row_begins, begins, sizeof(std::int64_t)},
      {"neighbors", out.neighbors, edges * sizeof(std::int32_t), sizeof(std::int32_t)},
      {"lengths", out.lengths, edges * size, size},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return knn_graph_cuda(p, out, workspace, execution);
#endif
  if (cpu::is_described("knn_graph", needed, execution)) return {};
  return knn_graph_cpu(p, out, workspace, execution);
}

std::size_t shortest_paths_workspace_bytes(const GraphView& graph, std::int32_t count,
                                           const Execution& execution) {
  if (!has_sizes(graph) || count < 1) return 0;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return shortest_paths_cuda_workspace_bytes(graph, count, execution);
#endif
  return shortest_paths_cpu_workspace_bytes(graph, count, execution);
}

Status shortest_paths(const GraphView& graph, const std::int32_t* sources, std::int32_t count,
                      void* distances, Workspace workspace, const Execution& execution) {
  if (Status s = check_device(execution); !s.ok()) return s;
  if (Status s = check_graph(graph, execution); !s.ok()) return s;
  if (count < 0) return Status::invalid("count", "at least 0 sources", count);
  if (count == 0) return {};
  if (Status s = check_not_null("sources", sources); !s.ok()) return s;
  if (Status s = check_aligned("sources", sources, sizeof(std::int32_t)); !s.ok()) return s;
  for (int k = 0; k < count && execution.device == Device::kHost; ++k) {
    if (sources[k] < 0 || sources[k] >= graph.nodes) {
      return Status::invalid("sources", "nodes from 0 to N - 1", sources[k], k);
    }
  }
  if (!few_enough({count, graph.nodes})) {
    return Status::invalid("count", "at most 2^48 distances, sources N", count);
  }
  if (Status s = check_not_null("distances", distances); !s.ok()) return s;
  const std::size_t needed = shortest_paths_workspace_bytes(graph, count, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const std::size_t size = size_of(graph.dtype);
  const WrittenMemory places[] = {
      {"distances", distances, static_cast<std::size_t>(count) * graph.nodes * size, size},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda)
    return shortest_paths_cuda(graph, sources, count, distances, workspace, execution);
#endif
  if (cpu::is_described("shortest_paths", needed, execution)) return {};
  return shortest_paths_cpu(graph, sources, count, distances, workspace, execution);
}

Status connected_components(const GraphView& graph, std::int32_t* labels, std::int32_t* components,
                            const Execution& execution) {
  if (Status s = check_device(execution); !s.ok()) return s;
  if (Status s = check_graph(graph, execution); !s.ok()) return s;
  if (Status s = check_not_null("components", components); !s.ok()) return s;
  if (graph.nodes > 0) {
    if (Status s = check_not_null("labels", labels); !s.ok()) return s;
  }
  const std::size_t size = sizeof(std::int32_t);
  const WrittenMemory places[] = {{"labels", labels, graph.nodes * size, size},
                                  {"components", components, size, size}};
  if (Status s = check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda)
    return connected_components_cuda(graph, labels, components, execution);
#endif
  if (cpu::is_described("connected_components", 0, execution)) return {};
  return connected_components_cpu(graph, labels, components);
}

std::size_t farthest_landmarks_workspace_bytes(const GraphView& graph,
                                               [[maybe_unused]] const Execution& execution) {
  if (!has_sizes(graph)) return 0;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return farthest_landmarks_cuda_workspace_bytes(graph, execution);
#endif
  return farthest_landmarks_cpu_workspace_bytes(graph);
}

Status farthest_landmarks(const GraphView& graph, std::int32_t count, std::int32_t start,
                          std::int32_t* chosen, void* distances, Workspace workspace,
                          const Execution& execution) {
  if (Status s = check_device(execution); !s.ok()) return s;
  if (Status s = check_graph(graph, execution); !s.ok()) return s;
  if (count < 1 || count > graph.nodes) return Status::invalid("count", "1 to N landmarks", count);
  if (start < 0 || start >= graph.nodes) return Status::invalid("start", "a node from 0 to N - 1", start);
  if (Status s = check_not_null("chosen", chosen); !s.ok()) return s;
  if (Status s = check_not_null("distances", distances); !s.ok()) return s;
  const std::size_t needed = farthest_landmarks_workspace_bytes(graph, execution),
                    size = size_of(graph.dtype);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const WrittenMemory places[] = {
      {"chosen", chosen, count * sizeof(std::int32_t), sizeof(std::int32_t)},
      {"distances", distances, static_cast<std::size_t>(count) * graph.nodes * size, size},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return farthest_landmarks_cuda(graph, count, start, chosen, distances, workspace, execution);
  }
#endif
  if (cpu::is_described("farthest_landmarks", needed, execution)) return {};
  return farthest_landmarks_cpu(graph, count, start, chosen, distances, workspace);
}

}  // namespace warpalign
