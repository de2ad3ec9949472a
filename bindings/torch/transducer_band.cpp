// torch.ops.warpalign.transducer_band: conversion between tensors and the core's problem. Compiled into the
// CPU and the CUDA library.
#include "warpalign/transducer_band.h"

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>

#include "call.h"
#include "checks.h"
#include "contiguous.h"

namespace warpalign::binding {
namespace {

using MaybeTensor = std::optional<Tensor>;

const std::int32_t* lengths_of(const MaybeTensor& lengths, const char* name, const Tensor& gradients) {
  if (!lengths) return nullptr;
  check_contiguous(*lengths, name, "(B,)", {gradients.size(0)}, ScalarType::Int, gradients, "gradients");
  return static_cast<const std::int32_t*>(lengths->const_data_ptr());
}

Tensor band_op(const Tensor& gradients, const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths,
               int64_t band_states) {
  check_contiguous(gradients, "gradients", "(B, T, U+1, 2)", {-1, -1, -1, 2}, ScalarType::Float, gradients,
                   "gradients");
  TransducerBandProblem p;
  p.batch = narrowed(gradients.size(0));
  p.frames = narrowed(gradients.size(1));
  p.states = narrowed(gradients.size(2));
  p.gradients = static_cast<const float*>(gradients.const_data_ptr());
  p.logit_lengths = lengths_of(logit_lengths, "logit_lengths", gradients);
  p.target_lengths = lengths_of(target_lengths, "target_lengths", gradients);
  p.band_states = narrowed(band_states);
  const Tensor first = allocate(gradients, {p.batch, p.frames}, true, ScalarType::Int);
  p.first = static_cast<std::int32_t*>(first.mutable_data_ptr());
  call_core(
      Operator::kOther, gradients, 0, false,
      [&](const Execution& execution) { return transducer_band_workspace_bytes(p, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return transducer_band(p, workspace, execution);
      });
  return first;
}

}  // namespace
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("transducer_band", TORCH_BOX(&band_op));
}
