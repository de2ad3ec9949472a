// What the CPU path of the joint (cpu_joint*.cpp) and its kernels (cpu_joint.inl, one copy per instruction
// set) share. Plain data only: no inline function here may be compiled under two sets of flags.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace warpalign::detail::transducer {

// c[r,n] = start[r,n] + sum over k < depth of a[r,k] b[k,n], or c[r,n] += the sum if start is null.
// 0 <= r < rows, 0 <= n < columns; columns are a multiple of CpuJointKernels::width. Sums are made in the
// order of k, in blocks of kJointDepth, whatever rows and columns are.
template <class Real>
struct CpuProduct {
  const Real* a;  // a[r,k] is a[r row + k step]
  std::int64_t a_row;
  std::int64_t a_step;
  std::int32_t rows;
  // b[k,n] is b[n / width * panel + k step + n % width].
  const Real* b;
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

struct CpuJoint {
  CpuJointKernels<float> joint32;
  CpuJointKernels<double> joint64;
  CpuHidden32 hidden32;
  CpuHidden64 hidden64;
  CpuHidden32 hidden16;
  CpuHidden32 hidden_b16;
};

const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::transducer
