// The LSTM's CPU kernels. Included once per instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA
// (the name in cpu::Isa) defined.
#include "cpu/simd.h"
#include "recurrent/cpu_kernel.h"

// clang-format off: in this order
#include "recurrent/cpu_cell.inl"
#include "recurrent/cpu_pack.inl"
#include "recurrent/cpu_product.inl"
#include "recurrent/cpu_row_product.inl"
// clang-format on

namespace warpalign::detail::recurrent {

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuKernels kKernels{
      {isa::pack_panel<float>, isa::product<float>, isa::row_product<float>, isa::cell<float>,
       isa::cell_again<float>, isa::output<float>, isa::output_backward<float>, isa::cell_backward<float>},
      {isa::pack_panel<double>, isa::product<double>, isa::row_product<double>, isa::cell<double>,
       isa::cell_again<double>, isa::output<double>, isa::output_backward<double>,
       isa::cell_backward<double>}};
  return kKernels;
}

}  // namespace warpalign::detail::recurrent
