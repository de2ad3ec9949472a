// transducer_band(): checks the contract of the public header, then hands over to the device's path.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "transducer/problem.h"
#include "warpalign/transducer_band.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;

Status check_extents(const TransducerBandProblem& p) {
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (p.frames < 0) return Status::invalid("frames", "at least 0", p.frames);
  if (p.states < 1) return Status::invalid("states", "at least 1", p.states);
  if (p.band_states < 1 || p.band_states > p.states) {
    return Status::invalid("band_states", "1 to U + 1 states", p.band_states);
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (!detail::few_enough({p.batch, p.frames, p.states}) ||
      std::int64_t{p.batch} * p.frames * p.states > kMost || std::int64_t{p.frames} * p.states > kMost) {
    return Status::invalid("frames", "less than 2^31 nodes", p.frames);
  }
  return {};
}

Status check_problem(const TransducerBandProblem& p, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  if (Status s = check_extents(p); !s.ok()) return s;
  if (Status s = detail::check_way(execution, {}, "transducer_band()"); !s.ok()) return s;
  if (p.batch == 0 || p.frames == 0) return {};
  if (Status s = check_not_null("gradients", p.gradients); !s.ok()) return s;
  if (Status s = check_aligned("gradients", p.gradients, sizeof(float)); !s.ok()) return s;
  if (Status s = check_not_null("first", p.first); !s.ok()) return s;
  if (Status s = check_aligned("first", p.first, sizeof(std::int32_t)); !s.ok()) return s;
  if (Status s = check_aligned("logit_lengths", p.logit_lengths, sizeof(std::int32_t)); !s.ok()) return s;
  return check_aligned("target_lengths", p.target_lengths, sizeof(std::int32_t));
}

}  // namespace

std::size_t transducer_band_workspace_bytes(const TransducerBandProblem& problem,
                                            const Execution& execution) {
  if (!check_extents(problem).ok() || execution.device == Device::kHost) return 0;
#if WARPALIGN_HAS_CUDA
  return detail::transducer::band_workspace_bytes_cuda(problem);
#else
  return 0;
#endif
}

Status transducer_band(const TransducerBandProblem& problem, Workspace workspace,
                       const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (problem.batch == 0 || problem.frames == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  const std::size_t needed = transducer_band_workspace_bytes(problem, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::band_cuda(problem, workspace, execution);
  }
#endif
  if (!cpu::is_described("transducer_band", 0, execution)) detail::transducer::band_cpu(problem);
  return {};
}

}  // namespace warpalign
