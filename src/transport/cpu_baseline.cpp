// The CPU kernels for every processor of the architecture; cmake/WarpalignOperator.cmake has the compiler's
// flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transport::isa_baseline
#define WARPALIGN_ISA kBaseline
#include "transport/cpu_kernel.inl"
