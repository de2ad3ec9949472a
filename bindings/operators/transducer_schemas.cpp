// Schemas of transducer*: functions without autograd, which Python adds
// (warpalign/_transducer/autograd.py). warpalign/transducer.h has the equations.
#include "front_end.h"

// logits (B, T, U+1, V), or (N, V) with packed; duration_logits (TDT) the same with D columns; targets (B,
// U), or (sum U_b,), int32; both lengths (B,), int32; without_durations (B,), bool.
#define WARPALIGN_INPUTS                                                                             \
  "Tensor? duration_logits, Tensor targets, Tensor? logit_lengths, Tensor? target_lengths, Tensor? " \
  "without_durations"
#define WARPALIGN_NUMBERS                                                                    \
  "int blank=0, int[] durations=[], int[] big_blank_columns=[], float sigma=0.0, float "     \
  "fastemit_lambda=0.0, float delay_penalty=0.0, int eos_id=-1, float eos_penalty=0.0, int " \
  "star_id=-1, float star_penalty=1.0, float clamp=0.0, bool zero_infinity=False"
#define WARPALIGN_SETTINGS WARPALIGN_NUMBERS ", bool from_log_probs=False, bool packed=False"
// encoder (B, T, H); predictor (B, U+1, H); weight (V + D, H); bias (V + D,); seed (), int64; band (B, T),
// int32; the others as above.
#define WARPALIGN_JOINT_INPUTS                                                              \
  "Tensor encoder, Tensor predictor, Tensor weight, Tensor? bias, Tensor targets, Tensor? " \
  "encoder_lengths, Tensor? target_lengths, Tensor? without_durations, Tensor? seed, Tensor? band"
// activation: a number of Activation. precision: one of Precision. tdt: durations are TDT's, with D columns
// after those of labels. band_states: the states of a frame that are in the band.
#define WARPALIGN_JOINT_SETTINGS                                                             \
  "int activation=0, bool tdt=False, float dropout=0.0, int workspace_limit=134217728, int " \
  "precision=0, int band_states=0, " WARPALIGN_NUMBERS

WARPALIGN_SCHEMAS(library) {
  // saved: the data for the gradients, as bytes; empty unless needs_grad.
  library.def("transducer(Tensor logits, " WARPALIGN_INPUTS ", bool needs_grad, *, " WARPALIGN_SETTINGS
              ") -> (Tensor loss, Tensor saved)");
  library.def("transducer_gradient(Tensor logits, " WARPALIGN_INPUTS
              ", Tensor saved, Tensor grad_loss, *, " WARPALIGN_SETTINGS
              ") -> (Tensor grad_logits, Tensor grad_duration_logits)");
  // Both gradients as parts of one tensor (.., V + D).
  library.def("transducer_gradient_joined(Tensor logits, " WARPALIGN_INPUTS
              ", Tensor saved, Tensor grad_loss, *, " WARPALIGN_SETTINGS ") -> Tensor");
  // Writes the gradients into the logits.
  library.def(
      "transducer_gradient_(Tensor(a!) logits, Tensor(b!)? duration_logits, Tensor targets, Tensor? "
      "logit_lengths, Tensor? target_lengths, Tensor? without_durations, Tensor saved, Tensor grad_loss, "
      "*, " WARPALIGN_SETTINGS ") -> ()");

  // warpalign/transducer_align.h. frames, durations: as targets, int32; blanks (B, T), or packed (N,), int32.
  // Posteriors are empty unless requested: blank and label (B, T, U+1), or packed (N,); grouped (durations,
  // B, T, U+1), or packed (durations, N), of big blanks or of durations.
  library.def("transducer_align(Tensor logits, " WARPALIGN_INPUTS ", bool posteriors, *, " WARPALIGN_SETTINGS
              ") -> (Tensor score, Tensor frames, Tensor durations, Tensor blanks, Tensor blank_posteriors, "
              "Tensor label_posteriors, Tensor grouped_posteriors)");

  // Decoding (warpalign/transducer_decode.h): encoder (B, T, H), predictor (B * beams, H), weight (columns,
  // H), bias (columns,), frame (B * beams,), lengths (B,); scores (B * beams, window, columns).
#define WARPALIGN_JOINT "Tensor encoder, Tensor predictor, Tensor weight, Tensor? bias"
#define WARPALIGN_DECODING \
  "bool tdt=False, int blank=0, int[] durations=[], int[] big_blank_columns=[], int max_symbols=10"
  library.def("transducer_scores(Tensor frame, Tensor? lengths, " WARPALIGN_JOINT
              ", *, int activation=0, int beams=1, int window=1) -> Tensor");
  // walk (B, 5): the numbers of TransducerWalk, int32; log_prob (B,), float64.
  library.def(
      "transducer_greedy_step(Tensor walk, Tensor log_prob, Tensor? lengths, Tensor scores, *, int "
      "frames, " WARPALIGN_DECODING ") -> (Tensor walk, Tensor log_prob, Tensor token, Tensor found)");
  library.def("transducer_greedy_joint_step(Tensor walk, Tensor log_prob, Tensor? lengths, " WARPALIGN_JOINT
              ", *, int activation=0, int window=1, " WARPALIGN_DECODING
              ") -> (Tensor walk, Tensor log_prob, Tensor token, Tensor found)");
  // hypothesis (B, 2 K, 4) and nodes (B, capacity, 4): the numbers of TransducerHypothesis and
  // TransducerNode, int32; log_prob (B, 2 K), float64; hash (B, 2 K), int64; scores (B, 2 K, columns);
  // label_scores (B, 2 K, V).
  library.def(
      "transducer_beam_step(Tensor hypothesis, Tensor log_prob, Tensor hash, Tensor(a!) nodes, Tensor(b!) "
      "used, Tensor? lengths, Tensor? frames_before, Tensor scores, Tensor? label_scores, *, int frames, "
      "bool sum=True, " WARPALIGN_DECODING
      ") -> (Tensor hypothesis, Tensor log_prob, Tensor hash, Tensor source, Tensor label, Tensor expand)");
  // warpalign/transducer_band.h. gradients (B, T, U+1, 2), float32; both lengths (B,), int32; first states
  // (B, T), int32.
  library.def(
      "transducer_band(Tensor gradients, Tensor? logit_lengths, Tensor? target_lengths, int band_states) -> "
      "Tensor");
  library.def("transducer_joint(" WARPALIGN_JOINT_INPUTS ", bool needs_grad, *, " WARPALIGN_JOINT_SETTINGS
              ") -> (Tensor loss, Tensor saved)");
  // Gradients that are not needed are of shape (0,).
  library.def("transducer_joint_gradient(" WARPALIGN_JOINT_INPUTS
              ", Tensor saved, Tensor grad_loss, bool needs_encoder, bool needs_predictor, bool "
              "needs_weight, bool needs_bias, *, " WARPALIGN_JOINT_SETTINGS
              ") -> (Tensor grad_encoder, Tensor grad_predictor, Tensor grad_weight, Tensor grad_bias)");
}
