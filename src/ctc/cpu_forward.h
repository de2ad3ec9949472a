// The first pass over the lattice: the sum over all paths of every utterance, and the states that the second
// pass starts from. Threads share the utterances, and stripes of a long one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ctc/cpu_frames.h"
#include "ctc/cpu_saved.h"
#include "ctc/cpu_stripes.h"

namespace warpalign::detail::ctc {

// One utterance's memory for the first pass.
struct ForwardItem {
  Lattice lattice;
  double* edges;       // [stripe][frame]: mantissa and exponent of the state of the stripe's last label
  Progress* progress;  // [stripe]

  ForwardItem(const CtcProblem& p, const Stripes& stripes, Arena& arena)
      : lattice(p, arena),
        edges(arena.take<double>(stripes.count > 1 ? std::size_t{2} * p.frames * stripes.count : 0)),
        progress(arena.take<Progress>(stripes.count)) {
    if (stripes.count == 1) edges = nullptr;
  }
};

// A worker's memory for a stripe.
struct ForwardScratch {
  std::int64_t stride;  // of rows
  double* rows[2];
  CpuWeights weights;
  std::byte* packed;  // a packed row of logits

  ForwardScratch(const CtcProblem& p, const Stripes& stripes, Arena& arena)
      : stride(cpu_stride(stripes.widest(p.labels))),
        rows{arena.take<double>(4 * stride), arena.take<double>(4 * stride)},
        weights{arena.take<double>(weights_stride(most_slots(p))),
                arena.take<double>(weights_stride(most_slots(p)))},
        packed(arena.take<std::byte>(size_of(p.dtype) * p.classes)) {}
};

// A call's memory for the first pass.
struct ForwardMemory {
  std::int64_t* first_targets;
  std::int32_t* is_nan;
  double* normalizers;  // used if nothing is saved for a second pass
  std::byte* packed;    // a packed row for each worker
  Stripes stripes;
  cpu::Team team;
  std::byte* team_memory;

  ForwardMemory(const CtcProblem& p, bool keeps, const Execution& execution, Arena& arena)
      : first_targets(arena.take<std::int64_t>(p.batch)),
        is_nan(arena.take<std::int32_t>(p.batch)),
        normalizers(arena.take<double>(keeps ? 0 : Normalizers::doubles(p))),
        packed(arena.take<std::byte>(size_of(p.dtype) * p.classes * cpu::threads_of(execution))),
        // Alpha has the same bits for any number of stripes.
        stripes(cpu::threads_of(execution) > p.batch ? stripes_of(p) : Stripes::of(p.labels, 1, 1)),
        team(cpu::Team::of(p.batch, execution, stripes.count)) {
    Arena item, scratch;
    static_cast<void>(ForwardItem(p, stripes, item));
    static_cast<void>(ForwardScratch(p, stripes, scratch));
    team.item_bytes = cpu::rounded_to_worker(item.used());
    team.scratch_bytes = cpu::rounded_to_worker(scratch.used());
    team_memory = arena.take<std::byte>(team.bytes() + cpu::kWorkerAlignment);
  }
};

// One utterance's first pass: alpha from the first frame to the last. The states at the boundaries of
// segments are stored in `saved`, if it is not null.
template <class T>
class PathSum {
 public:
  PathSum(const CtcProblem& p, const Utterance& u, const Normalizers& normalizers, const Stripes& stripes,
          const ForwardItem& memory, const Saved* saved)
      : p_(p),
        u_(u),
        normalizers_(normalizers),
        stripes_(stripes),
        memory_(memory),
        saved_(saved),
        lattice_(memory.lattice.view()) {
    for (std::int32_t k = 0; k < stripes.count; ++k) new (&memory.progress[k]) Progress;
  }

  SavedHeader run(const cpu::ItemMemory& item) {
    const auto sweep_one = [this](std::int32_t k, void* scratch) {
      Arena arena(scratch);
      sweep(k, ForwardScratch(p_, stripes_, arena));
    };
    StripeWork(stripes_.count, sweep_one).run_with(item);
    if (bad_) return {Outcome::kBadLogit, 0, 0};
    // With too few frames no pair of the last frame has been computed.
    if (u_.frames < u_.labels) return {Outcome::kNoPath, 0, 0};
    return end();
  }

