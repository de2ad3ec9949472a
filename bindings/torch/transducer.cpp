// torch.ops.warpalign.transducer*: tensors to the core's problem and back. Compiled into the CPU and the CUDA
// library; the outputs and the workspace come from torch's allocator.
#include "warpalign/transducer.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "call.h"
#include "checks.h"
#include "transducer_problem.h"

namespace warpalign::torch_binding {
namespace {

// The tensors of a call.
struct Inputs {
  const Tensor& logits;
  const MaybeTensor& duration_logits;
  const Tensor& targets;
  const MaybeTensor& logit_lengths;
  const MaybeTensor& target_lengths;
  const MaybeTensor& without_durations;
};

// Logits of either head: four axes, or two if packed. Packed rows are the third axis of the core's view.
StridedTensorOf<4> rows_of(const Tensor& tensor, bool packed) {
  if (!packed) return strided<4>(tensor);
  return {tensor.const_data_ptr(), {0, 0, tensor.stride(0), tensor.stride(1)}};
}

void check_axes(const Tensor& tensor, const char* name, bool packed) {
  const int64_t axes = packed ? 2 : 4;
  if (tensor.dim() == axes) return;
  fail(name, packed ? "2 axes (N, V), packed" : "4 axes (B, T, U+1, V)", shape_of(tensor));
}

void check_like_logits(const Tensor& tensor, const char* name, const Tensor& logits) {
  check_same_device(tensor, name, logits, "logits");
  if (tensor.scalar_type() != logits.scalar_type()) {
    fail(name, "the dtype of logits, " + dtype_of(logits), dtype_of(tensor));
  }
  for (int64_t axis = 0; axis + 1 < logits.dim(); ++axis) {
    if (tensor.size(axis) == logits.size(axis)) continue;
    fail(name, "the axes of logits but the last, which have " + shape_of(logits), shape_of(tensor));
  }
}

TransducerProblem problem_of(const Inputs& in, const TransducerSettings& settings) {
  const bool packed = settings.packed;
  check_axes(in.logits, "logits", packed);
  TransducerProblem p;
  p.dtype = float_dtype(in.logits, "logits");
  p.labels = narrowed(in.logits.size(packed ? 1 : 3));
  p.logits = rows_of(in.logits, packed);
  p.packed = packed;
  p.log_probs = settings.from_log_probs;
  TransducerLattice& l = p.lattice;
  if (packed) {
    if (!in.logit_lengths) fail("logit_lengths", "a tensor with packed logits", "None");
    if (!in.target_lengths) fail("target_lengths", "a tensor with packed logits", "None");
    p.packed_rows = in.logits.size(0);
    l.batch = in.logit_lengths->dim() == 1 ? narrowed(in.logit_lengths->size(0)) : 0;
    l.frames = narrowed(p.packed_rows);
  } else {
    l.batch = narrowed(in.logits.size(0));
    l.frames = narrowed(in.logits.size(1));
    l.states = narrowed(in.logits.size(2));
  }
  l.tdt = in.duration_logits.has_value();
  set_targets(l, in.targets, in.logits, "logits", packed);
  l.logit_lengths = lengths_of(in.logit_lengths, "logit_lengths", in.logits, "logits", l.batch);
  l.target_lengths = lengths_of(in.target_lengths, "target_lengths", in.logits, "logits", l.batch);
  set_durations(l, settings);
  if (l.tdt) {
    check_axes(*in.duration_logits, "duration_logits", packed);
    check_like_logits(*in.duration_logits, "duration_logits", in.logits);
    const int64_t columns = in.duration_logits->size(packed ? 1 : 3);
    if (columns != l.durations) {
      fail("duration_logits", "a column for each of " + std::to_string(l.durations) + " durations",
           shape_of(*in.duration_logits));
    }
    p.duration_logits = rows_of(*in.duration_logits, packed);
  }
  set_without_durations(l, in.without_durations, in.logits, "logits");
  set_numbers(l, settings);
  return p;
}

// Python says the same of tensors without data (warpalign/_transducer/ops.py).
int64_t saved_bytes(const TransducerProblem& p) {
  return static_cast<int64_t>(transducer_most_saved_bytes(p));
}

void check_saved(const TransducerProblem& p, int64_t bytes, const Execution& execution) {
  const std::size_t needed = transducer_saved_bytes(p, execution);
  if (static_cast<std::size_t>(bytes) >= needed) return;
  fail("saved", "at least " + std::to_string(needed) + " bytes", std::to_string(bytes));
}

std::tuple<Tensor, Tensor> forward(const Inputs& in, bool needs_grad, const TransducerSettings& settings) {
  const TransducerProblem p = problem_of(in, settings);
  const ScalarType dtype = p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
  const Tensor loss = allocate(in.logits, {p.lattice.batch}, true, dtype);
  const Tensor saved = allocate(in.logits, {needs_grad ? saved_bytes(p) : 0}, true, ScalarType::Byte);
  const TransducerOutputs outputs{loss.mutable_data_ptr(), data_or_null(saved, needs_grad)};
  call_core(
      in.logits, 0, false,
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

void run_gradient(const Inputs& in, const Tensor& saved, const Tensor& grad_loss, const Tensor& grad_logits,
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
    gradient.duration_logits = grad_duration_logits->mutable_data_ptr();
    set_stride(gradient.duration_logits_stride, *grad_duration_logits, p.packed);
  }
  call_core(
      in.logits, 0, false,
      [&](const Execution& execution) { return transducer_gradient_workspace_bytes(p, gradient, execution); },
      [&](Workspace workspace, const Execution& execution) {
        check_saved(p, saved.numel(), execution);
        return transducer_gradient(p, gradient, workspace, execution);
      });
}

Tensor contiguous_like(const Tensor& tensor) {
  std::vector<int64_t> shape;
  shape.reserve(tensor.dim());
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) shape.push_back(tensor.size(axis));
  return empty(tensor, shape.data(), shape.size(), std::nullopt);
}

// The registered functions. Their parameters are their schema's, in its order.

std::tuple<Tensor, Tensor> transducer_op(const Tensor& logits, const MaybeTensor& duration_logits,
                                         const Tensor& targets, const MaybeTensor& logit_lengths,
                                         const MaybeTensor& target_lengths,
                                         const MaybeTensor& without_durations, bool needs_grad, int64_t blank,
                                         const std::vector<int64_t>& durations,
                                         const std::vector<int64_t>& big_blank_ids, double sigma,
                                         double fastemit_lambda, double delay_penalty, int64_t eos_id,
                                         double eos_penalty, int64_t star_id, double star_penalty,
                                         double clamp, bool zero_infinity, bool from_log_probs, bool packed) {
  return forward({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations},
                 needs_grad,
                 {blank, durations, big_blank_ids, sigma, fastemit_lambda, delay_penalty, eos_id, eos_penalty,
                  star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
}

std::tuple<Tensor, Tensor> transducer_gradient_op(
    const Tensor& logits, const MaybeTensor& duration_logits, const Tensor& targets,
    const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths, const MaybeTensor& without_durations,
    const Tensor& saved, const Tensor& grad_loss, int64_t blank, const std::vector<int64_t>& durations,
    const std::vector<int64_t>& big_blank_ids, double sigma, double fastemit_lambda, double delay_penalty,
    int64_t eos_id, double eos_penalty, int64_t star_id, double star_penalty, double clamp,
    bool zero_infinity, bool from_log_probs, bool packed) {
  const Tensor grad_logits = contiguous_like(logits);
  const Tensor grad_durations = duration_logits ? contiguous_like(*duration_logits) : allocate(logits, {0});
  run_gradient({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations}, saved,
               grad_loss, grad_logits, duration_logits ? MaybeTensor(grad_durations) : std::nullopt,
               {blank, durations, big_blank_ids, sigma, fastemit_lambda, delay_penalty, eos_id, eos_penalty,
                star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
  return {grad_logits, grad_durations};
}

void transducer_gradient_in_place_op(const Tensor& logits, const MaybeTensor& duration_logits,
                                     const Tensor& targets, const MaybeTensor& logit_lengths,
                                     const MaybeTensor& target_lengths, const MaybeTensor& without_durations,
                                     const Tensor& saved, const Tensor& grad_loss, int64_t blank,
                                     const std::vector<int64_t>& durations,
                                     const std::vector<int64_t>& big_blank_ids, double sigma,
                                     double fastemit_lambda, double delay_penalty, int64_t eos_id,
                                     double eos_penalty, int64_t star_id, double star_penalty, double clamp,
                                     bool zero_infinity, bool from_log_probs, bool packed) {
  run_gradient({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations}, saved,
               grad_loss, logits, duration_logits,
               {blank, durations, big_blank_ids, sigma, fastemit_lambda, delay_penalty, eos_id, eos_penalty,
                star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
}

}  // namespace
}  // namespace warpalign::torch_binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::torch_binding;  // NOLINT: registration
  library.impl("transducer", TORCH_BOX(&transducer_op));
  library.impl("transducer_gradient", TORCH_BOX(&transducer_gradient_op));
  library.impl("transducer_gradient_", TORCH_BOX(&transducer_gradient_in_place_op));
}
