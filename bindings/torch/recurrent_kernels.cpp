// For benchmarks, through ctypes: which kernels a library has, how often this process has launched each, and
// the thresholds that it chooses by.
#include "warpalign/kernel_launches.h"
#include "warpalign/tuning.h"

extern "C" __attribute__((visibility("default"))) bool warpalign_recurrent_kernel_launches(
    int index, warpalign::KernelLaunches* out) {
  return warpalign::recurrent_kernel_launches(index, out);
}
extern "C" __attribute__((visibility("default"))) bool warpalign_recurrent_threshold(
    int index, warpalign::Threshold* out) {
  return warpalign::recurrent_threshold(index, out);
}
extern "C" __attribute__((visibility("default"))) bool warpalign_force_recurrent_threshold(const char* name,
                                                                                           int value) {
  return warpalign::force_recurrent_threshold(name, value);
}
