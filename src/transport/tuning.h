// Made by tools/make_tuning.py from tuning/transport.json: change that file, and run `make tuning`.
#pragma once

#include "core/tuning.h"
#include "cpu/isa.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::transport {

struct CudaTuning {
  int device_class;  // DeviceTraits::compute_capability
  // Where every multiprocessor has a block, a problem with given costs gets another one for so many elements:
  // one more would cost the others a wait. Unit: elements of a cost matrix.
  int block_elements;
  // While multiprocessors are idle, a problem gets one block for so many elements. With fewer, barriers take
  // longer than passes. Unit: elements of a cost matrix, or pairs of points.
  int idle_block_elements;
  // A problem whose exponentials stay in shared memory gets one block for so many elements, where a cluster
  // has room for it. Other problems of short rows get one block for four times as many, those of long rows
  // for as many. Unit: elements of a cost matrix.
  int kept_block_elements;
  // From so many iterations on, exponentials of given float32 costs stay in shared memory. Problems with more
  // than 512 costs in a row, or 256 in float64, need so many for each turn that the problems of a batch take.
  // Unit: iterations.
  int kept_cost_iterations;
  // The same as block_elements of costs between points, of derivatives, and of what is read off a plan. Unit:
  // pairs of points.
  int point_block_elements;
  // From so many tiles on, blocks of a team share a tile of gradients by points on the matrix units. Unit:
  // tiles of 64 points of the other side.
  int sharing_steps;
  // From so many points on, warpgroups make the passes over points rounded to binary16. Unit: points of the
  // longer side.
  int warpgroup_points;
  // A search for shortest paths takes nodes up to a limit that is so much farther than the nearest one. Unit:
  // mean lengths of an edge.
  int search_limit_lengths;
};
inline constexpr CudaTuning kCudaTunings[] = {
    {
        .device_class = 90,
        .block_elements = 8192,
        .idle_block_elements = 4096,
        .kept_block_elements = 4096,
        .kept_cost_iterations = 8,
        .point_block_elements = 32768,
        .sharing_steps = 24,
        .warpgroup_points = 8192,
        .search_limit_lengths = 12,
    },
};
inline TuningField<CudaTuning> cuda_tuning_fields[] = {
    {"block_elements", &CudaTuning::block_elements},
    {"idle_block_elements", &CudaTuning::idle_block_elements},
    {"kept_block_elements", &CudaTuning::kept_block_elements},
    {"kept_cost_iterations", &CudaTuning::kept_cost_iterations},
    {"point_block_elements", &CudaTuning::point_block_elements},
    {"sharing_steps", &CudaTuning::sharing_steps},
    {"warpgroup_points", &CudaTuning::warpgroup_points},
    {"search_limit_lengths", &CudaTuning::search_limit_lengths},
};
inline CudaTuning cuda_tuning(const cuda::DeviceTraits& device) {
  return tuned(kCudaTunings, cuda_tuning_fields, device.compute_capability);
}

struct CpuTuning {
  int device_class;  // a cpu::Isa
  // From so many elements on, several threads share a problem. Unit: elements of a cost matrix.
  int thread_elements;
  // From so many iterations on, a solve keeps exponentials from one iteration to the next. Unit: iterations.
  int kept_iterations;
  // From so many features on, a solve stores the costs of points. Costs of fewer features take as long to
  // read as to compute. Unit: features.
  int stored_features;
  // From so many neighbouring sources on, one search finds the shortest paths from all of them. Unit: sources
  // of eight.
  int joint_search_sources;
};
inline constexpr CpuTuning kCpuTunings[] = {
    {
        .device_class = 1,
        .thread_elements = 65536,
        .kept_iterations = 8,
        .stored_features = 16,
        .joint_search_sources = 4,
    },
};
inline TuningField<CpuTuning> cpu_tuning_fields[] = {
    {"thread_elements", &CpuTuning::thread_elements},
    {"kept_iterations", &CpuTuning::kept_iterations},
    {"stored_features", &CpuTuning::stored_features},
    {"joint_search_sources", &CpuTuning::joint_search_sources},
};
inline CpuTuning cpu_tuning(cpu::Isa isa) {
  return tuned(kCpuTunings, cpu_tuning_fields, static_cast<int>(isa));
}

}  // namespace warpalign::detail::transport
