// CTC's CPU kernels for one instruction set; cmake/WarpalignOperator.cmake has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::ctc::isa_avx2
#define WARPALIGN_ISA kAvx2
#include "ctc/cpu_kernel.inl"
