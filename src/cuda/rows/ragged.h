// Ragged batches: the true length of an element, and the order in which blocks take elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "warpalign/status.h"

namespace warpalign::cuda {

// lengths[b], clamped to [least, most]; `most` if lengths is null.
__device__ __forceinline__ int true_length(const std::int32_t* lengths, int b, int most, int least = 1) {
  return lengths ? min(max(lengths[b], least), most) : most;
}

// One axis of a ragged batch.
struct RaggedAxis {
  const std::int32_t* lengths;  // (batch,), on the device; null: all are `most`
  int most;                     // the padded length
};

// Writes the batch's elements to order[0 ... batch - 1], by descending number of cells (product of both
// lengths), so that the last blocks to finish have the smallest elements. The order of elements whose numbers
// of cells differ by less than 0.1 % of the padded number is unspecified. Sets *counter to 0. Runs on the
// device, in stream order.
Status find_longest_first(RaggedAxis rows, RaggedAxis columns, int batch, int* order, int* counter,
                          cudaStream_t stream);

}  // namespace warpalign::cuda
