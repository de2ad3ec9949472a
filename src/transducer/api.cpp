// The transducer's public functions: each checks the contract of the public header, then hands over to the
// device's path.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "transducer/arcs.h"
#include "transducer/problem.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;
using detail::few_enough;

// Sums of two extents, with what vectors overrun, fit into int32.
constexpr std::int32_t kLongest = 1 << 29;

std::size_t loss_size(DType dtype) { return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float); }

Status check_extent(const char* name, std::int64_t extent, std::int64_t smallest, const char* at_least,
                    const char* at_most) {
  if (extent < smallest) return Status::invalid(name, at_least, static_cast<double>(extent));
  if (extent > kLongest) return Status::invalid(name, at_most, static_cast<double>(extent));
  return {};
}

Status check_extents(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  if (size_of(p.dtype) == 0) {
    return Status::invalid("dtype", "one of the values of DType", static_cast<double>(p.dtype));
  }
  if (l.batch < 0) return Status::invalid("batch", "at least 0", l.batch);
  if (Status s = check_extent("frames", l.frames, 0, "at least 0 frames", "at most 2^29 frames"); !s.ok()) {
    return s;
  }
  if (Status s = check_extent("states", l.states, 1, "at least 1 state, U + 1", "at most 2^29 states, U + 1");
      !s.ok()) {
    return s;
  }
  if (Status s = check_extent("labels", p.labels, 1, "at least 1 column of logits",
                              "at most 2^29 columns of logits");
      !s.ok()) {
    return s;
  }
  if (p.packed && p.packed_rows < 0) {
    return Status::invalid("packed_rows", "at least 0", static_cast<double>(p.packed_rows));
  }
  const bool few =
      p.packed ? few_enough({p.packed_rows, p.labels}) : few_enough({l.batch, l.frames, l.states, p.labels});
  if (!few) return Status::invalid("labels", "at most 2^48 logits", p.labels);
  return {};
}

Status check_column(const char* name, const TransducerProblem& p, std::int32_t column) {
  if (column >= 0 && column < p.labels) return {};
  return Status::invalid(name, "a column of the logits", column);
}

// Whether a column is blank's or one of the first `count` big blanks'.
bool is_blank(const TransducerLattice& l, std::int32_t column, std::int32_t count) {
  bool found = column == l.blank;
  for (std::int32_t i = 0; i < count; ++i) found |= column == l.id[i];
  return found;
}

Status check_big_blanks(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  if (l.durations < 0 || l.durations > kTransducerBigBlanks) {
    return Status::invalid("big_blank_durations", "at most 8 big blanks", l.durations);
  }
  for (std::int32_t i = 0; i < l.durations; ++i) {
    if (l.duration[i] < 2 || l.duration[i] > kTransducerLongestArc) {
      return Status::invalid("big_blank_durations", "2 to 64 frames each", l.duration[i]);
    }
    if (Status s = check_column("big_blank_ids", p, l.id[i]); !s.ok()) return s;
    if (is_blank(l, l.id[i], i)) {
      return Status::invalid("big_blank_ids", "different columns, and not blank's", l.id[i]);
    }
  }
  return {};
}

Status check_durations(const TransducerLattice& l) {
  if (l.durations < 1 || l.durations > kTransducerDurations) {
    return Status::invalid("durations", "1 to 16 durations", l.durations);
  }
  bool advances = false;
  for (std::int32_t d = 0; d < l.durations; ++d) {
    if (l.duration[d] < 0 || l.duration[d] > kTransducerLongestArc) {
      return Status::invalid("durations", "0 to 64 frames each", l.duration[d]);
    }
    advances |= l.duration[d] > 0;
  }
  if (!advances) return Status::invalid("durations", "one duration at least above 0", 0);
  if (l.star >= 0) return Status::invalid("star_id", "none with durations", l.star);
  return {};
}

Status check_number(const char* name, double value, double smallest, const char* expected) {
  if (std::isfinite(value) && value >= smallest) return {};
  return Status::invalid(name, expected, value);
}

