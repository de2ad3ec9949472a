// Kernels that know no element type: what a step of a row may do, and not what its numbers are.
#pragma once

#include "recurrent/cuda/cell/kernel_list.cuh"
#include "recurrent/cuda/cell/params.cuh"

namespace warpalign::detail::recurrent {

// The bits of zoneout: which units of h a step keeps, and above them which of c; a byte for four units.
struct KeptParams {
  StepRows at;
  MaskWords masks;
  std::uint64_t hidden_threshold, cell_threshold;  // 0: nothing is kept
  int words;                                       // of a row
  Offset first_row, rows;                          // whose bits are drawn
  std::uint8_t* to;                                // (rows of all steps, words)
};
extern const cuda::Kernel<KeptParams> kKept;

// to[b]: the steps of row b from step `begin` on, of lengths[b] in all.
struct ChunkLengthsParams {
  const std::int32_t* lengths;
  int batch, begin;
  std::int32_t* to;
};
extern const cuda::Kernel<ChunkLengthsParams> kChunkLengths;

}  // namespace warpalign::detail::recurrent
