// torch.ops.warpalign.{anchor_columns, anchor_coordinates}: tensors to the core's problems. The core refuses
// host executions.
#include <torch/csrc/stable/library.h>

#include "call.h"
#include "checks.h"
#include "warpalign/gromov_anchors.h"

namespace warpalign::torch_binding {
namespace {

void check_array(const Tensor& tensor, const char* name, const Tensor& like, ScalarType dtype, int64_t rows,
                 int64_t columns) {
  check_same_device(tensor, name, like, "x");
  if (tensor.scalar_type() != dtype) {
    fail(name, std::string("dtype ") + torch::headeronly::toString(dtype), dtype_of(tensor));
  }
  const bool table = columns >= 0;
  if (tensor.dim() != (table ? 2 : 1) || (rows >= 0 && tensor.size(0) != rows) ||
      (table && tensor.size(1) != columns) || !tensor.is_contiguous()) {
    fail(name, table ? "a contiguous table of the columns of x" : "a contiguous tensor of one axis",
         shape_of(tensor));
  }
}

Tensor anchor_columns_op(const Tensor& x, const Tensor& y, const Tensor& g, const std::optional<Tensor>& b,
                         const Tensor& rows, double cost_scale, double epsilon, int64_t seed) {
  if (x.dim() != 2) fail("x", "2 axes (N, D)", shape_of(x));
  check_array(x, "x", x, ScalarType::Float, -1, x.size(1));
  check_array(y, "y", x, ScalarType::Float, -1, x.size(1));
  check_array(g, "g", x, ScalarType::Float, y.size(0), -1);
  if (b) check_array(*b, "b", x, ScalarType::Float, y.size(0), -1);
  check_array(rows, "rows", x, ScalarType::Long, -1, -1);
  const Tensor columns = allocate(x, {rows.size(0)}, true, ScalarType::Long);
  AnchorColumns p;
  p.n = narrowed(x.size(0));
  p.m = narrowed(y.size(0));
  p.dim = narrowed(x.size(1));
  p.count = narrowed(rows.size(0));
  p.x = x.const_data_ptr();
  p.y = y.const_data_ptr();
  p.g = g.const_data_ptr();
  p.b = b ? b->const_data_ptr() : nullptr;
  p.rows = static_cast<const std::int64_t*>(rows.const_data_ptr());
  p.cost_scale = cost_scale;
  p.epsilon = epsilon;
  p.seed = static_cast<std::uint64_t>(seed);
  p.columns = static_cast<std::int64_t*>(columns.mutable_data_ptr());
  call_core(
      x, 0, false, [&](const Execution&) { return anchor_columns_workspace_bytes(p); },
      [&](Workspace workspace, const Execution& e) { return anchor_columns(p, workspace, e); });
  return columns;
}

Tensor anchor_coordinates_op(const Tensor& x, const Tensor& anchors, const Tensor& unit, int64_t distance) {
  if (x.dim() != 2) fail("x", "2 axes (N, D)", shape_of(x));
  check_array(x, "x", x, ScalarType::Float, -1, x.size(1));
  check_array(anchors, "anchors", x, ScalarType::Long, -1, -1);
  check_array(unit, "unit", x, ScalarType::Float, 1, -1);
  const Tensor coordinates = allocate(x, {x.size(0), anchors.size(0)});
  AnchorCoordinates p;
  p.n = narrowed(x.size(0));
  p.dim = narrowed(x.size(1));
  p.count = narrowed(anchors.size(0));
  p.distance = enumerator<AnchorDistance>(distance);
  p.points = x.const_data_ptr();
  p.anchors = static_cast<const std::int64_t*>(anchors.const_data_ptr());
  p.unit = unit.const_data_ptr();
  p.coordinates = coordinates.mutable_data_ptr();
  call_core(
      x, 0, false, [](const Execution&) { return std::size_t{0}; },
      [&](Workspace, const Execution& e) { return anchor_coordinates(p, e); });
  return coordinates;
}

}  // namespace
}  // namespace warpalign::torch_binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::torch_binding;  // NOLINT: registration
  library.impl("anchor_columns", TORCH_BOX(&anchor_columns_op));
  library.impl("anchor_coordinates", TORCH_BOX(&anchor_coordinates_op));
}
