// Types shared by the CPU path of decoding (cpu_decode.cpp) and its kernels (cpu_decode.inl, one copy per
// instruction set). Plain data only.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/row_kernel.h"

namespace warpalign::detail::transducer {

// The most hidden rows that are multiplied by the weights together.
constexpr int kDecodeRows = 16;
// Products take this many rows at a time: a product of one row takes two thirds of the time.
constexpr int kDecodeStep = 4;
// A hidden row is padded with zeros to a multiple of this.
constexpr int kDecodePad = 16;

template <class Real>
struct CpuDecodeKernels {
  // out[j] = act(encoder[j] + predictor[j]), padded with 0.
  void (*hidden)(const Real* encoder, const Real* predictor, std::int32_t hidden, bool is_tanh, Real* out);
  // out[r][c] = bias[c] + hidden[r] weight[c] for r < rows <= kDecodeRows; bias may be null.
  void (*scores)(const Real* hidden, std::int64_t hidden_stride, int rows, const Real* weight,
                 const Real* bias, std::int32_t hidden_size, std::int32_t columns, Real* const* out);
  // The log-sum-exp of a row: NaN if the row has NaN or +inf, -inf if all its elements are -inf.
  double (*lse)(const void* row, std::int32_t columns);
  // cpu/largest.inl
  int (*largest)(const Real* row, const Real* added, std::int32_t columns, int count, cpu::Column<Real>* out);
};

struct CpuDecode {
  CpuDecodeKernels<float> of32;
  CpuDecodeKernels<double> of64;
};

const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::transducer
