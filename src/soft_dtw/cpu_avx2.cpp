// The CPU kernels for AVX2 with FMA; cmake/WarpalignOperator.cmake has the compiler's flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::soft_dtw::isa_avx2
#define WARPALIGN_ISA kAvx2
#include "soft_dtw/cpu_kernel.inl"
