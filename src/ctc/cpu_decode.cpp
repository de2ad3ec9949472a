// Decoding of CTC on the CPU. Utterances are distributed among threads.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/team.h"
#include "ctc/beam.h"
#include "ctc/cpu_frames.h"
#include "ctc/decode.h"

namespace warpalign::detail::ctc {
namespace {

template <class Real>
int largest(const Real* row, const Real* added, std::int32_t columns, int count, cpu::Column<Real>* out) {
  if constexpr (std::is_same_v<Real, double>) {
    return kernels().largest64(row, added, columns, count, out);
  } else {
    return kernels().largest32(row, added, columns, count, out);
  }
}

std::int32_t frames_of(const CtcProblem& p, std::int32_t b) {
  return p.logit_lengths.data ? static_cast<std::int32_t>(p.logit_lengths[b]) : p.frames;
}

// A worker's rows, in the type of the computation.
template <class T>
class WideRows {
 public:
  using Real = typename Arithmetic<T>::Real;

  WideRows(const CtcProblem& p, Arena& arena)
      : p_(p),
        rows_(p.logits.data, p.logits.stride, p.classes, arena.take<T>(p.classes)),
        wide_(std::is_same_v<T, Real> ? nullptr : arena.take<Real>(p.classes)) {}

  // Reads a frame, and sets lse, the difference of its logits and log-probabilities; 0 if all logits are
  // -inf. Returns whether there is a NaN or +inf.
  bool read(std::int32_t b, std::int32_t t) {
    const T* const row = rows_(b, t);
    const double sum = Arithmetic<T>::rows().lse(row, p_.classes);
    lse = p_.log_probs || sum == -kInfinity ? 0 : sum;
    if constexpr (std::is_same_v<T, Real>) {
      x = row;
    } else {
      for (std::int32_t c = 0; c < p_.classes; ++c) wide_[c] = static_cast<float>(row[c]);
      x = wide_;
    }
    return !(sum < kInfinity);
  }
  [[nodiscard]] double weight_of(std::int32_t c) const { return static_cast<double>(x[c]) - lse; }

  const Real* x = nullptr;
  double lse = 0;

 private:
  const CtcProblem& p_;
  const Rows<T> rows_;
  Real* const wide_;
};

template <class T>
void search_greedily(const CtcProblem& p, const CtcGreedy& out, std::int32_t b, WideRows<T>& rows) {
  using Real = typename WideRows<T>::Real;
  CtcWalk walk = out.before ? out.before[b] : CtcWalk{0, -1, 0};
  std::int64_t* const tokens = out.tokens + std::int64_t{b} * p.frames;
  std::int64_t* const token_frames = out.token_frames + std::int64_t{b} * p.frames;
  const std::int32_t frames = frames_of(p, b);
  std::int32_t count = 0;
  bool bad = false;
  for (std::int32_t t = 0; t < frames; ++t) {
    bad |= rows.read(b, t);
    cpu::Column<Real> best{};
    const bool exists = largest<Real>(rows.x, nullptr, p.classes, 1, &best) > 0;
    const std::int32_t c = exists ? best.column : p.blank;
    walk.score += exists ? rows.weight_of(c) : -kInfinity;
    if (c != p.blank && c != walk.last_class) {
      tokens[count] = c;
      token_frames[count++] = walk.frames + t;
    }
    walk.last_class = c;
  }
  walk.frames += frames;
  if (bad) walk.score = kNaN;
  if (std::isnan(walk.score)) count = 0;
  std::fill(tokens + count, tokens + p.frames, -1);
  std::fill(token_frames + count, token_frames + p.frames, -1);
  out.lengths[b] = count;
  out.after[b] = walk;
}

// The crew of a search: one thread.
class Alone {
 public:
  static std::int32_t rank() { return 0; }
  static std::int32_t size() { return 1; }
  static void sync() {}
  static std::int32_t lane() { return 0; }
  static std::int32_t lanes() { return 1; }
  static std::int32_t most(std::int32_t v) { return v; }
  template <class T>
  static std::int32_t find(const T* all, std::int32_t count, T v) {
    const T* const at = std::find(all, all + count, v);
    return at == all + count ? -1 : static_cast<std::int32_t>(at - all);
  }
  static std::int32_t append(std::int32_t* count, bool wanted) { return wanted ? (*count)++ : 0; }
  static void mark(std::uint32_t* bits, std::int32_t index) { bits[index / 32] |= 1u << (index % 32); }
  void reset_least() const { least_ = kInfinity; }
  void lower(double total) const { least_ = std::min(least_, total); }
  [[nodiscard]] double least() const { return least_; }
  static void select(Candidate* candidates, std::int32_t count, std::int32_t keep, std::int32_t* chosen) {
    const std::int32_t found = std::min(count, keep);
    std::partial_sort(candidates, candidates + found, candidates + count,
                      [](const Candidate& a, const Candidate& b) { return a.is_before(b); });
    for (std::int32_t n = 0; n < keep; ++n) chosen[n] = n < found ? n : -1;
  }

