// Stripes: the pairs of a long utterance, divided among threads. A stripe has rows of its own, and needs a
// number of values per frame of its neighbour: it waits until that one has gone through the frame.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

#include "cpu/pause.h"
#include "cpu/team.h"
#include "ctc/cpu_batch.h"
#include "ctc/tuning.h"

namespace warpalign::detail::ctc {

// The division of an utterance's pairs into stripes of `width` pairs, a multiple of kCpuPad if there are
// several; the last stripe has the rest.
struct Stripes {
  std::int32_t count;
  std::int32_t width;

  // At most `most` stripes of at least `least` pairs.
  static Stripes of(std::int32_t labels, std::int64_t least, std::int64_t most) {
    const auto count = static_cast<std::int32_t>(
        std::clamp<std::int64_t>((labels + std::int64_t{1}) / least, 1, std::max<std::int64_t>(most, 1)));
    return {count, count == 1 ? labels + 1 : (labels + 1) / count / kCpuPad * kCpuPad};
  }
  // The number of pairs of the widest one.
  [[nodiscard]] std::int32_t widest(std::int32_t labels) const {
    const std::int32_t last = labels + 1 - width * (count - 1);
    return count > 1 ? std::max(width, last) : last;
  }
};

// A stripe of an utterance: pairs first .. last, without those that the utterance does not have.
struct Stripe {
  std::int64_t first;
  std::int64_t last;
  CpuLattice lattice;  // its pair 0 is pair `first`

  // stride: of the stripe's rows.
  Stripe(const Stripes& stripes, const CpuLattice& all, std::int32_t index, std::int64_t stride)
      : first(std::int64_t{index} * stripes.width), last(all.labels), lattice(all) {
    if (index < stripes.count - 1) last = std::min<std::int64_t>(first + stripes.width - 1, all.labels);
    lattice.stride = stride;
    lattice.slot += first;
    lattice.skip += first;
  }
  [[nodiscard]] std::int64_t pairs() const { return std::max<std::int64_t>(last - first + 1, 0); }
  [[nodiscard]] bool has(std::int64_t pair) const { return first <= pair && pair <= last; }
  // The stripe's part of a frame's pairs, relative to `first`; empty if first > last.
  [[nodiscard]] CpuRange part_of(const CpuRange& all) const {
    return {std::max(all.first, first) - first, std::min(all.last, last) - first};
  }
};
inline bool is_empty(const CpuRange& range) { return range.first > range.last; }

// The number of frames that a stripe has gone through, in a cache line of its own.
struct alignas(64) Progress {
  std::atomic<std::int32_t> frames{0};

  void publish(std::int32_t done) { frames.store(done, std::memory_order_release); }
  void wait_for(std::int32_t wanted) const {
    for (int turn = 0; frames.load(std::memory_order_acquire) < wanted; ++turn) cpu::pause(turn);
  }
};

// Runs sweep(k, scratch) for k = 0 .. count - 1 by all workers of an item. They take stripes in ascending
// order, so that a stripe that waits for those before it waits for work that another worker has begun.
template <class Sweep>
class StripeWork : cpu::SharedWork {
 public:
  StripeWork(std::int32_t count, const Sweep& sweep)
      : cpu::SharedWork{&StripeWork::work}, count_(count), sweep_(sweep) {}

  void run_with(const cpu::ItemMemory& item) {
    if (item.slot && count_ > 1) {
      item.slot->run_shared(*this, item.scratch);
    } else {
      work(*this, item.scratch);
    }
  }

 private:
  static void work(cpu::SharedWork& shared, void* scratch) {
    auto& self = static_cast<StripeWork&>(shared);
    const host::FlushToZero flush;
    for (std::int32_t k = self.next_++; k < self.count_; k = self.next_++) self.sweep_(k, scratch);
  }

  const std::int32_t count_;
  const Sweep& sweep_;
  std::atomic<std::int32_t> next_{0};
};

// The stripes of losses and their gradients. Sums of posteriors go by stripes, so that the width follows from
// nothing but the number of classes: an utterance has the same bits in any batch. A stripe is wide enough
// that its pairs take longer than a frame's weights, which each stripe computes in the first pass.
inline Stripes stripes_of(const CtcProblem& p) {
  constexpr std::int64_t kPairsOfClass = 4;
  const std::int64_t least = cpu_tuning(cpu::selected_isa()).stripe_pairs;
  const std::int64_t width = (std::max(least, kPairsOfClass * p.classes) + kCpuPad - 1) / kCpuPad * kCpuPad;
  const std::int64_t pairs = p.labels + std::int64_t{1};
  return {
      static_cast<std::int32_t>((pairs + width - 1) / width),
      static_cast<std::int32_t>(std::min<std::int64_t>(width, std::numeric_limits<std::int32_t>::max() / 2))};
}

// The address, aligned for a team's workers; the memory has kWorkerAlignment bytes more than the team needs.
inline std::byte* for_workers(std::byte* memory) {
  const auto past = reinterpret_cast<std::uintptr_t>(memory) % cpu::kWorkerAlignment;
  return past == 0 ? memory : memory + (cpu::kWorkerAlignment - past);
}

}  // namespace warpalign::detail::ctc
