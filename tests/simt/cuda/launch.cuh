// Stands in for src/cuda/launch.cuh.
#pragma once

#include "cuda/check.h"

namespace warpalign::cuda {

template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared_bytes, cudaStream_t,
              const Arguments&... arguments) {
  simt::run_grid(blocks, threads, shared_bytes, [&] { kernel(arguments...); });
  return {};
}

}  // namespace warpalign::cuda
