// CTC's CPU kernels. Included once per instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA (the
// name in cpu::Isa) defined.
#include "core/constants.h"
#include "cpu/simd.h"
#include "ctc/cpu_kernel.h"

// clang-format off: in this order
#include "cpu/largest.inl"
#include "cpu/rows.inl"
#include "cpu/scaled.inl"
#include "ctc/cpu_frame.inl"
#include "ctc/cpu_lattice.inl"
#include "ctc/cpu_path.inl"
// clang-format on

namespace warpalign::detail::ctc {

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuKernels kKernels{
      {isa::row_lse<isa::WideStorage<float>>, isa::emissions<isa::WideStorage<float>>,
       isa::frame_gradient<isa::WideStorage<float>>},
      {isa::row_lse<isa::WideStorage<double>>, isa::emissions<isa::WideStorage<double>>,
       isa::frame_gradient<isa::WideStorage<double>>},
      {isa::row_lse<isa::Half16Storage>, isa::emissions<isa::Half16Storage>,
       isa::frame_gradient<isa::Half16Storage>},
      {isa::row_lse<isa::BFloat16Storage>, isa::emissions<isa::BFloat16Storage>,
       isa::frame_gradient<isa::BFloat16Storage>},
      isa::alpha_step,
      isa::beta_step,
      isa::normalize_row,
      isa::best_step,
      isa::monotonic_step,
      isa::largest_columns<float>,
      isa::largest_columns<double>};
  return kKernels;
}

}  // namespace warpalign::detail::ctc
