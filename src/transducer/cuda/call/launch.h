// Launches of the transducer's kernels. Each function chooses among the instantiations of its own source
// file.
#pragma once

#include "transducer/cuda/lattice/lattice_params.cuh"
#include "transducer/cuda/rows/row_gradient.cuh"
#include "transducer/cuda/rows/rows.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::transducer {

// Writes places (B + 1,): see Place.
Status launch_places(const Batch& batch, Place* places, cudaStream_t stream);

template <class Storage>
Status launch_rows(const RowsParams<Storage>& params, int blocks, cudaStream_t stream);

template <class Storage>
Status launch_row_gradient(const GradientParams<Storage>& params, int blocks, cudaStream_t stream);

// One kernel of the lattice pass.
struct LatticeKernel {
  int most_arcs;  // 0: plain RNN-T only
  int (*shared_bytes)(int strips, const SweepShape& shape);
  Status (*launch)(const void* params, int blocks, int shared_bytes, cudaStream_t stream);
};

// The ways of the lattice pass: its kernels, and the last one with slots from global memory.
enum class LatticeWay { kPlain, kFiveArcs, kTenArcs, kAnyArcs, kAnyArcsUnstaged };
inline constexpr const char* kLatticeWays[] = {"plain", "five_arcs", "ten_arcs", "any_arcs",
                                               "any_arcs_unstaged"};
// The way with the fewest arcs that suffice.
LatticeWay lattice_way_for(const Batch& batch);
// Whether the way's kernel serves the batch's arcs.
bool has_arcs(LatticeWay way, const Batch& batch);

// Real is float or double.
template <class Real>
const LatticeKernel& lattice_kernel(LatticeWay way);

}  // namespace warpalign::detail::transducer
