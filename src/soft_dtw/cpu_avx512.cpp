// The CPU kernels for AVX-512 (F, DQ, BW, VL); cmake/WarpalignOperator.cmake has the compiler's flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::soft_dtw::isa_avx512
#define WARPALIGN_ISA kAvx512
#include "soft_dtw/cpu_kernel.inl"
