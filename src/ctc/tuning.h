// Made by tools/make_tuning.py from tuning/ctc.json: change that file, and run `make tuning`.
#pragma once

#include "core/tuning.h"
#include "cpu/isa.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::ctc {

struct CudaTuning {
  int device_class;  // DeviceTraits::compute_capability
  // Up to so many classes, occupancies of a segment are kept by class rather than by label. Unit: classes.
  int dense_classes;
};
inline constexpr CudaTuning kCudaTunings[] = {
    {
        .device_class = 90,
        .dense_classes = 512,
    },
};
inline TuningField<CudaTuning> cuda_tuning_fields[] = {
    {"dense_classes", &CudaTuning::dense_classes},
};
inline CudaTuning cuda_tuning(const cuda::DeviceTraits& device) {
  return tuned(kCudaTunings, cuda_tuning_fields, device.compute_capability);
}

struct CpuTuning {
  int device_class;  // a cpu::Isa
  // A worker takes so many elements at a time where frames are normalised. Unit: elements of logits.
  int worker_elements;
  // A gradient's segment has as many frames as fit into so many numbers: a part of the second-level cache.
  // Unit: numbers of float64.
  int segment_doubles;
  // An utterance is divided into stripes of so many pairs, at least, which threads share. Unit: pairs of a
  // blank and a label.
  int stripe_pairs;
  // An alignment has at most so many stripes for each thread. Unit: stripes.
  int stripes_per_thread;
};
inline constexpr CpuTuning kCpuTunings[] = {
    {
        .device_class = 1,
        .worker_elements = 65536,
        .segment_doubles = 65536,
        .stripe_pairs = 512,
        .stripes_per_thread = 4,
    },
};
inline TuningField<CpuTuning> cpu_tuning_fields[] = {
    {"worker_elements", &CpuTuning::worker_elements},
    {"segment_doubles", &CpuTuning::segment_doubles},
    {"stripe_pairs", &CpuTuning::stripe_pairs},
    {"stripes_per_thread", &CpuTuning::stripes_per_thread},
};
inline CpuTuning cpu_tuning(cpu::Isa isa) {
  return tuned(kCpuTunings, cpu_tuning_fields, static_cast<int>(isa));
}

}  // namespace warpalign::detail::ctc