Status check_settings(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  constexpr double kAny = -1.7976931348623157e308;
  constexpr double kAboveZero = 4.9406564584124654e-324;
  if (Status s = check_column("blank", p, l.blank); !s.ok()) return s;
  if (Status s = l.tdt ? check_durations(l) : check_big_blanks(p); !s.ok()) return s;
  const struct {
    const char* name;
    double value;
    double smallest;
    const char* expected;
  } numbers[] = {
      {"sigma", l.sigma, kAny, "a finite number"},
      {"fastemit_lambda", l.fastemit, 0, "finite and at least 0"},
      {"delay_penalty", l.delay, kAny, "a finite number"},
      {"eos_penalty", l.eos_penalty, kAny, "a finite number"},
      {"star_penalty", l.star_penalty, kAboveZero, "finite and above 0"},
      {"clamp", l.clamp, 0, "finite and above 0, or 0 for none"},
  };
  for (const auto& number : numbers) {
    if (Status s = check_number(number.name, number.value, number.smallest, number.expected); !s.ok())
      return s;
  }
  if (l.eos < -1) return Status::invalid("eos_id", "a label, or -1 for none", l.eos);
  if (l.star < -1) return Status::invalid("star_id", "a label, or -1 for none", l.star);
  if (l.star >= 0 && (l.star == l.eos || is_blank(l, l.star, l.durations))) {
    return Status::invalid("star_id", "not eos_id and not a blank's column", l.star);
  }
  return {};
}

Status check_rows(const char* name, const TransducerProblem& p, const void* data,
                  const std::int64_t* stride) {
  if (Status s = check_not_null(name, data); !s.ok()) return s;
  for (int axis = p.packed ? 2 : 0; axis < 3; ++axis) {
    if (stride[axis] < 0)
      return Status::invalid(name, "strides of at least 0", static_cast<double>(stride[axis]));
  }
  return check_aligned(name, data, size_of(p.dtype));
}

// Where the lengths and labels are known on the host.
Status check_host_values(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  if (Status s =
          detail::check_lengths(l.logit_lengths, "logit_lengths", "0 to T frames", l.batch, 0, l.frames);
      !s.ok()) {
    return s;
  }
  if (Status s = detail::check_lengths(l.target_lengths, "target_lengths", "0 to U labels", l.batch, 0,
                                       l.states - 1);
      !s.ok()) {
    return s;
  }
  std::int64_t rows = 0, labels = 0;
  for (std::int32_t b = 0; b < l.batch; ++b) {
    const std::int64_t frames = l.logit_lengths ? l.logit_lengths[b] : l.frames;
    const std::int64_t count = l.target_lengths ? l.target_lengths[b] : l.states - 1;
    rows += frames * (count + 1);
    const std::int64_t first = l.flat_targets ? labels : b * l.target_stride;
    labels += count;
    if (l.flat_targets && labels > l.target_count) break;
    for (std::int64_t u = 0; u < count; ++u) {
      const std::int32_t label = l.targets[first + u];
      if (detail::transducer::label_is_valid(l, p.labels, label)) continue;
      return Status::invalid("targets", "columns of the logits that are no blank's", label, b);
    }
  }
  if (l.flat_targets && labels != l.target_count) {
    return Status::invalid("targets", "as many labels as target_lengths say",
                           static_cast<double>(l.target_count));
  }
  if (p.packed && rows != p.packed_rows) {
    return Status::invalid("logits", "sum of T_b (U_b + 1) packed rows, by both lengths",
                           static_cast<double>(p.packed_rows));
  }
  return {};
}

bool has_logits(const TransducerProblem& p) {
  return p.packed ? p.packed_rows > 0 : p.lattice.batch > 0 && p.lattice.frames > 0;
}

