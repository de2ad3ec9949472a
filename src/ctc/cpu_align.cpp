// Best alignments on the CPU. The first pass keeps the sums of every K-th frame. The second one goes back
// from the end: K frames of a path that ends in pair k come from pairs k - K .. k, so that only those are
// computed again, and where they come from is kept for one segment at a time. Threads share frames, then
// utterances.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ctc/cpu_frames.h"

namespace warpalign::detail::ctc {
namespace {

// K: kept frames take 16 T U / K bytes and steps K^2, the least together with K^3 = 8 T U.
std::int32_t segment_of(const CtcProblem& p) {
  const double best = std::cbrt(8.0 * p.frames * (p.labels + 1));
  return std::clamp(static_cast<std::int32_t>(best), 64, 1024);
}

struct AlignWorker {
  Lattice lattice;
  std::int64_t row;  // doubles of a row
  double* rows[2];
  double* weights;
  double* kept;  // the rows before segments 1, 2, ...
  std::int64_t width;
  std::uint8_t* steps;  // of a segment: `width` bytes a frame

  AlignWorker(const CtcProblem& p, Arena& arena)
      : lattice(p, arena),
        row(2 * cpu_stride(p.labels)),
        rows{arena.take<double>(row), arena.take<double>(row)},
        weights(arena.take<double>(weights_stride(most_slots(p)))),
        kept(arena.take<double>(row * (p.frames / segment_of(p)))),
        width(std::min<std::int64_t>(segment_of(p) + 3 * kCpuPad, cpu_stride(p.labels))),
        steps(arena.take<std::uint8_t>(width * std::min(segment_of(p), std::max(p.frames, 1)))) {}
};

struct AlignMemory {
  std::int64_t* first_targets;
  std::int32_t* is_nan;
  double* normalizers;
  std::byte* packed;
  std::byte* workers;
  std::size_t worker_bytes;

  AlignMemory(const CtcProblem& p, const Execution& execution, Arena& arena)
      : first_targets(arena.take<std::int64_t>(p.batch)),
        is_nan(arena.take<std::int32_t>(p.batch)),
        normalizers(arena.take<double>(Normalizers::doubles(p))),
        packed(arena.take<std::byte>(size_of(p.dtype) * p.classes * cpu::threads_of(execution))) {
    Arena one;
    static_cast<void>(AlignWorker(p, one));
    worker_bytes = one.used();
    workers = arena.take<std::byte>(worker_bytes * workers_of(p, execution));
  }
  static int workers_of(const CtcProblem& p, const Execution& execution) {
    return std::clamp(cpu::threads_of(execution), 1, p.batch);
  }
};

// A state of a frame.
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
  // From the last frame to the first.
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

  Aligner(const CtcProblem& p, const Utterance& u, const Frames<T>& frames, const AlignWorker& memory,
          const AlignmentWriter<Real>& writer)
      : u_(u),
        frames_(frames),
        memory_(memory),
        writer_(writer),
        lattice_(memory.lattice.view()),
        segment_(segment_of(p)),
        blank_(p.blank) {}

  void align() {
    double* row = memory_.rows[0];
    double* next = memory_.rows[1];
    std::fill_n(row, memory_.row, kCpuDead);
    std::fill_n(next, memory_.row, kCpuDead);
    row[kCpuPad] = 0;
    bool bad = false;
    for (std::int32_t t = 0; t < u_.frames; ++t) {
      if (t > 0 && t % segment_ == 0) std::copy_n(row, memory_.row, kept_before(t));
      bad |= frames_.weigh_best(t, memory_.weights);
      kernels().best(lattice_, memory_.weights, row, next, {nullptr, 0}, range_of(u_, t));
      std::swap(row, next);
    }
    if (bad) return writer_.score(kNaN);
    const double by_blank = u_.frames >= u_.labels ? row[kCpuPad + u_.labels] : kCpuDead;
    const double by_label = row[lattice_.stride + kCpuPad + u_.labels - 1];  // of U = 0: dead
    const State last =
        u_.labels > 0 && !(by_blank > by_label) ? State{u_.labels - 1, true} : State{u_.labels, false};
    const double score = last.is_label ? by_label : by_blank;
    if (u_.frames < u_.labels || score < kCpuNoPath) return writer_.score(-kInfinity);
    writer_.score(score);
    if (u_.frames > 0 && writer_.wants_path()) trace(last);
  }

 private:
  [[nodiscard]] double* kept_before(std::int32_t t) const {
    return memory_.kept + memory_.row * (t / segment_ - 1);
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

  // Steps of frames begin .. end - 1, of pairs first .. last.
  void recompute(std::int32_t begin, std::int32_t end, std::int64_t first, std::int64_t last) const {
    double* row = memory_.rows[0];
    double* next = memory_.rows[1];
    if (begin == 0) {
      std::fill_n(row, memory_.row, kCpuDead);
      row[kCpuPad] = 0;
    } else {
      std::copy_n(kept_before(begin), memory_.row, row);
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
    if (!state.is_label) return writer_.frame(t, state, blank_, frames_.weight_of(t, blank_));
    const std::int64_t label = memory_.lattice.label_of(u_, state.pair);
    const bool is_star =
        memory_.lattice.star() > 0 && memory_.lattice.slot_of(state.pair) == memory_.lattice.star();
    writer_.frame(
        t, state, label,
        is_star ? frames_.best_of_others(t) : frames_.weight_of(t, static_cast<std::int32_t>(label)));
  }

  const Utterance& u_;
  const Frames<T>& frames_;
  const AlignWorker& memory_;
  const AlignmentWriter<Real>& writer_;
  const CpuLattice lattice_;
  const std::int32_t segment_;
  const std::int32_t blank_;
};

template <class T>
void align(const CtcProblem& p, const CtcAlignment& out, const AlignMemory& memory,
           const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const Batch batch(p, memory.first_targets);
  const Normalizers normalizers = Normalizers::within(p, memory.normalizers);
  std::fill_n(memory.is_nan, p.batch, 0);
  normalize_frames<T>(p, batch, normalizers, memory.is_nan, reinterpret_cast<T*>(memory.packed), execution);
  std::atomic<int> next{0};
  cpu::run_workers(execution, AlignMemory::workers_of(p, execution), [&](int worker) {
    Arena arena(memory.workers + worker * memory.worker_bytes);
    AlignWorker own(p, arena);
    own.lattice.clear();
    const Rows<T> rows(p.logits.data, p.logits.stride, p.classes,
                       reinterpret_cast<T*>(memory.packed) + static_cast<std::int64_t>(worker) * p.classes);
    for (int b = next++; b < p.batch; b = next++) {
      const Utterance u = batch[b];
      const AlignmentWriter<Real> writer(p, out, u);
      if (memory.is_nan[b] != 0) {
        writer.score(kNaN);
        continue;
      }
      own.lattice.set(u);
      Aligner<T>(p, u, Frames<T>(p, u, own.lattice, normalizers, rows), own, writer).align();
    }
  });
}

}  // namespace

std::size_t align_workspace_bytes_cpu(const CtcProblem& p, const CtcAlignment& /*out*/,
                                      const Execution& execution) {
  Arena arena;
  static_cast<void>(AlignMemory(p, execution, arena));
  return arena.used();
}

Status align_cpu(const CtcProblem& p, const CtcAlignment& out, Workspace workspace,
                 const Execution& execution) {
  Arena arena(workspace.data);
  const AlignMemory memory(p, execution, arena);
  visit_dtype(p.dtype, [&](auto type) { align<typename decltype(type)::Type>(p, out, memory, execution); });
  return {};
}

}  // namespace warpalign::detail::ctc
