// The transducer's CPU kernels. Included once per instruction set, with WARPALIGN_SIMD_NAMESPACE and
// WARPALIGN_ISA (the name in cpu::Isa) defined.
#include "core/constants.h"
#include "cpu/simd.h"
#include "transducer/cpu_kernel.h"

// clang-format off: in this order
#include "cpu/rows.inl"
#include "cpu/scaled.inl"
#include "transducer/cpu_diagonals.inl"
#include "transducer/cpu_lattice.inl"
#include "transducer/cpu_path.inl"
// clang-format on

namespace warpalign::detail::transducer {

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuKernels kKernels{
      {isa::row_lse<isa::WideStorage<float>>, isa::row_gradient<isa::WideStorage<float>>},
      {isa::row_lse<isa::WideStorage<double>>, isa::row_gradient<isa::WideStorage<double>>},
      {isa::row_lse<isa::Half16Storage>, isa::row_gradient<isa::Half16Storage>},
      {isa::row_lse<isa::BFloat16Storage>, isa::row_gradient<isa::BFloat16Storage>},
      {isa::lattice_forward<float>, isa::lattice_reverse<float>, isa::best_path<float>},
      {isa::lattice_forward<double>, isa::lattice_reverse<double>, isa::best_path<double>}};
  return kKernels;
}

}  // namespace warpalign::detail::transducer
