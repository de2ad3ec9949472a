// Best alignments on the CPU. The first pass stores the sums of every K-th frame. The second pass goes back
// from the end, one segment of K frames at a time: a path that ends in pair k visits pairs k - K .. k there,
// so that only those are computed again, with the predecessor of each state. Threads share the frames, then
// the utterances, and stripes of a long utterance: a stripe needs one number per frame of the previous
// stripe.
#include "ctc/cpu_align.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace warpalign::detail::ctc {
namespace {

// A state of the lattice: a pair, and which of its two states.
struct State {
  std::int32_t pair;
  bool is_label;
};

// One utterance's results.
template <class Real>
class AlignmentWriter {
 public:
  AlignmentWriter(const CtcProblem& p, const CtcAlignment& out, const Utterance& u)
      : p_(p), out_(out), first_frame_(std::int64_t{u.index} * p.frames) {
    const std::int64_t first_label = p.flat_targets ? u.first_target : std::int64_t{u.index} * p.labels;
    if (out.labels) labels_ = out.labels + first_frame_;
    if (out.scores) scores_ = static_cast<Real*>(out.scores) + first_frame_;
    if (out.spans) spans_ = out.spans + 2 * first_label;
    if (labels_) std::fill_n(labels_, p.frames, -1);
    if (scores_) std::fill_n(scores_, p.frames, Real(0));
    if (spans_) std::fill_n(spans_, 2 * std::int64_t{p.flat_targets ? u.labels : p.labels}, -1);
    if (out.score) score_ = static_cast<Real*>(out.score) + u.index;
  }
  [[nodiscard]] bool wants_path() const { return labels_ || scores_ || spans_; }

  void score(double value) const {
    if (score_) *score_ = static_cast<Real>(value);
  }
  // Called from the last frame to the first.
  void frame(std::int32_t t, State state, std::int64_t label, double weight) const {
    if (labels_) labels_[t] = static_cast<std::int32_t>(label);
    if (scores_) scores_[t] = static_cast<Real>(weight);
    if (!spans_ || !state.is_label) return;
    std::int32_t* const span = spans_ + std::int64_t{2} * state.pair;
    span[0] = t;
    if (span[1] < 0) span[1] = t;
  }

 private:
  const CtcProblem& p_;
  const CtcAlignment& out_;
  const std::int64_t first_frame_;
  std::int32_t* labels_ = nullptr;
  Real* scores_ = nullptr;
  std::int32_t* spans_ = nullptr;
  Real* score_ = nullptr;
};

template <class T>
class Aligner {
 public:
  using Real = typename Arithmetic<T>::Real;

  Aligner(const CtcProblem& p, const Utterance& u, const Normalizers& normalizers, const Stripes& stripes,
          const AlignItem& memory, const AlignmentWriter<Real>& writer, T* packed)
      : p_(p),
        u_(u),
        normalizers_(normalizers),
        stripes_(stripes),
        memory_(memory),
        writer_(writer),
        rows_(p.logits.data, p.logits.stride, p.classes, packed),
        frames_(p, u, memory.lattice, normalizers, rows_),
        lattice_(memory.lattice.view()),
        segment_(segment_of(p)) {
    for (std::int32_t k = 0; k < stripes.count; ++k) new (&memory.progress[k]) Progress;
  }

  void align(const cpu::ItemMemory& item) {
    if (u_.frames < u_.labels) return refuse();
    const auto sweep_one = [this](std::int32_t k, void* scratch) {
      Arena arena(scratch);
      sweep(k, StripeMemory<T>(p_, stripes_, arena));
    };
    StripeWork(stripes_.count, sweep_one).run_with(item);
    if (bad_) return writer_.score(kNaN);
    const State last =
        u_.labels > 0 && !(by_blank_ > by_label_) ? State{u_.labels - 1, true} : State{u_.labels, false};
    const double score = last.is_label ? by_label_ : by_blank_;
    if (score < kCpuNoPath) return writer_.score(-kInfinity);
    writer_.score(score);
    if (u_.frames > 0 && writer_.wants_path()) trace(last);
  }

