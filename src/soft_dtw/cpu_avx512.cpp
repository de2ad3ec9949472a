// The CPU kernels for one instruction set; src/CMakeLists.txt has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::isa_avx512
#define WARPALIGN_CPU_KERNELS cpu_kernels_avx512
#include "soft_dtw/cpu_kernel.inl"
