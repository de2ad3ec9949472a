// From the instruction set that is selected at run time to an operator's kernels for it.
//
// An operator compiles one source, its kernels, once per instruction set (cmake/WarpalignOperator.cmake).
// Each copy defines one overload of a function of the operator's:
//
//   const Kernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
//
// and the driver picks one with with_selected_isa([](auto isa) -> const Kernels& { return kernels_for(isa);
// }).
#pragma once

#include "cpu/isa.h"

#ifndef WARPALIGN_X86_KERNELS
#error "for the library's own sources: src/CMakeLists.txt defines WARPALIGN_X86_KERNELS for them"
#endif

namespace warpalign::cpu {

// body(IsaTag<isa>{}) for the selected instruction set; never for one that this build has no kernels for.
template <class Body>
decltype(auto) with_selected_isa(Body body) {
#if WARPALIGN_X86_KERNELS
  switch (selected_isa()) {
    case Isa::kAvx512:
      return body(IsaTag<Isa::kAvx512>{});
    case Isa::kAvx2:
      return body(IsaTag<Isa::kAvx2>{});
    case Isa::kBaseline:
      break;
  }
#endif
  return body(IsaTag<Isa::kBaseline>{});
}

}  // namespace warpalign::cpu
