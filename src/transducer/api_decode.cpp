// The public functions of decoding: each checks the contract of warpalign/transducer_decode.h, then hands
// over to the device's path.
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/contract.h"
#include "cpu/describe.h"
#include "transducer/contract.h"
#include "transducer/decode.h"
#include "transducer/walk.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;

// The most frames: their number plus the frames that an arc consumes fits into int32.
constexpr std::int32_t kLongest = 1 << 29;
constexpr const char* kLengthsExpected = "between 0 and T";

std::size_t real_size(DType dtype) { return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float); }

Status check_range(const char* name, std::int64_t value, std::int64_t smallest, std::int64_t largest,
                   const char* expected) {
  if (value >= smallest && value <= largest) return {};
  return Status::invalid(name, expected, static_cast<double>(value));
}

// The first violation.
Status first_of(std::initializer_list<Status> all) {
  for (const Status& status : all) {
    if (!status.ok()) return status;
  }
  return {};
}

Status check_batch(DType dtype, std::int32_t batch, std::int32_t frames, std::int32_t window,
                   const std::int32_t* lengths, const Execution& execution) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    return Status::invalid("dtype", "kFloat32 or kFloat64", static_cast<double>(dtype));
  }
  if (Status s = first_of({check_range("batch", batch, 0, kLongest, "0 to 2^29 utterances"),
                           check_range("frames", frames, 0, kLongest, "0 to 2^29 frames"),
                           check_range("window", window, 1, kLongest, "1 to 2^29 frames"),
                           detail::check_execution(execution)});
      !s.ok()) {
    return s;
  }
  if (execution.device != Device::kHost) return {};
  return detail::check_lengths(lengths, "lengths", kLengthsExpected, batch, 0, frames);
}

Status check_joint(const TransducerJoint& joint, DType dtype) {
  if (joint.activation != Activation::kRelu && joint.activation != Activation::kTanh) {
    return Status::invalid("activation", "one of the values of Activation",
                           static_cast<double>(joint.activation));
  }
  const std::size_t size = real_size(dtype);
  if (Status s = first_of(
          {check_range("hidden", joint.hidden, 1, kLongest, "1 to 2^29 numbers"),
           check_not_null("encoder", joint.encoder.data), check_aligned("encoder", joint.encoder.data, size),
           check_not_null("predictor", joint.predictor), check_aligned("predictor", joint.predictor, size),
           check_not_null("weight", joint.weight), check_aligned("weight", joint.weight, size),
           check_aligned("bias", joint.bias, size)});
      !s.ok()) {
    return s;
  }
  if (Status s = detail::check_strides("encoder", joint.encoder); !s.ok()) return s;
  if (joint.hidden > 1 && joint.encoder.stride[2] != 1) {
    return Status::invalid("encoder", "a last stride of 1", static_cast<double>(joint.encoder.stride[2]));
  }
  return {};
}

Status check_column(const char* name, const TransducerDecoding& d, std::int32_t column) {
  return check_range(name, column, 0, d.labels - 1, "a column of the scores");
}

Status check_decoding(const TransducerDecoding& d) {
  if (Status s = first_of({check_range("labels", d.labels, 1, kLongest, "1 to 2^29 columns"),
                           check_column("blank", d, d.blank),
                           check_range("max_symbols", d.max_symbols, 1, kLongest, "1 to 2^29 labels")});
      !s.ok()) {
    return s;
  }
  if (d.tdt) {
    bool advances = false;
    if (Status s = check_range("durations", d.durations, 1, kTransducerDurations, "1 to 16 durations");
        !s.ok()) {
      return s;
    }
    for (std::int32_t i = 0; i < d.durations; ++i) {
      if (Status s = check_range("durations", d.duration[i], 0, kTransducerLongestArc, "0 to 64 frames each");
          !s.ok()) {
        return s;
      }
      advances |= d.duration[i] > 0;
    }
    if (!advances) return Status::invalid("durations", "one duration at least above 0", 0);
    return detail::transducer::check_different(d.duration, d.durations);
  }
  if (Status s = check_range("big_blanks", d.durations, 0, kTransducerBigBlanks, "at most 8 big blanks");
      !s.ok()) {
    return s;
  }
  for (std::int32_t i = 0; i < d.durations; ++i) {
    if (Status s = first_of(
            {check_range("big_blanks", d.duration[i], 2, kTransducerLongestArc, "2 to 64 frames each"),
             check_column("big_blanks", d, d.big_blank_column[i])});
        !s.ok()) {
      return s;
    }
    bool taken = d.big_blank_column[i] == d.blank;
    for (std::int32_t j = 0; j < i; ++j) taken |= d.big_blank_column[i] == d.big_blank_column[j];
    if (taken)
      return Status::invalid("big_blanks", "different columns, and not blank's", d.big_blank_column[i]);
  }
  return {};
}

