// CTC's public functions of decoding: each checks the contract of warpalign/ctc_decode.h, then hands over to
// the device's path.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "ctc/contract.h"
#include "ctc/decode.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;
using detail::WrittenMemory;
using detail::ctc::check_extents;
using detail::ctc::check_problem;
using detail::ctc::real_size;

// The problem without targets, which decoding does not have, for the checks of a problem.
CtcProblem frames_alone(CtcProblem p) {
  p.labels = 0;
  p.targets = p.target_lengths = {};
  p.target_stride = -1;
  p.flat_targets = false;
  p.target_count = 0;
  p.star = -1;
  p.prior = nullptr;
  return p;
}

Status check_beams(std::int32_t beams) {
  if (beams >= 1 && beams <= kCtcMostBeams) return {};
  return Status::invalid("beams", "1 to 128 beams", beams);
}

Status check_capacity(std::int64_t capacity, std::int64_t beams) {
  if (capacity >= 0 && capacity * beams <= std::numeric_limits<std::int32_t>::max()) return {};
  return Status::invalid("capacity", "0 to 2^31 - 1 nodes of an utterance", static_cast<double>(capacity));
}

Status check_greedy(const CtcProblem& p, const CtcGreedy& greedy, const WrittenMemory& scratch) {
  if (Status s = check_aligned("before", greedy.before, alignof(CtcWalk)); !s.ok()) return s;
  if (Status s = check_not_null("after", greedy.after); !s.ok()) return s;
  if (Status s = check_not_null("lengths", greedy.lengths); !s.ok()) return s;
  const std::size_t rows = static_cast<std::size_t>(p.batch) * p.frames;
  if (rows > 0) {
    if (Status s = check_not_null("tokens", greedy.tokens); !s.ok()) return s;
    if (Status s = check_not_null("token_frames", greedy.token_frames); !s.ok()) return s;
  }
  const WrittenMemory places[] = {
      {"after", greedy.after, p.batch * sizeof(CtcWalk), alignof(CtcWalk)},
      {"tokens", greedy.tokens, rows * sizeof(std::int64_t), sizeof(std::int64_t)},
      {"token_frames", greedy.token_frames, rows * sizeof(std::int64_t), sizeof(std::int64_t)},
      {"lengths", greedy.lengths, p.batch * sizeof(std::int64_t), sizeof(std::int64_t)},
      scratch};
  return detail::check_written(places);
}

Status check_beam(const CtcProblem& p, const CtcBeam& beam) {
  if (Status s = check_beams(beam.beams); !s.ok()) return s;
  if (Status s = check_capacity(beam.capacity, beam.beams); !s.ok()) return s;
  if (!(beam.threshold > 0)) return Status::invalid("threshold", "a number above 0", beam.threshold);
  if (beam.label_scores && p.frames > 1) {
    return Status::invalid("label_scores", "at most one frame beside them", p.frames);
  }
  if (beam.label_scores && beam.beams > kCtcMostScoredBeams) {
    return Status::invalid("beams", "at most 64 beams with label scores", beam.beams);
  }
  return {};
}

Status check_beam_memory(const CtcProblem& p, const CtcBeam& beam, const WrittenMemory& scratch) {
  if (Status s = check_aligned("before", beam.before, alignof(CtcHypothesis)); !s.ok()) return s;
  if (Status s = check_aligned("frames_before", beam.frames_before, sizeof(std::int32_t)); !s.ok()) return s;
  if (Status s = check_aligned("label_scores", beam.label_scores, real_size(p.dtype)); !s.ok()) return s;
  if (Status s = check_not_null("after", beam.after); !s.ok()) return s;
  if (beam.capacity > 0) {
    if (Status s = check_not_null("nodes", beam.nodes); !s.ok()) return s;
  }
  const std::size_t places = static_cast<std::size_t>(p.batch) * beam.beams;
  const std::size_t integer = sizeof(std::int32_t);
  const WrittenMemory written[] = {
      {"after", beam.after, places * sizeof(CtcHypothesis), alignof(CtcHypothesis)},
      {"nodes", beam.nodes, places * beam.capacity * sizeof(CtcNode), alignof(CtcNode)},
      {"frames_after", beam.frames_after, p.batch * integer, integer},
      {"source", beam.source, places * integer, integer},
      {"label", beam.label, places * integer, integer},
      scratch};
  return detail::check_written(written);
}

