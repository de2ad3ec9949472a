// The CPU kernels for AVX-512; cmake/WarpalignOperator.cmake has the compiler's flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transport::isa_avx512
#define WARPALIGN_ISA kAvx512
#include "transport/cpu_kernel.inl"
