// Alignments on the CPU: arc weights from the rows of logits, then for each utterance the best path and, if
// requested, the posteriors of its arcs. Threads share the rows, then the utterances.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/arena.h"
#include "transducer/cpu_logits.h"
#include "transducer/cpu_solve.h"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

bool wants_posteriors(const TransducerAlignment& out) {
  return out.blank_posteriors || out.label_posteriors || out.big_blank_posteriors || out.duration_posteriors;
}

std::int64_t rows_of(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  return p.packed ? p.packed_rows : static_cast<std::int64_t>(l.batch) * l.frames * l.states;
}

struct AlignMemory {
  std::int64_t* batch;
  std::int32_t* is_nan;
  double* rings;
  std::uint8_t* steps;  // the step into each node; kCpuStepPad bytes separate the utterances
  void* saved;

  AlignMemory(const TransducerProblem& p, const Execution& execution, Arena& arena)
      : batch(arena.take<std::int64_t>(Batch::elements(p.lattice))),
        is_nan(arena.take<std::int32_t>(p.lattice.batch)),
        rings(arena.take<double>(Rings(p.lattice).elements() * lattice_workers(p.lattice, execution))),
        steps(arena.take<std::uint8_t>(static_cast<std::size_t>(rows_of(p)) +
                                       static_cast<std::size_t>(p.lattice.batch) * kCpuStepPad)),
        saved(arena.take<std::byte>(saved_bytes(p))) {}
};

// One utterance's results.
template <class Real>
class Writer {
 public:
  Writer(const TransducerProblem& p, const TransducerAlignment& out, const Utterance& utterance)
      : p_(p), out_(out), utterance_(utterance), grid_(std::max(utterance.frames, 1), utterance.states()) {}

  void clear() const {
    const std::int64_t labels = p_.lattice.flat_targets ? utterance_.labels : p_.lattice.states - 1;
    if (out_.frames) std::fill_n(out_.frames + first_label(), labels, -1);
    if (out_.durations) std::fill_n(out_.durations + first_label(), labels, -1);
    if (!out_.blanks) return;
    if (p_.packed) {
      std::fill_n(out_.blanks + utterance_.first_row, utterance_.nodes, -1);
    } else {
      std::fill_n(out_.blanks + std::int64_t{p_.lattice.frames} * utterance_.index, p_.lattice.frames, -1);
    }
  }

  void score(double value) const {
    if (out_.score) static_cast<Real*>(out_.score)[utterance_.index] = static_cast<Real>(value);
  }

  // Follows the path from the end back to node (0, 0). step: that of the path's last arc.
  void path(std::uint8_t step, const std::uint8_t* steps) const {
    std::int32_t t = utterance_.frames, u = utterance_.labels;
    while (true) {
      const bool is_label = (step & kLabelStep) != 0;
      const std::int32_t frames = step & (kLabelStep - 1);
      t -= frames;
      if (is_label) {
        --u;
        if (out_.frames) out_.frames[first_label() + u] = t;
        if (out_.durations) out_.durations[first_label() + u] = frames;
      } else if (out_.blanks) {
        out_.blanks[p_.packed ? row(t, u) : std::int64_t{p_.lattice.frames} * utterance_.index + t] = frames;
      }
      if (t == 0 && u == 0) return;
      step = steps[grid_.origin(t + u) + (grid_.by_state ? u : t)];
    }
  }

