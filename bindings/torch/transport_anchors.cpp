// torch.ops.warpalign.{anchor_columns, anchor_coordinates, anchor_step, largest_differences}: tensors to the
// core's problems. The core refuses host executions of the first three, and CUDA ones of the last.
#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "call.h"
#include "checks.h"
#include "transport_problem.h"
#include "warpalign/gromov_anchors.h"

namespace warpalign::binding {
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

// The plan from whose rows columns are drawn.
struct DrawnPlan {
  const Tensor &x, &y, &g;
  const MaybeTensor& b;
  double cost_scale, epsilon;
};

// columns[first + s] for rows[first + s], s < count.
void draw_columns(const DrawnPlan& plan, const Tensor& rows, const Tensor& columns, int64_t first,
                  int64_t count, int64_t seed) {
  const auto& [x, y, g, b, cost_scale, epsilon] = plan;
  if (x.dim() != 2) fail("x", "2 axes (N, D)", shape_of(x));
  check_array(x, "x", x, ScalarType::Float, -1, x.size(1));
  check_array(y, "y", x, ScalarType::Float, -1, x.size(1));
  check_array(g, "g", x, ScalarType::Float, y.size(0), -1);
  if (b) check_array(*b, "b", x, ScalarType::Float, y.size(0), -1);
  check_array(rows, "rows", x, ScalarType::Long, -1, -1);
  AnchorColumns p;
  p.n = narrowed(x.size(0));
  p.m = narrowed(y.size(0));
  p.dim = narrowed(x.size(1));
  p.count = narrowed(count);
  p.x = x.const_data_ptr();
  p.y = y.const_data_ptr();
  p.g = g.const_data_ptr();
  p.b = b ? b->const_data_ptr() : nullptr;
  p.rows = static_cast<const std::int64_t*>(rows.const_data_ptr()) + first;
  p.cost_scale = cost_scale;
  p.epsilon = epsilon;
  p.seed = static_cast<std::uint64_t>(seed);
  p.columns = static_cast<std::int64_t*>(columns.mutable_data_ptr()) + first;
  call_core(
      Operator::kOther, x, 0, false, [&](const Execution&) { return anchor_columns_workspace_bytes(p); },
      [&](Workspace workspace, const Execution& e) { return anchor_columns(p, workspace, e); });
}

Tensor anchor_columns_op(const Tensor& x, const Tensor& y, const Tensor& g, const MaybeTensor& b,
                         const Tensor& rows, double cost_scale, double epsilon, int64_t seed) {
  const Tensor columns = allocate(x, {rows.numel()}, true, ScalarType::Long);
  draw_columns({x, y, g, b, cost_scale, epsilon}, rows, columns, 0, rows.numel(), seed);
  return columns;
}

void write_coordinates(const Tensor& x, const Tensor& anchors, const Tensor& unit, int64_t distance,
                       const Tensor& coordinates) {
  if (x.dim() != 2) fail("x", "2 axes (N, D)", shape_of(x));
  check_array(x, "x", x, ScalarType::Float, -1, x.size(1));
  check_array(anchors, "anchors", x, ScalarType::Long, -1, -1);
  check_array(unit, "unit", x, ScalarType::Float, 1, -1);
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
      Operator::kOther, x, 0, false, [](const Execution&) { return std::size_t{0}; },
      [&](Workspace, const Execution& e) { return anchor_coordinates(p, e); });
}

