// Types shared by the drivers and the kernels for rows of logits (cpu/rows.inl, one copy per instruction
// set). Plain data only: an inline function here would be compiled with several sets of flags, and the linker
// would merge the copies.
#pragma once

#include <cstdint>

namespace warpalign::cpu {

// A column of a row, and its number.
template <class Real>
struct Column {
  Real value;
  std::int32_t column;
};

// The most columns of a row that a RowGradient can name.
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
  // The log-sum-exp of a row: NaN if the row has NaN or +inf, -inf if all its elements are -inf.
  double (*lse)(const void* row, std::int32_t columns);
  void (*gradient)(const void* x, void* out, std::int32_t columns, const RowGradient<Real>& gradient);
};

}  // namespace warpalign::cpu
