// Launching a kernel.
#pragma once

#include "cuda/check.h"

namespace warpalign::cuda {

template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared_bytes,
              cudaStream_t stream, const Arguments&... arguments) {
  kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...);
  return to_status(cudaGetLastError());
}

}  // namespace warpalign::cuda
