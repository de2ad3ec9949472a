// For benchmarks, through ctypes: which kernels a library has, and how often this process has launched each.
#include "warpalign/kernel_launches.h"

extern "C" __attribute__((visibility("default"))) bool warpalign_ctc_kernel_launches(
    int index, warpalign::KernelLaunches* out) {
  return warpalign::ctc_kernel_launches(index, out);
}
