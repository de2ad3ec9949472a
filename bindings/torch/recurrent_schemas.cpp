// Schemas of torch.ops.warpalign.lstm*: functions without autograd, which Python adds
// (warpalign/_recurrent/autograd.py). warpalign/recurrent.h has the equations.
#include <torch/csrc/stable/library.h>

// x (T, B, I), or packed rows (N, I) with row_starts (T + 1,), int32. weights: those of layer 0 forward,
// layer 0 reverse, layer 1 forward, ...: weight_ih (4H, I), weight_hh (4H, P); with bias bias_ih, bias_hh
// (4H,); with projection weight_hr (P, H); with layer_norm weight_ln_ih, weight_ln_hh (4H,), weight_ln_c,
// bias_ln_c (H,). h0 (L D, B, P), c0 (L D, B, H), in the dtype of x, or c0 in float32 for half types;
// input_lengths (B,), int32; resets (T, B), or (N,), bool; seed (), int64.
#define WARPALIGN_INPUTS                                                                                    \
  "Tensor x, Tensor[] weights, Tensor? h0, Tensor? c0, Tensor? input_lengths, Tensor? row_starts, Tensor? " \
  "resets, "                                                                                                \
  "Tensor? seed"
// batch: B of packed rows; else that of x counts. float32_cell: c0 is None and c_n is to be float32.
// recompute: the tape is small, and the backward pass makes the rest again.
#define WARPALIGN_SETTINGS                                                                                \
  "int batch=0, bool bidirectional=False, bool bias=True, bool projection=False, bool layer_norm=False, " \
  "int "                                                                                                  \
  "activation=0, float hard_slope=0.125, float hard_offset=0.5, float layer_norm_eps=1e-05, float "       \
  "dropout=0.0, float weight_dropout=0.0, float zoneout_hidden=0.0, float zoneout_cell=0.0, bool "        \
  "training=False, bool float32_cell=False, int precision=0, bool batch_invariant=False, bool "           \
  "recompute=False"

#define WARPALIGN_INCOMING                                                                              \
  ", Tensor? grad_y, Tensor? grad_h_n, Tensor? grad_c_n, Tensor? grad_h_all, Tensor? grad_c_all, bool " \
  "want_x, bool want_h0, bool want_c0, bool want_weights, *, " WARPALIGN_SETTINGS                       \
  ") -> (Tensor grad_x, Tensor grad_h0, Tensor grad_c0, Tensor[] grad_weights)"

STABLE_TORCH_LIBRARY_FRAGMENT(warpalign, library) {
  // y (T, B, D P) or (N, D P), h_n (L D, B, P), c_n (L D, B, H). h_all and c_all (L D, T, B, P or H), or (L
  // D, N, P or H), are empty unless want_states; tape, bytes that the gradients need beside y, unless
  // want_tape.
  // packed: what lstm_pack has made of the weights, which are given all the same.
  library.def("lstm(" WARPALIGN_INPUTS
              ", Tensor? packed, bool want_states, bool want_tape, *, " WARPALIGN_SETTINGS
              ") -> (Tensor y, Tensor h_n, Tensor c_n, Tensor h_all, Tensor c_all, Tensor tape)");
  // y of x (T, B, I) from the state h and c on, which becomes that after the last step. No gradients.
  library.def(
      "lstm_stream_(Tensor x, Tensor[] weights, Tensor(a!) h, Tensor(b!) c, Tensor? packed, "
      "*, " WARPALIGN_SETTINGS ") -> Tensor y");
  library.def(
      "lstm_pack(Tensor[] weights, *, bool bidirectional=False, bool bias=True, bool projection=False, bool "
      "layer_norm=False) -> Tensor");
  // The gradients of the outputs that are given. grad_weights has one tensor for each weight but bias_hh,
  // whose gradient is bias_ih's. Each of the four results is empty where it is not wanted.
  library.def("lstm_backward(" WARPALIGN_INPUTS ", Tensor y, Tensor tape" WARPALIGN_INCOMING);
  // The same with a tape that nobody reads afterwards: gradients may take its place.
  library.def("lstm_backward_(" WARPALIGN_INPUTS ", Tensor y, Tensor(a!) tape" WARPALIGN_INCOMING);
}
