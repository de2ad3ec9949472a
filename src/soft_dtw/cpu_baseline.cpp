// The CPU kernels for one instruction set; src/CMakeLists.txt has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::isa_baseline
#define WARPALIGN_CPU_KERNELS cpu_kernels_baseline
#include "soft_dtw/cpu_kernel.inl"
