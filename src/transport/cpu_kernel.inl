// Transport's CPU kernels. Included once per instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA
// (the name in cpu::Isa) defined.
#include "cpu/simd.h"
#include "transport/cpu_kernel.h"

// clang-format off: in this order
#include "transport/cpu_logits.inl"
#include "transport/cpu_normalize.inl"
#include "transport/cpu_points.inl"
// clang-format on

namespace WARPALIGN_SIMD_NAMESPACE {
namespace {

using warpalign::detail::transport::CpuKernels;
using warpalign::detail::transport::CpuKernelsOf;

template <class Real>
constexpr CpuKernelsOf<Real> table() {
  return {&exponentials<Real>,
          &largest<Real>,
          &raise<Real>,
          &weighted_sum<Real>,
          &weighted_cost<Real>,
          &accumulate<Real>,
          &plan<Real>,
          &widen<Real>,
          &costs<Real>,
          &largest_differences<Real>,
          &gradient<Real>,
          &products<Real>,
          &cost_tangents<Real>,
          &gradient_tangent<Real>,
          kLanes<Real>,
          &normalize<Real>,
          &normalize_gradient<Real>};
}

}  // namespace
}  // namespace WARPALIGN_SIMD_NAMESPACE

namespace warpalign::detail::transport {

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  static constexpr CpuKernels kernels{WARPALIGN_SIMD_NAMESPACE::table<float>(),
                                      WARPALIGN_SIMD_NAMESPACE::table<double>()};
  return kernels;
}

}  // namespace warpalign::detail::transport