Status check_scores(const TransducerScores& p, const Execution& execution) {
  if (Status s = first_of({check_batch(p.dtype, p.batch, p.frames, p.window, p.lengths, execution),
                           check_range("beams", p.beams, 1, kLongest, "1 to 2^29 hypotheses"),
                           check_range("columns", p.columns, 1, kLongest, "1 to 2^29 columns")});
      !s.ok()) {
    return s;
  }
  if (!detail::few_enough({p.batch, p.beams, p.window, p.columns})) {
    return Status::invalid("columns", "at most 2^48 scores", p.columns);
  }
  if (p.batch == 0) return {};
  // An encoder without frames has no memory.
  if (p.frames > 0) {
    if (Status s = check_joint(p.joint, p.dtype); !s.ok()) return s;
  }
  return first_of({check_not_null("frame", p.frame), check_aligned("frame", p.frame, sizeof(std::int32_t)),
                   check_not_null("scores", p.scores),
                   check_aligned("scores", p.scores, real_size(p.dtype))});
}

Status check_greedy(const TransducerGreedyStep& p, const Execution& execution) {
  if (Status s = first_of({check_batch(p.dtype, p.batch, p.frames, p.window, p.lengths, execution),
                           check_decoding(p.decoding)});
      !s.ok()) {
    return s;
  }
  if (!detail::few_enough({p.batch, p.window, detail::transducer::columns_of(p.decoding)})) {
    return Status::invalid("window", "at most 2^48 scores", p.window);
  }
  if (p.batch == 0) return {};
  if (!p.scores && p.frames > 0) {
    if (Status s = check_joint(p.joint, p.dtype); !s.ok()) return s;
  }
  constexpr std::size_t kWalk = alignof(TransducerWalk), kSum = alignof(double);
  if (Status s = first_of(
          {check_aligned("scores", p.scores, real_size(p.dtype)), check_not_null("walk", p.walk),
           check_aligned("walk", p.walk, kWalk), check_not_null("log_prob", p.log_prob),
           check_aligned("log_prob", p.log_prob, kSum), check_not_null("next_walk", p.next_walk),
           check_aligned("next_walk", p.next_walk, kWalk), check_not_null("next_log_prob", p.next_log_prob),
           check_aligned("next_log_prob", p.next_log_prob, kSum),
           check_aligned("token", p.token, alignof(std::int64_t))});
      !s.ok()) {
    return s;
  }
  for (std::int32_t b = 0; execution.device == Device::kHost && b < p.batch; ++b) {
    const TransducerWalk& walk = p.walk[b];
    if (walk.frame < 0 || walk.frame > kLongest) {
      return Status::invalid("walk", "frames from 0 to 2^29", walk.frame, b);
    }
  }
  return {};
}

