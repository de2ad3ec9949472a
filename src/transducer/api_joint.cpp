// The public functions of the transducer's joint: each checks the contract of the public header, then hands
// over to the device's path.
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "transducer/band.h"
#include "transducer/contract.h"
#include "transducer/problem.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;
using detail::few_enough;
using detail::transducer::loss_size;

// The problem of the logits, which are not in memory, for the checks of sizes and settings.
TransducerProblem logits_of(const TransducerJointProblem& p) {
  TransducerProblem logits;
  logits.dtype = p.dtype;
  logits.labels = p.labels;
  logits.lattice = p.lattice;
  return logits;
}

std::int64_t columns_of(const TransducerJointProblem& p) {
  return std::int64_t{p.labels} + (p.lattice.tdt ? p.lattice.durations : 0);
}

// Checks settings, and the sizes that determine workspace sizes.
Status check_sizes(const TransducerJointProblem& p) {
  constexpr std::int32_t kMostHidden = 1 << 24;
  if (Status s = detail::transducer::check_extents(logits_of(p)); !s.ok()) return s;
  if (Status s = detail::transducer::check_settings(p.lattice, p.labels); !s.ok()) return s;
  if (p.hidden < 1 || p.hidden > kMostHidden) {
    return Status::invalid("hidden", "1 to 2^24 hidden numbers", p.hidden);
  }
  const bool is_probability = p.dropout >= 0 && p.dropout < 1;  // false for NaN
  if (!is_probability) {
    return Status::invalid("dropout", "a probability of at least 0 and below 1", p.dropout);
  }
  if (p.workspace_limit < 0) {
    return Status::invalid("workspace_limit", "at least 0 bytes", static_cast<double>(p.workspace_limit));
  }
  const TransducerLattice& l = p.lattice;
  if (p.band && (p.band_states < 1 || p.band_states > l.states)) {
    return Status::invalid("band_states", "1 to U + 1 states", p.band_states);
  }
  if (Status s = check_aligned("band", p.band, sizeof(*p.band)); !s.ok()) return s;
  if (!few_enough({l.batch, l.frames, p.hidden}) || !few_enough({l.batch, l.states, p.hidden}) ||
      !few_enough({columns_of(p), p.hidden})) {
    return Status::invalid("hidden", "at most 2^48 numbers in encoder, predictor and weight", p.hidden);
  }
  return {};
}

Status check_rows(const char* name, const TransducerJointProblem& p, const StridedTensor& rows) {
  if (Status s = check_not_null(name, rows.data); !s.ok()) return s;
  if (Status s = detail::check_strides(name, rows); !s.ok()) return s;
  for (int axis = 0; axis < 2; ++axis) {
    if (rows.stride[axis] < 0) {
      return Status::invalid(name, "strides of at least 0", static_cast<double>(rows.stride[axis]));
    }
  }
  if (p.hidden > 1 && rows.stride[2] != 1) {
    return Status::invalid(name, "a last stride of 1", static_cast<double>(rows.stride[2]));
  }
  return check_aligned(name, rows.data, size_of(p.dtype));
}

Status check_problem(const TransducerJointProblem& p, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  if (Status s = check_sizes(p); !s.ok()) return s;
  if (p.activation != Activation::kRelu && p.activation != Activation::kTanh) {
    return Status::invalid("activation", "one of the values of Activation",
                           static_cast<double>(p.activation));
  }
  if (Status s = check_not_null("weight", p.weight); !s.ok()) return s;
  if (p.dropout > 0) {
    if (Status s = check_not_null("seed", p.seed); !s.ok()) return s;
    if (Status s = check_aligned("seed", p.seed, sizeof(*p.seed)); !s.ok()) return s;
  }
  if (Status s = check_aligned("weight", p.weight, size_of(p.dtype)); !s.ok()) return s;
  if (Status s = check_aligned("bias", p.bias, size_of(p.dtype)); !s.ok()) return s;
  if (p.lattice.batch == 0) return {};
  if (p.lattice.frames > 0) {
    if (Status s = check_rows("encoder", p, p.encoder); !s.ok()) return s;
    if (Status s = check_rows("predictor", p, p.predictor); !s.ok()) return s;
  }
  std::int64_t nodes = 0;
  return detail::transducer::check_lattice(p.lattice, p.labels, false, execution, &nodes);
}

#if !WARPALIGN_HAS_CUDA
using detail::kNoCudaPath;
#endif

}  // namespace

