// CTC's gradients on the CPU. For each segment of an utterance's frames: the posteriors, then the gradient's
// rows. Threads share the utterances. If there are more threads than utterances, they share the stripes of
// each, and the rows.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/team.h"
#include "ctc/cpu_forward.h"
#include "ctc/cpu_reverse.h"

namespace warpalign::detail::ctc {
namespace {

// A worker's memory for rows. Its sizes are those of the longest elements.
template <class T>
struct RowMemory : FrameMemory<T> {
  T* in;   // a packed row of logits, used if their last stride is not 1
  T* out;  // a packed row of the gradient, used if its last stride is not 1

  RowMemory(const CtcProblem& p, Arena& arena)
      : FrameMemory<T>(p, arena), in(arena.take<T>(p.classes)), out(arena.take<T>(p.classes)) {}
};

template <class T>
std::size_t row_bytes(const CtcProblem& p) {
  Arena arena;
  static_cast<void>(RowMemory<T>(p, arena));
  return arena.used();
}

std::size_t reverse_bytes(const CtcProblem& p) {
  Arena arena;
  static_cast<void>(ReverseMemory(p, arena));
  return arena.used();
}

template <class T>
cpu::Team team_of(const CtcProblem& p, const Execution& execution) {
  constexpr int kMostHelpers = 16;
  cpu::Team team = cpu::Team::of(p.batch, execution, kMostHelpers);
  team.item_bytes = cpu::rounded_to_worker(reverse_bytes(p));
  team.scratch_bytes = cpu::rounded_to_worker(row_bytes<T>(p));
  return team;
}

// One utterance's gradient.
template <class T>
class GradientWriter {
 public:
  using Real = typename Arithmetic<T>::Real;

  GradientWriter(const CtcProblem& p, const CtcGradient& gradient, const Utterance& u, double upstream)
      : p_(p), gradient_(gradient), u_(u), upstream_(upstream) {}

  void fill(std::int32_t first, std::int32_t last, T value) const {
    const std::int64_t step = gradient_.logits_stride[2];
    for (std::int32_t t = first; t < last; ++t) {
      T* const row = row_of(t);
      for (std::int32_t c = 0; c < p_.classes; ++c) row[c * step] = value;
    }
  }

  void write(std::int32_t t, const Lattice& lattice, const Frames<T>& frames, const double* posteriors,
             const RowMemory<T>& memory) const {
    const Rows<T> rows(p_.logits.data, p_.logits.stride, p_.classes, memory.in);
    T* const row = row_of(t);
    const std::int64_t step = gradient_.logits_stride[2];
    CpuFrameGradient<Real> frame{};
    frame.row = rows(u_.index, t);
    frame.out = step == 1 ? row : memory.out;
    frame.columns = p_.classes;
    frame.lse = frames.lse_of(t);
    frame.others = frames.others_of(t);
    frame.star = lattice.star() > 0 ? posteriors[lattice.star()] : 0;
    frame.upstream = upstream_;
    frame.log_probs = p_.log_probs;
    frame.slots = lattice.slots();
    frame.blank = p_.blank;
    frame.column = lattice.columns();
    frame.star_slot = lattice.star();
    frame.g = posteriors;
    frame.dense = memory.dense;
    frame.mended = memory.mended;
    Arithmetic<T>::rows().gradient(frame);
    for (std::int32_t c = 0; step != 1 && c < p_.classes; ++c) row[c * step] = memory.out[c];
  }

 private:
  [[nodiscard]] T* row_of(std::int32_t t) const {
    return static_cast<T*>(gradient_.logits) + u_.index * gradient_.logits_stride[0] +
           t * gradient_.logits_stride[1];
  }

  const CtcProblem& p_;
  const CtcGradient& gradient_;
  const Utterance& u_;
  const double upstream_;
};

// The rows of a segment's gradient, which any worker may write.
template <class T>
struct SegmentRows : cpu::SharedWork {
  const CtcProblem* p;
  const GradientWriter<T>* writer;
  const Frames<T>* frames;
  const ReverseMemory* memory;
  std::int32_t begin = 0, end = 0;
  std::atomic<std::int32_t> next{0};

