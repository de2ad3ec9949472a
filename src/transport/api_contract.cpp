// The checks of a problem against the contract of both public headers.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "core/contract.h"
#include "transport/contract.h"
#include "transport/update.h"

namespace warpalign::detail::transport {
namespace {

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
  if (p.updates < SinkhornUpdates::kAlternating || p.updates > SinkhornUpdates::kMixed) {
    return Status::invalid("updates", "one of the values of SinkhornUpdates", static_cast<double>(p.updates));
  }
  return {};
}

Status check_inputs(const SinkhornProblem& p) {
  if (p.cost.data) {
    if (p.x.data || p.y.data) return Status::invalid("cost", "either cost, or x and y, but not both", 1);
    if (p.dim != 0) return Status::invalid("dim", "0 with a cost matrix, which has no features", p.dim);
    if (p.half_cost && p.dtype != DType::kFloat32) {
      return Status::invalid("dtype", "float32 with half_cost", static_cast<double>(p.dtype));
    }
  } else {
    if (p.half_cost) return Status::invalid("half_cost", "false without a cost matrix", 1);
    if (Status s = check_not_null("x", p.x.data); !s.ok()) return s;
    if (Status s = check_not_null("y", p.y.data); !s.ok()) return s;
  }
  if (Status s = check_strides("x", p.x); !s.ok()) return s;
  if (Status s = check_strides("y", p.y); !s.ok()) return s;
  if (Status s = check_strides("cost", p.cost); !s.ok()) return s;
  const std::size_t size = size_of(p.dtype);
  const std::size_t cost_size = size_of(p.half_cost ? DType::kFloat16 : p.dtype);
  if (Status s = check_aligned("cost", p.cost.data, cost_size); !s.ok()) return s;
  for (const auto& [name, data] :
       std::initializer_list<std::pair<const char*, const void*>>{{"x", p.x.data},
                                                                  {"y", p.y.data},
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

// Checks of values in host memory.
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
    if (p.mass > least * (1 + sum_slack<Real>())) {
      return Status::invalid("mass", "at most the smaller sum of weights", p.mass, k);
    }
    if (!p.epsilons) continue;
    const double epsilon = static_cast<double>(static_cast<const Real*>(p.epsilons)[k]);
    if (!(epsilon > 0) || std::isinf(epsilon))
      return Status::invalid("epsilon", "finite and > 0", epsilon, k);
  }
  return {};
}

template <class Real>
double sum_of_weights(const TransportSide& side, int length, int problem) {
  if (!side.weights) return 1;
  const Real* const weights =
      static_cast<const Real*>(side.weights) + static_cast<std::int64_t>(problem) * length;
  double sum = 0;
  for (int i = 0; i < (side.lengths ? side.lengths[problem] : length); ++i)
    sum += static_cast<double>(weights[i]);
  return sum;
}

template <class Real>
Status check_equal_sums(const SinkhornProblem& p) {
  const bool balanced = p.mass == 0 && std::isinf(p.a.strength) && std::isinf(p.b.strength);
  for (int k = 0; balanced && k < p.batch; ++k) {
    const double a = sum_of_weights<Real>(p.a, p.n, k), b = sum_of_weights<Real>(p.b, p.m, k);
    if (sums_agree(a, b)) continue;
    // The error names the side whose sum is farther from 1.
    if (std::abs(a - 1) >= std::abs(b - 1)) {
      return Status::invalid("a", "the sum of b (write a / a.sum(), or give rho_a or rho_b)", a, k);
    }
    return Status::invalid("b", "the sum of a (write b / b.sum(), or give rho_a or rho_b)", b, k);
  }
  return {};
}

}  // namespace

Status check_sums(const SinkhornProblem& p, const Execution& execution) {
  if (execution.device == Device::kCuda) return {};
  return p.dtype == DType::kFloat64 ? check_equal_sums<double>(p) : check_equal_sums<float>(p);
}

bool has_sizes(const SinkhornProblem& p) { return p.batch > 0 && check_extents(p).ok(); }

Status check_problem(const SinkhornProblem& p, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
    return Status::invalid("dtype", "float32 or float64", static_cast<double>(p.dtype));
  }
  if (Status s = check_extents(p); !s.ok()) return s;
  if (Status s = check_numbers(p); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (Status s = check_inputs(p); !s.ok()) return s;
  if (execution.device == Device::kCuda) {  // lengths and values are on the device
#if WARPALIGN_HAS_CUDA
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

}  // namespace warpalign::detail::transport
