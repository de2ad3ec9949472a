// Interim CPU path: the reference, pair by pair. Replaced by the SIMD wavefront.
#include <vector>

#include "soft_dtw/problem.h"
#include "soft_dtw/reference.h"

namespace warpalign::detail {
namespace {

template <typename T>
std::vector<double> gather(const StridedTensor& tensor, int b, int rows, int columns) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(rows) * columns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      out.push_back(static_cast<const T*>(
          tensor.data)[b * tensor.stride[0] + i * tensor.stride[1] + j * tensor.stride[2]]);
    }
  }
  return out;
}

template <typename T>
void scatter(const std::vector<double>& from, void* to, int b, int rows, int columns, int full_rows,
             int full_columns) {
  if (!to) return;
  T* base = static_cast<T*>(to) + static_cast<std::size_t>(b) * full_rows * full_columns;
  for (int i = 0; i < full_rows; ++i) {
    for (int j = 0; j < full_columns; ++j) {
      const bool inside = i < rows && j < columns;
      base[static_cast<std::size_t>(i) * full_columns + j] =
          inside ? static_cast<T>(from[static_cast<std::size_t>(i) * columns + j]) : T(0);
    }
  }
}

template <typename T>
void run(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  for (int b = 0; b < p.batch; ++b) {
    const int n = p.x_lengths ? p.x_lengths[b] : p.n;
    const int m = p.y_lengths ? p.y_lengths[b] : p.m;
    const reference::Result result =
        p.cost.data ? reference::soft_dtw_from_cost(gather<T>(p.cost, b, n, m), n, m, p.gamma)
                    : reference::soft_dtw(gather<T>(p.x, b, n, p.dim), gather<T>(p.y, b, m, p.dim), n, m,
                                          p.dim, p.gamma);
    static_cast<T*>(out.value)[b] = static_cast<T>(result.value);
    scatter<T>(result.alignment, out.alignment, b, n, m, p.n, p.m);
    scatter<T>(result.grad_x, out.grad_x, b, n, p.dim, p.n, p.dim);
    scatter<T>(result.grad_y, out.grad_y, b, m, p.dim, p.m, p.dim);
  }
}

}  // namespace

std::size_t soft_dtw_cpu_workspace_bytes(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&) {
  return 0;
}

Status soft_dtw_cpu(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace, const Execution&) {
  p.dtype == DType::kFloat32 ? run<float>(p, out) : run<double>(p, out);
  return {};
}

}  // namespace warpalign::detail