Status check_beam(const TransducerBeamStep& p, const Execution& execution) {
  constexpr const char* kBeams = "an even number from 2 to 32";
  if (Status s = first_of({check_batch(p.dtype, p.batch, p.frames, 1, p.lengths, execution),
                           check_range("beams", p.beams, 2, kTransducerMostBeams, kBeams),
                           check_range("capacity", p.capacity, p.beams, kLongest, "2 K to 2^29 nodes"),
                           check_decoding(p.decoding)});
      !s.ok()) {
    return s;
  }
  if (p.beams % 2 != 0) return Status::invalid("beams", kBeams, p.beams);
  if (p.batch == 0) return {};
  const std::size_t real = real_size(p.dtype);
  const struct {
    const char* name;
    const void* data;
    std::size_t alignment;
  } pointers[] = {
      {"scores", p.scores, real},
      {"hypothesis", p.hypothesis, alignof(TransducerHypothesis)},
      {"log_prob", p.log_prob, alignof(double)},
      {"hash", p.hash, alignof(std::uint64_t)},
      {"nodes", p.nodes, alignof(TransducerNode)},
      {"used", p.used, alignof(std::int32_t)},
      {"next_hypothesis", p.next_hypothesis, alignof(TransducerHypothesis)},
      {"next_log_prob", p.next_log_prob, alignof(double)},
      {"next_hash", p.next_hash, alignof(std::uint64_t)},
      {"source", p.source, alignof(std::int32_t)},
      {"label", p.label, alignof(std::int32_t)},
      {"expand", p.expand, alignof(std::int32_t)},
  };
  for (const auto& [name, data, alignment] : pointers) {
    if (Status s = first_of({check_not_null(name, data), check_aligned(name, data, alignment)}); !s.ok())
      return s;
  }
  if (Status s = check_aligned("label_scores", p.label_scores, real); !s.ok()) return s;
  for (std::int32_t b = 0; execution.device == Device::kHost && b < p.batch; ++b) {
    if (p.used[b] < 0 || p.used[b] > p.capacity - p.beams) {
      return Status::invalid("used", "room for 2 K more nodes in the capacity", p.used[b], b);
    }
    for (std::int32_t k = 0; k < p.beams; ++k) {
      const TransducerHypothesis& h = p.hypothesis[std::int64_t{b} * p.beams + k];
      if (h.frame < 0 || h.frame > kLongest) {
        return Status::invalid("hypothesis", "frames from 0 to 2^29", h.frame, b);
      }
      if (h.node < -1 || h.node >= p.used[b]) {
        return Status::invalid("hypothesis", "nodes from -1 to used - 1", h.node, b);
      }
    }
  }
  return {};
}

}  // namespace

std::size_t transducer_scores_workspace_bytes(const TransducerScores& problem, const Execution& execution) {
  if (!check_scores(problem, execution).ok() || problem.batch == 0) return 0;
  if (execution.device == Device::kHost) {
    return detail::transducer::scores_workspace_bytes_cpu(problem, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transducer::scores_workspace_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

Status transducer_scores(const TransducerScores& problem, Workspace workspace, const Execution& execution) {
  if (Status s = check_scores(problem, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  const std::size_t needed = transducer_scores_workspace_bytes(problem, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::scores_cuda(problem, workspace, execution);
  }
#endif
  if (cpu::is_described("transducer_scores", needed, execution)) return {};
  return detail::transducer::scores_cpu(problem, workspace, execution);
}

std::size_t transducer_greedy_step_workspace_bytes(const TransducerGreedyStep& problem,
                                                   const Execution& execution) {
  if (!check_greedy(problem, execution).ok() || problem.batch == 0) return 0;
  if (execution.device == Device::kHost) {
    return detail::transducer::greedy_step_workspace_bytes_cpu(problem, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transducer::greedy_step_workspace_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

Status transducer_greedy_step(const TransducerGreedyStep& problem, Workspace workspace,
                              const Execution& execution) {
  if (Status s = check_greedy(problem, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  const std::size_t needed = transducer_greedy_step_workspace_bytes(problem, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::greedy_step_cuda(problem, workspace, execution);
  }
#endif
  if (cpu::is_described("transducer_greedy_step", needed, execution)) return {};
  return detail::transducer::greedy_step_cpu(problem, workspace, execution);
}

std::size_t transducer_beam_step_workspace_bytes(const TransducerBeamStep& problem,
                                                 const Execution& execution) {
  if (!check_beam(problem, execution).ok() || problem.batch == 0) return 0;
  if (execution.device == Device::kHost) {
    return detail::transducer::beam_step_workspace_bytes_cpu(problem, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transducer::beam_step_workspace_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

Status transducer_beam_step(const TransducerBeamStep& problem, Workspace workspace,
                            const Execution& execution) {
  if (Status s = check_beam(problem, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return detail::kNoCudaPath;
#endif
  const std::size_t needed = transducer_beam_step_workspace_bytes(problem, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transducer::beam_step_cuda(problem, workspace, execution);
  }
#endif
  if (cpu::is_described("transducer_beam_step", needed, execution)) return {};
  return detail::transducer::beam_step_cpu(problem, workspace, execution);
}

}  // namespace warpalign
