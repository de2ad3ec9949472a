// From the operators' tensors and settings to the core's problems of soft-DTW.
#pragma once

#include <optional>
#include <string>

#include "call.h"
#include "checks.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::binding {

// An operator's arguments besides tensors and lengths, with the names of soft_dtw_schemas.cpp. The functions
// that are registered at the end list these in the schemas' order; nothing else here depends on that order.
// Every member has an initialiser: g++ asks for one where a list names only some members.
struct SoftDtwSettings {
  double gamma = 1.0;
  int64_t band = 0;
  int64_t radius = 0;
  double max_slope = 2.0;
  double step_penalty = 0.0;
  int64_t precision = 0;
  bool batch_invariant = false;
  std::optional<Tensor> gammas = {};  // NOLINT(readability-redundant-member-init)
  int64_t cost_kind = 0;
  std::optional<Tensor> x_mask = {};  // NOLINT(readability-redundant-member-init)
  std::optional<Tensor> y_mask = {};  // NOLINT(readability-redundant-member-init)
};

using Lengths = std::optional<Tensor>;
inline SoftDtwProblem series_problem(const Tensor& x, const Tensor& y, const Lengths& x_lengths,
                                     const Lengths& y_lengths, bool takes_halves) {
  SoftDtwProblem problem{};
  problem.dtype = check_table(x, "x", "(B, N, D)", takes_halves);
  if (check_table(y, "y", "(B, M, D)", takes_halves) != problem.dtype)
    fail("y", "the dtype of x, " + dtype_of(x), dtype_of(y));
  check_same_device(y, "y", x, "x");
  if (x.size(0) != y.size(0) || x.size(2) != y.size(2)) {
    fail("y", "(B, M, D) with the B and D of x, which has " + shape_of(x), shape_of(y));
  }
  problem.batch = static_cast<std::int32_t>(x.size(0));
  problem.n = static_cast<std::int32_t>(x.size(1));
  problem.m = static_cast<std::int32_t>(y.size(1));
  problem.dim = static_cast<std::int32_t>(x.size(2));
  problem.x = strided<3>(x);
  problem.y = strided<3>(y);
  problem.x_lengths = check_lengths(x_lengths, "x_lengths", x, "x");
  problem.y_lengths = check_lengths(y_lengths, "y_lengths", x, "x");
  return problem;
}

inline SoftDtwProblem cost_problem(const Tensor& cost, const Lengths& x_lengths, const Lengths& y_lengths) {
  SoftDtwProblem problem{};
  problem.dtype = check_table(cost, "cost", "(B, N, M)");
  problem.batch = static_cast<std::int32_t>(cost.size(0));
  problem.n = static_cast<std::int32_t>(cost.size(1));
  problem.m = static_cast<std::int32_t>(cost.size(2));
  problem.cost = strided<3>(cost);
  problem.x_lengths = check_lengths(x_lengths, "x_lengths", cost, "cost");
  problem.y_lengths = check_lengths(y_lengths, "y_lengths", cost, "cost");
  return problem;
}

// The settings that a problem of series and one of costs share. `first` is the problem's first tensor.
inline void set_paths(SoftDtwProblem& problem, const SoftDtwSettings& settings, const Tensor& first,
                      const char* first_name) {
  problem.gamma = settings.gamma;
  problem.band = {enumerator<BandKind>(settings.band), narrowed(settings.radius), settings.max_slope};
  problem.step_penalty = settings.step_penalty;
  if (settings.gammas) problem.gammas = check_vector(*settings.gammas, "gammas", first, first_name);
}

inline void set_steps(SoftDtwProblem& problem, const SoftDtwSettings& settings, const Tensor& x,
                      const Tensor& y) {
  problem.cost_kind = enumerator<CostKind>(settings.cost_kind);
  if (settings.x_mask) problem.x_mask = check_mask(*settings.x_mask, "x_mask", x);
  if (settings.y_mask) problem.y_mask = check_mask(*settings.y_mask, "y_mask", y);
}

// An output's dtype: float32 for series of half types.
inline ScalarType result_dtype(const Tensor& x) {
  return x.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

inline const std::int64_t* check_offsets(const Tensor& offsets, const char* name, const Tensor& x) {
  check_same_device(offsets, name, x, "x");
  if (offsets.scalar_type() != ScalarType::Long) fail(name, "dtype int64", dtype_of(offsets));
  if (offsets.dim() != 1 || !offsets.is_contiguous())
    fail(name, "a contiguous tensor (B,)", shape_of(offsets));
  return static_cast<const std::int64_t*>(offsets.const_data_ptr());
}

// Packed series: x (1, steps, D), y (1, steps, D), and the first step and the length of each pair's.
inline SoftDtwProblem packed_problem(const Tensor& x, const Tensor& y, const Tensor& x_offsets,
                                     const Tensor& y_offsets, const Tensor& x_lengths,
                                     const Tensor& y_lengths, int64_t n, int64_t m) {
  SoftDtwProblem problem = series_problem(x, y, std::nullopt, std::nullopt, x.is_cuda());
  if (x.size(0) != 1) fail("x", "(1, steps, D)", shape_of(x));
  problem.x_offsets = check_offsets(x_offsets, "x_offsets", x);
  problem.y_offsets = check_offsets(y_offsets, "y_offsets", x);
  if (y_offsets.size(0) != x_offsets.size(0)) {
    fail("y_offsets", "(B,) with the B of x_offsets, which has " + shape_of(x_offsets), shape_of(y_offsets));
  }
  problem.x_lengths = check_lengths(x_lengths, "x_lengths", x_offsets, "x_offsets");
  problem.y_lengths = check_lengths(y_lengths, "y_lengths", x_offsets, "x_offsets");
  problem.batch = static_cast<std::int32_t>(x_offsets.size(0));
  problem.n = narrowed(n);
  problem.m = narrowed(m);
  problem.x_steps = x.size(1);
  problem.y_steps = y.size(1);
  return problem;
}

}  // namespace warpalign::binding
