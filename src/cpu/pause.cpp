#include "cpu/pause.h"

#include <thread>

namespace warpalign::cpu {

void pause(int turn) {
  if (turn % 64 == 63) {
    std::this_thread::yield();
    return;
  }
#if WARPALIGN_X86_KERNELS
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace warpalign::cpu
