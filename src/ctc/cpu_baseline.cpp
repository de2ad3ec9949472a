// CTC's CPU kernels for one instruction set; cmake/WarpalignOperator.cmake has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::ctc::isa_baseline
#define WARPALIGN_ISA kBaseline
#include "ctc/cpu_kernel.inl"
