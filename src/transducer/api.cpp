// The transducer's public functions: each checks the contract of the public header, then hands over to the
// device's path.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "transducer/arcs.h"
#include "transducer/contract.h"
#include "transducer/problem.h"
#include "warpalign/plan.h"
#include "warpalign/saved_bytes.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;
using detail::transducer::check_extents;
using detail::transducer::check_problem;
using detail::transducer::check_rows;
using detail::transducer::check_settings;
using detail::transducer::has_logits;
using detail::transducer::loss_size;

// Checks rows that are written: no two of them may share memory.
Status check_written_rows(const char* name, const TransducerProblem& p, const void* out,
                          const std::int64_t* stride, const StridedTensorOf<4>& logits,
                          std::int32_t columns) {
  if (Status s = check_rows(name, p, out, stride); !s.ok()) return s;
  const std::int64_t extents[] = {p.lattice.batch, p.lattice.frames,
                                  p.packed ? p.packed_rows : std::int64_t{p.lattice.states}};
  for (int axis = p.packed ? 2 : 0; axis < 3; ++axis) {
    if (extents[axis] > 1 && stride[axis] < columns) {
      return Status::invalid(name, "strides that keep rows apart", static_cast<double>(stride[axis]));
    }
    if (out == logits.data && extents[axis] > 1 && stride[axis] != logits.stride[axis]) {
      return Status::invalid(name, "the strides of the logits, in their memory",
                             static_cast<double>(stride[axis]));
    }
  }
  return {};
}

#if !WARPALIGN_HAS_CUDA
using detail::kNoCudaPath;
#endif

}  // namespace