// Bytes; 0 for a problem that check_problem() refuses.
std::size_t transducer_joint_saved_bytes(const TransducerJointProblem& problem, const Execution& execution) {
  if (!check_sizes(problem).ok()) return 0;
  if (execution.device == Device::kHost) return detail::transducer::joint_saved_bytes_cpu(problem, execution);
#if WARPALIGN_HAS_CUDA
  return detail::transducer::joint_saved_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

std::size_t transducer_joint_most_saved_bytes(const TransducerJointProblem& problem, Device device) {
  if (!check_sizes(problem).ok()) return 0;
  TransducerProblem logits = logits_of(problem);
  if (device == Device::kCuda && detail::transducer::has_band_lattice(problem)) {
    logits.lattice.states = problem.band_states;
  }
  // The saved memory of several calls may be contiguous: sizes are multiples of the alignment.
  constexpr std::size_t kAlignment = workspace_alignment(Device::kCuda);
  return (transducer_most_saved_bytes(logits) + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t transducer_joint_workspace_bytes(const TransducerJointProblem& problem,
                                             const TransducerOutputs& outputs, const Execution& execution) {
  if (!check_sizes(problem).ok()) return 0;
  if (execution.device == Device::kHost)
    return detail::transducer::joint_workspace_bytes_cpu(problem, outputs, execution);
#if WARPALIGN_HAS_CUDA
  return detail::transducer::joint_workspace_bytes_cuda(problem, outputs, execution);
#else
  return 0;
#endif
}

Status transducer_joint(const TransducerJointProblem& problem, const TransducerOutputs& outputs,
                        Workspace workspace, const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (problem.lattice.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return kNoCudaPath;
#endif
  const std::size_t needed = transducer_joint_workspace_bytes(problem, outputs, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_not_null("loss", outputs.loss); !s.ok()) return s;
  const std::size_t size = loss_size(problem.dtype);
  const detail::WrittenMemory places[] = {
      {"loss", outputs.loss, problem.lattice.batch * size, size},
      {"saved", outputs.saved, transducer_joint_saved_bytes(problem, execution),
       workspace_alignment(execution.device)},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = detail::check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::joint_forward_cuda(problem, outputs, workspace, execution);
  }
#endif
  if (Status s = detail::check_way(execution, {}, "transducer_joint() on a CPU"); !s.ok()) return s;
  if (cpu::is_described("transducer_joint", needed, execution)) return {};
  return detail::transducer::joint_forward_cpu(problem, outputs, workspace, execution);
}

std::size_t transducer_joint_gradient_workspace_bytes(const TransducerJointProblem& problem,
                                                      const TransducerJointGradient& gradient,
                                                      const Execution& execution) {
  if (!check_sizes(problem).ok()) return 0;
  if (execution.device == Device::kHost)
    return detail::transducer::joint_gradient_workspace_bytes_cpu(problem, gradient, execution);
#if WARPALIGN_HAS_CUDA
  return detail::transducer::joint_gradient_workspace_bytes_cuda(problem, gradient, execution);
#else
  return 0;
#endif
}

Status transducer_joint_gradient(const TransducerJointProblem& problem,
                                 const TransducerJointGradient& gradient, Workspace workspace,
                                 const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return kNoCudaPath;
#endif
  const std::size_t needed = transducer_joint_gradient_workspace_bytes(problem, gradient, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const TransducerLattice& l = problem.lattice;
  if (l.batch > 0) {
    if (Status s = check_not_null("saved", gradient.saved); !s.ok()) return s;
    if (Status s = check_not_null("grad_loss", gradient.grad_loss); !s.ok()) return s;
  }
  if (Status s = check_aligned("saved", gradient.saved, workspace_alignment(execution.device)); !s.ok())
    return s;
  if (Status s = check_aligned("grad_loss", gradient.grad_loss, loss_size(problem.dtype)); !s.ok()) return s;
  const std::size_t size = size_of(problem.dtype), row = problem.hidden * size;
  const std::size_t utterances = l.batch, columns = columns_of(problem);
  const detail::WrittenMemory places[] = {
      {"grad_encoder", gradient.encoder, utterances * l.frames * row, size},
      {"grad_predictor", gradient.predictor, utterances * l.states * row, size},
      {"grad_weight", gradient.weight, columns * row, size},
      {"grad_bias", gradient.bias, columns * size, size},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = detail::check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::joint_gradient_cuda(problem, gradient, workspace, execution);
  }
#endif
  if (Status s = detail::check_way(execution, {}, "transducer_joint() on a CPU"); !s.ok()) return s;
  if (cpu::is_described("transducer_joint_gradient", needed, execution)) return {};
  return detail::transducer::joint_gradient_cpu(problem, gradient, workspace, execution);
}

}  // namespace warpalign
