// What the CPU path of decoding (cpu_decode.cpp) and its kernels (cpu_decode.inl, one copy per instruction
// set) share. Plain data only.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace warpalign::detail::transducer {

// Rows of hidden numbers that are multiplied by the weights together.
constexpr int kDecodeRows = 8;
// A row of hidden numbers takes a multiple of so many, the last ones 0.
constexpr int kDecodePad = 16;

// Largest number of a row and its column (-1: none above -inf), and log sum exp.
struct CpuRowBest {
  double value;
  std::int32_t column;
  double lse;
};

template <class Real>
struct CpuDecodeKernels {
  // out[j] = act(encoder[j] + predictor[j]), padded with 0.
  void (*hidden)(const Real* encoder, const Real* predictor, std::int32_t hidden, bool is_tanh, Real* out);
  // out[r][c] = bias[c] + hidden[r] weight[c] for r < rows <= kDecodeRows; bias may be null.
  void (*scores)(const Real* hidden, std::int64_t hidden_stride, int rows, const Real* weight,
                 const Real* bias, std::int32_t hidden_size, std::int32_t columns, Real* out,
                 std::int64_t out_stride);
  CpuRowBest (*best)(const Real* row, std::int32_t columns);
};

struct CpuDecode {
  CpuDecodeKernels<float> of32;
  CpuDecodeKernels<double> of64;
};

const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::transducer
