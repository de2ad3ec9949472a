// For benchmarks, through ctypes: which kernels a library has, how often this process has launched each, and
// the thresholds that it chooses by.
#include "export.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/tuning.h"

WARPALIGN_EXPORT bool warpalign_transducer_kernel_launches(int index, warpalign::KernelLaunches* out) {
  return warpalign::transducer_kernel_launches(index, out);
}
WARPALIGN_EXPORT bool warpalign_transducer_threshold(int index, warpalign::Threshold* out) {
  return warpalign::transducer_threshold(index, out);
}
WARPALIGN_EXPORT bool warpalign_force_transducer_threshold(const char* name, int value) {
  return warpalign::force_transducer_threshold(name, value);
}
