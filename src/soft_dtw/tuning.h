// Made by tools/make_tuning.py from tuning/soft_dtw.json: change that file, and run `make tuning`.
#pragma once

#include "core/tuning.h"
#include "cpu/isa.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::soft_dtw {

struct CudaTuning {
  int device_class;  // DeviceTraits::compute_capability
  // Up to so many strips, pairs of few features and pairs in a panel are swept from both ends at once. Unit:
  // strips per multiprocessor, both sweeps counted.
  int meeting_strips;
  // Up to so many strips, values of pairs in tiles are computed from both ends at once. Unit: strips per
  // multiprocessor, both sweeps counted.
  int meeting_small_crew_strips;
  // Up to so many strips, gradients of pairs in tiles are computed from both ends at once. Unit: strips per
  // multiprocessor, both sweeps counted.
  int meeting_large_crew_strips;
  // Up to so many strips, a strip of tiles has a larger crew of warps. Unit: strips per multiprocessor.
  int large_crew_strips;
  // From so many warps on, lanes have four columns where values of few features are wanted. Unit: warps per
  // multiprocessor, of lanes with two columns.
  int wide_lanes_warps;
  // From so many warps on, pairs take turns in a panel rather than go to tiles all at once. Unit: warps at
  // work per multiprocessor.
  int turn_warps;
  // The same where tiles are faster: values without options, and steps with a band or a penalty. Unit: warps
  // at work per multiprocessor.
  int turn_warps_of_fast_tiles;
  // From so many features on, pairs take turns in a panel whatever their number of warps. Unit: features.
  int turn_features;
  // A panel and what its sweeps keep take at most so much memory, or twice as much as the inputs. Unit:
  // bytes.
  int panel_bytes;
  // The strips of a block, at least, where few pairs are shared out to all multiprocessors. Unit: strips.
  int fewest_panel_strips;
};
inline constexpr CudaTuning kCudaTunings[] = {
    {
        .device_class = 90,
        .meeting_strips = 26,
        .meeting_small_crew_strips = 4,
        .meeting_large_crew_strips = 2,
        .large_crew_strips = 2,
        .wide_lanes_warps = 6,
        .turn_warps = 2,
        .turn_warps_of_fast_tiles = 8,
        .turn_features = 65,
        .panel_bytes = 268435456,
        .fewest_panel_strips = 4,
    },
};
inline TuningField<CudaTuning> cuda_tuning_fields[] = {
    {"meeting_strips", &CudaTuning::meeting_strips},
    {"meeting_small_crew_strips", &CudaTuning::meeting_small_crew_strips},
    {"meeting_large_crew_strips", &CudaTuning::meeting_large_crew_strips},
    {"large_crew_strips", &CudaTuning::large_crew_strips},
    {"wide_lanes_warps", &CudaTuning::wide_lanes_warps},
    {"turn_warps", &CudaTuning::turn_warps},
    {"turn_warps_of_fast_tiles", &CudaTuning::turn_warps_of_fast_tiles},
    {"turn_features", &CudaTuning::turn_features},
    {"panel_bytes", &CudaTuning::panel_bytes},
    {"fewest_panel_strips", &CudaTuning::fewest_panel_strips},
};
inline CudaTuning cuda_tuning(const cuda::DeviceTraits& device) {
  return tuned(kCudaTunings, cuda_tuning_fields, device.compute_capability);
}

struct CpuTuning {
  int device_class;  // a cpu::Isa
  // From so many cells on, several threads may share a pair. Unit: cells of a pair.
  int help_cells;
  // From so many pairs on, no thread helps another one with its pair. Unit: pairs per thread.
  int help_pairs;
};
inline constexpr CpuTuning kCpuTunings[] = {
    {
        .device_class = 1,
        .help_cells = 131072,
        .help_pairs = 8,
    },
};
inline TuningField<CpuTuning> cpu_tuning_fields[] = {
    {"help_cells", &CpuTuning::help_cells},
    {"help_pairs", &CpuTuning::help_pairs},
};
inline CpuTuning cpu_tuning(cpu::Isa isa) {
  return tuned(kCpuTunings, cpu_tuning_fields, static_cast<int>(isa));
}

}  // namespace warpalign::detail::soft_dtw
