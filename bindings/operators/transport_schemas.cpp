// Schemas of sinkhorn*, transport_* and of graphs: pure functions without autograd, which
// Python adds (warpalign/_transport/). warpalign/{sinkhorn, transport_plan, neighbor_graph}.h say what they
// do.
#include "front_end.h"

// Either x and y or cost is given. cost may be float16, and all others are float32 then. epsilons, (B,),
// replaces epsilon. f0 and g0 are potentials.
#define WARPALIGN_TRANSPORT_TENSORS                                                                         \
  "Tensor? x, Tensor? y, Tensor? cost, Tensor? a, Tensor? b, Tensor? epsilons, Tensor? x_lengths, Tensor? " \
  "y_lengths, Tensor? f0, Tensor? g0"
// rho_a and rho_b are inf where a side is hard. mass is 0 unless transport is partial. cost_kind, reference,
// updates and precision are the enumerators' numbers.
#define WARPALIGN_TRANSPORT_SETTINGS                                                               \
  "int cost_kind=0, float cost_scale=1.0, float epsilon=1.0, float epsilon_start=0.0, float "      \
  "epsilon_factor=0.5, float rho_a, float rho_b, float mass=0.0, int reference=0, int updates=0, " \
  "int max_iterations=1000, float tolerance=1e-5, int precision=0, bool batch_invariant=False"

WARPALIGN_SCHEMAS(library) {
  // Gradients are those of each problem's value. Those that are not requested have 0 elements.
  library.def("sinkhorn(" WARPALIGN_TRANSPORT_TENSORS
              ", bool needs_grad_x, bool needs_grad_y, bool needs_grad_cost, *, " WARPALIGN_TRANSPORT_SETTINGS
              ") -> (Tensor value, Tensor linear, Tensor f, Tensor g, Tensor shift, Tensor iterations, "
              "Tensor error, Tensor grad_x, Tensor grad_y, Tensor grad_cost, Tensor grad_a, Tensor grad_b, "
              "Tensor grad_epsilon)");
  // The same without the outputs that need one more pass over the costs. On a GPU, with precision 2, a
  // tolerance of 0 and squared distances of few coordinates, points are rounded to binary16.
  library.def("sinkhorn_potentials(" WARPALIGN_TRANSPORT_TENSORS ", *, " WARPALIGN_TRANSPORT_SETTINGS
              ") -> (Tensor value, Tensor linear, Tensor f, Tensor g)");
  // The derivatives of the results above along tangents; no tensor: 0. f0, g0 and shift0 are the solution.
  library.def("sinkhorn_jvp(" WARPALIGN_TRANSPORT_TENSORS
              ", Tensor? shift0, Tensor? x_tangent, Tensor? y_tangent, Tensor? cost_tangent, Tensor? "
              "a_tangent, Tensor? b_tangent, Tensor? epsilon_tangent, Tensor? log_scale_tangent, Tensor? "
              "f_tangent, Tensor? g_tangent, bool needs_grad_x, bool needs_grad_y, bool needs_grad_cost, "
              "*, " WARPALIGN_TRANSPORT_SETTINGS
              ") -> (Tensor value, Tensor linear, Tensor f, Tensor g, Tensor grad_x, Tensor grad_y, Tensor "
              "grad_cost, Tensor grad_a, Tensor grad_b, Tensor grad_epsilon)");

  // Logits (B, N, M) after so many alternating normalisations (warpalign/sinkhorn_normalize.h).
  library.def("sinkhorn_normalize(Tensor logits, int iterations, bool columns_first) -> Tensor plan");
  library.def(
      "sinkhorn_normalize_gradient(Tensor logits, Tensor grad_plan, int iterations, bool columns_first) -> "
      "Tensor grad_logits");

  // Results of a plan, whose potentials are f0 and g0.
  library.def("transport_apply(" WARPALIGN_TRANSPORT_TENSORS
              ", Tensor v, bool transposed, *, " WARPALIGN_TRANSPORT_SETTINGS ") -> Tensor result");
  // W is w, or u v^T.
  library.def("transport_gradient(" WARPALIGN_TRANSPORT_TENSORS
              ", Tensor? w, Tensor? u, Tensor? v, bool needs_grad_x, bool needs_grad_y, bool "
              "needs_grad_cost, *, " WARPALIGN_TRANSPORT_SETTINGS
              ") -> (Tensor row_sums, Tensor column_sums, Tensor grad_x, Tensor grad_y, Tensor grad_cost, "
              "Tensor grad_a, Tensor grad_b, Tensor grad_epsilon)");
  library.def("transport_topk(" WARPALIGN_TRANSPORT_TENSORS
              ", int count, bool transposed, *, " WARPALIGN_TRANSPORT_SETTINGS
              ") -> (Tensor values, Tensor indices)");
  library.def("transport_sample(" WARPALIGN_TRANSPORT_TENSORS
              ", int count, int seed, *, " WARPALIGN_TRANSPORT_SETTINGS ") -> Tensor pairs");
  library.def("transport_dense(" WARPALIGN_TRANSPORT_TENSORS ", *, " WARPALIGN_TRANSPORT_SETTINGS
              ") -> Tensor plan");

  // Graphs by compressed rows: row_begins (N + 1) int64, neighbors (edges) int32, lengths (edges). knn_graph
  // returns arrays for the most edges that there can be; row_begins[N] is their number.
  library.def(
      "knn_graph(Tensor x, int k, bool joins_components) -> (Tensor row_begins, Tensor neighbors, "
      "Tensor "
      "lengths)");
  library.def(
      "shortest_paths(Tensor row_begins, Tensor neighbors, Tensor lengths, Tensor sources) -> Tensor "
      "distances");
  library.def(
      "connected_components(Tensor row_begins, Tensor neighbors, Tensor lengths) -> (Tensor labels, Tensor "
      "count)");
  library.def(
      "farthest_landmarks(Tensor row_begins, Tensor neighbors, Tensor lengths, int count, int start) -> "
      "(Tensor "
      "chosen, Tensor distances)");

  // The maximum norm's distances, on a CPU alone (warpalign/gromov_anchors.h).
  library.def("largest_differences(Tensor x, Tensor y) -> Tensor distances");
  // Anchors of sampled Gromov-Wasserstein transport, on CUDA alone (warpalign/gromov_anchors.h).
  library.def(
      "anchor_columns(Tensor x, Tensor y, Tensor g, Tensor? b, Tensor rows, float cost_scale, float epsilon, "
      "int seed) -> Tensor columns");
  library.def(
      "anchor_coordinates(Tensor x, Tensor anchors, Tensor unit, int distance) -> Tensor coordinates");
  // A whole step: counts[h] of the rows (S) get a column from plan h, whose coordinates and column potential
  // are xs[h], ys[h] and gs[h]. The distances to these pairs are coordinates: x (1, N, S) and y (1, M, S).
  // Sinkhorn's problem of these coordinates is solved by `iterations` iterations, which begin at f0 and g0.
  library.def(
      "anchor_step(Tensor points_x, Tensor points_y, Tensor unit_x, Tensor unit_y, int distance_x, int "
      "distance_y, Tensor[] xs, Tensor[] ys, Tensor[] gs, float[] scales, float[] epsilons, int[] counts, "
      "int[] seeds, Tensor rows, Tensor? a, Tensor? b, Tensor f0, Tensor g0, float cost_scale, float "
      "epsilon, float rho_a, float rho_b, float mass, int iterations) -> (Tensor x, Tensor y, Tensor linear, "
      "Tensor f, Tensor g)");
}
