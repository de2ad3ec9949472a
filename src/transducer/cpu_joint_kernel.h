// Types shared by the CPU path of the joint (cpu_joint*.cpp) and its kernels (cpu_joint.inl, one copy per
// instruction set). Plain data only: an inline function here would be compiled with several sets of flags,
// and the linker would merge the copies.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace warpalign::detail::transducer {

// c[r,n] = start[r,n] + sum over k < depth of a[r,k] b[k,n], or c[r,n] += the sum if start is null.
// 0 <= r < rows, 0 <= n < columns; columns are a multiple of CpuJointKernels::width. The order of a sum is
// that of k, in blocks of kJointDepth, for any rows and columns. Factor: Real, or std::int32_t for the
// bfloat16 numbers of two neighbouring indices, the first one in the lower half; k and depth then count
// pairs.
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
  const Real* start;   // [r row + n]; with row = 0 it is the same for all r
  std::int64_t start_row;
  Real* c;
  std::int64_t c_row;
};
constexpr int kJointDepth = 256;

template <class Real>
struct CpuJointKernels {
  std::int32_t width;  // of a panel of b
  std::int32_t rows;   // rows of a product's innermost loop
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
  // Null if the instruction set has none. May be called only if cpu::has_bfloat16_products().
  void (*product)(const CpuProduct<float, std::int32_t>&);
  // to[j] = (from[2 j], from[2 j + 1]), 2 j < count; from[count] is taken as 0.
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
