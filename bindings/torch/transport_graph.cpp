// torch.ops.warpalign.{knn_graph, shortest_paths, connected_components, farthest_landmarks}. Compiled into
// the CPU and the CUDA library.
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "call.h"
#include "checks.h"
#include "warpalign/neighbor_graph.h"

namespace warpalign::binding {
namespace {

DType check_float(const Tensor& tensor, const char* name) {
  if (tensor.scalar_type() == ScalarType::Float) return DType::kFloat32;
  if (tensor.scalar_type() == ScalarType::Double) return DType::kFloat64;
  fail(name, "dtype float32 or float64", dtype_of(tensor));
}

void check_list(const Tensor& tensor, const char* name, const Tensor& first, ScalarType dtype,
                int64_t length) {
  check_same_device(tensor, name, first, "row_begins");
  if (tensor.scalar_type() != dtype) {
    fail(name, std::string("dtype ") + torch::headeronly::toString(dtype), dtype_of(tensor));
  }
  if (tensor.dim() != 1 || (length >= 0 && tensor.size(0) != length) || !tensor.is_contiguous()) {
    fail(name, "a contiguous tensor of one axis" + (length < 0 ? "" : " of length " + std::to_string(length)),
         shape_of(tensor));
  }
}

GraphView graph_of(const Tensor& row_begins, const Tensor& neighbors, const Tensor& lengths) {
  check_list(row_begins, "row_begins", row_begins, ScalarType::Long, -1);
  if (row_begins.size(0) == 0) fail("row_begins", "N + 1 numbers", "none");
  check_list(neighbors, "neighbors", row_begins, ScalarType::Int, -1);
  GraphView graph;
  graph.dtype = check_float(lengths, "lengths");
  check_list(lengths, "lengths", row_begins, lengths.scalar_type(), neighbors.size(0));
  graph.nodes = narrowed(row_begins.size(0) - 1);
  graph.row_begins = static_cast<const std::int64_t*>(row_begins.const_data_ptr());
  if (!row_begins.is_cuda() && graph.row_begins[graph.nodes] > neighbors.size(0)) {
    fail("row_begins", "at most the number of edges, " + std::to_string(neighbors.size(0)),
         std::to_string(graph.row_begins[graph.nodes]));
  }
  graph.edges = neighbors.size(0);
  graph.neighbors = static_cast<const std::int32_t*>(neighbors.const_data_ptr());
  graph.lengths = lengths.const_data_ptr();
  return graph;
}

std::tuple<Tensor, Tensor, Tensor> knn_graph_op(const Tensor& x, int64_t k, bool joins_components) {
  KnnProblem p;
  p.dtype = check_float(x, "x");
  if (x.dim() != 2) fail("x", "2 axes (N, D)", shape_of(x));
  p.n = narrowed(x.size(0));
  p.dim = narrowed(x.size(1));
  p.x = strided<2>(x);
  p.k = narrowed(k);
  p.joins_components = joins_components;
  const int64_t edges = knn_graph_most_edges(p);
  const Tensor row_begins = allocate(x, {x.size(0) + 1}, true, ScalarType::Long),
               neighbors = allocate(x, {edges}, true, ScalarType::Int), lengths = allocate(x, {edges});
  const KnnOutputs out{static_cast<std::int64_t*>(row_begins.mutable_data_ptr()),
                       static_cast<std::int32_t*>(neighbors.mutable_data_ptr()), lengths.mutable_data_ptr()};
  call_core(
      Operator::kOther, x, 0, false, [&](const Execution& e) { return knn_graph_workspace_bytes(p, e); },
      [&](Workspace workspace, const Execution& e) { return knn_graph(p, out, workspace, e); });
  return {row_begins, neighbors, lengths};
}

Tensor shortest_paths_op(const Tensor& row_begins, const Tensor& neighbors, const Tensor& lengths,
                         const Tensor& sources) {
  const GraphView graph = graph_of(row_begins, neighbors, lengths);
  check_list(sources, "sources", row_begins, ScalarType::Int, -1);
  const Tensor distances = allocate(lengths, {sources.size(0), graph.nodes});
  const std::int32_t count = narrowed(sources.size(0));
  const auto* const places = static_cast<const std::int32_t*>(sources.const_data_ptr());
  call_core(
      Operator::kOther, lengths, 0, false,
      [&](const Execution& e) { return shortest_paths_workspace_bytes(graph, count, e); },
      [&](Workspace workspace, const Execution& e) {
        return shortest_paths(graph, places, count, distances.mutable_data_ptr(), workspace, e);
      });
  return distances;
}

std::tuple<Tensor, Tensor> connected_components_op(const Tensor& row_begins, const Tensor& neighbors,
                                                   const Tensor& lengths) {
  const GraphView graph = graph_of(row_begins, neighbors, lengths);
  const Tensor labels = allocate(lengths, {graph.nodes}, true, ScalarType::Int),
               count = allocate(lengths, {1}, true, ScalarType::Int);
  call_core(
      Operator::kOther, lengths, 0, false, [](const Execution&) { return std::size_t{0}; },
      [&](Workspace, const Execution& e) {
        return connected_components(graph, static_cast<std::int32_t*>(labels.mutable_data_ptr()),
                                    static_cast<std::int32_t*>(count.mutable_data_ptr()), e);
      });
  return {labels, count};
}

std::tuple<Tensor, Tensor> farthest_landmarks_op(const Tensor& row_begins, const Tensor& neighbors,
                                                 const Tensor& lengths, int64_t count, int64_t start) {
  const GraphView graph = graph_of(row_begins, neighbors, lengths);
  if (count < 1 || count > graph.nodes) {
    fail("count", "1 to N landmarks, N = " + std::to_string(graph.nodes), std::to_string(count));
  }
  const Tensor chosen = allocate(lengths, {count}, true, ScalarType::Int),
               distances = allocate(lengths, {count, graph.nodes});
  call_core(
      Operator::kOther, lengths, 0, false,
      [&](const Execution& e) { return farthest_landmarks_workspace_bytes(graph, e); },
      [&](Workspace workspace, const Execution& e) {
        return farthest_landmarks(graph, narrowed(count), narrowed(start),
                                  static_cast<std::int32_t*>(chosen.mutable_data_ptr()),
                                  distances.mutable_data_ptr(), workspace, e);
      });
  return {chosen, distances};
}

}  // namespace
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("knn_graph", TORCH_BOX(&knn_graph_op));
  library.impl("shortest_paths", TORCH_BOX(&shortest_paths_op));
  library.impl("connected_components", TORCH_BOX(&connected_components_op));
  library.impl("farthest_landmarks", TORCH_BOX(&farthest_landmarks_op));
}
