// One launch of soft-DTW on a GPU, or two with the rerun in float64: the request (Call) and the plan for it
// (Plan).
#pragma once

#include <cstddef>
#include <optional>

#include "soft_dtw/cuda/call/select.h"
#include "soft_dtw/cuda/panel/panel.h"
#include "soft_dtw/cuda/series/widen.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail::soft_dtw {

// The request. Plans do not depend on addresses, but on the two flags about them.
struct Call {
  SoftDtwProblem problem;  // its dtype is that of everything but x and y
  DType series_type;       // of x and y: problem.dtype, or a half type if that is float32
  HalfSeries widened;      // with a half type: the conversion of x and y to float32
  SoftDtwOutputs out;
  bool second_order;  // whether to compute derivatives along the tangents
  SoftDtwTangents tangents;
  bool vectorized;            // four neighbouring features of x and y can be read at a time
  bool has_matrix_units;      // the device has units for products of TF32, and memory for their factors
  bool may_use_matrix_units;  // whether the precision allows costs from products
  bool three_terms;           // a product of float32 is three of TF32, not one
  bool batch_invariant;
  std::optional<Way> way;  // the way that the caller has named

  // The widened x and y, contiguous.
  [[nodiscard]] StridedTensor widened_x() const { return contiguous(widened.x.widened, problem.n); }
  [[nodiscard]] StridedTensor widened_y() const { return contiguous(widened.y.widened, problem.m); }

 private:
  [[nodiscard]] StridedTensor contiguous(const float* data, std::int64_t length) const {
    return {data, {length * problem.dim, problem.dim, 1}};
  }
};

// Sizes of the parts of the workspace: flags, order, scratch, panel. The rerun uses the scratch of the first
// launch, which has ended by then.
struct Plan {
  Selection main;
  Panel panel;      // its addresses are offsets in the workspace; used with costs in a panel
  int panel_pairs;  // number of pairs swept at a time; 0: costs are not in a panel
  bool has_rerun;   // float32: pairs that are not certified are computed again in float64
  Selection rerun;
  std::size_t flags;      // bytes of one flag per pair, with a rerun
  std::size_t order;      // bytes of the order of a ragged batch, where blocks take several pairs
  std::size_t cancelled;  // bytes of a panel's flags: blocks of gradients whose products cancelled
  std::size_t workspace;  // bytes of the whole workspace

  [[nodiscard]] bool fits() const { return main.fits() && (!has_rerun || rerun.fits()); }
  // Of the main launch.
  [[nodiscard]] Way way() const;
};

Plan plan_for(const Call& call, DeviceTraits device);

// Why a way cannot serve a call; null: it can.
const char* why_not(Way way, const Call& call, DeviceTraits device);

// The reason for the plan's way.
const char* reason_of(const Plan& plan, const Call& call);

// Enqueues the plan's launches on a stream (a cudaStream_t).
Status launch(const Call& call, const Plan& plan, void* workspace, void* stream);

// Whether the plan's kernels read x and y of a half type directly. Otherwise x and y are widened first.
bool reads_halves(const Call& call, const Plan& plan);

// Whether the kernels' rows are the caller's y and their columns its x. If the problem is symmetric, the
// longer series runs along the columns, which gives the most strips, one warp each.
bool exchanges_series(const Call& call);

}  // namespace warpalign::detail::soft_dtw