  static void work(cpu::SharedWork& shared, void* scratch) {
    constexpr std::int32_t kAtOnce = 8;
    auto& self = static_cast<SegmentRows&>(shared);
    const host::FlushToZero flush;
    Arena arena(scratch);
    const RowMemory<T> rows(*self.p, arena);
    if (rows.dense) std::fill_n(rows.dense, self.p->classes, 0);
    for (std::int32_t t = self.next.fetch_add(kAtOnce); t < self.end; t = self.next.fetch_add(kAtOnce)) {
      for (std::int32_t frame = t; frame < std::min(t + kAtOnce, self.end); ++frame) {
        self.writer->write(frame, self.memory->lattice, *self.frames,
                           self.memory->posteriors + self.memory->stride * (frame - self.begin), rows);
      }
    }
  }
};

template <class T>
void gradient_of(const CtcProblem& p, const CtcGradient& gradient, const Utterance& u,
                 const cpu::ItemMemory& item) {
  using Real = typename Arithmetic<T>::Real;
  const double upstream = gradient.grad_loss ? static_cast<double>(static_cast<const Real*>(
                                                   gradient.grad_loss)[u.index * gradient.grad_loss_stride])
                                             : 1;
  const GradientWriter<T> writer(p, gradient, u, upstream);
  const Saved saved(p, const_cast<void*>(gradient.saved), u.index);
  writer.fill(u.frames, p.frames, T{});
  if (upstream == 0 || saved.header->outcome == Outcome::kNoPath) return writer.fill(0, u.frames, T{});
  if (saved.header->outcome == Outcome::kBadLogit) {
    return writer.fill(0, u.frames, rounded_to<T>(std::numeric_limits<float>::quiet_NaN()));
  }
  Arena arena(item.item);
  ReverseMemory memory(p, arena);
  memory.lattice.clear();
  memory.lattice.set(u);
  Arena own(item.scratch);
  const RowMemory<T> row_memory(p, own);
  const Rows<T> rows(p.logits.data, p.logits.stride, p.classes, row_memory.in);
  const Frames<T> frames(p, u, memory.lattice, {saved.lse, saved.others, 0}, rows);
  SegmentRows<T> work{{&SegmentRows<T>::work}, &p, &writer, &frames, &memory};
  const auto no_labels = [](std::int32_t, std::int64_t, const double*, const CpuRange&) {};
  Reverse(p, u, frames, saved, memory, false, no_labels).run(item, [&](std::int32_t begin, std::int32_t end) {
    work.begin = begin;
    work.end = end;
    work.next = begin;
    if (item.slot) {
      item.slot->run_shared(work, item.scratch);
    } else {
      work.run(work, item.scratch);
    }
  });
}

// A worker's memory for posteriors of labels.
struct PosteriorScratch {
  double* labels;
  std::byte* packed;  // a packed row of logits

  PosteriorScratch(const CtcProblem& p, Arena& arena)
      : labels(arena.take<double>(cpu_stride(stripes_of(p).widest(p.labels)))),
        packed(arena.take<std::byte>(size_of(p.dtype) * p.classes)) {}
};

struct PosteriorMemory {
  void* saved;
  ForwardMemory forward;
  cpu::Team team;
  std::byte* team_memory;

