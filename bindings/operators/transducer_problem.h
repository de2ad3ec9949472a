// Conversion of the tensors and settings that all operators of transducers have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "checks.h"
#include "float_dtype.h"
#include "warpalign/transducer.h"

namespace warpalign::binding {

using MaybeTensor = std::optional<Tensor>;

// The settings, with the names of transducer_schemas.cpp. The registered functions list them in the schemas'
// order; nothing else here depends on that order.
struct TransducerSettings {
  int64_t blank;
  const std::vector<int64_t>& durations;
  const std::vector<int64_t>& big_blank_columns;
  double sigma;
  double fastemit_lambda;
  double delay_penalty;
  int64_t eos_id;
  double eos_penalty;
  int64_t star_id;
  double star_penalty;
  double clamp;
  bool zero_infinity;
  bool from_log_probs;
  bool packed;
};

// `first` is the tensor that the others are compared with. With packed logits the number of states follows
// from targets.
inline void set_targets(TransducerLattice& lattice, const Tensor& targets, const Tensor& first,
                        const char* first_name, bool packed) {
  check_same_device(targets, "targets", first, first_name);
  if (targets.scalar_type() != ScalarType::Int) fail("targets", "dtype int32", dtype_of(targets));
  lattice.flat_targets = targets.dim() == 1;
  lattice.targets = static_cast<const std::int32_t*>(targets.const_data_ptr());
  if (lattice.flat_targets) {
    if (targets.size(0) > 1 && targets.stride(0) != 1) fail("targets", "a last stride of 1", "another one");
    lattice.target_count = targets.size(0);
    if (packed) lattice.states = narrowed(targets.size(0) + 1);
    return;
  }
  if (targets.dim() != 2) fail("targets", "2 axes (B, U), or 1 axis of all labels", shape_of(targets));
  if (targets.size(1) > 1 && targets.stride(1) != 1) fail("targets", "a last stride of 1", "another one");
  if (packed) lattice.states = narrowed(targets.size(1) + 1);
  if (targets.size(0) != lattice.batch || targets.size(1) + 1 != lattice.states) {
    fail("targets", std::string("shape (B, U), by ") + first_name + " of " + shape_of(first),
         shape_of(targets));
  }
  lattice.target_stride = targets.size(0) > 1 ? targets.stride(0) : targets.size(1);
}

inline const std::int32_t* lengths_of(const MaybeTensor& lengths, const char* name, const Tensor& first,
                                      const char* first_name, int64_t batch) {
  if (!lengths) return nullptr;
  check_same_device(*lengths, name, first, first_name);
  if (lengths->scalar_type() != ScalarType::Int) fail(name, "dtype int32", dtype_of(*lengths));
  if (lengths->dim() != 1 || lengths->size(0) != batch || !lengths->is_contiguous()) {
    fail(name, "a contiguous tensor (B,) with B = " + std::to_string(batch), shape_of(*lengths));
  }
  return static_cast<const std::int32_t*>(lengths->const_data_ptr());
}

inline void set_durations(TransducerLattice& lattice, const TransducerSettings& settings) {
  const char* const name = lattice.tdt ? "durations" : "big_blanks";
  const std::size_t limit = lattice.tdt ? kTransducerDurations : kTransducerBigBlanks;
  if (settings.durations.size() > limit) {
    fail(name, "at most " + std::to_string(limit), std::to_string(settings.durations.size()));
  }
  if (!lattice.tdt && settings.big_blank_columns.size() != settings.durations.size()) {
    fail("big_blank_columns", "one for each of durations", std::to_string(settings.big_blank_columns.size()));
  }
  lattice.durations = static_cast<std::int32_t>(settings.durations.size());
  for (std::size_t i = 0; i < settings.durations.size(); ++i) {
    lattice.duration[i] = narrowed(settings.durations[i]);
    if (!lattice.tdt) lattice.big_blank_column[i] = narrowed(settings.big_blank_columns[i]);
  }
}

inline void set_without_durations(TransducerLattice& lattice, const MaybeTensor& given, const Tensor& first,
                                  const char* first_name) {
  if (!given) return;
  const Tensor& flags = *given;
  check_same_device(flags, "without_durations", first, first_name);
  if (flags.scalar_type() != ScalarType::Bool || flags.dim() != 1 || flags.size(0) != lattice.batch ||
      !flags.is_contiguous()) {
    fail("without_durations", "a contiguous bool tensor (B,)", shape_of(flags));
  }
  lattice.without_durations = static_cast<const std::uint8_t*>(flags.const_data_ptr());
}

inline void set_numbers(TransducerLattice& l, const TransducerSettings& settings) {
  l.blank = narrowed(settings.blank);
  l.sigma = settings.sigma;
  l.fastemit = settings.fastemit_lambda;
  l.delay = settings.delay_penalty;
  l.eos = narrowed(settings.eos_id);
  l.eos_penalty = settings.eos_penalty;
  l.star = narrowed(settings.star_id);
  l.star_penalty = settings.star_penalty;
  l.clamp = settings.clamp;
  l.zero_infinity = settings.zero_infinity;
}

}  // namespace warpalign::binding