 private:
  // The results without a path: more labels than frames.
  void refuse() const {
    bool bad = false;
    for (std::int32_t t = 0; t < u_.frames; ++t) bad |= frames_.weigh_best(t, memory_.weights);
    writer_.score(bad ? kNaN : -kInfinity);
  }

  // The first pass over a stripe.
  void sweep(std::int32_t index, const StripeMemory<T>& memory) {
    constexpr std::int32_t kPublished = 32;  // frames between two updates of a stripe's progress
    const Stripe stripe(stripes_, lattice_, index, cpu_stride(stripes_.widest(p_.labels)));
    const std::int64_t pairs = stripe.pairs(), stride = stripe.lattice.stride;
    const Rows<T> rows(p_.logits.data, p_.logits.stride, p_.classes, memory.packed);
    const Frames<T> frames(p_, u_, memory_.lattice, normalizers_, rows);
    double* row = memory.rows[0];
    double* next = memory.rows[1];
    std::fill_n(row, 2 * stride, kCpuDead);
    std::fill_n(next, 2 * stride, kCpuDead);
    if (index == 0) row[kCpuPad] = 0;
    double* const edge = memory_.edges + std::int64_t{index} * p_.frames;
    bool bad = false;
    for (std::int32_t t = 0; t < u_.frames; ++t) {
      if (t > 0 && t % segment_ == 0) keep(stored_row_before(t), row, stride, stripe.first, pairs);
      const CpuRange range = stripe.part_of(range_of(u_, t));
      if (!is_empty(range)) {
        if (index > 0 && t > 0) {
          memory_.progress[index - 1].wait_for(t);
          row[stride + kCpuPad - 1] = edge[t - 1 - p_.frames];
        }
        bad |= frames.weigh_best(t, memory.weights);
        kernels().best(stripe.lattice, memory.weights, row, next, {nullptr, 0}, range);
        std::swap(row, next);
      }
      // A stripe with pairs has memory for its rows. NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
      edge[t] = pairs > 0 ? row[stride + kCpuPad + pairs - 1] : kCpuDead;
      if ((t + 1) % kPublished == 0 || t + 1 == u_.frames) memory_.progress[index].publish(t + 1);
    }
    if (bad) bad_ = true;
    if (stripe.has(u_.labels)) by_blank_ = row[kCpuPad + u_.labels - stripe.first];
    if (u_.labels > 0 && stripe.has(u_.labels - 1)) {
      by_label_ = row[stride + kCpuPad + u_.labels - 1 - stripe.first];
    }
  }

  // Stores a stripe's part of a row.
  void keep(double* to, const double* row, std::int64_t stride, std::int64_t first,
            std::int64_t pairs) const {
    std::copy_n(row + kCpuPad, pairs, to + kCpuPad + first);
    std::copy_n(row + stride + kCpuPad, pairs, to + lattice_.stride + kCpuPad + first);
  }

  [[nodiscard]] double* stored_row_before(std::int32_t t) const {
    return memory_.stored_rows + memory_.row * (t / segment_ - 1);
  }

  void trace(State state) const {
    for (std::int32_t begin = (u_.frames - 1) / segment_ * segment_; begin >= 0; begin -= segment_) {
      const std::int32_t end = std::min(begin + segment_, u_.frames);
      const std::int64_t lowest = std::max(state.pair - (end - begin), 0);
      const std::int64_t first = lowest / kCpuPad * kCpuPad;
      recompute(begin, end, first, state.pair);
      for (std::int32_t t = end - 1; t >= begin; --t) {
        write(t, state);
        const unsigned step = memory_.steps[memory_.width * (t - begin) + state.pair - first];
        if (state.is_label) {
          if ((step & 2) != 0) --state.pair;
          if ((step & 1) != 0) state.is_label = false;
        } else if ((step & 4) != 0) {
          state = {state.pair - 1, true};
        }
      }
    }
  }

