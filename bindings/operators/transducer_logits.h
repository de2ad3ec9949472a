// From logits, labels and lengths as tensors to the core's problem, for the operators that take them.
#pragma once

#include "transducer_problem.h"

namespace warpalign::binding {

// The tensors of a call.
struct TransducerInputs {
  const Tensor& logits;
  const MaybeTensor& duration_logits;
  const Tensor& targets;
  const MaybeTensor& logit_lengths;
  const MaybeTensor& target_lengths;
  const MaybeTensor& without_durations;
};

// Logits of either head: four axes, or two if packed. Packed rows are the third axis of the core's view.
inline StridedTensorOf<4> rows_of(const Tensor& tensor, bool packed) {
  if (!packed) return strided<4>(tensor);
  return {tensor.const_data_ptr(), {0, 0, tensor.stride(0), tensor.stride(1)}};
}

inline void check_axes(const Tensor& tensor, const char* name, bool packed) {
  const int64_t axes = packed ? 2 : 4;
  if (tensor.dim() == axes) return;
  fail(name, packed ? "2 axes (N, V), packed" : "4 axes (B, T, U+1, V)", shape_of(tensor));
}

inline void check_like_logits(const Tensor& tensor, const char* name, const Tensor& logits) {
  check_same_device(tensor, name, logits, "logits");
  if (tensor.scalar_type() != logits.scalar_type()) {
    fail(name, "the dtype of logits, " + dtype_of(logits), dtype_of(tensor));
  }
  for (int64_t axis = 0; axis + 1 < logits.dim(); ++axis) {
    if (tensor.size(axis) == logits.size(axis)) continue;
    fail(name, "the axes of logits but the last, which have " + shape_of(logits), shape_of(tensor));
  }
}

inline TransducerProblem problem_of(const TransducerInputs& in, const TransducerSettings& settings) {
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

}  // namespace warpalign::binding