 private:
  mutable double least_ = kInfinity;
};

// A worker's memory, and its search, one utterance after another.
template <class T>
class BeamWorker {
  using Real = typename WideRows<T>::Real;

 public:
  BeamWorker(const CtcProblem& p, const CtcBeam& beam, Arena& arena)
      : p_(p),
        beam_(beam),
        shape_(beam.beams, beam.label_scores != nullptr),
        rows_(p, arena),
        memory_(shape_, arena),
        columns_(arena.take<cpu::Column<Real>>(shape_.labels + 1)),
        weight_(arena.take<double>(lists() * shape_.labels)),
        label_(arena.take<std::int32_t>(lists() * shape_.labels)) {}

  void search(std::int32_t b) {
    const std::int64_t first = std::int64_t{b} * shape_.beams;
    for (std::int32_t k = 0; k < shape_.beams; ++k) {
      memory_.now[k] = beam_.before ? beam_.before[first + k] : empty_prefix(k);
    }
    const std::int32_t begin = beam_.frames_before ? beam_.frames_before[b] : 0, frames = frames_of(p_, b);
    PrefixSearch<Real, Alone> search(shape_, beam_.threshold, beam_.nodes + first * beam_.capacity, memory_,
                                     crew_);
    bool bad = std::isnan(memory_.now[0].total);
    for (std::int32_t t = 0; t < frames && !bad; ++t) {
      bad = rows_.read(b, t);
      if (bad) break;
      fill_lists(b);
      const auto gain_of = [&](std::int32_t place, std::int32_t c, double weight) {
        const Real* const added = added_of(b, place);
        return added ? static_cast<double>(rows_.x[c] + added[c]) - rows_.lse : weight;
      };
      search.step(
          {weight_, label_, beam_.label_scores ? shape_.labels : 0, rows_.weight_of(p_.blank)}, begin + t,
          [&](std::int32_t c) { return rows_.weight_of(c); }, gain_of);
    }
    for (std::int32_t k = 0; k < shape_.beams; ++k) {
      std::int32_t source = k, label = -1;
      if (frames > 0 && !bad) search.move_of(k, source, label);
      if (beam_.source) beam_.source[first + k] = source;
      if (beam_.label) beam_.label[first + k] = label;
      beam_.after[first + k] = bad ? bad_prefix(k) : search.now()[k];
    }
    if (beam_.frames_after) beam_.frames_after[b] = begin + frames;
  }

