// What the CPU path of decoding (cpu_decode.cpp) and its kernels (cpu_decode.inl, one copy per instruction
// set) share. Plain data only.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/row_kernel.h"

namespace warpalign::detail::transducer {

// Rows of hidden numbers that are multiplied by the weights together, at most.
constexpr int kDecodeRows = 16;
// A product of one row takes two thirds of the time that a product of so many takes.
constexpr int kDecodeStep = 4;
// A row of hidden numbers takes a multiple of so many, the last ones 0.
constexpr int kDecodePad = 16;

template <class Real>
struct CpuDecodeKernels {
  // out[j] = act(encoder[j] + predictor[j]), padded with 0.
  void (*hidden)(const Real* encoder, const Real* predictor, std::int32_t hidden, bool is_tanh, Real* out);
  // out[r][c] = bias[c] + hidden[r] weight[c] for r < rows <= kDecodeRows; bias may be null.
  void (*scores)(const Real* hidden, std::int64_t hidden_stride, int rows, const Real* weight,
                 const Real* bias, std::int32_t hidden_size, std::int32_t columns, Real* const* out);
  // log sum exp of a row; NaN if it holds NaN or +inf, -inf if it holds -inf alone.
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
