// One launch of soft-DTW on a GPU, or two with the rerun in float64: what is asked for, and how it is done.
#pragma once

#include <cstddef>

#include "soft_dtw/cuda/panel.h"
#include "soft_dtw/cuda/select.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail::soft_dtw {

// What is asked for. Plans do not look at addresses, but at the two flags about them.
struct Call {
  SoftDtwProblem problem;
  SoftDtwOutputs out;
  bool second_order;  // derivatives along the tangents are wanted
  SoftDtwTangents tangents;
  bool vectorized;            // x and y can be read as float4 along D
  bool may_use_matrix_units;  // products of float32 may be left to them, and the device has them
  bool three_terms;           // such a product is three of TF32, not one
  bool batch_invariant;
};

// Where everything is in the workspace: the flags, the order, the scratch, the panel. The rerun uses the
// memory of the first launch, which is over by then.
struct Plan {
  Selection main;
  Panel panel;      // with costs in a panel: its addresses are offsets
  int panel_pairs;  // that are swept at a time; 0: costs are not in a panel
  bool has_rerun;   // float32: the pairs that were not certified are computed again in float64
  Selection rerun;
  std::size_t flags;      // bytes of one flag per pair, with a rerun
  std::size_t order;      // bytes of the order of a ragged batch, where blocks take several pairs
  std::size_t workspace;  // bytes of all

  [[nodiscard]] bool fits() const { return main.fits() && (!has_rerun || rerun.fits()); }
};

Plan plan_for(const Call& call, DeviceLimits device);

// Enqueues what the plan says on a stream (a cudaStream_t).
Status launch(const Call& call, const Plan& plan, void* workspace, void* stream);

// Whether rows are the caller's y and columns its x: strips lie along the longer series, which gives the most
// warps something to do, where the problem is symmetric.
bool exchanges_series(const Call& call);

}  // namespace warpalign::detail::soft_dtw
