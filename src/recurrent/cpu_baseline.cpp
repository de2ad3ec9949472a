// The LSTM's CPU kernels for one instruction set; cmake/WarpalignOperator.cmake has its compiler flags.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::recurrent::isa_baseline
#define WARPALIGN_ISA kBaseline
#include "recurrent/cpu_kernel.inl"