 private:
  [[nodiscard]] std::size_t lists() const { return beam_.label_scores ? shape_.beams : 1; }
  [[nodiscard]] const Real* added_of(std::int32_t b, std::int32_t place) const {
    if (!beam_.label_scores) return nullptr;
    return static_cast<const Real*>(beam_.label_scores) +
           (std::int64_t{b} * shape_.beams + place) * p_.classes;
  }
  // The best labels of the frame, without blank.
  void fill_lists(std::int32_t b) {
    for (std::int32_t place = 0; place < static_cast<std::int32_t>(lists()); ++place) {
      const int found = largest<Real>(rows_.x, added_of(b, place), p_.classes, shape_.labels + 1, columns_);
      double* const weight = weight_ + static_cast<std::ptrdiff_t>(place) * shape_.labels;
      std::int32_t* const label = label_ + static_cast<std::ptrdiff_t>(place) * shape_.labels;
      std::int32_t kept = 0;
      for (int k = 0; k < found && kept < shape_.labels; ++k) {
        if (columns_[k].column == p_.blank) continue;
        weight[kept] = static_cast<double>(columns_[k].value) - rows_.lse;
        label[kept++] = columns_[k].column;
      }
      std::fill(label + kept, label + shape_.labels, -1);
    }
  }

  const CtcProblem& p_;
  const CtcBeam& beam_;
  const BeamShape shape_;
  WideRows<T> rows_;
  const BeamMemory memory_;
  cpu::Column<Real>* const columns_;
  double* const weight_;
  std::int32_t* const label_;
  const Alone crew_{};
};

template <class T>
cpu::Team greedy_team(const CtcProblem& p, const Execution& execution) {
  Arena arena;
  static_cast<void>(WideRows<T>(p, arena));
  cpu::Team team = cpu::Team::of(p.batch, execution, 1);
  team.scratch_bytes = cpu::rounded_to_worker(arena.used());
  return team;
}

template <class T>
cpu::Team beam_team(const CtcProblem& p, const CtcBeam& beam, const Execution& execution) {
  Arena arena;
  static_cast<void>(BeamWorker<T>(p, beam, arena));
  cpu::Team team = cpu::Team::of(p.batch, execution, 1);
  team.scratch_bytes = cpu::rounded_to_worker(arena.used());
  return team;
}

}  // namespace

std::size_t greedy_workspace_bytes_cpu(const CtcProblem& p, const CtcGreedy&, const Execution& execution) {
  return visit_dtype(
      p.dtype, [&](auto type) { return greedy_team<typename decltype(type)::Type>(p, execution).bytes(); });
}

Status greedy_cpu(const CtcProblem& p, const CtcGreedy& out, Workspace workspace,
                  const Execution& execution) {
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    cpu::run_team(greedy_team<T>(p, execution), workspace, execution,
                  [&](int b, const cpu::ItemMemory& memory) {
                    Arena arena(memory.scratch);
                    WideRows<T> rows(p, arena);
                    search_greedily(p, out, b, rows);
                  });
  });
  return {};
}

std::size_t beam_workspace_bytes_cpu(const CtcProblem& p, const CtcBeam& beam, const Execution& execution) {
  return visit_dtype(p.dtype, [&](auto type) {
    return beam_team<typename decltype(type)::Type>(p, beam, execution).bytes();
  });
}

Status beam_cpu(const CtcProblem& p, const CtcBeam& beam, Workspace workspace, const Execution& execution) {
  for (std::int32_t b = 0; b < p.batch; ++b) {
    const std::int64_t before = beam.frames_before ? beam.frames_before[b] : 0;
    if (before < 0 || before + frames_of(p, b) > beam.capacity) {
      return Status::invalid("capacity", "at least frames_before + T_b frames of nodes", beam.capacity, b);
    }
  }
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    cpu::run_team(beam_team<T>(p, beam, execution), workspace, execution,
                  [&](int b, const cpu::ItemMemory& memory) {
                    Arena arena(memory.scratch);
                    BeamWorker<T>(p, beam, arena).search(b);
                  });
  });
  return {};
}

Status beam_labels_cpu(const CtcBeamLabels& labels, const Execution&) {
  for (std::int32_t b = 0; b < labels.batch; ++b) {
    for (std::int32_t n = 0; n < labels.n_best; ++n) write_labels(labels, b, n, 0, 1);
  }
  return {};
}

}  // namespace warpalign::detail::ctc
