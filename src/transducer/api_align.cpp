// transducer_align(): checks the contract of the public header, then hands over to the device's path.
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "transducer/contract.h"
#include "transducer/problem.h"
#include "warpalign/transducer_align.h"

namespace warpalign {
namespace {

// Checks every output, with its size.
Status check_outputs(const TransducerProblem& p, const TransducerAlignment& out, Workspace workspace,
                     std::size_t workspace_bytes) {
  const TransducerLattice& l = p.lattice;
  const std::size_t real = detail::transducer::loss_size(p.dtype), integer = sizeof(std::int32_t);
  const std::size_t batch = l.batch, frames = l.frames, states = l.states, groups = l.durations;
  const std::size_t rows = p.packed ? static_cast<std::size_t>(p.packed_rows) : batch * frames * states;
  const std::size_t labels = l.flat_targets ? static_cast<std::size_t>(l.target_count) : batch * (states - 1);
  const detail::WrittenMemory places[] = {
      {"score", out.score, batch * real, real},
      {"frames", out.frames, labels * integer, integer},
      {"durations", out.durations, labels * integer, integer},
      {"blanks", out.blanks, (p.packed ? rows : batch * frames) * integer, integer},
      {"blank_posteriors", out.blank_posteriors, rows * real, real},
      {"label_posteriors", out.label_posteriors, rows * real, real},
      {"big_blank_posteriors", out.big_blank_posteriors, groups * rows * real, real},
      {"duration_posteriors", out.duration_posteriors, groups * rows * real, real},
      {"workspace", workspace.data, workspace_bytes, 1},
  };
  if (Status s = detail::check_written(places); !s.ok()) return s;
  if (l.tdt && out.big_blank_posteriors) {
    return Status::invalid("big_blank_posteriors", "null for TDT, which has none", 0);
  }
  if (!l.tdt && out.duration_posteriors) {
    return Status::invalid("duration_posteriors", "null but for TDT", 0);
  }
  return {};
}

}  // namespace

std::size_t transducer_align_workspace_bytes(const TransducerProblem& problem,
                                             const TransducerAlignment& alignment,
                                             const Execution& execution) {
  if (!detail::transducer::check_extents(problem).ok() ||
      !detail::transducer::check_settings(problem.lattice, problem.labels).ok()) {
    return 0;
  }
  if (execution.device == Device::kHost) {
    return detail::transducer::align_workspace_bytes_cpu(problem, alignment, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transducer::align_workspace_bytes_cuda(problem, alignment, execution);
#else
  return 0;
#endif
}

Status transducer_align(const TransducerProblem& problem, const TransducerAlignment& alignment,
                        Workspace workspace, const Execution& execution) {
  if (Status s = detail::transducer::check_problem(problem, execution); !s.ok()) return s;
  if (problem.lattice.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  const std::size_t needed = transducer_align_workspace_bytes(problem, alignment, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_outputs(problem, alignment, workspace, needed); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::align_cuda(problem, alignment, workspace, execution);
  }
#endif
  if (Status s = detail::check_way(execution, {}, "transducer() on a CPU"); !s.ok()) return s;
  if (cpu::is_described("transducer_align", needed, execution)) return {};
  return detail::transducer::align_cpu(problem, alignment, workspace, execution);
}

}  // namespace warpalign
