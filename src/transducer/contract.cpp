#include "transducer/contract.h"

#include <algorithm>
#include <cmath>

#include "core/contract.h"
#include "transducer/arcs.h"

namespace warpalign::detail::transducer {
namespace {

// The largest extent: the sum of two extents, plus the elements that vectors read past them, fits into int32.
constexpr std::int32_t kLongest = 1 << 29;

Status check_extent(const char* name, std::int64_t extent, std::int64_t smallest, const char* at_least,
                    const char* at_most) {
  if (extent < smallest) return Status::invalid(name, at_least, static_cast<double>(extent));
  if (extent > kLongest) return Status::invalid(name, at_most, static_cast<double>(extent));
  return {};
}

Status check_column(const char* name, std::int32_t columns, std::int32_t column) {
  if (column >= 0 && column < columns) return {};
  return Status::invalid(name, "a column of the logits", column);
}

// Whether a column is that of blank or of one of the first `count` big blanks.
bool is_blank(const TransducerLattice& l, std::int32_t column, std::int32_t count) {
  bool matches = column == l.blank;
  for (std::int32_t i = 0; i < count; ++i) matches |= column == l.big_blank_column[i];
  return matches;
}

Status check_big_blanks(const TransducerLattice& l, std::int32_t columns) {
  if (l.durations < 0 || l.durations > kTransducerBigBlanks) {
    return Status::invalid("big_blanks", "at most 8 big blanks", l.durations);
  }
  for (std::int32_t i = 0; i < l.durations; ++i) {
    if (l.duration[i] < 2 || l.duration[i] > kTransducerLongestArc) {
      return Status::invalid("big_blanks", "2 to 64 frames each", l.duration[i]);
    }
    if (Status s = check_column("big_blanks", columns, l.big_blank_column[i]); !s.ok()) return s;
    if (is_blank(l, l.big_blank_column[i], i)) {
      return Status::invalid("big_blanks", "different columns, and not blank's", l.big_blank_column[i]);
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
  if (Status s = check_different(l.duration, l.durations); !s.ok()) return s;
  if (l.star >= 0) return Status::invalid("star_id", "none with durations", l.star);
  return {};
}

Status check_number(const char* name, double value, double smallest, const char* expected) {
  if (std::isfinite(value) && value >= smallest) return {};
  return Status::invalid(name, expected, value);
}

// Checks the values of lengths and labels in host memory. *rows is set to the sum of T_b (U_b + 1).
Status check_host_values(const TransducerLattice& l, std::int32_t columns, std::int64_t* rows) {
  if (Status s = check_lengths(l.logit_lengths, "logit_lengths", "0 to T frames", l.batch, 0, l.frames);
      !s.ok()) {
    return s;
  }
  if (Status s = check_lengths(l.target_lengths, "target_lengths", "0 to U labels", l.batch, 0, l.states - 1);
      !s.ok()) {
    return s;
  }
  std::int64_t labels = 0;
  *rows = 0;
  for (std::int32_t b = 0; b < l.batch; ++b) {
    const std::int64_t frames = l.logit_lengths ? l.logit_lengths[b] : l.frames;
    const std::int64_t count = l.target_lengths ? l.target_lengths[b] : l.states - 1;
    *rows += frames * (count + 1);
    const std::int64_t first = l.flat_targets ? labels : first_target(l, b);
    labels += count;
    if (l.flat_targets && labels > l.target_count) break;
    for (std::int64_t u = 0; u < count; ++u) {
      const std::int32_t label = l.targets[first + u];
      if (label_is_valid(l, columns, label)) continue;
      return Status::invalid("targets", "columns of the logits that are no blank's", label, b);
    }
  }
  if (l.flat_targets && labels != l.target_count) {
    return Status::invalid("targets", "as many labels as target_lengths say",
                           static_cast<double>(l.target_count));
  }
  return {};
}

}  // namespace

Status check_different(const std::int32_t* durations, std::int32_t count) {
  for (std::int32_t d = 1; d < count; ++d) {
    if (std::find(durations, durations + d, durations[d]) == durations + d) continue;
    return Status::invalid("durations", "different durations", durations[d]);
  }
  return {};
}

std::size_t loss_size(DType dtype) { return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float); }

Status check_lattice_extents(const TransducerLattice& l) {
  if (l.batch < 0) return Status::invalid("batch", "at least 0", l.batch);
  if (Status s = check_extent("frames", l.frames, 0, "at least 0 frames", "at most 2^29 frames"); !s.ok()) {
    return s;
  }
  return check_extent("states", l.states, 1, "at least 1 state, U + 1", "at most 2^29 states, U + 1");
}

Status check_extents(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  if (size_of(p.dtype) == 0) {
    return Status::invalid("dtype", "one of the values of DType", static_cast<double>(p.dtype));
  }
  if (Status s = check_lattice_extents(l); !s.ok()) return s;
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

Status check_settings(const TransducerLattice& l, std::int32_t columns) {
  constexpr double kAny = -1.7976931348623157e308;
  constexpr double kAboveZero = 4.9406564584124654e-324;
  if (Status s = check_column("blank", columns, l.blank); !s.ok()) return s;
  if (Status s = l.tdt ? check_durations(l) : check_big_blanks(l, columns); !s.ok()) return s;
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

Status check_lattice(const TransducerLattice& l, std::int32_t columns, bool needs_lengths,
                     const Execution& execution, std::int64_t* rows) {
  if (l.flat_targets ? l.target_count > 0 : l.states > 1) {
    if (Status s = check_not_null("targets", l.targets); !s.ok()) return s;
  }
  if (needs_lengths) {
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
  if (!l.flat_targets && l.target_stride < -1) {
    return Status::invalid("targets", "a stride of at least 0, or -1 for contiguous ones",
                           static_cast<double>(l.target_stride));
  }
  return execution.device == Device::kHost ? check_host_values(l, columns, rows) : Status{};
}

bool has_logits(const TransducerProblem& p) {
  return p.packed ? p.packed_rows > 0 : p.lattice.batch > 0 && p.lattice.frames > 0;
}

namespace {

// Checks the rows of logits and the lattice.
Status check_inputs(const TransducerProblem& p, const Execution& execution) {
  const TransducerLattice& l = p.lattice;
  if (has_logits(p)) {
    if (Status s = check_strides("logits", p.logits, p.packed ? 2 : 0); !s.ok()) return s;
    if (Status s = check_rows("logits", p, p.logits.data, p.logits.stride); !s.ok()) return s;
    if (p.labels > 1 && p.logits.stride[3] != 1) {
      return Status::invalid("logits", "a last stride of 1", static_cast<double>(p.logits.stride[3]));
    }
    if (l.tdt) {
      if (Status s = check_strides("duration_logits", p.duration_logits, p.packed ? 2 : 0); !s.ok()) return s;
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
  std::int64_t rows = p.packed_rows;
  if (Status s = check_lattice(l, p.labels, p.packed, execution, &rows); !s.ok()) return s;
  if (p.packed && rows != p.packed_rows) {
    return Status::invalid("logits", "sum of T_b (U_b + 1) packed rows, by both lengths",
                           static_cast<double>(p.packed_rows));
  }
  return {};
}

}  // namespace

Status check_problem(const TransducerProblem& p, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (Status s = check_extents(p); !s.ok()) return s;
  if (Status s = check_settings(p.lattice, p.labels); !s.ok()) return s;
  return p.lattice.batch > 0 ? check_inputs(p, execution) : Status{};
}

}  // namespace warpalign::detail::transducer
