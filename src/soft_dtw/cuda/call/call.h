// One launch of soft-DTW on a GPU, or two with the rerun in float64: what is asked for, and how it is done.
#pragma once

#include <cstddef>

#include "soft_dtw/cuda/call/select.h"
#include "soft_dtw/cuda/panel/panel.h"
#include "soft_dtw/cuda/series/widen.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail::soft_dtw {

// What is asked for. Plans do not look at addresses, but at the two flags about them.
struct Call {
  SoftDtwProblem problem;  // dtype: of everything but x and y
  DType series_type;       // of x and y: problem.dtype, or a half type where it is float32
  HalfSeries widened;      // with a half type: what makes x and y float32, and where they go
  SoftDtwOutputs out;
  bool second_order;  // derivatives along the tangents are wanted
  SoftDtwTangents tangents;
  bool vectorized;            // four neighbouring features of x and y can be read at a time
  bool has_matrix_units;      // the device has units for products of TF32, and memory for their factors
  bool may_use_matrix_units;  // costs may be made of their products
  bool three_terms;           // a product of float32 is three of TF32, not one
  bool batch_invariant;

  // What x and y are widened to, contiguous.
  [[nodiscard]] StridedTensor widened_x() const { return contiguous(widened.widened_x, problem.n); }
  [[nodiscard]] StridedTensor widened_y() const { return contiguous(widened.widened_y, problem.m); }

 private:
  [[nodiscard]] StridedTensor contiguous(const float* data, std::int64_t length) const {
    return {data, {length * problem.dim, problem.dim, 1}};
  }
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
  std::size_t cancelled;  // bytes of a panel's flags of gradients that are taken by differences after all
  std::size_t workspace;  // bytes of all

  [[nodiscard]] bool fits() const { return main.fits() && (!has_rerun || rerun.fits()); }
};

Plan plan_for(const Call& call, DeviceTraits device);

// Enqueues what the plan says on a stream (a cudaStream_t).
Status launch(const Call& call, const Plan& plan, void* workspace, void* stream);

// Whether the plan's kernels read x and y of a half type as they are. Else they are widened before.
bool reads_halves(const Call& call, const Plan& plan);

// Whether rows are the caller's y and columns its x: strips lie along the longer series, which gives the most
// warps something to do, where the problem is symmetric.
bool exchanges_series(const Call& call);

}  // namespace warpalign::detail::soft_dtw
