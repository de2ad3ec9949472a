#include "cpu/isa.h"

#include <atomic>

#if WARPALIGN_X86_KERNELS
#include <cpuid.h>
#endif

namespace warpalign::cpu {
namespace {

constexpr int kNoOverride = -1;
std::atomic<int> g_override{kNoOverride};

#if WARPALIGN_X86_KERNELS
// Clang 14 does not know the name in __builtin_cpu_supports().
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

Isa detect() {
#if WARPALIGN_X86_KERNELS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    return Isa::kAvx2;
  }
#endif
  return Isa::kBaseline;
}

}  // namespace

Isa best_isa() {
  static const Isa best = detect();
  return best;
}

Isa selected_isa() {
  const int wanted = g_override.load(std::memory_order_relaxed);
  const Isa best = best_isa();
  return wanted == kNoOverride || wanted > static_cast<int>(best) ? best : static_cast<Isa>(wanted);
}

bool has_bfloat16_products() {
#if WARPALIGN_X86_KERNELS
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") != 0;
  }();
  return has && selected_isa() == Isa::kAvx512;
#else
  return false;
#endif
}

void override_isa(Isa isa) { g_override.store(static_cast<int>(isa), std::memory_order_relaxed); }

void clear_isa_override() { g_override.store(kNoOverride, std::memory_order_relaxed); }

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

}  // namespace warpalign::cpu
