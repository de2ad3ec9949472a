// What drivers and the kernels of rows of logits (cpu/rows.inl, one copy per instruction set) share. Plain
// data only: no inline function here may be compiled under two sets of flags.
#pragma once

#include <cstdint>

namespace warpalign::cpu {

// Columns of a row that a RowGradient can name.
constexpr int kRowColumns = 16;

// One row's gradient: out[k] = upstream (clip(p_k S - g_k)), p_k = exp(x[k] - lse); with log_probs p_k = 0.
// g is 0 but for `columns` columns, which are all different. out may be x.
template <class Real>
struct RowGradient {
  Real lse;
  Real scored;    // S
  Real upstream;  // G
  Real clip;      // +inf: not clipped
  bool log_probs;
  std::int32_t columns;
  std::int32_t column[kRowColumns];
  Real g[kRowColumns];
};

// The row kernels of one storage type. Half types compute in float.
template <class Real>
struct RowKernels {
  // log sum exp of a row; NaN if it holds NaN or +inf, -inf if it holds -inf alone.
  double (*lse)(const void* row, std::int32_t columns);
  void (*gradient)(const void* x, void* out, std::int32_t columns, const RowGradient<Real>& gradient);
};

}  // namespace warpalign::cpu
