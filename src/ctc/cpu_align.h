// The memory of alignments on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ctc/cpu_frames.h"
#include "ctc/cpu_stripes.h"

namespace warpalign::detail::ctc {

// K, the frames of a segment. Stored frames take 16 T U / K bytes and predecessors K^2 bytes; the sum is
// least for K^3 = 8 T U. The second pass computes T K / 2 pairs, so a smaller K is used if its stored frames
// fit into a megabyte.
inline std::int32_t segment_of(const CtcProblem& p) {
  const double pairs = static_cast<double>(p.frames) * (p.labels + 1);
  const double best = std::min(std::cbrt(8 * pairs), 16 * pairs / (1 << 20));
  return std::clamp(static_cast<std::int32_t>(best), 64, 1024);
}

// The stripes of alignments, whose best paths do not depend on their number. Each thread has several stripes,
// which keeps waits short.
inline Stripes align_stripes_of(const CtcProblem& p, const Execution& execution) {
  const CpuTuning tuning = cpu_tuning(cpu::selected_isa());
  const int threads = cpu::threads_of(execution) / std::max(p.batch, 1);
  return Stripes::of(p.labels, tuning.stripe_pairs, threads > 1 ? threads * tuning.stripes_per_thread : 1);
}

// An utterance's memory.
struct AlignItem {
  Lattice lattice;
  std::int64_t row;  // number of doubles of a row
  double* rows[2];
  double* weights;
  double* stored_rows;  // stored rows: the frames before segments 1, 2, ...
  std::int64_t width;
  std::uint8_t* steps;  // predecessors in a segment: `width` bytes per frame
  double* edges;        // [stripe][frame]: the value of a stripe's last label
  Progress* progress;   // [stripe]

  AlignItem(const CtcProblem& p, const Stripes& stripes, Arena& arena)
      : lattice(p, arena),
        row(2 * cpu_stride(p.labels)),
        rows{arena.take<double>(row), arena.take<double>(row)},
        weights(arena.take<double>(weights_stride(most_slots(p)))),
        stored_rows(arena.take<double>(row * (p.frames / segment_of(p)))),
        width(std::min<std::int64_t>(segment_of(p) + 3 * kCpuPad, cpu_stride(p.labels))),
        steps(arena.take<std::uint8_t>(width * std::min(segment_of(p), std::max(p.frames, 1)))),
        edges(arena.take<double>(static_cast<std::size_t>(p.frames) * stripes.count)),
        progress(arena.take<Progress>(stripes.count)) {}
};

// A worker's memory for a stripe.
template <class T>
struct StripeMemory {
  double* rows[2];
  double* weights;
  T* packed;

  StripeMemory(const CtcProblem& p, const Stripes& stripes, Arena& arena)
      : rows{arena.take<double>(2 * cpu_stride(stripes.widest(p.labels))),
             arena.take<double>(2 * cpu_stride(stripes.widest(p.labels)))},
        weights(arena.take<double>(weights_stride(most_slots(p)))),
        packed(arena.take<T>(p.classes)) {}
};

struct AlignMemory {
  std::int64_t* first_targets;
  std::int32_t* is_nan;
  double* normalizers;
  std::byte* packed;

  AlignMemory(const CtcProblem& p, const Execution& execution, Arena& arena)
      : first_targets(arena.take<std::int64_t>(p.batch)),
        is_nan(arena.take<std::int32_t>(p.batch)),
        normalizers(arena.take<double>(Normalizers::doubles(p))),
        packed(arena.take<std::byte>(size_of(p.dtype) * p.classes * cpu::threads_of(execution))) {}
};

template <class T>
cpu::Team team_of(const CtcProblem& p, const Stripes& stripes, const Execution& execution) {
  cpu::Team team = cpu::Team::of(p.batch, execution, stripes.count);
  Arena item, scratch;
  static_cast<void>(AlignItem(p, stripes, item));
  static_cast<void>(StripeMemory<T>(p, stripes, scratch));
  team.item_bytes = cpu::rounded_to_worker(item.used());
  team.scratch_bytes = cpu::rounded_to_worker(scratch.used());
  return team;
}

}  // namespace warpalign::detail::ctc
