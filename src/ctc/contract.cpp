#include "ctc/contract.h"

#include <cmath>

#include "core/contract.h"

namespace warpalign::detail::ctc {
namespace {

// The largest extent: twice its value, plus the elements that vectors read past it, fits into int32.
constexpr std::int32_t kLongest = 1 << 29;

Status check_extent(const char* name, std::int32_t extent, std::int32_t smallest, const char* expected) {
  if (extent >= smallest && extent <= kLongest) return {};
  return Status::invalid(name, expected, extent);
}

Status check_integers(const char* name, const Integers& integers) {
  if (size_of(integers.type) == 0) {
    return Status::invalid(name, "one of the values of IntegerType", static_cast<double>(integers.type));
  }
  return check_aligned(name, integers.data, size_of(integers.type));
}

Status check_host_lengths(const char* name, const char* expected, const Integers& lengths, std::int32_t batch,
                          std::int32_t largest) {
  for (std::int32_t b = 0; lengths.data && b < batch; ++b) {
    if (lengths[b] < 0 || lengths[b] > largest) {
      return Status::invalid(name, expected, static_cast<double>(lengths[b]), b);
    }
  }
  return {};
}

bool is_label(const CtcProblem& p, std::int64_t label) {
  return label != p.blank && ((label >= 0 && label < p.classes) || (p.star >= 0 && label == p.star));
}

// Checks values in host memory: lengths, labels and priors.
Status check_host_values(const CtcProblem& p) {
  if (Status s = check_host_lengths("logit_lengths", "0 to T frames", p.logit_lengths, p.batch, p.frames);
      !s.ok()) {
    return s;
  }
  if (Status s = check_host_lengths("target_lengths", "0 to U labels", p.target_lengths, p.batch, p.labels);
      !s.ok()) {
    return s;
  }
  const std::int64_t stride = p.target_stride < 0 ? p.labels : p.target_stride;
  std::int64_t before = 0;
  for (std::int32_t b = 0; b < p.batch; ++b) {
    const std::int64_t count = p.target_lengths.data ? p.target_lengths[b] : p.labels;
    const std::int64_t first = p.flat_targets ? before : b * stride;
    before += count;
    if (p.flat_targets && before > p.target_count) break;
    for (std::int64_t u = 0; u < count; ++u) {
      const std::int64_t label = p.targets[first + u];
      if (is_label(p, label)) continue;
      return Status::invalid("targets", "classes of the logits but blank", static_cast<double>(label), b);
    }
  }
  if (p.flat_targets && before != p.target_count) {
    return Status::invalid("targets", "as many labels as target_lengths say",
                           static_cast<double>(p.target_count));
  }
  for (std::int32_t c = 0; p.prior && c < p.classes; ++c) {
    const double prior = p.dtype == DType::kFloat64 ? static_cast<const double*>(p.prior)[c]
                                                    : static_cast<const float*>(p.prior)[c];
    if (!std::isfinite(prior)) return Status::invalid("label_prior", "finite numbers", prior, c);
  }
  return {};
}

Status check_pointers(const CtcProblem& p, Logits logits) {
  if (p.frames > 0 && logits == Logits::kOfProblem) {
    if (Status s = check_tensor("logits", p.logits.data, p.logits.stride, p.dtype); !s.ok()) return s;
  }
  if (p.flat_targets ? p.target_count > 0 : p.labels > 0) {
    if (Status s = check_not_null("targets", p.targets.data); !s.ok()) return s;
  }
  if (p.flat_targets) {
    if (Status s = check_not_null("target_lengths", p.target_lengths.data); !s.ok()) return s;
    if (p.target_count < 0) {
      return Status::invalid("targets", "at least 0 labels", static_cast<double>(p.target_count));
    }
  } else if (p.target_stride < -1) {
    return Status::invalid("targets", "a stride of at least 0, or -1 for contiguous ones",
                           static_cast<double>(p.target_stride));
  }
  if (Status s = check_integers("targets", p.targets); !s.ok()) return s;
  if (Status s = check_integers("logit_lengths", p.logit_lengths); !s.ok()) return s;
  if (Status s = check_integers("target_lengths", p.target_lengths); !s.ok()) return s;
  return check_aligned("label_prior", p.prior, real_size(p.dtype));
}

}  // namespace

std::size_t real_size(DType dtype) { return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float); }

Status check_extents(const CtcProblem& p) {
  if (size_of(p.dtype) == 0) {
    return Status::invalid("dtype", "one of the values of DType", static_cast<double>(p.dtype));
  }
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (Status s = check_extent("frames", p.frames, 0, "0 to 2^29 frames"); !s.ok()) return s;
  if (Status s = check_extent("classes", p.classes, 1, "1 to 2^29 classes"); !s.ok()) return s;
  if (Status s = check_extent("labels", p.labels, 0, "0 to 2^29 labels"); !s.ok()) return s;
  if (!few_enough({p.batch, p.frames, p.classes})) {
    return Status::invalid("classes", "at most 2^48 logits", p.classes);
  }
  if (!few_enough({p.batch, p.frames, p.labels + 1})) {
    return Status::invalid("labels", "at most 2^48 pairs of a frame and a label", p.labels);
  }
  return {};
}

Status check_extents(const MonotonicAlignmentProblem& p) {
  if (size_of(p.dtype) == 0) {
    return Status::invalid("dtype", "one of the values of DType", static_cast<double>(p.dtype));
  }
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (Status s = check_extent("positions", p.positions, 0, "0 to 2^29 positions"); !s.ok()) return s;
  if (Status s = check_extent("frames", p.frames, 0, "0 to 2^29 frames"); !s.ok()) return s;
  if (!few_enough({p.batch, p.positions, p.frames})) {
    return Status::invalid("frames", "at most 2^48 scores", p.frames);
  }
  return {};
}

Status check_tensor(const char* name, const void* data, const std::int64_t (&stride)[3], DType dtype) {
  if (Status s = check_not_null(name, data); !s.ok()) return s;
  for (const std::int64_t step : stride) {
    if (step < 0) return Status::invalid(name, "strides of at least 0", static_cast<double>(step));
  }
  return check_aligned(name, data, size_of(dtype));
}

Status check_problem(const CtcProblem& p, const Execution& execution, Logits logits) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (Status s = check_extents(p); !s.ok()) return s;
  if (p.blank < 0 || p.blank >= p.classes) return Status::invalid("blank", "a class of the logits", p.blank);
  if (p.star < -1) return Status::invalid("star", "a label, or -1 for none", p.star);
  if (p.star == p.blank) return Status::invalid("star", "a label but blank", p.star);
  if (p.batch == 0) return {};
  if (Status s = check_pointers(p, logits); !s.ok()) return s;
  return execution.device == Device::kHost ? check_host_values(p) : Status{};
}

Status check_problem(const MonotonicAlignmentProblem& p, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (Status s = check_extents(p); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (p.positions > 0 && p.frames > 0) {
    if (Status s = check_tensor("scores", p.scores.data, p.scores.stride, p.dtype); !s.ok()) return s;
  }
  if (Status s = check_integers("text_lengths", p.text_lengths); !s.ok()) return s;
  if (Status s = check_integers("frame_lengths", p.frame_lengths); !s.ok()) return s;
  if (execution.device != Device::kHost) return {};
  if (Status s = check_host_lengths("text_lengths", "0 to S positions", p.text_lengths, p.batch, p.positions);
      !s.ok()) {
    return s;
  }
  return check_host_lengths("frame_lengths", "0 to T frames", p.frame_lengths, p.batch, p.frames);
}

}  // namespace warpalign::detail::ctc
