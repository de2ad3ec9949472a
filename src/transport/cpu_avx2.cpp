// The CPU kernels for AVX2 with FMA; cmake/WarpalignOperator.cmake has the compiler's flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transport::isa_avx2
#define WARPALIGN_ISA kAvx2
#include "transport/cpu_kernel.inl"