Tensor anchor_coordinates_op(const Tensor& x, const Tensor& anchors, const Tensor& unit, int64_t distance) {
  const Tensor coordinates = allocate(x, {x.dim() > 0 ? x.size(0) : 0, anchors.numel()});
  write_coordinates(x, anchors, unit, distance, coordinates);
  return coordinates;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> anchor_step_op(
    const Tensor& points_x, const Tensor& points_y, const Tensor& unit_x, const Tensor& unit_y,
    int64_t distance_x, int64_t distance_y, const std::vector<Tensor>& xs, const std::vector<Tensor>& ys,
    const std::vector<Tensor>& gs, const std::vector<double>& scales, const std::vector<double>& epsilons,
    const std::vector<int64_t>& counts, const std::vector<int64_t>& seeds, const Tensor& rows,
    const MaybeTensor& a, const MaybeTensor& b, const Tensor& f0, const Tensor& g0, double cost_scale,
    double epsilon, double rho_a, double rho_b, double mass, int64_t iterations) {
  const std::size_t plans = xs.size();
  for (const std::size_t count :
       {ys.size(), gs.size(), scales.size(), epsilons.size(), counts.size(), seeds.size()}) {
    if (count != plans)
      fail("xs", "lists of one length", std::to_string(plans) + " beside " + std::to_string(count));
  }
  const MaybeTensor drawn_b = b && b->dim() == 2 ? MaybeTensor(torch::stable::select(*b, 0, 0)) : b;
  const int64_t size = rows.numel();
  const Tensor columns = allocate(points_x, {size}, true, ScalarType::Long);
  int64_t first = 0;
  for (std::size_t h = 0; h < plans; ++h) {
    if (counts[h] < 0 || counts[h] > size - first) {
      fail("counts", "numbers >= 0 whose sum is that of the rows, " + std::to_string(size),
           std::to_string(counts[h]));
    }
    draw_columns({xs[h], ys[h], gs[h], drawn_b, scales[h], epsilons[h]}, rows, columns, first, counts[h],
                 seeds[h]);
    first += counts[h];
  }
  if (first != size) fail("counts", "a sum of " + std::to_string(size), std::to_string(first));
  const Tensor x = allocate(points_x, {1, points_x.size(0), size}),
               y = allocate(points_x, {1, points_y.size(0), size});
  write_coordinates(points_x, rows, unit_x, distance_x, x);
  write_coordinates(points_y, columns, unit_y, distance_y, y);
  const MaybeTensor none, given_x = x, given_y = y, f = f0, g = g0;
  const TransportTensors tensors{given_x, given_y, none, a, b, none, none, none, f, g};
  TransportSettings settings{};
  settings.cost_scale = cost_scale;
  settings.epsilon = epsilon;
  settings.epsilon_factor = 0.5;
  settings.rho_a = rho_a;
  settings.rho_b = rho_b;
  settings.mass = mass;
  settings.max_iterations = iterations;
  settings.precision = static_cast<int64_t>(Precision::kMedium);
  const TransportPotentials solution = transport_potentials(tensors, settings);
  return {x, y, solution.linear, solution.f, solution.g};
}

Tensor largest_differences_op(const Tensor& x, const Tensor& y) {
  const ScalarType dtype = x.scalar_type();
  if (dtype != ScalarType::Float && dtype != ScalarType::Double) fail("x", "float32 or float64", dtype_of(x));
  if (x.dim() != 2) fail("x", "2 axes (N, D)", shape_of(x));
  check_array(x, "x", x, dtype, -1, x.size(1));
  check_array(y, "y", x, dtype, -1, x.size(1));
  const Tensor distances = allocate(x, {x.size(0), y.size(0)});
  LargestDifferences p;
  p.dtype = dtype == ScalarType::Double ? DType::kFloat64 : DType::kFloat32;
  p.n = narrowed(x.size(0));
  p.m = narrowed(y.size(0));
  p.dim = narrowed(x.size(1));
  p.x = x.const_data_ptr();
  p.y = y.const_data_ptr();
  p.distances = distances.mutable_data_ptr();
  call_core(
      Operator::kOther, x, 0, false,
      [&](const Execution& e) { return largest_differences_workspace_bytes(p, e); },
      [&](Workspace workspace, const Execution& e) { return largest_differences(p, workspace, e); });
  return distances;
}

}  // namespace
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("anchor_columns", TORCH_BOX(&anchor_columns_op));
  library.impl("anchor_coordinates", TORCH_BOX(&anchor_coordinates_op));
  library.impl("anchor_step", TORCH_BOX(&anchor_step_op));
  library.impl("largest_differences", TORCH_BOX(&largest_differences_op));
}
