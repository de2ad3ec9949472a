// Ragged batches: the true lengths of an element, and the order in which elements are worked on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "warpalign/status.h"

namespace warpalign::cuda {

// lengths[b], held within [least, most]; `most` where lengths is null.
__device__ __forceinline__ int true_length(const std::int32_t* lengths, int b, int most, int least = 1) {
  return lengths ? min(max(lengths[b], least), most) : most;
}

// One axis of a ragged batch.
struct RaggedAxis {
  const std::int32_t* lengths;  // (batch,), on the device; null: all are `most`
  int most;                     // the padded length
};

// order[0 ... batch - 1]: the batch's elements, those with the most cells (product of both lengths) first, so
// that little is left to do when the others are over. Elements whose cells differ by less than 0.1 % of the
// padded number come in any order. *counter becomes 0. Writes on the device, in stream order.
Status find_longest_first(RaggedAxis rows, RaggedAxis columns, int batch, int* order, int* counter,
                          cudaStream_t stream);

}  // namespace warpalign::cuda
