// warpalign::sinkhorn: checks the contract of the public header, then hands over to the device's path.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "core/contract.h"
#include "transport/problem.h"

namespace warpalign {
namespace {

using namespace detail;  // NOLINT: the checks of every operator

constexpr std::int32_t kLongest = 1 << 29;

Status check_extents(const SinkhornProblem& p) {
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (p.n < 1 || p.n > kLongest) return Status::invalid("n", "1 to 2^29 points or rows", p.n);
  if (p.m < 1 || p.m > kLongest) return Status::invalid("m", "1 to 2^29 points or columns", p.m);
  if (!few_enough({p.batch, p.n, p.m})) return Status::invalid("m", "at most 2^48 elements, B N M", p.m);
  if (p.cost.data) return {};
  if (p.batch > 0 && p.dim < 1) return Status::invalid("dim", "at least 1 feature", p.dim);
  if (p.dim > kLongest) return Status::invalid("dim", "at most 2^29 features", p.dim);
  if (!few_enough({p.batch, p.n, p.dim}) || !few_enough({p.batch, p.m, p.dim})) {
    return Status::invalid("dim", "at most 2^48 elements of x, B N D, and of y, B M D", p.dim);
  }
  return {};
}

Status check_numbers(const SinkhornProblem& p) {
  const auto positive = [](double v) { return v > 0 && std::isfinite(v); };
  if (!p.epsilons && !positive(p.epsilon)) return Status::invalid("epsilon", "finite and > 0", p.epsilon);
  if (!positive(p.cost_scale)) return Status::invalid("cost_scale", "finite and > 0", p.cost_scale);
  if (!(p.epsilon_start >= 0) || std::isinf(p.epsilon_start)) {
    return Status::invalid("epsilon_start", "finite and >= 0", p.epsilon_start);
  }
  const bool shrinks = p.epsilon_factor > 0 && p.epsilon_factor < 1;
  if (!shrinks) {
    return Status::invalid("epsilon_factor", "between 0 and 1, exclusive", p.epsilon_factor);
  }
  if (!(p.a.strength >= 0)) return Status::invalid("rho_a", ">= 0, or inf", p.a.strength);
  if (!(p.b.strength >= 0)) return Status::invalid("rho_b", ">= 0, or inf", p.b.strength);
  if (!(p.mass >= 0) || std::isinf(p.mass)) return Status::invalid("mass", "finite and >= 0", p.mass);
  if (p.max_iterations < 1) return Status::invalid("max_iterations", "at least 1", p.max_iterations);
  if (!(p.tolerance >= 0)) return Status::invalid("tolerance", ">= 0", p.tolerance);
  if (p.cost_kind < CostKind::kSquaredEuclidean || p.cost_kind > CostKind::kHuber) {
    return Status::invalid("cost_kind", "one of the kinds of CostKind", static_cast<double>(p.cost_kind));
  }
  if (p.reference != TransportReference::kProduct && p.reference != TransportReference::kCounting) {
    return Status::invalid("reference", "one of the values of TransportReference",
                           static_cast<double>(p.reference));
  }
  if (p.updates != SinkhornUpdates::kAlternating && p.updates != SinkhornUpdates::kSymmetric) {
    return Status::invalid("updates", "one of the values of SinkhornUpdates", static_cast<double>(p.updates));
  }
  return {};
}

Status check_inputs(const SinkhornProblem& p, const SinkhornOutputs& out) {
  if (p.cost.data) {
    if (p.x.data || p.y.data) return Status::invalid("cost", "either cost, or x and y, but not both", 1);
    if (p.dim != 0) return Status::invalid("dim", "0 with a cost matrix, which has no features", p.dim);
    if (out.grad_x) return Status::invalid("grad_x", "null with a cost matrix, which has no x", 1);
    if (out.grad_y) return Status::invalid("grad_y", "null with a cost matrix, which has no y", 1);
  } else {
    if (Status s = check_not_null("x", p.x.data); !s.ok()) return s;
    if (Status s = check_not_null("y", p.y.data); !s.ok()) return s;
  }
  const std::size_t size = size_of(p.dtype);
  for (const auto& [name, data] :
       std::initializer_list<std::pair<const char*, const void*>>{{"x", p.x.data},
                                                                  {"y", p.y.data},
                                                                  {"cost", p.cost.data},
                                                                  {"a", p.a.weights},
                                                                  {"b", p.b.weights},
                                                                  {"epsilons", p.epsilons},
                                                                  {"f0", p.f0},
                                                                  {"g0", p.g0}}) {
    if (Status s = check_aligned(name, data, size); !s.ok()) return s;
  }
  for (const auto& [name, data] : std::initializer_list<std::pair<const char*, const void*>>{
           {"x_lengths", p.a.lengths}, {"y_lengths", p.b.lengths}}) {
    if (Status s = check_aligned(name, data, sizeof(std::int32_t)); !s.ok()) return s;
  }
  return {};
}

// The values of tensors, which a host can read.
template <class Real>
Status check_values(const SinkhornProblem& p) {
  const struct {
    const char* name;
    const TransportSide& side;
    int length;
  } sides[] = {{"a", p.a, p.n}, {"b", p.b, p.m}};
  for (int k = 0; k < p.batch; ++k) {
    double least = HUGE_VAL;
    for (const auto& [name, side, length] : sides) {
      const int count = side.lengths ? side.lengths[k] : length;
      double sum = side.weights ? 0 : 1;
      const Real* const weights =
          static_cast<const Real*>(side.weights) + static_cast<std::int64_t>(k) * length;
      for (int i = 0; side.weights && i < count; ++i) {
        if (!(weights[i] >= 0) || std::isinf(weights[i])) {
          return Status::invalid(name, "finite weights >= 0", static_cast<double>(weights[i]), k);
        }
        sum += static_cast<double>(weights[i]);
      }
      if (sum == 0) return Status::invalid(name, "weights with a sum > 0", 0, k);
      least = std::min(least, sum);
    }
    // Sums of weights are rounded: a mass that equals one may lie a few units in the last place above it.
    if (p.mass > least * (1 + 64 * std::numeric_limits<Real>::epsilon())) {
      return Status::invalid("mass", "at most the smaller sum of weights", p.mass, k);
    }
    if (!p.epsilons) continue;
    const double epsilon = static_cast<double>(static_cast<const Real*>(p.epsilons)[k]);
    if (!(epsilon > 0) || std::isinf(epsilon))
      return Status::invalid("epsilon", "finite and > 0", epsilon, k);
  }
  return {};
}

Status check_tangents(const SinkhornProblem& p, const SinkhornTangents& along) {
  const std::size_t size = size_of(p.dtype);
  if (p.batch == 0) return {};
  if (!p.f0) return Status::invalid("f0", "the solution's f", 0);
  if (!p.g0) return Status::invalid("g0", "the solution's g", 0);
  if (p.cost.data && along.x.data) return Status::invalid("x_tangent", "null with a cost matrix", 1);
  if (p.cost.data && along.y.data) return Status::invalid("y_tangent", "null with a cost matrix", 1);
  if (!p.cost.data && along.cost.data) return Status::invalid("cost_tangent", "null with points", 1);
  for (const auto& [name, data] :
       std::initializer_list<std::pair<const char*, const void*>>{{"shift0", p.shift0},
                                                                  {"x_tangent", along.x.data},
                                                                  {"y_tangent", along.y.data},
                                                                  {"cost_tangent", along.cost.data},
                                                                  {"a_tangent", along.a},
                                                                  {"b_tangent", along.b},
                                                                  {"epsilon_tangent", along.epsilon},
                                                                  {"log_scale_tangent", along.log_scale},
                                                                  {"f_tangent", along.f},
                                                                  {"g_tangent", along.g}}) {
    if (Status s = check_aligned(name, data, size); !s.ok()) return s;
  }
  return {};
}

Status check(const SinkhornProblem& p, const SinkhornOutputs& out, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
    return Status::invalid("dtype", "float32 or float64", static_cast<double>(p.dtype));
  }
  if (Status s = check_extents(p); !s.ok()) return s;
  if (Status s = check_numbers(p); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (Status s = check_inputs(p, out); !s.ok()) return s;
  if (execution.device == Device::kCuda) {  // lengths and values are on the device
#if WARPALIGN_HAS_CUDA
    if (!p.cost.data) {
      return Status::unsupported("execution",
                                 "sinkhorn makes costs of points on CPUs alone; give it the costs");
    }
    return {};
#else
    return kNoCudaPath;
#endif
  }
  if (Status s = check_lengths(p.a.lengths, "x_lengths", "between 1 and N", p.batch, 1, p.n); !s.ok())
    return s;
  if (Status s = check_lengths(p.b.lengths, "y_lengths", "between 1 and M", p.batch, 1, p.m); !s.ok())
    return s;
  return p.dtype == DType::kFloat64 ? check_values<double>(p) : check_values<float>(p);
}

Status check_outputs(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
                     std::size_t needed) {
  const std::size_t b = p.batch, n = p.n, m = p.m, d = p.dim, size = size_of(p.dtype);
  const WrittenMemory places[] = {
      {"f", out.f, b * n * size, size},
      {"g", out.g, b * m * size, size},
      {"shift", out.shift, b * size, size},
      {"value", out.value, b * size, size},
      {"linear", out.linear, b * size, size},
      {"grad_x", out.grad_x, b * n * d * size, size},
      {"grad_y", out.grad_y, b * m * d * size, size},
      {"grad_cost", out.grad_cost, b * n * m * size, size},
      {"grad_a", out.grad_a, b * n * size, size},
      {"grad_b", out.grad_b, b * m * size, size},
      {"grad_epsilon", out.grad_epsilon, b * size, size},
      {"iterations", out.iterations, b * sizeof(std::int32_t), sizeof(std::int32_t)},
      {"error", out.error, b * size, size},
      {"workspace", needed > 0 ? workspace.data : nullptr, needed, 1},
  };
  return check_written(places);
}

}  // namespace

std::size_t sinkhorn_workspace_bytes(const SinkhornProblem& problem, const SinkhornOutputs& outputs,
                                     const Execution& execution) {
  if (problem.batch == 0 || !check_extents(problem).ok()) return 0;
  if (execution.device == Device::kHost) {
    return detail::transport::sinkhorn_cpu_workspace_bytes(problem, outputs, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transport::sinkhorn_cuda_workspace_bytes(problem, outputs, execution);
#else
  return 0;
#endif
}

Status sinkhorn(const SinkhornProblem& problem, const SinkhornOutputs& outputs, Workspace workspace,
                const Execution& execution) {
  if (Status s = check(problem, outputs, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
  const std::size_t needed = sinkhorn_workspace_bytes(problem, outputs, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_outputs(problem, outputs, workspace, needed); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transport::sinkhorn_cuda(problem, outputs, workspace, execution);
  }
#endif
  return detail::transport::sinkhorn_cpu(problem, outputs, workspace, execution);
}

std::size_t sinkhorn_jvp_workspace_bytes(const SinkhornProblem& problem, const SinkhornTangents& tangents,
                                         const SinkhornOutputs& outputs, const Execution& execution) {
  if (problem.batch == 0 || !check_extents(problem).ok() || execution.device != Device::kHost) return 0;
  return detail::transport::sinkhorn_jvp_cpu_workspace_bytes(problem, tangents, outputs, execution);
}

Status sinkhorn_jvp(const SinkhornProblem& problem, const SinkhornTangents& tangents,
                    const SinkhornOutputs& outputs, Workspace workspace, const Execution& execution) {
  if (Status s = check(problem, outputs, execution); !s.ok()) return s;
  if (Status s = check_tangents(problem, tangents); !s.ok()) return s;
  if (problem.batch == 0) return {};
  const std::size_t needed = sinkhorn_jvp_workspace_bytes(problem, tangents, outputs, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_outputs(problem, outputs, workspace, needed); !s.ok()) return s;
  return detail::transport::sinkhorn_jvp_cpu(problem, tangents, outputs, workspace, execution);
}

}  // namespace warpalign
