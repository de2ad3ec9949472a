// Twin of src/cuda/memory/copy_memory.cuh: the copy takes its turn among the stream's launches.
#pragma once

#include <cstddef>
#include <cstring>

#include "cuda/launch/launch.cuh"
#include "simt.h"

namespace warpalign::cuda {

inline Status copy_memory(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  simt::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return {};
}

}  // namespace warpalign::cuda
