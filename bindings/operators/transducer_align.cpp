// transducer_align: compiled into each library of each front end.
#include "warpalign/transducer_align.h"

#include <cstdint>
#include <tuple>
#include <vector>

#include "call.h"
#include "transducer_logits.h"

namespace warpalign::binding {
namespace {

using Alignment = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Tensor allocate_shape(const Tensor& like, const std::vector<int64_t>& shape, ScalarType dtype) {
  return empty(like, shape.data(), shape.size(), dtype);
}

Alignment align(const TransducerInputs& in, bool posteriors, const TransducerSettings& settings) {
  const TransducerProblem p = problem_of(in, settings);
  const TransducerLattice& l = p.lattice;
  const ScalarType real = p.dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
  std::vector<int64_t> labels{in.targets.size(0)}, rows{p.packed_rows}, frames{p.packed_rows}, groups{0};
  if (!l.flat_targets) labels.push_back(in.targets.size(1));
  if (!p.packed) {
    rows = {l.batch, l.frames, l.states};
    frames = {l.batch, l.frames};
  }
  const int64_t count = posteriors ? l.durations : 0;
  const bool wants_groups = count > 0;
  if (posteriors) {
    groups = {count};
    groups.insert(groups.end(), rows.begin(), rows.end());
  } else {
    rows = {0};
  }
  const Tensor score = allocate(in.logits, {l.batch}, true, real);
  const Tensor label_frames = allocate_shape(in.logits, labels, ScalarType::Int);
  const Tensor durations = allocate_shape(in.logits, labels, ScalarType::Int);
  const Tensor blanks = allocate_shape(in.logits, frames, ScalarType::Int);
  const Tensor blank = allocate_shape(in.logits, rows, real);
  const Tensor label = allocate_shape(in.logits, rows, real);
  const Tensor grouped = allocate_shape(in.logits, groups, real);
  TransducerAlignment out;
  out.score = score.mutable_data_ptr();
  out.frames = static_cast<std::int32_t*>(label_frames.mutable_data_ptr());
  out.durations = static_cast<std::int32_t*>(durations.mutable_data_ptr());
  out.blanks = static_cast<std::int32_t*>(blanks.mutable_data_ptr());
  out.blank_posteriors = data_or_null(blank, posteriors);
  out.label_posteriors = data_or_null(label, posteriors);
  (l.tdt ? out.duration_posteriors : out.big_blank_posteriors) = data_or_null(grouped, wants_groups);
  call_core(
      Operator::kTransducer, in.logits, 0, false,
      [&](const Execution& execution) { return transducer_align_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return transducer_align(p, out, workspace, execution);
      });
  return {score, label_frames, durations, blanks, blank, label, grouped};
}

// The registered function. Its parameters are its schema's, in its order.
Alignment transducer_align_op(const Tensor& logits, const MaybeTensor& duration_logits, const Tensor& targets,
                              const MaybeTensor& logit_lengths, const MaybeTensor& target_lengths,
                              const MaybeTensor& without_durations, bool posteriors, int64_t blank,
                              const std::vector<int64_t>& durations,
                              const std::vector<int64_t>& big_blank_columns, double sigma,
                              double fastemit_lambda, double delay_penalty, int64_t eos_id,
                              double eos_penalty, int64_t star_id, double star_penalty, double clamp,
                              bool zero_infinity, bool from_log_probs, bool packed) {
  return align({logits, duration_logits, targets, logit_lengths, target_lengths, without_durations},
               posteriors,
               {blank, durations, big_blank_columns, sigma, fastemit_lambda, delay_penalty, eos_id,
                eos_penalty, star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed});
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("transducer_align", WARPALIGN_OPERATOR(&transducer_align_op));
}
