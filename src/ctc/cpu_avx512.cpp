// CTC's CPU kernels for one instruction set; cmake/WarpalignOperator.cmake has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::ctc::isa_avx512
#define WARPALIGN_ISA kAvx512
#include "ctc/cpu_kernel.inl"
