// Schemas of soft_dtw*: pure functions without autograd, which Python adds
// (warpalign/_soft_dtw/autograd.py). Gradients are those of each pair's value: d value[b] / d x[b]. Outputs
// that are not requested have 0 elements.
#include "front_end.h"

// The settings of every operator: band is BandKind's number, with its radius and max_slope; step_penalty is
// added to every step that is not diagonal; precision is Precision's number; batch_invariant is Execution's;
// gammas (B,) replaces gamma. Operators on series also have cost_kind, CostKind's number, and the masks of
// missing steps.
#define WARPALIGN_CONSTANT_GAMMA                                                                  \
  "int band=0, int radius=0, float max_slope=2.0, float step_penalty=0.0, int precision=0, bool " \
  "batch_invariant=False, Tensor? gammas=None"
#define WARPALIGN_PATHS WARPALIGN_CONSTANT_GAMMA ", bool needs_grad_gamma=False"
#define WARPALIGN_STEPS "int cost_kind=0, Tensor? x_mask=None, Tensor? y_mask=None"
#define WARPALIGN_SERIES                                                                        \
  "(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, float gamma, bool needs_grad_x, " \
  "bool needs_grad_y, *, " WARPALIGN_PATHS ", " WARPALIGN_STEPS ")"

WARPALIGN_SCHEMAS(library) {
  library.def("soft_dtw" WARPALIGN_SERIES
              " -> (Tensor value, Tensor grad_x, Tensor grad_y, Tensor grad_gamma)");
  library.def("soft_dtw_alignment" WARPALIGN_SERIES
              " -> (Tensor value, Tensor grad_x, Tensor grad_y, Tensor grad_gamma, Tensor alignment)");
  // Series end to end without padding: x (1, steps, D), pair b's series being the x_lengths[b] <= n steps
  // from x_offsets[b] (int64) on, and the same for y.
  library.def(
      "soft_dtw_packed(Tensor x, Tensor y, Tensor x_offsets, Tensor y_offsets, Tensor x_lengths, Tensor "
      "y_lengths, int n, int m, float gamma, bool needs_grad_x, bool needs_grad_y, *, " WARPALIGN_PATHS
      ", int cost_kind=0) -> (Tensor value, Tensor grad_x, Tensor grad_y, Tensor grad_gamma)");
  library.def(
      "soft_dtw_subsequence(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, float gamma, bool "
      "needs_grad_x, bool needs_grad_y, *, float step_penalty=0.0, int cost_kind=0, bool "
      "needs_alignment=False) "
      "-> (Tensor value, Tensor grad_x, Tensor grad_y, Tensor alignment, Tensor end_values)");
  library.def(
      "soft_dtw_cost(Tensor cost, Tensor? x_lengths, Tensor? y_lengths, float gamma, bool needs_grad, "
      "*, " WARPALIGN_PATHS ") -> (Tensor value, Tensor alignment, Tensor grad_gamma)");
  // Derivatives of the results above along tangents of the series or costs. No tensor: that tangent is 0.
  library.def(
      "soft_dtw_jvp(Tensor x, Tensor y, Tensor? x_tangent, Tensor? y_tangent, Tensor? x_lengths, Tensor? "
      "y_lengths, float gamma, bool needs_grad_x, bool needs_grad_y, *, " WARPALIGN_CONSTANT_GAMMA
      ", " WARPALIGN_STEPS ") -> (Tensor value, Tensor grad_x, Tensor grad_y)");
  library.def(
      "soft_dtw_cost_jvp(Tensor cost, Tensor cost_tangent, Tensor? x_lengths, Tensor? y_lengths, float "
      "gamma, bool needs_grad, *, " WARPALIGN_CONSTANT_GAMMA ") -> (Tensor value, Tensor alignment)");
  // Paths of the Gibbs distribution, int64: cells (B, count, N+M-1, 2), -1 after a path's end, and lengths
  // (B, count). precision and batch_invariant change nothing.
  library.def(
      "soft_dtw_sample(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, float gamma, int count, int "
      "seed, *, " WARPALIGN_CONSTANT_GAMMA ", " WARPALIGN_STEPS ") -> (Tensor paths, Tensor lengths)");
  library.def(
      "soft_dtw_cost_sample(Tensor cost, Tensor? x_lengths, Tensor? y_lengths, float gamma, int count, int "
      "seed, "
      "*, " WARPALIGN_CONSTANT_GAMMA ") -> (Tensor paths, Tensor lengths)");
}
