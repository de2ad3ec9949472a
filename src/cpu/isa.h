// The instruction set of the CPU kernels.
#pragma once

namespace warpalign::cpu {

enum class Isa { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

// An instruction set as a type, for overloads (cpu/dispatch.h).
template <Isa kIsa>
struct IsaTag {};

// The best instruction set that this build has kernels for and this processor runs.
Isa best_isa();

// Whether kernels of the selected instruction set may also use the bfloat16 products of AVX512_BF16.
bool has_bfloat16_products();

// The instruction set that the next calls use: best_isa(), or a lower one that a test or a benchmark has
// selected. Selecting a higher one selects best_isa().
Isa selected_isa();
void override_isa(Isa isa);
void clear_isa_override();

const char* isa_name(Isa isa);

}  // namespace warpalign::cpu
