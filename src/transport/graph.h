// The entry points of warpalign/neighbor_graph.h. api_graph.cpp has checked the arguments.
#pragma once

#include "warpalign/neighbor_graph.h"

namespace warpalign::detail::transport {

Status knn_graph_cpu(const KnnProblem&, const KnnOutputs&, Workspace, const Execution&);
std::size_t knn_graph_cpu_workspace_bytes(const KnnProblem&, const Execution&);

Status shortest_paths_cpu(const GraphView&, const std::int32_t* sources, std::int32_t count, void* distances,
                          Workspace, const Execution&);
std::size_t shortest_paths_cpu_workspace_bytes(const GraphView&, std::int32_t count, const Execution&);

Status connected_components_cpu(const GraphView&, std::int32_t* labels, std::int32_t* components);

Status farthest_landmarks_cpu(const GraphView&, std::int32_t count, std::int32_t start, std::int32_t* chosen,
                              void* distances, Workspace);
std::size_t farthest_landmarks_cpu_workspace_bytes(const GraphView&);

// Enqueued on the execution's stream; pointers are to device memory.
Status knn_graph_cuda(const KnnProblem&, const KnnOutputs&, Workspace, const Execution&);
std::size_t knn_graph_cuda_workspace_bytes(const KnnProblem&);

Status shortest_paths_cuda(const GraphView&, const std::int32_t* sources, std::int32_t count, void* distances,
                           Workspace, const Execution&);
std::size_t shortest_paths_cuda_workspace_bytes(const GraphView&, std::int32_t count, const Execution&);

Status connected_components_cuda(const GraphView&, std::int32_t* labels, std::int32_t* components,
                                 const Execution&);

Status farthest_landmarks_cuda(const GraphView&, std::int32_t count, std::int32_t start, std::int32_t* chosen,
                               void* distances, Workspace, const Execution&);
std::size_t farthest_landmarks_cuda_workspace_bytes(const GraphView&, const Execution&);

}  // namespace warpalign::detail::transport
