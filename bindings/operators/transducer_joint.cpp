// transducer_joint*: conversion between tensors and the core's problems. Compiled into each library of each
// front end. Outputs and workspace come from the front end's allocator.
#include "warpalign/transducer_joint.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "call.h"
#include "checks.h"
#include "transducer_problem.h"

namespace warpalign::binding {
namespace {

// The tensors of a call.
struct Inputs {
  const Tensor& encoder;
  const Tensor& predictor;
  const Tensor& weight;
  const MaybeTensor& bias;
  const Tensor& targets;
  const MaybeTensor& encoder_lengths;
  const MaybeTensor& target_lengths;
  const MaybeTensor& without_durations;
  const MaybeTensor& seed;
  const MaybeTensor& band;
};

// The joint's own settings.
struct Network {
  int64_t activation;
  bool tdt;
  double dropout;
  int64_t workspace_limit;
  int64_t precision;
  int64_t band_states;
};

// Null if there is none. Where a framework has no int64, its 8 bytes are two int32 numbers.
const std::uint64_t* seed_of(const MaybeTensor& seed, const Tensor& encoder) {
  if (!seed) return nullptr;
  check_same_device(*seed, "seed", encoder, "encoder");
  const bool is_long = seed->scalar_type() == ScalarType::Long && seed->dim() == 0;
  const bool is_pair = seed->scalar_type() == ScalarType::Int && seed->dim() == 1 && seed->size(0) == 2;
  if (!is_long && !(is_pair && seed->is_contiguous())) {
    fail("seed", "one int64 number, of shape (), or two int32 numbers", shape_of(*seed));
  }
  return static_cast<const std::uint64_t*>(seed->const_data_ptr());
}

// The first state of each frame's band; null if there is none.
const std::int32_t* band_of(const MaybeTensor& band, const Tensor& encoder) {
  if (!band) return nullptr;
  check_same_device(*band, "band", encoder, "encoder");
  if (band->scalar_type() != ScalarType::Int || band->dim() != 2 || band->size(0) != encoder.size(0) ||
      band->size(1) != encoder.size(1) || !band->is_contiguous()) {
    fail("band", "contiguous int32 numbers (B, T), by encoder of " + shape_of(encoder), shape_of(*band));
  }
  return static_cast<const std::int32_t*>(band->const_data_ptr());
}

void check_like_encoder(const Tensor& tensor, const char* name, const Tensor& encoder) {
  check_same_device(tensor, name, encoder, "encoder");
  if (tensor.scalar_type() == encoder.scalar_type()) return;
  fail(name, "the dtype of encoder, " + dtype_of(encoder), dtype_of(tensor));
}

TransducerJointProblem problem_of(const Inputs& in, const Network& network,
                                  const TransducerSettings& settings) {
  TransducerJointProblem p;
  if (in.encoder.dim() != 3) fail("encoder", "3 axes (B, T, H)", shape_of(in.encoder));
  p.dtype = float_dtype(in.encoder, "encoder");
  p.hidden = narrowed(in.encoder.size(2));
  p.encoder = strided<3>(in.encoder);
  const std::string hidden = std::to_string(in.encoder.size(2));
  check_like_encoder(in.predictor, "predictor", in.encoder);
  if (in.predictor.dim() != 3 || in.predictor.size(0) != in.encoder.size(0) ||
      in.predictor.size(2) != in.encoder.size(2)) {
    fail("predictor", "shape (B, U+1, H), by encoder of " + shape_of(in.encoder), shape_of(in.predictor));
  }
  p.predictor = strided<3>(in.predictor);
  check_like_encoder(in.weight, "weight", in.encoder);
  if (in.weight.dim() != 2 || in.weight.size(1) != in.encoder.size(2) || !in.weight.is_contiguous()) {
    fail("weight", "a contiguous tensor (V + D, H) with H = " + hidden, shape_of(in.weight));
  }
  p.weight = in.weight.const_data_ptr();
  if (in.bias) {
    check_like_encoder(*in.bias, "bias", in.encoder);
    if (in.bias->dim() != 1 || in.bias->size(0) != in.weight.size(0) || !in.bias->is_contiguous()) {
      fail("bias",
           "a contiguous tensor of a number for each of weight's " + std::to_string(in.weight.size(0)) +
               " rows",
           shape_of(*in.bias));
    }
    p.bias = in.bias->const_data_ptr();
  }
  p.activation = enumerator<Activation>(network.activation);
  p.dropout = network.dropout;
  p.seed = seed_of(in.seed, in.encoder);
  p.band = band_of(in.band, in.encoder);
  p.band_states = narrowed(network.band_states);
  p.workspace_limit = network.workspace_limit;
  TransducerLattice& l = p.lattice;
  l.batch = narrowed(in.encoder.size(0));
  l.frames = narrowed(in.encoder.size(1));
  l.states = narrowed(in.predictor.size(1));
  l.tdt = network.tdt;
  set_targets(l, in.targets, in.predictor, "predictor", false);
  l.logit_lengths = lengths_of(in.encoder_lengths, "encoder_lengths", in.encoder, "encoder", l.batch);
  l.target_lengths = lengths_of(in.target_lengths, "target_lengths", in.encoder, "encoder", l.batch);
  set_durations(l, settings);
  p.labels = narrowed(in.weight.size(0) - (l.tdt ? l.durations : 0));
  set_without_durations(l, in.without_durations, in.encoder, "encoder");
  set_numbers(l, settings);
  return p;
}

// Errors of logit_lengths are those of the operator's encoder_lengths.
Status named(Status status) {
  if (status.argument && std::string_view(status.argument) == "logit_lengths") {
    status.argument = "encoder_lengths";
  }
  return status;
}

ScalarType loss_type(const TransducerJointProblem& p) {
  return p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
}

void check_saved(const TransducerJointProblem& p, int64_t bytes, const Execution& execution) {
  const std::size_t needed = transducer_joint_saved_bytes(p, execution);
  if (static_cast<std::size_t>(bytes) >= needed) return;
  fail("saved", "at least " + std::to_string(needed) + " bytes", std::to_string(bytes));
}

std::tuple<Tensor, Tensor> forward(const Inputs& in, bool needs_grad, const Network& network,
                                   const TransducerSettings& settings) {
  const TransducerJointProblem p = problem_of(in, network, settings);
  const Tensor loss = allocate(in.encoder, {p.lattice.batch}, true, loss_type(p));
  // warpalign/_transducer/joint_ops.py has the same formula for tensors without data.
  const Device device = in.encoder.is_cuda() ? Device::kCuda : Device::kHost;
  const auto bytes = static_cast<int64_t>(transducer_joint_most_saved_bytes(p, device));
  const Tensor saved = allocate(in.encoder, {needs_grad ? bytes : 0}, true, ScalarType::Byte);
  const TransducerOutputs outputs{loss.mutable_data_ptr(), data_or_null(saved, needs_grad)};
  call_core(
      Operator::kTransducerJoint, in.encoder, network.precision, false,
      [&](const Execution& execution) { return transducer_joint_workspace_bytes(p, outputs, execution); },
      [&](Workspace workspace, const Execution& execution) {
        if (needs_grad) check_saved(p, saved.numel(), execution);
        return named(transducer_joint(p, outputs, workspace, execution));
      });
  return {loss, saved};
}

// The gradients that are computed; the others have shape (0,).
struct Wanted {
  bool encoder, predictor, weight, bias;
};

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Gradients gradient(const Inputs& in, const Tensor& saved, const Tensor& grad_loss, const Wanted& wanted,
                   const Network& network, const TransducerSettings& settings) {
  const TransducerJointProblem p = problem_of(in, network, settings);
  check_same_device(saved, "saved", in.encoder, "encoder");
  check_same_device(grad_loss, "grad_loss", in.encoder, "encoder");
  if (grad_loss.scalar_type() != loss_type(p) || grad_loss.dim() != 1 ||
      grad_loss.size(0) != p.lattice.batch) {
    fail("grad_loss", "one number per utterance, of the loss's dtype", shape_of(grad_loss));
  }
  if (saved.scalar_type() != ScalarType::Byte || !saved.is_contiguous()) {
    fail("saved", "what transducer_joint() has returned", shape_of(saved));
  }
  const Gradients to{
      allocate(in.encoder, {in.encoder.size(0), in.encoder.size(1), in.encoder.size(2)}, wanted.encoder),
      allocate(in.encoder, {in.predictor.size(0), in.predictor.size(1), in.predictor.size(2)},
               wanted.predictor),
      allocate(in.encoder, {in.weight.size(0), in.weight.size(1)}, wanted.weight),
      allocate(in.encoder, {in.weight.size(0)}, wanted.bias)};
  const TransducerJointGradient g{saved.const_data_ptr(),
                                  grad_loss.const_data_ptr(),
                                  grad_loss.stride(0),
                                  data_or_null(std::get<0>(to), wanted.encoder),
                                  data_or_null(std::get<1>(to), wanted.predictor),
                                  data_or_null(std::get<2>(to), wanted.weight),
                                  data_or_null(std::get<3>(to), wanted.bias)};
  call_core(
      Operator::kTransducerJoint, in.encoder, network.precision, false,
      [&](const Execution& execution) { return transducer_joint_gradient_workspace_bytes(p, g, execution); },
      [&](Workspace workspace, const Execution& execution) {
        check_saved(p, saved.numel(), execution);
        return named(transducer_joint_gradient(p, g, workspace, execution));
      });
  return to;
}

// The registered functions. Their parameters are their schema's, in its order.

std::tuple<Tensor, Tensor> joint_op(const Tensor& encoder, const Tensor& predictor, const Tensor& weight,
                                    const MaybeTensor& bias, const Tensor& targets,
                                    const MaybeTensor& encoder_lengths, const MaybeTensor& target_lengths,
                                    const MaybeTensor& without_durations, const MaybeTensor& seed,
                                    const MaybeTensor& band, bool needs_grad, int64_t activation, bool tdt,
                                    double dropout, int64_t workspace_limit, int64_t precision,
                                    int64_t band_states, int64_t blank, const std::vector<int64_t>& durations,
                                    const std::vector<int64_t>& big_blank_columns, double sigma,
                                    double fastemit_lambda, double delay_penalty, int64_t eos_id,
                                    double eos_penalty, int64_t star_id, double star_penalty, double clamp,
                                    bool zero_infinity) {
  return forward({encoder, predictor, weight, bias, targets, encoder_lengths, target_lengths,
                  without_durations, seed, band},
                 needs_grad, {activation, tdt, dropout, workspace_limit, precision, band_states},
                 {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                  eos_penalty, star_id, star_penalty, clamp, zero_infinity, false, false});
}

Gradients joint_gradient_op(const Tensor& encoder, const Tensor& predictor, const Tensor& weight,
                            const MaybeTensor& bias, const Tensor& targets,
                            const MaybeTensor& encoder_lengths, const MaybeTensor& target_lengths,
                            const MaybeTensor& without_durations, const MaybeTensor& seed,
                            const MaybeTensor& band, const Tensor& saved, const Tensor& grad_loss,
                            bool needs_encoder, bool needs_predictor, bool needs_weight, bool needs_bias,
                            int64_t activation, bool tdt, double dropout, int64_t workspace_limit,
                            int64_t precision, int64_t band_states, int64_t blank,
                            const std::vector<int64_t>& durations,
                            const std::vector<int64_t>& big_blank_columns, double sigma,
                            double fastemit_lambda, double delay_penalty, int64_t eos_id, double eos_penalty,
                            int64_t star_id, double star_penalty, double clamp, bool zero_infinity) {
  return gradient({encoder, predictor, weight, bias, targets, encoder_lengths, target_lengths,
                   without_durations, seed, band},
                  saved, grad_loss, {needs_encoder, needs_predictor, needs_weight, needs_bias},
                  {activation, tdt, dropout, workspace_limit, precision, band_states},
                  {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                   eos_penalty, star_id, star_penalty, clamp, zero_infinity, false, false});
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("transducer_joint", WARPALIGN_OPERATOR(&joint_op));
  library.impl("transducer_joint_gradient", WARPALIGN_OPERATOR(&joint_gradient_op));
}
