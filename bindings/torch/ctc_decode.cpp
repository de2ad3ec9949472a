// torch.ops.warpalign.ctc_greedy_search, ctc_beam_search and ctc_beam_labels: tensors to the core's problems
// and back. Compiled into the CPU and the CUDA library.
#include "warpalign/ctc_decode.h"

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "call.h"
#include "checks.h"
#include "contiguous.h"
#include "float_dtype.h"
#include "integers.h"

namespace warpalign::binding {
namespace {

using MaybeTensor = std::optional<Tensor>;
using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr int64_t kWalkWords = sizeof(CtcWalk) / sizeof(int64_t);
constexpr int64_t kHypothesisWords = sizeof(CtcHypothesis) / sizeof(int64_t);
constexpr int64_t kNodeNumbers = sizeof(CtcNode) / sizeof(std::int32_t);

CtcProblem frames_of(const Tensor& logits, const MaybeTensor& logit_lengths, int64_t blank,
                     bool from_log_probs) {
  check_axes(logits, "logits", "(B, T, C)");
  CtcProblem p;
  p.dtype = float_dtype(logits, "logits");
  p.batch = narrowed(logits.size(0));
  p.frames = narrowed(logits.size(1));
  p.classes = narrowed(logits.size(2));
  p.logits = strided<3>(logits);
  p.logit_lengths = lengths_of(logit_lengths, "logit_lengths", logits, "logits");
  p.blank = narrowed(blank);
  p.log_probs = from_log_probs;
  return p;
}

FourTensors greedy_op(const Tensor& logits, const MaybeTensor& logit_lengths, const MaybeTensor& walk,
                      int64_t blank, bool from_log_probs) {
  const CtcProblem p = frames_of(logits, logit_lengths, blank, from_log_probs);
  CtcGreedy out;
  if (walk) {
    check_contiguous(*walk, "walk", "(B, 2)", {p.batch, kWalkWords}, ScalarType::Long, logits, "logits");
    out.before = static_cast<const CtcWalk*>(walk->const_data_ptr());
  }
  const Tensor tokens = allocate(logits, {p.batch, p.frames}, true, ScalarType::Long);
  const Tensor frames = allocate(logits, {p.batch, p.frames}, true, ScalarType::Long);
  const Tensor lengths = allocate(logits, {p.batch}, true, ScalarType::Long);
  const Tensor after = allocate(logits, {p.batch, kWalkWords}, true, ScalarType::Long);
  out.tokens = static_cast<std::int64_t*>(tokens.mutable_data_ptr());
  out.token_frames = static_cast<std::int64_t*>(frames.mutable_data_ptr());
  out.lengths = static_cast<std::int64_t*>(lengths.mutable_data_ptr());
  out.after = static_cast<CtcWalk*>(after.mutable_data_ptr());
  call_core(
      Operator::kOther, logits, 0, false,
      [&](const Execution& execution) { return ctc_greedy_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return ctc_greedy(p, out, workspace, execution);
      });
  return {tokens, frames, lengths, after};
}

// The beam and the nodes of a search.
CtcBeam beam_of(const Tensor& nodes, int64_t batch, const Tensor& first, const char* first_name) {
  check_contiguous(nodes, "nodes", "(B, capacity, K, 2)", {batch, -1, -1, kNodeNumbers}, ScalarType::Int,
                   first, first_name);
  CtcBeam beam;
  beam.beams = narrowed(nodes.size(2));
  beam.capacity = narrowed(nodes.size(1));
  beam.nodes = static_cast<CtcNode*>(nodes.mutable_data_ptr());
  return beam;
}

FourTensors beam_op(const Tensor& logits, const MaybeTensor& logit_lengths, const MaybeTensor& hypotheses,
                    const MaybeTensor& frames_before, const MaybeTensor& label_scores, const Tensor& nodes,
                    double beam_threshold, int64_t blank, bool from_log_probs) {
  const CtcProblem p = frames_of(logits, logit_lengths, blank, from_log_probs);
  CtcBeam beam = beam_of(nodes, p.batch, logits, "logits");
  beam.threshold = beam_threshold;
  if (hypotheses) {
    check_contiguous(*hypotheses, "hypotheses", "(B, K, 9)", {p.batch, beam.beams, kHypothesisWords},
                     ScalarType::Long, logits, "logits");
    beam.before = static_cast<const CtcHypothesis*>(hypotheses->const_data_ptr());
  }
  if (frames_before) {
    check_contiguous(*frames_before, "frames_before", "(B,)", {p.batch}, ScalarType::Int, logits, "logits");
    beam.frames_before = static_cast<const std::int32_t*>(frames_before->const_data_ptr());
  }
  if (label_scores) {
    const ScalarType real = p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
    check_contiguous(*label_scores, "label_scores", "(B, K, C)", {p.batch, beam.beams, p.classes}, real,
                     logits, "logits");
    beam.label_scores = label_scores->const_data_ptr();
  }
  const Tensor after = allocate(logits, {p.batch, beam.beams, kHypothesisWords}, true, ScalarType::Long);
  const Tensor frames = allocate(logits, {p.batch}, true, ScalarType::Int);
  const Tensor source = allocate(logits, {p.batch, beam.beams}, true, ScalarType::Int);
  const Tensor label = allocate(logits, {p.batch, beam.beams}, true, ScalarType::Int);
  beam.after = static_cast<CtcHypothesis*>(after.mutable_data_ptr());
  beam.frames_after = static_cast<std::int32_t*>(frames.mutable_data_ptr());
  beam.source = static_cast<std::int32_t*>(source.mutable_data_ptr());
  beam.label = static_cast<std::int32_t*>(label.mutable_data_ptr());
  call_core(
      Operator::kOther, logits, 0, false,
      [&](const Execution& execution) { return ctc_beam_workspace_bytes(p, beam, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return ctc_beam(p, beam, workspace, execution);
      });
  return {after, frames, source, label};
}

FourTensors labels_op(const Tensor& hypotheses, const Tensor& nodes, int64_t n_best, int64_t longest) {
  if (hypotheses.dim() != 3) fail("hypotheses", "3 axes (B, K, 9)", shape_of(hypotheses));
  const int64_t batch = hypotheses.size(0);
  const CtcBeam beam = beam_of(nodes, batch, hypotheses, "hypotheses");
  check_contiguous(hypotheses, "hypotheses", "(B, K, 9)", {batch, beam.beams, kHypothesisWords},
                   ScalarType::Long, nodes, "nodes");
  CtcBeamLabels p;
  p.batch = narrowed(batch);
  p.beams = beam.beams;
  p.n_best = narrowed(n_best);
  p.hypotheses = static_cast<const CtcHypothesis*>(hypotheses.const_data_ptr());
  p.nodes = beam.nodes;
  p.capacity = beam.capacity;
  p.longest = narrowed(longest);
  if (n_best < 1 || longest < 0) fail("n_best", "at least 1, and longest at least 0", std::to_string(n_best));
  const Tensor tokens = allocate(hypotheses, {batch, n_best, longest});
  const Tensor frames = allocate(hypotheses, {batch, n_best, longest});
  const Tensor lengths = allocate(hypotheses, {batch, n_best});
  const Tensor scores = allocate(hypotheses, {batch, n_best}, true, ScalarType::Double);
  p.tokens = static_cast<std::int64_t*>(tokens.mutable_data_ptr());
  p.token_frames = static_cast<std::int64_t*>(frames.mutable_data_ptr());
  p.lengths = static_cast<std::int64_t*>(lengths.mutable_data_ptr());
  p.scores = static_cast<double*>(scores.mutable_data_ptr());
  call_core(
      Operator::kOther, hypotheses, 0, false, [](const Execution&) { return std::size_t{0}; },
      [&](Workspace, const Execution& execution) { return ctc_beam_labels(p, execution); });
  return {tokens, frames, lengths, scores};
}

}  // namespace
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("ctc_greedy_search", TORCH_BOX(&greedy_op));
  library.impl("ctc_beam_search", TORCH_BOX(&beam_op));
  library.impl("ctc_beam_labels", TORCH_BOX(&labels_op));
}