  // Writes posteriors from the slots, and 0 in the padding.
  void posteriors(const Saved<Real>& memory) const {
    const Family family(p_.lattice, utterance_);
    const std::int32_t frames = p_.packed ? utterance_.frames : p_.lattice.frames;
    const std::int32_t states = p_.packed ? utterance_.states() : p_.lattice.states;
    for (std::int32_t t = 0; t < frames; ++t) {
      for (std::int32_t u = 0; u < states; ++u) {
        const bool exists = t < utterance_.frames && u <= utterance_.labels;
        const Real* const place = memory.slots + grid_.origin(t + u) + (grid_.by_state ? u : t);
        write_node(family.table, row(t, u), exists ? place : nullptr, memory.stride,
                   exists && u < utterance_.labels);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t first_label() const {
    const TransducerLattice& l = p_.lattice;
    return l.flat_targets ? utterance_.targets - l.targets
                          : static_cast<std::int64_t>(utterance_.index) * (l.states - 1);
  }
  [[nodiscard]] std::int64_t row(std::int32_t t, std::int32_t u) const {
    if (p_.packed) return utterance_.first_row + static_cast<std::int64_t>(t) * utterance_.states() + u;
    return (static_cast<std::int64_t>(utterance_.index) * p_.lattice.frames + t) * p_.lattice.states + u;
  }

  // slots null: padding.
  void write_node(const ArcTable& table, std::int64_t row, const Real* slots, std::int64_t stride,
                  bool has_label) const {
    const std::int32_t groups = p_.lattice.durations;
    Real blank = 0, label = 0;
    Real by_group[kTransducerDurations] = {};  // by big blank or duration
    for (std::int32_t slot = 0; slots && slot < table.arcs(); ++slot) {
      const Real g = slots[slot * stride];
      const bool is_label = table.is_label(slot);
      if (is_label && !has_label && !std::isnan(g)) continue;
      if (p_.lattice.tdt) {
        (is_label ? label : blank) += g;
        if (table.duration[slot] >= 0) by_group[table.duration[slot]] += g;
      } else if (is_label) {
        label = g;
      } else {
        (slot == 0 ? blank : by_group[slot - 1]) = g;
      }
    }
    const auto write = [&](void* to, std::int64_t at, Real value) {
      if (to) static_cast<Real*>(to)[at] = value;
    };
    write(out_.blank_posteriors, row, blank);
    write(out_.label_posteriors, row, label);
    for (std::int32_t k = 0; k < groups; ++k) {
      write(p_.lattice.tdt ? out_.duration_posteriors : out_.big_blank_posteriors, k * rows_of(p_) + row,
            by_group[k]);
    }
  }

  const TransducerProblem& p_;
  const TransducerAlignment& out_;
  const Utterance& utterance_;
  const Diagonals grid_;
};

template <class Real>
void align_utterance(const TransducerProblem& p, const TransducerAlignment& out, const AlignMemory& memory,
                     const Utterance& utterance, const Rings& rings, double* ring_memory,
                     const CpuLatticeKernels<Real>& kernels) {
  const Writer<Real> writer(p, out, utterance);
  const Saved<Real> saved(memory.saved, utterance);
  const bool is_nan = memory.is_nan[utterance.index] != 0;
  writer.clear();
  if (is_nan) {
    writer.score(std::numeric_limits<double>::quiet_NaN());
  } else if (utterance.frames == 0) {
    writer.score(-std::numeric_limits<double>::infinity());
  } else {
    const Family family(p.lattice, utterance);
    const ArcOrder order = preferred_order(family.table);
    std::uint8_t* const steps =
        memory.steps + utterance.first_row + static_cast<std::int64_t>(utterance.index) * kCpuStepPad;
    const CpuBestEnd end =
        kernels.best_path(lattice_of(utterance, family, saved, rings, ring_memory), {order.slot, steps});
    writer.score(end.step == 0 ? -std::numeric_limits<double>::infinity() : end.log2_weight * kLn2<double>);
    if (end.step != 0) writer.path(end.step, steps);
  }
  if (!wants_posteriors(out)) return;
  static_cast<void>(
      solve<Real>(p.lattice, utterance, is_nan, memory.saved, true, rings, ring_memory, kernels));
  writer.posteriors(saved);
}

template <class T>
void align(const TransducerProblem& p, const TransducerAlignment& out, const AlignMemory& memory,
           const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const Batch batch(p.lattice, memory.batch);
  weigh_batch<T>(p, batch, memory.saved, memory.is_nan, execution);
  const Rings rings(p.lattice);
  std::atomic<int> next{0};
  run_workers(execution, lattice_workers(p.lattice, execution), [&](int worker) {
    const host::FlushToZero flush;
    double* const own = memory.rings + worker * rings.elements();
    for (int b = next++; b < p.lattice.batch; b = next++) {
      align_utterance<Real>(p, out, memory, batch[b], rings, own, Arithmetic<T>::lattice(kernels()));
    }
  });
}

}  // namespace

std::size_t align_workspace_bytes_cpu(const TransducerProblem& p, const TransducerAlignment& /*out*/,
                                      const Execution& execution) {
  Arena arena;
  static_cast<void>(AlignMemory(p, execution, arena));
  return arena.used();
}

Status align_cpu(const TransducerProblem& p, const TransducerAlignment& out, Workspace workspace,
                 const Execution& execution) {
  Arena arena(workspace.data);
  const AlignMemory memory(p, execution, arena);
  visit_dtype(p.dtype, [&](auto type) { align<typename decltype(type)::Type>(p, out, memory, execution); });
  return {};
}

}  // namespace warpalign::detail::transducer
