// The CPU kernels of decoding for one instruction set; cmake/WarpalignOperator.cmake has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transducer::isa_baseline
#define WARPALIGN_ISA kBaseline
#include "transducer/cpu_decode.inl"