Status check_inputs(const TransducerProblem& p, const Execution& execution) {
  const TransducerLattice& l = p.lattice;
  if (has_logits(p)) {
    if (Status s = check_rows("logits", p, p.logits.data, p.logits.stride); !s.ok()) return s;
    if (p.labels > 1 && p.logits.stride[3] != 1) {
      return Status::invalid("logits", "a last stride of 1", static_cast<double>(p.logits.stride[3]));
    }
    if (l.tdt) {
      if (Status s = check_rows("duration_logits", p, p.duration_logits.data, p.duration_logits.stride);
          !s.ok()) {
        return s;
      }
      if (l.durations > 1 && p.duration_logits.stride[3] != 1) {
        return Status::invalid("duration_logits", "a last stride of 1",
                               static_cast<double>(p.duration_logits.stride[3]));
      }
    }
  }
  if (l.flat_targets ? l.target_count > 0 : l.states > 1) {
    if (Status s = check_not_null("targets", l.targets); !s.ok()) return s;
  }
  if (p.packed) {
    if (Status s = check_not_null("logit_lengths", l.logit_lengths); !s.ok()) return s;
    if (Status s = check_not_null("target_lengths", l.target_lengths); !s.ok()) return s;
  }
  const struct {
    const char* name;
    const void* data;
  } integers[] = {
      {"targets", l.targets}, {"logit_lengths", l.logit_lengths}, {"target_lengths", l.target_lengths}};
  for (const auto& vector : integers) {
    if (Status s = check_aligned(vector.name, vector.data, sizeof(std::int32_t)); !s.ok()) return s;
  }
  if (!l.flat_targets && l.target_stride < 0) {
    return Status::invalid("targets", "a stride of at least 0", static_cast<double>(l.target_stride));
  }
  return execution.device == Device::kHost ? check_host_values(p) : Status{};
}

Status check_problem(const TransducerProblem& p, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  if (Status s = check_extents(p); !s.ok()) return s;
  if (Status s = check_settings(p); !s.ok()) return s;
  return p.lattice.batch > 0 ? check_inputs(p, execution) : Status{};
}

// Rows that are written: no two of them may be the same memory.
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

// The sizes are of no use to a problem that check_problem() refuses: 0.
std::size_t transducer_saved_bytes(const TransducerProblem& problem, const Execution& execution) {
  if (!check_extents(problem).ok() || !check_settings(problem).ok()) return 0;
  if (execution.device == Device::kHost) return detail::transducer::saved_bytes_cpu(problem, execution);
#if WARPALIGN_HAS_CUDA
  return detail::transducer::saved_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

// A row has two numbers; a node has one for every arc, in tables that the CUDA path pads to whole strips of
// 32 columns and skews by 31 frames. An utterance has what is kept once.
std::size_t transducer_most_saved_bytes(const TransducerProblem& p) {
  if (!check_extents(p).ok() || !check_settings(p).ok()) return 0;
  const TransducerLattice& l = p.lattice;
  const std::int64_t b = l.batch, t = l.frames, s = l.states;
  const std::int64_t arcs = detail::transducer::slots_of(l);
  const std::int64_t rows = p.packed ? p.packed_rows : b * t * s;
  const std::int64_t nodes = p.packed ? rows + 32 * (std::min(rows, b * s) + std::min(rows, b * t)) + 1024 * b
                                      : b * (t + 32) * ((s + 31) / 32 * 32);
  return static_cast<std::size_t>(arcs * nodes + 2 * rows + 256 * b) * loss_size(p.dtype);
}

std::size_t transducer_workspace_bytes(const TransducerProblem& problem, const TransducerOutputs& outputs,
                                       const Execution& execution) {
  if (!check_extents(problem).ok() || !check_settings(problem).ok()) return 0;
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
  return detail::transducer::forward_cpu(problem, outputs, workspace, execution);
}

std::size_t transducer_gradient_workspace_bytes(const TransducerProblem& problem,
                                                const TransducerGradient& gradient,
                                                const Execution& execution) {
  if (!check_extents(problem).ok() || !check_settings(problem).ok()) return 0;
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
  return detail::transducer::gradient_cpu(problem, gradient, workspace, execution);
}

}  // namespace warpalign
