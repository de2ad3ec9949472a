// Schemas of ctc* and monotonic_alignment: functions without autograd, which Python adds
// (warpalign/_ctc/autograd.py). warpalign/ctc.h, ctc_decode.h and monotonic_alignment.h have the equations.
#include "front_end.h"

// logits (B, T, C) of any strides; targets (B, U), or (sum U_b,); both lengths (B,); all of these int32 or
// int64; label_prior (C,), float64 for float64 logits, else float32.
#define WARPALIGN_INPUTS \
  "Tensor logits, Tensor targets, Tensor? logit_lengths, Tensor? target_lengths, Tensor? label_prior"
#define WARPALIGN_SETTINGS                                                               \
  "int blank=0, int star=-1, bool from_log_probs=False, bool zero_infinity=False, bool " \
  "batch_invariant=False"

WARPALIGN_SCHEMAS(library) {
  // saved: the data for the gradient, as bytes; empty unless needs_grad.
  library.def("ctc_loss(" WARPALIGN_INPUTS ", bool needs_grad, *, " WARPALIGN_SETTINGS
              ") -> (Tensor loss, Tensor saved)");
  library.def("ctc_gradient(" WARPALIGN_INPUTS ", Tensor saved, Tensor grad_loss, *, " WARPALIGN_SETTINGS
              ") -> Tensor");
  // Writes the gradient into the logits.
  library.def(
      "ctc_gradient_(Tensor(a!) logits, Tensor targets, Tensor? logit_lengths, Tensor? target_lengths, "
      "Tensor? label_prior, Tensor saved, Tensor grad_loss, *, " WARPALIGN_SETTINGS ") -> ()");
  // posteriors (B, T, U).
  library.def("ctc_posteriors(" WARPALIGN_INPUTS ", *, " WARPALIGN_SETTINGS
              ") -> (Tensor loss, Tensor posteriors)");
  // labels (B, T), int32; scores (B, T); spans: as targets with an additional last axis of 2, int32.
  library.def("ctc_align(" WARPALIGN_INPUTS ", *, " WARPALIGN_SETTINGS
              ") -> (Tensor score, Tensor labels, Tensor scores, Tensor spans)");
  // The steps of a loss whose logits come in chunks: logits (R, C), of frames first ... of the B T. Labels
  // are padded. first_labels, next_labels (B, U), int32; log_sums, log_sums_of_others (B, T), float64, the
  // latter empty without a star; emissions (B, T, U + 1), posteriors (B, T, U). The logits of the last one
  // become their gradient.
  library.def(
      "ctc_head_labels(Tensor targets, Tensor? target_lengths, int frames, int classes, *, int blank=0, int "
      "star=-1) -> (Tensor first_labels, Tensor next_labels)");
  library.def(
      "ctc_chunk_emissions_(Tensor logits, int first, Tensor targets, Tensor? logit_lengths, Tensor? "
      "target_lengths, Tensor? label_prior, Tensor(a!) log_sums, Tensor(b!) log_sums_of_others, Tensor(c!) "
      "emissions, *, int blank=0, int star=-1) -> ()");
  library.def(
      "ctc_chunk_gradient_(Tensor(a!) logits, int first, Tensor targets, Tensor? logit_lengths, Tensor? "
      "target_lengths, Tensor first_labels, Tensor next_labels, Tensor log_sums, Tensor log_sums_of_others, "
      "Tensor posteriors, Tensor loss, Tensor grad_loss, *, int blank=0, int star=-1) -> ()");
  // scores (B, S, T) of any strides; durations (B, S), int32; path (B, S, T), bool, empty unless requested.
  library.def(
      "monotonic_alignment(Tensor scores, Tensor? text_lengths, Tensor? frame_lengths, bool wants_path) -> "
      "(Tensor score, Tensor durations, Tensor path)");
  // State of a stream: CtcWalk, (B, 2) int64. tokens, frames (B, T) and lengths (B,), int64.
  library.def(
      "ctc_greedy_search(Tensor logits, Tensor? logit_lengths, Tensor? walk, *, int blank=0, bool "
      "from_log_probs=False) -> (Tensor tokens, Tensor frames, Tensor lengths, Tensor walk)");
  // State of a stream: CtcHypothesis, (B, K, 9) int64; frames_before (B,) int32; nodes (B, capacity, K, 2)
  // int32. label_scores (B, K, C), float64 for float64 logits, else float32. source, label (B, K), int32.
  library.def(
      "ctc_beam_search(Tensor logits, Tensor? logit_lengths, Tensor? hypotheses, Tensor? frames_before, "
      "Tensor? label_scores, Tensor(a!) nodes, *, float beam_threshold, int blank=0, bool "
      "from_log_probs=False) -> (Tensor hypotheses, Tensor frames, Tensor source, Tensor label)");
  // tokens, frames (B, n_best, longest) and lengths (B, n_best), int64; scores (B, n_best), float64.
  library.def(
      "ctc_beam_labels(Tensor hypotheses, Tensor nodes, int n_best, int longest) -> (Tensor tokens, Tensor "
      "frames, Tensor lengths, Tensor scores)");
}
