// Which instruction set the CPU kernels run with.
#pragma once

namespace warpalign::cpu {

enum class Isa { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

// An instruction set as a type, for overloads (cpu/dispatch.h).
template <Isa kIsa>
struct IsaTag {};

// The best instruction set that this build has kernels for and this processor runs.
Isa best_isa();

// Whether kernels of the selected instruction set may use AVX512_BF16's products of bfloat16, too.
bool has_bfloat16_products();

// The instruction set that the next calls use: best_isa(), unless a test or a benchmark has asked for a lower
// one. Asking for a higher one than best_isa() gives best_isa().
Isa selected_isa();
void override_isa(Isa isa);
void clear_isa_override();

const char* isa_name(Isa isa);

}  // namespace warpalign::cpu
