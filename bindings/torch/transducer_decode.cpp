// torch.ops.warpalign.transducer_scores, transducer_greedy*_step and transducer_beam_step: conversion between
// tensors and the core's problems. Compiled into the CPU and the CUDA library.
#include "warpalign/transducer_decode.h"

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "call.h"
#include "checks.h"
#include "contiguous.h"

namespace warpalign::binding {
namespace {

using MaybeTensor = std::optional<Tensor>;

constexpr int64_t kWalkNumbers = sizeof(TransducerWalk) / sizeof(std::int32_t);

// A joint network's tensors.
struct Joint {
  const Tensor& encoder;
  const Tensor& predictor;
  const Tensor& weight;
  const MaybeTensor& bias;
  int64_t activation;
};

// The arcs of a model, with the names of transducer_schemas.cpp.
struct Decoding {
  bool tdt;
  int64_t blank;
  const std::vector<int64_t>& durations;
  const std::vector<int64_t>& big_blank_columns;
  int64_t max_symbols;
};

DType real_dtype(const Tensor& tensor, const char* name) {
  if (tensor.scalar_type() == ScalarType::Float) return DType::kFloat32;
  if (tensor.scalar_type() == ScalarType::Double) return DType::kFloat64;
  fail(name, "dtype float32 or float64", dtype_of(tensor));
}

const std::int32_t* ints_of(const Tensor& tensor) {
  return static_cast<const std::int32_t*>(tensor.const_data_ptr());
}

const std::int32_t* lengths_of(const MaybeTensor& lengths, const Tensor& first, const char* first_name,
                               int64_t batch) {
  if (!lengths) return nullptr;
  check_contiguous(*lengths, "lengths", "(B,)", {batch}, ScalarType::Int, first, first_name);
  return ints_of(*lengths);
}

TransducerJoint joint_of(const Joint& in, int64_t rows) {
  if (in.encoder.dim() != 3) fail("encoder", "3 axes (B, T, H)", shape_of(in.encoder));
  const ScalarType dtype = in.encoder.scalar_type();
  const int64_t hidden = in.encoder.size(2);
  check_contiguous(in.predictor, "predictor", "of a row of H for each hypothesis", {rows, hidden}, dtype,
                   in.encoder, "encoder");
  check_contiguous(in.weight, "weight", "(columns, H)", {-1, hidden}, dtype, in.encoder, "encoder");
  if (in.bias) {
    check_contiguous(*in.bias, "bias", "of a number for each row of weight", {in.weight.size(0)}, dtype,
                     in.encoder, "encoder");
  }
  TransducerJoint joint;
  joint.hidden = narrowed(hidden);
  joint.encoder = strided<3>(in.encoder);
  joint.predictor = in.predictor.const_data_ptr();
  joint.weight = in.weight.const_data_ptr();
  joint.bias = in.bias ? in.bias->const_data_ptr() : nullptr;
  joint.activation = enumerator<Activation>(in.activation);
  return joint;
}

TransducerDecoding decoding_of(const Decoding& in, int64_t columns) {
  const std::size_t limit = in.tdt ? kTransducerDurations : kTransducerBigBlanks;
  if (in.durations.size() > limit) {
    fail(in.tdt ? "durations" : "big_blanks", "at most " + std::to_string(limit),
         std::to_string(in.durations.size()));
  }
  if (!in.tdt && in.big_blank_columns.size() != in.durations.size()) {
    fail("big_blank_columns", "one for each of durations", std::to_string(in.big_blank_columns.size()));
  }
  TransducerDecoding d;
  d.tdt = in.tdt;
  d.blank = narrowed(in.blank);
  d.durations = static_cast<std::int32_t>(in.durations.size());
  d.labels = narrowed(columns - (in.tdt ? d.durations : 0));
  for (std::size_t i = 0; i < in.durations.size(); ++i) {
    d.duration[i] = narrowed(in.durations[i]);
    if (!in.tdt) d.big_blank_column[i] = narrowed(in.big_blank_columns[i]);
  }
  d.max_symbols = narrowed(in.max_symbols);
  return d;
}

Tensor scores_op(const Tensor& frame, const MaybeTensor& lengths, const Tensor& encoder,
                 const Tensor& predictor, const Tensor& weight, const MaybeTensor& bias, int64_t activation,
                 int64_t beams, int64_t window) {
  TransducerScores p;
  p.dtype = real_dtype(encoder, "encoder");
  if (beams < 1) fail("beams", "at least 1", std::to_string(beams));
  if (window < 1) fail("window", "at least 1", std::to_string(window));
  p.batch = encoder.dim() == 3 ? narrowed(encoder.size(0)) : 0;
  const int64_t rows = p.batch * beams;
  p.joint = joint_of({encoder, predictor, weight, bias, activation}, rows);
  p.beams = narrowed(beams);
  p.frames = narrowed(encoder.size(1));
  p.window = narrowed(window);
  p.columns = narrowed(weight.size(0));
  p.lengths = lengths_of(lengths, encoder, "encoder", p.batch);
  check_contiguous(frame, "frame", "of a number for each hypothesis", {rows}, ScalarType::Int, encoder,
                   "encoder");
  p.frame = ints_of(frame);
  const Tensor scores = allocate(encoder, {rows, window, p.columns});
  p.scores = scores.mutable_data_ptr();
  call_core(
      Operator::kOther, encoder, 0, false,
      [&](const Execution& execution) { return transducer_scores_workspace_bytes(p, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return transducer_scores(p, workspace, execution);
      });
  return scores;
}

// The next walk and log-probability, the label, and whether there is one.
using GreedyFound = std::tuple<Tensor, Tensor, Tensor, Tensor>;

GreedyFound run_greedy(TransducerGreedyStep p, const Tensor& walk, const Tensor& log_prob,
                       const MaybeTensor& lengths, const Tensor& first, const char* first_name) {
  check_contiguous(walk, "walk", "(B, 5)", {p.batch, kWalkNumbers}, ScalarType::Int, first, first_name);
  check_contiguous(log_prob, "log_prob", "(B,)", {p.batch}, ScalarType::Double, first, first_name);
  p.lengths = lengths_of(lengths, first, first_name, p.batch);
  const Tensor next_walk = allocate(walk, {p.batch, kWalkNumbers});
  const Tensor next_log_prob = allocate(log_prob, {p.batch});
  const Tensor token = allocate(walk, {p.batch}, true, ScalarType::Long);
  const Tensor found = allocate(walk, {p.batch}, true, ScalarType::Bool);
  p.walk = static_cast<const TransducerWalk*>(walk.const_data_ptr());
  p.log_prob = static_cast<const double*>(log_prob.const_data_ptr());
  p.next_walk = static_cast<TransducerWalk*>(next_walk.mutable_data_ptr());
  p.next_log_prob = static_cast<double*>(next_log_prob.mutable_data_ptr());
  p.token = static_cast<std::int64_t*>(token.mutable_data_ptr());
  p.found = static_cast<bool*>(found.mutable_data_ptr());
  call_core(
      Operator::kOther, first, 0, false,
      [&](const Execution& execution) { return transducer_greedy_step_workspace_bytes(p, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return transducer_greedy_step(p, workspace, execution);
      });
  return {next_walk, next_log_prob, token, found};
}

GreedyFound greedy_op(const Tensor& walk, const Tensor& log_prob, const MaybeTensor& lengths,
                      const Tensor& scores, int64_t frames, bool tdt, int64_t blank,
                      const std::vector<int64_t>& durations, const std::vector<int64_t>& big_blank_columns,
                      int64_t max_symbols) {
  if (scores.dim() != 3 || !scores.is_contiguous()) {
    fail("scores", "a contiguous tensor (B, window, columns)", shape_of(scores));
  }
  TransducerGreedyStep p;
  p.dtype = real_dtype(scores, "scores");
  p.batch = narrowed(scores.size(0));
  p.frames = narrowed(frames);
  p.window = narrowed(scores.size(1));
  p.decoding = decoding_of({tdt, blank, durations, big_blank_columns, max_symbols}, scores.size(2));
  p.scores = scores.const_data_ptr();
  return run_greedy(p, walk, log_prob, lengths, scores, "scores");
}

GreedyFound greedy_joint_op(const Tensor& walk, const Tensor& log_prob, const MaybeTensor& lengths,
                            const Tensor& encoder, const Tensor& predictor, const Tensor& weight,
                            const MaybeTensor& bias, int64_t activation, int64_t window, bool tdt,
                            int64_t blank, const std::vector<int64_t>& durations,
                            const std::vector<int64_t>& big_blank_columns, int64_t max_symbols) {
  TransducerGreedyStep p;
  p.dtype = real_dtype(encoder, "encoder");
  p.joint =
      joint_of({encoder, predictor, weight, bias, activation}, encoder.dim() == 3 ? encoder.size(0) : 0);
  p.batch = narrowed(encoder.size(0));
  p.frames = narrowed(encoder.size(1));
  p.window = narrowed(window);
  p.decoding = decoding_of({tdt, blank, durations, big_blank_columns, max_symbols}, weight.size(0));
  return run_greedy(p, walk, log_prob, lengths, encoder, "encoder");
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> beam_op(
    const Tensor& hypothesis, const Tensor& log_prob, const Tensor& hash, const Tensor& nodes,
    const Tensor& used, const MaybeTensor& lengths, const MaybeTensor& frames_before, const Tensor& scores,
    const MaybeTensor& label_scores, int64_t frames, bool sum, bool tdt, int64_t blank,
    const std::vector<int64_t>& durations, const std::vector<int64_t>& big_blank_columns,
    int64_t max_symbols) {
  constexpr int64_t kHypothesis = sizeof(TransducerHypothesis) / sizeof(std::int32_t);
  constexpr int64_t kNode = sizeof(TransducerNode) / sizeof(std::int32_t);
  if (scores.dim() != 3 || !scores.is_contiguous()) {
    fail("scores", "a contiguous tensor (B, 2 K, columns)", shape_of(scores));
  }
  const int64_t batch = scores.size(0), beams = scores.size(1);
  const auto check = [&](const Tensor& tensor, const char* name, const char* axes,
                         const std::vector<int64_t>& sizes, ScalarType dtype) {
    check_contiguous(tensor, name, axes, sizes, dtype, scores, "scores");
  };
  check(hypothesis, "hypothesis", "(B, 2 K, 4)", {batch, beams, kHypothesis}, ScalarType::Int);
  check(log_prob, "log_prob", "(B, 2 K)", {batch, beams}, ScalarType::Double);
  check(hash, "hash", "(B, 2 K)", {batch, beams}, ScalarType::Long);
  check(nodes, "nodes", "(B, capacity, 4)", {batch, -1, kNode}, ScalarType::Int);
  check(used, "used", "(B,)", {batch}, ScalarType::Int);
  TransducerBeamStep p;
  p.dtype = real_dtype(scores, "scores");
  p.batch = narrowed(batch);
  p.beams = narrowed(beams);
  p.frames = narrowed(frames);
  p.lengths = lengths_of(lengths, scores, "scores", batch);
  if (frames_before) {
    check(*frames_before, "frames_before", "(B,)", {batch}, ScalarType::Int);
    p.frames_before = ints_of(*frames_before);
  }
  p.decoding = decoding_of({tdt, blank, durations, big_blank_columns, max_symbols}, scores.size(2));
  p.sum = sum;
  p.scores = scores.const_data_ptr();
  if (label_scores) {
    check(*label_scores, "label_scores", "(B, 2 K, V)", {batch, beams, p.decoding.labels},
          scores.scalar_type());
    p.label_scores = label_scores->const_data_ptr();
  }
  p.hypothesis = static_cast<const TransducerHypothesis*>(hypothesis.const_data_ptr());
  p.log_prob = static_cast<const double*>(log_prob.const_data_ptr());
  p.hash = static_cast<const std::uint64_t*>(hash.const_data_ptr());
  p.nodes = static_cast<TransducerNode*>(nodes.mutable_data_ptr());
  p.capacity = narrowed(nodes.size(1));
  p.used = static_cast<std::int32_t*>(used.mutable_data_ptr());
  const Tensor next_hypothesis = allocate(hypothesis, {batch, beams, kHypothesis});
  const Tensor next_log_prob = allocate(log_prob, {batch, beams});
  const Tensor next_hash = allocate(hash, {batch, beams});
  const Tensor source = allocate(hypothesis, {batch, beams});
  const Tensor label = allocate(hypothesis, {batch, beams});
  const Tensor expand = allocate(hypothesis, {batch, beams});
  p.next_hypothesis = static_cast<TransducerHypothesis*>(next_hypothesis.mutable_data_ptr());
  p.next_log_prob = static_cast<double*>(next_log_prob.mutable_data_ptr());
  p.next_hash = static_cast<std::uint64_t*>(next_hash.mutable_data_ptr());
  p.source = static_cast<std::int32_t*>(source.mutable_data_ptr());
  p.label = static_cast<std::int32_t*>(label.mutable_data_ptr());
  p.expand = static_cast<std::int32_t*>(expand.mutable_data_ptr());
  call_core(
      Operator::kOther, scores, 0, false,
      [&](const Execution& execution) { return transducer_beam_step_workspace_bytes(p, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return transducer_beam_step(p, workspace, execution);
      });
  return {next_hypothesis, next_log_prob, next_hash, source, label, expand};
}

}  // namespace
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("transducer_scores", TORCH_BOX(&scores_op));
  library.impl("transducer_greedy_step", TORCH_BOX(&greedy_op));
  library.impl("transducer_greedy_joint_step", TORCH_BOX(&greedy_joint_op));
  library.impl("transducer_beam_step", TORCH_BOX(&beam_op));
}
