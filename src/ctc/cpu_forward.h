// The first pass over the lattice: the sum over all paths of every utterance, and the states that the second
// pass starts from.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ctc/cpu_frames.h"
#include "ctc/cpu_saved.h"

namespace warpalign::detail::ctc {

// A call's memory for the first pass.
struct ForwardMemory {
  std::int64_t* first_targets;
  std::int32_t* is_nan;
  double* normalizers;  // used if nothing is saved for a second pass
  std::byte* packed;    // a packed row for each worker
  std::byte* workers;
  std::size_t worker_bytes;

  ForwardMemory(const CtcProblem& p, bool keeps, const Execution& execution, Arena& arena)
      : first_targets(arena.take<std::int64_t>(p.batch)),
        is_nan(arena.take<std::int32_t>(p.batch)),
        normalizers(arena.take<double>(keeps ? 0 : Normalizers::doubles(p))),
        packed(arena.take<std::byte>(size_of(p.dtype) * p.classes * cpu::threads_of(execution))) {
    Arena one;
    static_cast<void>(Worker(p, one));
    worker_bytes = one.used();
    workers = arena.take<std::byte>(worker_bytes * workers_of(p, execution));
  }

  static int workers_of(const CtcProblem& p, const Execution& execution) {
    return std::clamp(cpu::threads_of(execution), 1, std::max(p.batch, 1));
  }

  struct Worker {
    Lattice lattice;
    double* rows[2];
    CpuWeights weights;

    Worker(const CtcProblem& p, Arena& arena)
        : lattice(p, arena),
          rows{arena.take<double>(4 * cpu_stride(p.labels)), arena.take<double>(4 * cpu_stride(p.labels))},
          weights{arena.take<double>(weights_stride(most_slots(p))),
                  arena.take<double>(weights_stride(most_slots(p)))} {}
  };
};

// The sum over all paths that end in the last blank or label of `row`.
inline SavedHeader sum_of_ends(const double* row, std::int64_t stride, std::int32_t labels) {
  const double* const blank = row + kCpuPad + labels;
  const double* const label = row + 2 * stride + kCpuPad + labels - 1;  // with U = 0 it is unreachable
  const double largest = std::max(blank[stride], label[stride]);
  const double sum =
      blank[0] * std::exp2(blank[stride] - largest) + label[0] * std::exp2(label[stride] - largest);
  return {largest < kCpuNoPath ? Outcome::kNoPath : Outcome::kPaths, sum, largest};
}

// Computes alpha from the first frame to the last, and stores the states at the boundaries of segments in
// `saved`, if it is not null.
template <class T>
SavedHeader sum_paths(const CtcProblem& p, const Utterance& u, const Frames<T>& frames,
                      ForwardMemory::Worker& memory, const Saved* saved) {
  const CpuLattice lattice = memory.lattice.view();
  const CpuKernels& k = kernels();
  const std::int32_t segment = segment_frames(p);
  double* row = memory.rows[0];
  double* next = memory.rows[1];
  clear_row(row, lattice.stride);
  clear_row(next, lattice.stride);
  set_end(row, lattice.stride, 0);
  bool bad = false;
  for (std::int32_t t = 0; t < u.frames; ++t) {
    bad |= frames.weigh(t, memory.weights);
    const CpuRange range = range_of(u, t);
    k.alpha(lattice, memory.weights, row, next, range);
    std::swap(row, next);
    if ((t + 1) % kCpuLazy == 0) k.normalize(lattice, row, range);
    if (saved && (t + 1) % segment == 0 && t + 1 < u.frames) {
      saved->put((t + 1) / segment, row, lattice.stride);
    }
  }
  if (bad) return {Outcome::kBadLogit, 0, 0};
  // With too few frames no pair of the last frame has been computed.
  if (u.frames < u.labels) return {Outcome::kNoPath, 0, 0};
  return sum_of_ends(row, lattice.stride, u.labels);
}

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
  std::atomic<int> next{0};
  cpu::run_workers(execution, ForwardMemory::workers_of(p, execution), [&](int worker) {
    const host::FlushToZero flush;
    Arena arena(memory.workers + worker * memory.worker_bytes);
    ForwardMemory::Worker own(p, arena);
    own.lattice.clear();
    const Rows<T> rows(p.logits.data, p.logits.stride, p.classes,
                       reinterpret_cast<T*>(memory.packed) + static_cast<std::int64_t>(worker) * p.classes);
    for (int b = next++; b < p.batch; b = next++) {
      const Utterance u = batch[b];
      SavedHeader header{Outcome::kBadLogit, 0, 0};
      const Saved utterance_saved(p, saved, b);
      if (memory.is_nan[b] == 0) {
        own.lattice.set(u);
        header = sum_paths<T>(p, u, Frames<T>(p, u, own.lattice, normalizers, rows), own,
                              saved ? &utterance_saved : nullptr);
      }
      if (saved) *utterance_saved.header = header;
      if (loss) static_cast<Real*>(loss)[b] = static_cast<Real>(loss_of(p, header));
    }
  });
}

}  // namespace warpalign::detail::ctc
