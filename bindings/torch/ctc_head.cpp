// torch.ops.warpalign.ctc_head_labels and ctc_chunk_*: the steps of a loss whose logits come a chunk of
// frames at a time (warpalign/ctc_head.h). Compiled into the CPU and the CUDA library.
#include "warpalign/ctc_head.h"

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "call.h"
#include "checks.h"
#include "float_dtype.h"
#include "integers.h"

namespace warpalign::binding {
namespace {

using MaybeTensor = std::optional<Tensor>;

// The tensors that say what an utterance is.
struct HeadInputs {
  const Tensor& targets;
  const MaybeTensor& logit_lengths;
  const MaybeTensor& target_lengths;
};

void check_shape(const Tensor& tensor, const char* name, std::initializer_list<int64_t> sizes,
                 ScalarType dtype, const Tensor& targets) {
  check_same_device(tensor, name, targets, "targets");
  bool fits = static_cast<std::size_t>(tensor.dim()) == sizes.size() && tensor.is_contiguous() &&
              tensor.scalar_type() == dtype;
  int64_t axis = 0;
  for (const int64_t size : sizes) fits = fits && tensor.size(axis++) == size;
  if (!fits) fail(name, "what ctc_loss_from_encoder() has made", shape_of(tensor) + ", " + dtype_of(tensor));
}

ScalarType real_of(const CtcProblem& p) {
  return p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
}

CtcProblem problem_of(const HeadInputs& in, int64_t frames, int64_t classes, DType dtype, int64_t blank,
                      int64_t star) {
  const Tensor& targets = in.targets;
  if (targets.dim() != 2) fail("targets", "2 axes (B, U)", shape_of(targets));
  if (targets.size(1) > 1 && targets.stride(1) != 1) fail("targets", "a last stride of 1", "another one");
  CtcProblem p;
  p.dtype = dtype;
  p.batch = narrowed(targets.size(0));
  p.frames = narrowed(frames);
  p.classes = narrowed(classes);
  p.labels = narrowed(targets.size(1));
  p.targets = integers(targets, "targets");
  p.target_stride = targets.size(0) > 1 ? targets.stride(0) : targets.size(1);
  p.logit_lengths = lengths_of(in.logit_lengths, "logit_lengths", targets, "targets");
  p.target_lengths = lengths_of(in.target_lengths, "target_lengths", targets, "targets");
  p.blank = narrowed(blank);
  p.star = narrowed(star);
  return p;
}

// Logits (R, C), of frames `first` ... of the B T.
CtcHeadRows rows_of(const Tensor& logits, int64_t first, const Tensor& targets) {
  check_same_device(logits, "logits", targets, "targets");
  if (logits.dim() != 2 || !logits.is_contiguous()) {
    fail("logits", "a contiguous tensor (R, C)", shape_of(logits));
  }
  CtcHeadRows rows;
  rows.logits = logits.mutable_data_ptr();
  rows.stride = logits.size(1);
  rows.first = first;
  rows.count = logits.size(0);
  return rows;
}

template <class Call>
void call_without_workspace(const Tensor& like, const Call& call) {
  call_core(
      Operator::kCtc, like, 0, false, [](const Execution&) { return std::size_t{0}; },
      [&](Workspace, const Execution& execution) { return call(execution); });
}

// The registered functions. Their parameters are their schema's, in its order.

std::tuple<Tensor, Tensor> head_labels_op(const Tensor& targets, const MaybeTensor& target_lengths,
                                          int64_t frames, int64_t classes, int64_t blank, int64_t star) {
  const CtcProblem p =
      problem_of({targets, std::nullopt, target_lengths}, frames, classes, DType::kFloat32, blank, star);
  const Tensor first = allocate(targets, {p.batch, p.labels}, true, ScalarType::Int);
  const Tensor next = allocate(targets, {p.batch, p.labels}, true, ScalarType::Int);
  const CtcHeadLabels labels{static_cast<std::int32_t*>(first.mutable_data_ptr()),
                             static_cast<std::int32_t*>(next.mutable_data_ptr())};
  call_without_workspace(targets,
                         [&](const Execution& execution) { return ctc_head_labels(p, labels, execution); });
  return {first, next};
}

void head_emissions_op(const Tensor& logits, int64_t first, const Tensor& targets,
                       const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths,
                       const MaybeTensor& label_prior, const Tensor& log_sums,
                       const Tensor& log_sums_of_others, const Tensor& emissions, int64_t blank,
                       int64_t star) {
  const CtcHeadRows rows = rows_of(logits, first, targets);
  CtcProblem p = problem_of({targets, logit_lengths, target_lengths}, log_sums.size(1), logits.size(1),
                            float_dtype(logits, "logits"), blank, star);
  check_shape(log_sums, "log_sums", {p.batch, p.frames}, ScalarType::Double, targets);
  check_shape(emissions, "emissions", {p.batch, p.frames, p.labels + int64_t{1}}, real_of(p), targets);
  if (star >= 0) {
    check_shape(log_sums_of_others, "log_sums_of_others", {p.batch, p.frames}, ScalarType::Double, targets);
  }
  if (label_prior) {
    check_shape(*label_prior, "label_prior", {p.classes}, real_of(p), targets);
    p.prior = label_prior->const_data_ptr();
  }
  const CtcHeadEmissions to{static_cast<double*>(log_sums.mutable_data_ptr()),
                            star >= 0 ? static_cast<double*>(log_sums_of_others.mutable_data_ptr()) : nullptr,
                            emissions.mutable_data_ptr()};
  call_without_workspace(
      targets, [&](const Execution& execution) { return ctc_head_emissions(p, rows, to, execution); });
}

void head_gradient_op(const Tensor& logits, int64_t first, const Tensor& targets,
                      const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths,
                      const Tensor& first_labels, const Tensor& next_labels, const Tensor& log_sums,
                      const Tensor& log_sums_of_others, const Tensor& posteriors, const Tensor& loss,
                      const Tensor& grad_loss, int64_t blank, int64_t star) {
  const CtcHeadRows rows = rows_of(logits, first, targets);
  const CtcProblem p = problem_of({targets, logit_lengths, target_lengths}, log_sums.size(1), logits.size(1),
                                  float_dtype(logits, "logits"), blank, star);
  check_shape(first_labels, "first_labels", {p.batch, p.labels}, ScalarType::Int, targets);
  check_shape(next_labels, "next_labels", {p.batch, p.labels}, ScalarType::Int, targets);
  check_shape(log_sums, "log_sums", {p.batch, p.frames}, ScalarType::Double, targets);
  if (star >= 0) {
    check_shape(log_sums_of_others, "log_sums_of_others", {p.batch, p.frames}, ScalarType::Double, targets);
  }
  check_shape(posteriors, "posteriors", {p.batch, p.frames, p.labels}, real_of(p), targets);
  check_shape(loss, "loss", {p.batch}, real_of(p), targets);
  check_same_device(grad_loss, "grad_loss", targets, "targets");
  if (grad_loss.scalar_type() != real_of(p) || grad_loss.dim() != 1 || grad_loss.size(0) != p.batch) {
    fail("grad_loss", "one number per utterance, of the loss's dtype", shape_of(grad_loss));
  }
  CtcHeadGradient g;
  g.labels = {static_cast<std::int32_t*>(first_labels.mutable_data_ptr()),
              static_cast<std::int32_t*>(next_labels.mutable_data_ptr())};
  g.log_sums = static_cast<const double*>(log_sums.const_data_ptr());
  if (star >= 0) g.log_sums_of_others = static_cast<const double*>(log_sums_of_others.const_data_ptr());
  g.posteriors = posteriors.const_data_ptr();
  g.loss = loss.const_data_ptr();
  g.grad_loss = grad_loss.const_data_ptr();
  g.grad_loss_stride = grad_loss.stride(0);
  call_core(
      Operator::kCtc, targets, 0, false,
      [&](const Execution& execution) { return ctc_head_gradient_workspace_bytes(p, rows, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return ctc_head_gradient(p, rows, g, workspace, execution);
      });
}

}  // namespace
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("ctc_head_labels", TORCH_BOX(&head_labels_op));
  library.impl("ctc_chunk_emissions_", TORCH_BOX(&head_emissions_op));
  library.impl("ctc_chunk_gradient_", TORCH_BOX(&head_gradient_op));
}