 private:
  void sweep(std::int32_t index, const ForwardScratch& memory) {
    constexpr std::int32_t kPublished = 8;  // frames between two updates of a stripe's progress
    const Stripe stripe(stripes_, lattice_, index, memory.stride);
    const std::int64_t stride = memory.stride, pairs = stripe.pairs();
    const Rows<T> rows(p_.logits.data, p_.logits.stride, p_.classes, reinterpret_cast<T*>(memory.packed));
    const Frames<T> frames(p_, u_, memory_.lattice, normalizers_, rows);
    const CpuKernels& k = kernels();
    const std::int32_t segment = segment_frames(p_);
    double* row = memory.rows[0];
    double* next = memory.rows[1];
    clear_row(row, stride);
    clear_row(next, stride);
    if (index == 0) set_end(row, stride, 0);
    double* const edge = edge_of(index);
    const double* const edge_before = index > 0 ? edge_of(index - 1) : nullptr;
    bool bad = false;
    for (std::int32_t t = 0; t < u_.frames; ++t) {
      const CpuRange range = stripe.part_of(range_of(u_, t));
      const bool lives = !is_empty(range);
      // With fewer frames than labels no range has a pair, and a NaN counts all the same.
      if (lives || (index == 0 && u_.frames < u_.labels)) bad |= frames.weigh(t, memory.weights);
      if (lives) {
        if (index > 0 && t > 0) {
          memory_.progress[index - 1].wait_for(t);
          row[2 * stride + kCpuPad - 1] = edge_before[2 * (t - 1)];
          row[3 * stride + kCpuPad - 1] = edge_before[2 * (t - 1) + 1];
        }
        k.alpha(stripe.lattice, memory.weights, row, next, range);
        std::swap(row, next);
        if ((t + 1) % kCpuLazy == 0) k.normalize(stripe.lattice, row, range);
      }
      if (index + 1 < stripes_.count) {
        const double* const last = row + 2 * stride + kCpuPad + stripes_.width - 1;
        edge[2 * t] = lives ? last[0] : 1;
        edge[2 * t + 1] = lives ? last[stride] : kCpuDead;
        if ((t + 1) % kPublished == 0 || t + 1 == u_.frames) memory_.progress[index].publish(t + 1);
      }
      if (saved_ && (t + 1) % segment == 0 && t + 1 < u_.frames && pairs > 0) {
        saved_->put((t + 1) / segment, row, stride, stripe.first, pairs);
      }
    }
    if (bad) bad_ = true;
    if (stripe.has(u_.labels)) copy_state(row + kCpuPad + u_.labels - stripe.first, stride, blank_);
    if (u_.labels > 0 && stripe.has(u_.labels - 1)) {
      copy_state(row + 2 * stride + kCpuPad + u_.labels - 1 - stripe.first, stride, label_);
    }
  }
  // [frame][2]; null if there is one stripe.
  [[nodiscard]] double* edge_of(std::int32_t index) const {
    return stripes_.count > 1 ? memory_.edges + std::int64_t{2} * index * p_.frames : nullptr;
  }
  static void copy_state(const double* mantissa, std::int64_t stride, double (&to)[2]) {
    to[0] = mantissa[0];
    to[1] = mantissa[stride];
  }

  // The sum over all paths that end in the last blank or label.
  [[nodiscard]] SavedHeader end() const {
    const double largest = std::max(blank_[1], label_[1]);
    const double sum =
        blank_[0] * std::exp2(blank_[1] - largest) + label_[0] * std::exp2(label_[1] - largest);
    return {largest < kCpuNoPath ? Outcome::kNoPath : Outcome::kPaths, sum, largest};
  }

  const CtcProblem& p_;
  const Utterance& u_;
  const Normalizers& normalizers_;
  const Stripes& stripes_;
  const ForwardItem& memory_;
  const Saved* const saved_;
  const CpuLattice lattice_;
  std::atomic<bool> bad_{false};
  double blank_[2] = {1, kCpuDead}, label_[2] = {1, kCpuDead};  // of the last frame: mantissa, exponent
};

inline double loss_of(const CtcProblem& p, const SavedHeader& header) {
  if (header.outcome == Outcome::kBadLogit) return kNaN;
  if (header.outcome == Outcome::kNoPath) return p.zero_infinity ? 0 : kInfinity;
  return -(std::log(header.mantissa) + header.exponent * kLn2<double>);
}

// Computes losses and the saved states. saved and loss may be null.
template <class T>
void forward(const CtcProblem& p, void* loss, void* saved, const ForwardMemory& memory, const Batch& batch,
             const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  Normalizers normalizers = Normalizers::within(p, memory.normalizers);
  if (saved) {
    const Saved first(p, saved, 0);
    normalizers = {first.lse, first.others, Saved::doubles(p)};
  }
  std::fill_n(memory.is_nan, p.batch, 0);
  normalize_frames<T>(p, batch, normalizers, memory.is_nan, reinterpret_cast<T*>(memory.packed), execution);
  cpu::run_team(memory.team, {for_workers(memory.team_memory), memory.team.bytes()}, execution,
                [&](int b, const cpu::ItemMemory& item) {
                  const host::FlushToZero flush;
                  const Utterance u = batch[b];
                  SavedHeader header{Outcome::kBadLogit, 0, 0};
                  const Saved utterance_saved(p, saved, b);
                  if (memory.is_nan[b] == 0) {
                    Arena arena(item.item);
                    ForwardItem own(p, memory.stripes, arena);
                    own.lattice.clear();
                    own.lattice.set(u);
                    header =
                        PathSum<T>(p, u, normalizers, memory.stripes, own, saved ? &utterance_saved : nullptr)
                            .run(item);
                  }
                  if (saved) *utterance_saved.header = header;
                  if (loss) static_cast<Real*>(loss)[b] = static_cast<Real>(loss_of(p, header));
                });
}

}  // namespace warpalign::detail::ctc
