// transducer*: conversion between tensors and the core's problems. Compiled into each library of each front
// end. Outputs and workspace come from the front end's allocator.
#include "warpalign/transducer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "call.h"
#include "checks.h"
#include "transducer_logits.h"

namespace warpalign::binding {
namespace {

// warpalign/_transducer/ops.py has the same formula for tensors without data.
int64_t saved_bytes(const TransducerProblem& p) {
  return static_cast<int64_t>(transducer_most_saved_bytes(p));
}

void check_saved(const TransducerProblem& p, int64_t bytes, const Execution& execution) {
  const std::size_t needed = transducer_saved_bytes(p, execution);
  if (static_cast<std::size_t>(bytes) >= needed) return;
  fail("saved", "at least " + std::to_string(needed) + " bytes", std::to_string(bytes));
}

std::tuple<Tensor, Tensor> forward(const TransducerInputs& in, bool needs_grad,
                                   const TransducerSettings& settings) {
  const TransducerProblem p = problem_of(in, settings);
  const ScalarType dtype = p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
  const Tensor loss = allocate(in.logits, {p.lattice.batch}, true, dtype);
  const Tensor saved = allocate(in.logits, {needs_grad ? saved_bytes(p) : 0}, true, ScalarType::Byte);
  const TransducerOutputs outputs{loss.mutable_data_ptr(), data_or_null(saved, needs_grad)};
  call_core(
      Operator::kTransducer, in.logits, 0, false,
      [&](const Execution& execution) { return transducer_workspace_bytes(p, outputs, execution); },
      [&](Workspace workspace, const Execution& execution) {
        if (needs_grad) check_saved(p, saved.numel(), execution);
        return transducer(p, outputs, workspace, execution);
      });
  return {loss, saved};
}

void set_stride(std::int64_t (&stride)[3], const Tensor& tensor, bool packed) {
  const StridedTensorOf<4> view = rows_of(tensor, packed);
  for (int axis = 0; axis < 3; ++axis) stride[axis] = view.stride[axis];
}

// grad_duration_logits: the address of their gradient, and a tensor with its strides.
void run_gradient(const TransducerInputs& in, const Tensor& saved, const Tensor& grad_loss,
                  const Tensor& grad_logits, void* grad_duration_data,
                  const MaybeTensor& grad_duration_logits, const TransducerSettings& settings) {
  const TransducerProblem p = problem_of(in, settings);
  check_same_device(saved, "saved", in.logits, "logits");
  check_same_device(grad_loss, "grad_loss", in.logits, "logits");
  const ScalarType dtype = p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
  if (grad_loss.scalar_type() != dtype || grad_loss.dim() != 1 || grad_loss.size(0) != p.lattice.batch) {
    fail("grad_loss", "one number per utterance, of the loss's dtype", shape_of(grad_loss));
  }
  if (saved.scalar_type() != ScalarType::Byte || !saved.is_contiguous()) {
    fail("saved", "what transducer() has returned", shape_of(saved));
  }
  TransducerGradient gradient;
  gradient.saved = saved.const_data_ptr();
  gradient.grad_loss = grad_loss.const_data_ptr();
  gradient.grad_loss_stride = grad_loss.stride(0);
  gradient.logits = grad_logits.mutable_data_ptr();
  set_stride(gradient.logits_stride, grad_logits, p.packed);
  if (grad_duration_logits) {
    gradient.duration_logits = grad_duration_data;
    set_stride(gradient.duration_logits_stride, *grad_duration_logits, p.packed);
  }
  call_core(
      Operator::kTransducer, in.logits, 0, false,
      [&](const Execution& execution) { return transducer_gradient_workspace_bytes(p, gradient, execution); },
      [&](Workspace workspace, const Execution& execution) {
        check_saved(p, saved.numel(), execution);
        return transducer_gradient(p, gradient, workspace, execution);
      });
}

void* data_of(const MaybeTensor& tensor) { return tensor ? tensor->mutable_data_ptr() : nullptr; }

// A contiguous tensor of the same shape with `columns` additional columns.
Tensor contiguous_like(const Tensor& tensor, int64_t columns = 0) {
  std::vector<int64_t> shape;
  shape.reserve(tensor.dim());
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) shape.push_back(tensor.size(axis));
  shape.back() += columns;
  return empty(tensor, shape.data(), shape.size(), std::nullopt);
}

// The registered functions. Their parameters are their schema's, in its order.

std::tuple<Tensor, Tensor> transducer_op(const Tensor& logits, const MaybeTensor& duration_logits,
                                         const Tensor& targets, const MaybeTensor& logit_lengths,
                                         const MaybeTensor& target_lengths,
                                         const MaybeTensor& without_durations, bool needs_grad, int64_t blank,
                                         const std::vector<int64_t>& durations,
                                         const std::vector<int64_t>& big_blank_columns, double sigma,
                                         double fastemit_lambda, double delay_penalty, int64_t eos_id,
                                         double eos_penalty, int64_t star_id, double star_penalty,
                                         double clamp, bool zero_infinity, bool from_log_probs, bool packed) {
  return forward({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations},
                 needs_grad,
                 {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                  eos_penalty, star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
}

std::tuple<Tensor, Tensor> transducer_gradient_op(
    const Tensor& logits, const MaybeTensor& duration_logits, const Tensor& targets,
    const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths, const MaybeTensor& without_durations,
    const Tensor& saved, const Tensor& grad_loss, int64_t blank, const std::vector<int64_t>& durations,
    const std::vector<int64_t>& big_blank_columns, double sigma, double fastemit_lambda, double delay_penalty,
    int64_t eos_id, double eos_penalty, int64_t star_id, double star_penalty, double clamp,
    bool zero_infinity, bool from_log_probs, bool packed) {
  const Tensor grad_logits = contiguous_like(logits);
  const Tensor grad_durations = duration_logits ? contiguous_like(*duration_logits) : allocate(logits, {0});
  run_gradient({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations}, saved,
               grad_loss, grad_logits, grad_durations.mutable_data_ptr(),
               duration_logits ? MaybeTensor(grad_durations) : std::nullopt,
               {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                eos_penalty, star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
  return {grad_logits, grad_durations};
}

Tensor transducer_gradient_joined_op(const Tensor& logits, const MaybeTensor& duration_logits,
                                     const Tensor& targets, const MaybeTensor& logit_lengths,
                                     const MaybeTensor& target_lengths, const MaybeTensor& without_durations,
                                     const Tensor& saved, const Tensor& grad_loss, int64_t blank,
                                     const std::vector<int64_t>& durations,
                                     const std::vector<int64_t>& big_blank_columns, double sigma,
                                     double fastemit_lambda, double delay_penalty, int64_t eos_id,
                                     double eos_penalty, int64_t star_id, double star_penalty, double clamp,
                                     bool zero_infinity, bool from_log_probs, bool packed) {
  if (!duration_logits) fail("duration_logits", "a tensor", "None");
  const int64_t columns = logits.size(logits.dim() - 1);
  const Tensor joined = contiguous_like(logits, duration_logits->size(duration_logits->dim() - 1));
  auto* const grad_durations =
      static_cast<char*>(joined.mutable_data_ptr()) + columns * logits.element_size();
  run_gradient({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations}, saved,
               grad_loss, joined, grad_durations, joined,
               {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                eos_penalty, star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
  return joined;
}

void transducer_gradient_in_place_op(const Tensor& logits, const MaybeTensor& duration_logits,
                                     const Tensor& targets, const MaybeTensor& logit_lengths,
                                     const MaybeTensor& target_lengths, const MaybeTensor& without_durations,
                                     const Tensor& saved, const Tensor& grad_loss, int64_t blank,
                                     const std::vector<int64_t>& durations,
                                     const std::vector<int64_t>& big_blank_columns, double sigma,
                                     double fastemit_lambda, double delay_penalty, int64_t eos_id,
                                     double eos_penalty, int64_t star_id, double star_penalty, double clamp,
                                     bool zero_infinity, bool from_log_probs, bool packed) {
  run_gradient({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations}, saved,
               grad_loss, logits, data_of(duration_logits), duration_logits,
               {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                eos_penalty, star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("transducer", WARPALIGN_OPERATOR(&transducer_op));
  library.impl("transducer_gradient", WARPALIGN_OPERATOR(&transducer_gradient_op));
  library.impl("transducer_gradient_joined", WARPALIGN_OPERATOR(&transducer_gradient_joined_op));
  library.impl("transducer_gradient_", WARPALIGN_OPERATOR(&transducer_gradient_in_place_op));
}
