// The CPU kernels for the instruction set that every machine of the architecture has;
// cmake/WarpalignOperator.cmake has the compiler's flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::soft_dtw::isa_baseline
#define WARPALIGN_ISA kBaseline
#include "soft_dtw/cpu_kernel.inl"
