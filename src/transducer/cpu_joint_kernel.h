// What the CPU path of the joint (cpu_joint*.cpp) and its kernels (cpu_joint.inl, one copy per instruction
// set) share. Plain data only: no inline function here may be compiled under two sets of flags.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace warpalign::detail::transducer {

// c[r,n] = start[r,n] + sum over k < depth of a[r,k] b[k,n], or c[r,n] += the sum if start is null.
// 0 <= r < rows, 0 <= n < columns; columns are a multiple of CpuJointKernels::width. Sums are made in the
// order of k, in blocks of kJointDepth, whatever rows and columns are.
// Factor: the same type, or std::int32_t for two bfloat16 numbers, k's and the next one's, the first one in
// the lower half; such a k counts once.
template <class Real, class Factor = Real>
struct CpuProduct {
  const Factor* a;  // a[r,k] is a[r row + k step]
  std::int64_t a_row;
  std::int64_t a_step;
  std::int32_t rows;
  // b[k,n] is b[n / width * panel + k step + n % width].
  const Factor* b;
  std::int64_t b_panel;
  std::int64_t b_step;
  std::int32_t columns;
  std::int32_t depth;  // >= 1
  const Real* start;   // [r row + n]; row 0: the same for all
  std::int64_t start_row;
  Real* c;
  std::int64_t c_row;
};
constexpr int kJointDepth = 256;

template <class Real>
struct CpuJointKernels {
  std::int32_t width;  // of a panel of b
  std::int32_t rows;   // that a product's innermost loop takes at once
  void (*product)(const CpuProduct<Real>&);
  // to[j] *= act' for h[j] = act(..), j < count.
  void (*pull_back)(const Real* h, Real* to, std::int32_t count, bool is_tanh);
  // to[j] += from[j].
  void (*add)(const Real* from, Real* to, std::int32_t count);
};

// h[j] = act(encoder[j] + predictor[j]), j < count; elements of one storage type.
using CpuHidden32 = void (*)(const void* encoder, const void* predictor, std::int32_t count, bool is_tanh,
                             float* h);
using CpuHidden64 = void (*)(const void* encoder, const void* predictor, std::int32_t count, bool is_tanh,
                             double* h);

// Products of bfloat16 numbers in pairs.
struct CpuPairs {
  // Null: the instruction set has none. It needs cpu::has_bfloat16_products() besides.
  void (*product)(const CpuProduct<float, std::int32_t>&);
  // to[j] = (from[2 j], from[2 j + 1]), 2 j < count; 0 stands for from[count].
  void (*pack_row)(const float* from, std::int32_t* to, std::int32_t count);
  // to[j] = (first[j], second[j]), j < count; second null: zeros.
  void (*pack_rows)(const float* first, const float* second, std::int32_t* to, std::int32_t count);
};

struct CpuJoint {
  CpuJointKernels<float> joint32;
  CpuJointKernels<double> joint64;
  CpuHidden32 hidden32;
  CpuHidden64 hidden64;
  CpuHidden32 hidden16;
  CpuHidden32 hidden_b16;
  CpuPairs pairs;
};

const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::transducer