  // Computes the predecessors in frames begin .. end - 1 of pairs first .. last.
  void recompute(std::int32_t begin, std::int32_t end, std::int64_t first, std::int64_t last) const {
    double* row = memory_.rows[0];
    double* next = memory_.rows[1];
    std::fill_n(row, memory_.row, kCpuDead);
    std::fill_n(next, memory_.row, kCpuDead);
    if (begin == 0) {
      row[kCpuPad] = 0;
    } else {
      keep(row, stored_row_before(begin), lattice_.stride, 0, std::int64_t{u_.labels} + 1);
    }
    for (std::int32_t t = begin; t < end; ++t) {
      const CpuRange all = range_of(u_, t);
      const CpuRange range = {std::max(all.first, first), std::min(all.last, last)};
      static_cast<void>(frames_.weigh_best(t, memory_.weights));
      kernels().best(lattice_, memory_.weights, row, next,
                     {memory_.steps + memory_.width * (t - begin), first}, range);
      std::swap(row, next);
    }
  }

  void write(std::int32_t t, State state) const {
    if (!state.is_label) return writer_.frame(t, state, p_.blank, frames_.weight_of(t, p_.blank));
    const std::int64_t label = memory_.lattice.label_of(u_, state.pair);
    const bool is_star =
        memory_.lattice.star() > 0 && memory_.lattice.slot_of(state.pair) == memory_.lattice.star();
    writer_.frame(
        t, state, label,
        is_star ? frames_.best_of_others(t) : frames_.weight_of(t, static_cast<std::int32_t>(label)));
  }

  const CtcProblem& p_;
  const Utterance& u_;
  const Normalizers& normalizers_;
  const Stripes& stripes_;
  const AlignItem& memory_;
  const AlignmentWriter<Real>& writer_;
  const Rows<T> rows_;
  const Frames<T> frames_;
  const CpuLattice lattice_;
  const std::int32_t segment_;
  std::atomic<bool> bad_{false};
  double by_blank_ = kCpuDead,
         by_label_ = kCpuDead;  // sums of weights of the best paths to the two final states
};

template <class T>
void align(const CtcProblem& p, const CtcAlignment& out, const AlignMemory& memory, std::byte* team_memory,
           const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const Batch batch(p, memory.first_targets);
  const Normalizers normalizers = Normalizers::within(p, memory.normalizers);
  std::fill_n(memory.is_nan, p.batch, 0);
  normalize_frames<T>(p, batch, normalizers, memory.is_nan, reinterpret_cast<T*>(memory.packed), execution);
  const Stripes stripes = align_stripes_of(p, execution);
  const cpu::Team team = team_of<T>(p, stripes, execution);
  cpu::run_team(team, {team_memory, team.bytes()}, execution, [&](int b, const cpu::ItemMemory& item) {
    const Utterance u = batch[b];
    const AlignmentWriter<Real> writer(p, out, u);
    if (memory.is_nan[b] != 0) return writer.score(kNaN);
    Arena arena(item.item);
    AlignItem own(p, stripes, arena);
    own.lattice.clear();
    own.lattice.set(u);
    Arena scratch(item.scratch);
    T* const packed = StripeMemory<T>(p, stripes, scratch).packed;
    Aligner<T>(p, u, normalizers, stripes, own, writer, packed).align(item);
  });
}

template <class T>
std::size_t team_bytes(const CtcProblem& p, const Execution& execution) {
  return team_of<T>(p, align_stripes_of(p, execution), execution).bytes() + cpu::kWorkerAlignment;
}

}  // namespace

std::size_t align_workspace_bytes_cpu(const CtcProblem& p, const CtcAlignment& /*out*/,
                                      const Execution& execution) {
  Arena arena;
  static_cast<void>(AlignMemory(p, execution, arena));
  visit_dtype(p.dtype, [&](auto type) {
    arena.take<std::byte>(team_bytes<typename decltype(type)::Type>(p, execution));
  });
  return arena.used();
}

Status align_cpu(const CtcProblem& p, const CtcAlignment& out, Workspace workspace,
                 const Execution& execution) {
  Arena arena(workspace.data);
  const AlignMemory memory(p, execution, arena);
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    align<T>(p, out, memory, for_workers(arena.take<std::byte>(team_bytes<T>(p, execution))), execution);
  });
  return {};
}

}  // namespace warpalign::detail::ctc
