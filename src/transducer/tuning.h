// Made by tools/make_tuning.py from tuning/transducer.json: change that file, and run `make tuning`.
#pragma once

#include "core/tuning.h"
#include "cpu/isa.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::transducer {

struct CudaTuning {
  int device_class;  // DeviceTraits::compute_capability
  // From so many labels on, warpgroups multiply a joint network of half types or float32, in tiles of 128
  // (float32) or 256 labels. Unit: labels.
  int warpgroup_labels;
  // The rows of a chunk of nodes by warpgroups take at most so much memory. Unit: bytes.
  int warpgroup_chunk_bytes;
  // What a chunk by warpgroups costs besides its products, where its size is chosen. Unit: multiply-adds of a
  // row by one multiprocessor.
  int warpgroup_chunk_cost;
  // Gradients by weights are summed in at most so many parts, each by its own tiles. Unit: parts of a chunk.
  int warpgroup_weight_parts;
  // The rows of a chunk of logits take at most so much memory: they stay in the second-level cache. Unit:
  // bytes.
  int chunk_bytes;
  // The same of a chunk of gradients. Unit: bytes.
  int gradient_chunk_bytes;
  // The same of logits and gradients whose products are of TF32, which need more blocks. Unit: bytes.
  int tf32_chunk_bytes;
  // What a chunk by TF32 costs besides its products, where its size is chosen. Unit: multiply-adds of a
  // number by one multiprocessor.
  int tf32_chunk_cost;
  // Gradients by weights are summed in so many parts, each by blocks of its own. Unit: parts of a chunk.
  int weight_parts;
  // The same where products are of TF32. Unit: parts of a chunk.
  int tf32_weight_parts;
};
inline constexpr CudaTuning kCudaTunings[] = {
    {
        .device_class = 90,
        .warpgroup_labels = 8,
        .warpgroup_chunk_bytes = 94371840,
        .warpgroup_chunk_cost = 800000,
        .warpgroup_weight_parts = 8,
        .chunk_bytes = 25165824,
        .gradient_chunk_bytes = 20971520,
        .tf32_chunk_bytes = 62914560,
        .tf32_chunk_cost = 150,
        .weight_parts = 2,
        .tf32_weight_parts = 4,
    },
};
inline TuningField<CudaTuning> cuda_tuning_fields[] = {
    {"warpgroup_labels", &CudaTuning::warpgroup_labels},
    {"warpgroup_chunk_bytes", &CudaTuning::warpgroup_chunk_bytes},
    {"warpgroup_chunk_cost", &CudaTuning::warpgroup_chunk_cost},
    {"warpgroup_weight_parts", &CudaTuning::warpgroup_weight_parts},
    {"chunk_bytes", &CudaTuning::chunk_bytes},
    {"gradient_chunk_bytes", &CudaTuning::gradient_chunk_bytes},
    {"tf32_chunk_bytes", &CudaTuning::tf32_chunk_bytes},
    {"tf32_chunk_cost", &CudaTuning::tf32_chunk_cost},
    {"weight_parts", &CudaTuning::weight_parts},
    {"tf32_weight_parts", &CudaTuning::tf32_weight_parts},
};
inline CudaTuning cuda_tuning(const cuda::DeviceTraits& device) {
  return tuned(kCudaTunings, cuda_tuning_fields, device.compute_capability);
}

struct CpuTuning {
  int device_class;  // a cpu::Isa
  // A worker takes so many elements at a time in a pass over logits. Unit: elements of logits.
  int worker_elements;
  // A worker makes logits of at most so many bytes at a time: they stay in its second-level cache. Unit:
  // bytes.
  int joint_tile_bytes;
  // Gradients of logits are made in chunks of at most so many bytes. Unit: bytes.
  int joint_gradient_chunk_bytes;
};
inline constexpr CpuTuning kCpuTunings[] = {
    {
        .device_class = 1,
        .worker_elements = 65536,
        .joint_tile_bytes = 2097152,
        .joint_gradient_chunk_bytes = 16777216,
    },
    {
        .device_class = 2,
        .worker_elements = 65536,
        .joint_tile_bytes = 2097152,
        .joint_gradient_chunk_bytes = 16777216,
    },
};
inline TuningField<CpuTuning> cpu_tuning_fields[] = {
    {"worker_elements", &CpuTuning::worker_elements},
    {"joint_tile_bytes", &CpuTuning::joint_tile_bytes},
    {"joint_gradient_chunk_bytes", &CpuTuning::joint_gradient_chunk_bytes},
};
inline CpuTuning cpu_tuning(cpu::Isa isa) {
  return tuned(kCpuTunings, cpu_tuning_fields, static_cast<int>(isa));
}

}  // namespace warpalign::detail::transducer