Status check_labels(const CtcBeamLabels& p) {
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (Status s = check_beams(p.beams); !s.ok()) return s;
  if (p.n_best < 1 || p.n_best > p.beams) return Status::invalid("n_best", "1 to beams", p.n_best);
  if (Status s = check_capacity(p.capacity, p.beams); !s.ok()) return s;
  if (p.longest < 0) return Status::invalid("longest", "at least 0", p.longest);
  if (p.batch == 0) return {};
  if (Status s = check_not_null("hypotheses", p.hypotheses); !s.ok()) return s;
  if (Status s = check_aligned("hypotheses", p.hypotheses, alignof(CtcHypothesis)); !s.ok()) return s;
  if (p.capacity > 0) {
    if (Status s = check_not_null("nodes", p.nodes); !s.ok()) return s;
  }
  if (Status s = check_not_null("lengths", p.lengths); !s.ok()) return s;
  if (Status s = check_not_null("scores", p.scores); !s.ok()) return s;
  if (p.longest > 0) {
    if (Status s = check_not_null("tokens", p.tokens); !s.ok()) return s;
    if (Status s = check_not_null("token_frames", p.token_frames); !s.ok()) return s;
  }
  constexpr std::size_t kSize = sizeof(std::int64_t);
  const std::size_t rows = static_cast<std::size_t>(p.batch) * p.n_best;
  const WrittenMemory written[] = {{"tokens", p.tokens, rows * p.longest * kSize, kSize},
                                   {"token_frames", p.token_frames, rows * p.longest * kSize, kSize},
                                   {"lengths", p.lengths, rows * kSize, kSize},
                                   {"scores", p.scores, rows * sizeof(double), sizeof(double)}};
  return detail::check_written(written);
}

}  // namespace

std::size_t ctc_greedy_workspace_bytes(const CtcProblem& problem, const CtcGreedy& greedy,
                                       const Execution& execution) {
  const CtcProblem p = frames_alone(problem);
  if (!check_extents(p).ok() || p.batch == 0) return 0;
  if (execution.device == Device::kHost) return detail::ctc::greedy_workspace_bytes_cpu(p, greedy, execution);
#if WARPALIGN_HAS_CUDA
  return detail::ctc::greedy_workspace_bytes_cuda(p, greedy, execution);
#else
  return 0;
#endif
}

Status ctc_greedy(const CtcProblem& problem, const CtcGreedy& greedy, Workspace workspace,
                  const Execution& execution) {
  const CtcProblem p = frames_alone(problem);
  if (Status s = check_problem(p, execution); !s.ok() || p.batch == 0) return s;
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  if (Status s = detail::check_way(execution, {}, "CTC decoding"); !s.ok()) return s;
  const std::size_t needed = ctc_greedy_workspace_bytes(p, greedy, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_greedy(p, greedy, {"workspace", workspace.data, needed, 1}); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::ctc::greedy_cuda(p, greedy, workspace, execution);
#endif
  if (cpu::is_described("ctc_greedy", needed, execution)) return {};
  return detail::ctc::greedy_cpu(p, greedy, workspace, execution);
}

std::size_t ctc_beam_workspace_bytes(const CtcProblem& problem, const CtcBeam& beam,
                                     const Execution& execution) {
  const CtcProblem p = frames_alone(problem);
  if (!check_extents(p).ok() || !check_beam(p, beam).ok() || p.batch == 0) return 0;
  if (execution.device == Device::kHost) return detail::ctc::beam_workspace_bytes_cpu(p, beam, execution);
#if WARPALIGN_HAS_CUDA
  return detail::ctc::beam_workspace_bytes_cuda(p, beam, execution);
#else
  return 0;
#endif
}

Status ctc_beam(const CtcProblem& problem, const CtcBeam& beam, Workspace workspace,
                const Execution& execution) {
  const CtcProblem p = frames_alone(problem);
  if (Status s = check_problem(p, execution); !s.ok()) return s;
  if (Status s = check_beam(p, beam); !s.ok() || p.batch == 0) return s;
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  if (Status s = detail::check_way(execution, {}, "CTC decoding"); !s.ok()) return s;
  const std::size_t needed = ctc_beam_workspace_bytes(p, beam, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_beam_memory(p, beam, {"workspace", workspace.data, needed, 1}); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::ctc::beam_cuda(p, beam, workspace, execution);
#endif
  if (cpu::is_described("ctc_beam", needed, execution)) return {};
  return detail::ctc::beam_cpu(p, beam, workspace, execution);
}

Status ctc_beam_labels(const CtcBeamLabels& labels, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  if (Status s = check_labels(labels); !s.ok() || labels.batch == 0) return s;
  if (execution.device == Device::kHost) {
    if (cpu::is_described("ctc_beam_labels", 0, execution)) return {};
    return detail::ctc::beam_labels_cpu(labels, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::ctc::beam_labels_cuda(labels, execution);
#else
  return detail::kNoCudaPath;
#endif
}

}  // namespace warpalign
