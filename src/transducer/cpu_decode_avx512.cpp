// The CPU kernels of decoding for one instruction set; cmake/WarpalignOperator.cmake has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transducer::isa_avx512
#define WARPALIGN_ISA kAvx512
#include "transducer/cpu_decode.inl"