// Bytes; 0 for a problem that check_problem() refuses.
std::size_t transducer_saved_bytes(const TransducerProblem& problem, const Execution& execution) {
  if (!check_extents(problem).ok() || !check_settings(problem.lattice, problem.labels).ok()) return 0;
  if (execution.device == Device::kHost) return detail::transducer::saved_bytes_cpu(problem, execution);
#if WARPALIGN_HAS_CUDA
  return detail::transducer::saved_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

// A row has two numbers; a node has one for every arc, in tables that the CUDA path pads to whole strips of
// 32 columns and skews by 31 frames. An utterance has a constant number. The expression is computed here, and
// its text is transducer_saved_formula().
#define WARPALIGN_PADDED ((arcs * (b * (t + 32) * ((s + 31) / 32 * 32)) + 2 * rows + 256 * b) * size)
#define WARPALIGN_PACKED \
  ((arcs * (rows + 32 * (least(rows, b * s) + least(rows, b * t)) + 1024 * b) + 2 * rows + 256 * b) * size)
#define WARPALIGN_TEXT(expression) #expression
#define WARPALIGN_TEXT_OF(expression) WARPALIGN_TEXT(expression)

std::size_t transducer_most_saved_bytes(const TransducerProblem& p) {
  if (!check_extents(p).ok() || !check_settings(p.lattice, p.labels).ok()) return 0;
  const std::int64_t b = p.lattice.batch, t = p.lattice.frames, s = p.lattice.states;
  const std::int64_t arcs = transducer_arcs(p.lattice), rows = p.packed ? p.packed_rows : b * t * s;
  const auto size = static_cast<std::int64_t>(loss_size(p.dtype));
  const auto least = [](std::int64_t one, std::int64_t other) { return std::min(one, other); };
  return static_cast<std::size_t>(p.packed ? WARPALIGN_PACKED : WARPALIGN_PADDED);
}

const char* transducer_saved_formula(bool packed) {
  return packed ? WARPALIGN_TEXT_OF(WARPALIGN_PACKED) : WARPALIGN_TEXT_OF(WARPALIGN_PADDED);
}

#undef WARPALIGN_PADDED
#undef WARPALIGN_PACKED
#undef WARPALIGN_TEXT
#undef WARPALIGN_TEXT_OF

int transducer_arcs(const TransducerLattice& lattice) { return detail::transducer::slots_of(lattice); }

std::size_t transducer_workspace_bytes(const TransducerProblem& problem, const TransducerOutputs& outputs,
                                       const Execution& execution) {
  if (!check_extents(problem).ok() || !check_settings(problem.lattice, problem.labels).ok()) return 0;
  if (execution.device == Device::kHost) {
    return detail::transducer::workspace_bytes_cpu(problem, outputs, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transducer::workspace_bytes_cuda(problem, outputs, execution);
#else
  return 0;
#endif
}

Status transducer(const TransducerProblem& problem, const TransducerOutputs& outputs, Workspace workspace,
                  const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (problem.lattice.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return kNoCudaPath;
#endif
  const std::size_t needed = transducer_workspace_bytes(problem, outputs, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_not_null("loss", outputs.loss); !s.ok()) return s;
  const std::size_t size = loss_size(problem.dtype);
  const detail::WrittenMemory places[] = {
      {"loss", outputs.loss, problem.lattice.batch * size, size},
      {"saved", outputs.saved, transducer_saved_bytes(problem, execution),
       workspace_alignment(execution.device)},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = detail::check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::forward_cuda(problem, outputs, workspace, execution);
  }
#endif
  if (Status s = detail::check_way(execution, {}, "transducer() on a CPU"); !s.ok()) return s;
  if (cpu::is_described("transducer", needed, execution)) return {};
  return detail::transducer::forward_cpu(problem, outputs, workspace, execution);
}

std::size_t transducer_gradient_workspace_bytes(const TransducerProblem& problem,
                                                const TransducerGradient& gradient,
                                                const Execution& execution) {
  if (!check_extents(problem).ok() || !check_settings(problem.lattice, problem.labels).ok()) return 0;
  if (execution.device == Device::kHost) {
    return detail::transducer::gradient_workspace_bytes_cpu(problem, gradient, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transducer::gradient_workspace_bytes_cuda(problem, gradient, execution);
#else
  return 0;
#endif
}

Status transducer_gradient(const TransducerProblem& problem, const TransducerGradient& gradient,
                           Workspace workspace, const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (problem.lattice.batch == 0 || !has_logits(problem)) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return kNoCudaPath;
#endif
  const std::size_t needed = transducer_gradient_workspace_bytes(problem, gradient, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_not_null("saved", gradient.saved); !s.ok()) return s;
  if (Status s = check_aligned("saved", gradient.saved, workspace_alignment(execution.device)); !s.ok())
    return s;
  if (Status s = check_not_null("grad_loss", gradient.grad_loss); !s.ok()) return s;
  if (Status s = check_aligned("grad_loss", gradient.grad_loss, loss_size(problem.dtype)); !s.ok()) return s;
  if (Status s = check_written_rows("grad_logits", problem, gradient.logits, gradient.logits_stride,
                                    problem.logits, problem.labels);
      !s.ok()) {
    return s;
  }
  if (problem.lattice.tdt) {
    if (Status s = check_written_rows("grad_duration_logits", problem, gradient.duration_logits,
                                      gradient.duration_logits_stride, problem.duration_logits,
                                      problem.lattice.durations);
        !s.ok()) {
      return s;
    }
  }
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::gradient_cuda(problem, gradient, workspace, execution);
  }
#endif
  if (Status s = detail::check_way(execution, {}, "transducer() on a CPU"); !s.ok()) return s;
  if (cpu::is_described("transducer_gradient", needed, execution)) return {};
  return detail::transducer::gradient_cpu(problem, gradient, workspace, execution);
}

const char* transducer_way([[maybe_unused]] Device device, [[maybe_unused]] int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::transducer::way_cuda(index);
#endif
  return nullptr;
}

const char* transducer_joint_way([[maybe_unused]] Device device, [[maybe_unused]] int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::transducer::joint_way_cuda(index);
#endif
  return nullptr;
}

bool transducer_kernel_launches([[maybe_unused]] int index, [[maybe_unused]] KernelLaunches* out) {
#if WARPALIGN_HAS_CUDA
  return detail::transducer::kernel_launches_cuda(index, *out);
#else
  return false;
#endif
}

}  // namespace warpalign