  PosteriorMemory(const CtcProblem& p, const Execution& execution, Arena& arena)
      : saved(arena.take<std::byte>(saved_bytes_cpu(p, execution))),
        forward(p, true, execution, arena),
        team(cpu::Team::of(p.batch, execution, stripes_of(p).count)) {
    Arena scratch;
    static_cast<void>(PosteriorScratch(p, scratch));
    team.item_bytes = cpu::rounded_to_worker(reverse_bytes(p));
    team.scratch_bytes = cpu::rounded_to_worker(scratch.used());
    team_memory = arena.take<std::byte>(team.bytes() + cpu::kWorkerAlignment);
  }
};

// (T, U) of one utterance.
template <class T>
void write_posteriors(const CtcProblem& p, const CtcPosteriors& out, const Utterance& u, const Saved& saved,
                      const cpu::ItemMemory& item) {
  using Real = typename Arithmetic<T>::Real;
  const std::int64_t count = std::int64_t{p.frames} * p.labels;
  Real* const to = static_cast<Real*>(out.labels) + u.index * count;
  std::fill_n(to, count, Real(0));
  if (saved.header->outcome == Outcome::kNoPath) return;
  if (saved.header->outcome == Outcome::kBadLogit) {
    for (std::int64_t t = 0; t < u.frames; ++t) {
      std::fill_n(to + t * p.labels, u.labels, std::numeric_limits<Real>::quiet_NaN());
    }
    return;
  }
  Arena arena(item.item), scratch(item.scratch);
  ReverseMemory memory(p, arena);
  memory.lattice.clear();
  memory.lattice.set(u);
  const Rows<T> rows(p.logits.data, p.logits.stride, p.classes,
                     reinterpret_cast<T*>(PosteriorScratch(p, scratch).packed));
  const Frames<T> frames(p, u, memory.lattice, {saved.lse, saved.others, 0}, rows);
  const auto write = [&](std::int32_t t, std::int64_t first, const double* labels, const CpuRange& range) {
    Real* const row = to + std::int64_t{t} * p.labels + first;
    const std::int64_t end = std::min<std::int64_t>(range.last + 1, u.labels - first);
    for (std::int64_t k = range.first; k < end; ++k) row[k] = static_cast<Real>(labels[k]);
  };
  Reverse(p, u, frames, saved, memory, true, write).run(item, [](std::int32_t, std::int32_t) {});
}

template <class T>
void posteriors(const CtcProblem& p, const CtcPosteriors& out, const PosteriorMemory& memory,
                const Execution& execution) {
  const Batch batch(p, memory.forward.first_targets);
  forward<T>(p, out.loss, memory.saved, memory.forward, batch, execution);
  if (p.frames == 0 || p.labels == 0) return;
  cpu::run_team(memory.team, {for_workers(memory.team_memory), memory.team.bytes()}, execution,
                [&](int b, const cpu::ItemMemory& item) {
                  const host::FlushToZero flush;
                  write_posteriors<T>(p, out, batch[b], Saved(p, memory.saved, b), item);
                });
}

}  // namespace

std::size_t gradient_workspace_bytes_cpu(const CtcProblem& p, const CtcGradient& /*gradient*/,
                                         const Execution& execution) {
  Arena arena;
  arena.take<std::int64_t>(p.batch);
  visit_dtype(p.dtype, [&](auto type) {
    arena.take<std::byte>(team_of<typename decltype(type)::Type>(p, execution).bytes() +
                          cpu::kWorkerAlignment);
  });
  return arena.used();
}

Status gradient_cpu(const CtcProblem& p, const CtcGradient& gradient, Workspace workspace,
                    const Execution& execution) {
  Arena arena(workspace.data);
  const Batch batch(p, arena.take<std::int64_t>(p.batch));
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    const cpu::Team team = team_of<T>(p, execution);
    std::byte* const memory = for_workers(arena.take<std::byte>(team.bytes() + cpu::kWorkerAlignment));
    cpu::run_team(team, {memory, team.bytes()}, execution, [&](int b, const cpu::ItemMemory& item) {
      const host::FlushToZero flush;
      gradient_of<T>(p, gradient, batch[b], item);
    });
  });
  return {};
}

std::size_t posteriors_workspace_bytes_cpu(const CtcProblem& p, const CtcPosteriors& /*posteriors*/,
                                           const Execution& execution) {
  Arena arena;
  static_cast<void>(PosteriorMemory(p, execution, arena));
  return arena.used();
}

Status posteriors_cpu(const CtcProblem& p, const CtcPosteriors& out, Workspace workspace,
                      const Execution& execution) {
  Arena arena(workspace.data);
  const PosteriorMemory memory(p, execution, arena);
  visit_dtype(p.dtype,
              [&](auto type) { posteriors<typename decltype(type)::Type>(p, out, memory, execution); });
  return {};
}

}  // namespace warpalign::detail::ctc
