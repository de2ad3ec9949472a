// ctc* and monotonic_alignment: conversion between tensors and the core's problems. Compiled into each
// library of each front end. Outputs and workspace come from the front end's allocator.
#include "warpalign/ctc.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "call.h"
#include "checks.h"
#include "float_dtype.h"
#include "integers.h"
#include "warpalign/monotonic_alignment.h"

namespace warpalign::binding {
namespace {

using MaybeTensor = std::optional<Tensor>;

// The tensors of a call.
struct CtcInputs {
  const Tensor& logits;
  const Tensor& targets;
  const MaybeTensor& logit_lengths;
  const MaybeTensor& target_lengths;
  const MaybeTensor& label_prior;
};

// The settings, by the names of ctc_schemas.cpp.
struct CtcSettings {
  int64_t blank;
  int64_t star;
  bool from_log_probs;
  bool zero_infinity;
  bool batch_invariant;
};

void set_targets(CtcProblem& p, const Tensor& targets, const Tensor& logits) {
  check_same_device(targets, "targets", logits, "logits");
  p.targets = integers(targets, "targets");
  p.flat_targets = targets.dim() == 1;
  if (!p.flat_targets && (targets.dim() != 2 || targets.size(0) != p.batch)) {
    fail("targets", "2 axes (B, U) with B = " + std::to_string(p.batch) + ", or 1 axis of all labels",
         shape_of(targets));
  }
  const int64_t last = targets.dim() - 1;
  if (targets.size(last) > 1 && targets.stride(last) != 1)
    fail("targets", "a last stride of 1", "another one");
  p.labels = narrowed(targets.size(last));
  p.target_count = p.flat_targets ? targets.size(0) : 0;
  if (!p.flat_targets) p.target_stride = targets.size(0) > 1 ? targets.stride(0) : targets.size(1);
}

ScalarType real_of(const CtcProblem& p) {
  return p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
}

CtcProblem problem_of(const CtcInputs& in, const CtcSettings& settings) {
  check_axes(in.logits, "logits", "(B, T, C)");
  CtcProblem p;
  p.dtype = float_dtype(in.logits, "logits");
  p.batch = narrowed(in.logits.size(0));
  p.frames = narrowed(in.logits.size(1));
  p.classes = narrowed(in.logits.size(2));
  p.logits = strided<3>(in.logits);
  set_targets(p, in.targets, in.logits);
  p.logit_lengths = lengths_of(in.logit_lengths, "logit_lengths", in.logits, "logits");
  p.target_lengths = lengths_of(in.target_lengths, "target_lengths", in.logits, "logits");
  p.blank = narrowed(settings.blank);
  p.star = narrowed(settings.star);
  p.log_probs = settings.from_log_probs;
  p.zero_infinity = settings.zero_infinity;
  if (in.label_prior) {
    const Tensor& prior = *in.label_prior;
    check_same_device(prior, "label_prior", in.logits, "logits");
    if (prior.scalar_type() != real_of(p)) {
      fail("label_prior", "float64 for float64 logits, else float32", dtype_of(prior));
    }
    if (prior.dim() != 1 || prior.size(0) != p.classes || !prior.is_contiguous()) {
      fail("label_prior", "a contiguous tensor (C,) with C = " + std::to_string(p.classes), shape_of(prior));
    }
    p.prior = prior.const_data_ptr();
  }
  return p;
}

std::tuple<Tensor, Tensor> loss(const CtcInputs& in, bool needs_grad, const CtcSettings& settings) {
  const CtcProblem p = problem_of(in, settings);
  const Tensor losses = allocate(in.logits, {p.batch}, true, real_of(p));
  // warpalign/_ctc/ops.py has the same formula for tensors without data.
  const auto bytes = static_cast<int64_t>(ctc_most_saved_bytes(p));
  const Tensor saved = allocate(in.logits, {needs_grad ? bytes : 0}, true, ScalarType::Byte);
  const CtcOutputs outputs{losses.mutable_data_ptr(), data_or_null(saved, needs_grad)};
  call_core(
      Operator::kCtc, in.logits, 0, settings.batch_invariant,
      [&](const Execution& execution) { return ctc_loss_workspace_bytes(p, outputs, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return warpalign::ctc_loss(p, outputs, workspace, execution);
      });
  return {losses, saved};
}

void gradient(const CtcInputs& in, const Tensor& saved, const Tensor& grad_loss, const Tensor& grad_logits,
              const CtcSettings& settings) {
  const CtcProblem p = problem_of(in, settings);
  check_same_device(saved, "saved", in.logits, "logits");
  check_same_device(grad_loss, "grad_loss", in.logits, "logits");
  if (grad_loss.scalar_type() != real_of(p) || grad_loss.dim() != 1 || grad_loss.size(0) != p.batch) {
    fail("grad_loss", "one number per utterance, of the loss's dtype", shape_of(grad_loss));
  }
  if (saved.scalar_type() != ScalarType::Byte || !saved.is_contiguous()) {
    fail("saved", "what ctc_loss() has returned", shape_of(saved));
  }
  CtcGradient out;
  out.saved = saved.const_data_ptr();
  out.grad_loss = grad_loss.const_data_ptr();
  out.grad_loss_stride = grad_loss.stride(0);
  out.logits = grad_logits.mutable_data_ptr();
  for (int axis = 0; axis < 3; ++axis) out.logits_stride[axis] = grad_logits.stride(axis);
  call_core(
      Operator::kCtc, in.logits, 0, settings.batch_invariant,
      [&](const Execution& execution) { return ctc_gradient_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        const std::size_t needed = ctc_saved_bytes(p, execution);
        if (static_cast<std::size_t>(saved.numel()) < needed) {
          fail("saved", "at least " + std::to_string(needed) + " bytes", std::to_string(saved.numel()));
        }
        return warpalign::ctc_gradient(p, out, workspace, execution);
      });
}

// The registered functions. Their parameters are their schema's, in its order.

std::tuple<Tensor, Tensor> ctc_loss_op(const Tensor& logits, const Tensor& targets,
                                       const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths,
                                       const MaybeTensor& label_prior, bool needs_grad, int64_t blank,
                                       int64_t star, bool from_log_probs, bool zero_infinity,
                                       bool batch_invariant) {
  return loss({logits, targets, logit_lengths, target_lengths, label_prior}, needs_grad,
              {blank, star, from_log_probs, zero_infinity, batch_invariant});
}

Tensor ctc_gradient_op(const Tensor& logits, const Tensor& targets, const MaybeTensor& logit_lengths,
                       const MaybeTensor& target_lengths, const MaybeTensor& label_prior, const Tensor& saved,
                       const Tensor& grad_loss, int64_t blank, int64_t star, bool from_log_probs,
                       bool zero_infinity, bool batch_invariant) {
  check_axes(logits, "logits", "(B, T, C)");
  const Tensor grad_logits = allocate(logits, {logits.size(0), logits.size(1), logits.size(2)});
  gradient({logits, targets, logit_lengths, target_lengths, label_prior}, saved, grad_loss, grad_logits,
           {blank, star, from_log_probs, zero_infinity, batch_invariant});
  return grad_logits;
}

void ctc_gradient_in_place_op(const Tensor& logits, const Tensor& targets, const MaybeTensor& logit_lengths,
                              const MaybeTensor& target_lengths, const MaybeTensor& label_prior,
                              const Tensor& saved, const Tensor& grad_loss, int64_t blank, int64_t star,
                              bool from_log_probs, bool zero_infinity, bool batch_invariant) {
  gradient({logits, targets, logit_lengths, target_lengths, label_prior}, saved, grad_loss, logits,
           {blank, star, from_log_probs, zero_infinity, batch_invariant});
}

std::tuple<Tensor, Tensor> ctc_posteriors_op(const Tensor& logits, const Tensor& targets,
                                             const MaybeTensor& logit_lengths,
                                             const MaybeTensor& target_lengths,
                                             const MaybeTensor& label_prior, int64_t blank, int64_t star,
                                             bool from_log_probs, bool zero_infinity, bool batch_invariant) {
  const CtcProblem p = problem_of({logits, targets, logit_lengths, target_lengths, label_prior},
                                  {blank, star, from_log_probs, zero_infinity, batch_invariant});
  const Tensor losses = allocate(logits, {p.batch}, true, real_of(p));
  const Tensor labels = allocate(logits, {p.batch, p.frames, p.labels}, true, real_of(p));
  const CtcPosteriors out{losses.mutable_data_ptr(), labels.mutable_data_ptr()};
  call_core(
      Operator::kCtc, logits, 0, batch_invariant,
      [&](const Execution& execution) { return ctc_posteriors_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return ctc_posteriors(p, out, workspace, execution);
      });
  return {losses, labels};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> ctc_align_op(const Tensor& logits, const Tensor& targets,
                                                        const MaybeTensor& logit_lengths,
                                                        const MaybeTensor& target_lengths,
                                                        const MaybeTensor& label_prior, int64_t blank,
                                                        int64_t star, bool from_log_probs, bool zero_infinity,
                                                        bool batch_invariant) {
  const CtcProblem p = problem_of({logits, targets, logit_lengths, target_lengths, label_prior},
                                  {blank, star, from_log_probs, zero_infinity, batch_invariant});
  const Tensor score = allocate(logits, {p.batch}, true, real_of(p));
  const Tensor labels = allocate(logits, {p.batch, p.frames}, true, ScalarType::Int);
  const Tensor scores = allocate(logits, {p.batch, p.frames}, true, real_of(p));
  const Tensor spans = p.flat_targets ? allocate(logits, {p.target_count, 2}, true, ScalarType::Int)
                                      : allocate(logits, {p.batch, p.labels, 2}, true, ScalarType::Int);
  const CtcAlignment out{score.mutable_data_ptr(), static_cast<std::int32_t*>(labels.mutable_data_ptr()),
                         scores.mutable_data_ptr(), static_cast<std::int32_t*>(spans.mutable_data_ptr())};
  call_core(
      Operator::kCtc, logits, 0, batch_invariant,
      [&](const Execution& execution) { return ctc_align_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return warpalign::ctc_align(p, out, workspace, execution);
      });
  return {score, labels, scores, spans};
}

std::tuple<Tensor, Tensor, Tensor> monotonic_alignment_op(const Tensor& scores,
                                                          const MaybeTensor& text_lengths,
                                                          const MaybeTensor& frame_lengths, bool wants_path) {
  check_axes(scores, "scores", "(B, S, T)");
  MonotonicAlignmentProblem p;
  p.dtype = float_dtype(scores, "scores");
  p.batch = narrowed(scores.size(0));
  p.positions = narrowed(scores.size(1));
  p.frames = narrowed(scores.size(2));
  p.scores = strided<3>(scores);
  p.text_lengths = lengths_of(text_lengths, "text_lengths", scores, "scores");
  p.frame_lengths = lengths_of(frame_lengths, "frame_lengths", scores, "scores");
  const ScalarType real = p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
  const Tensor score = allocate(scores, {p.batch}, true, real);
  const Tensor durations = allocate(scores, {p.batch, p.positions}, true, ScalarType::Int);
  const Tensor path = allocate(scores, {p.batch, p.positions, p.frames}, wants_path, ScalarType::Bool);
  const MonotonicAlignment out{score.mutable_data_ptr(),
                               static_cast<std::int32_t*>(durations.mutable_data_ptr()),
                               static_cast<std::uint8_t*>(data_or_null(path, wants_path))};
  call_core(
      Operator::kCtc, scores, 0, false,
      [&](const Execution& execution) { return monotonic_alignment_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return monotonic_alignment(p, out, workspace, execution);
      });
  return {score, durations, path};
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("ctc_loss", WARPALIGN_OPERATOR(&ctc_loss_op));
  library.impl("ctc_gradient", WARPALIGN_OPERATOR(&ctc_gradient_op));
  library.impl("ctc_gradient_", WARPALIGN_OPERATOR(&ctc_gradient_in_place_op));
  library.impl("ctc_posteriors", WARPALIGN_OPERATOR(&ctc_posteriors_op));
  library.impl("ctc_align", WARPALIGN_OPERATOR(&ctc_align_op));
  library.impl("monotonic_alignment", WARPALIGN_OPERATOR(&monotonic_alignment_op));
}
