// The lattice of every utterance on the CPU: the loss from arc weights, and posteriors, which overwrite the
// weights.
#pragma once

#include <atomic>
#include <limits>

#include "transducer/cpu_batch.h"

namespace warpalign::detail::transducer {
inline namespace on_host {

// One worker's rings.
struct Rings {
  std::int64_t stride;
  std::int32_t depth;

  explicit Rings(const TransducerLattice& l)
      : stride(std::min(l.frames, l.states) + std::int64_t{2} * kCpuPad),
        depth(std::max(arc_table(l).longest, 1) + 2) {}
  [[nodiscard]] std::size_t elements() const { return 2 * static_cast<std::size_t>(stride) * depth; }
};

// An utterance's lattice, whose weights are in saved memory, with one worker's rings. Sets the elements
// before and after the weights, which vectors read, to 0.
template <class Real>
CpuLattice<Real> lattice_of(const Utterance& utterance, const Family& family, const Saved<Real>& memory,
                            const Rings& rings, double* ring_memory) {
  const std::int32_t arcs = family.table.arcs();
  std::fill(memory.slots - kCpuPad, memory.slots, Real(0));
  std::fill(memory.slots + arcs * memory.stride, memory.slots + arcs * memory.stride + kCpuPad, Real(0));
  return {utterance.frames,
          utterance.states(),
          arcs,
          family.table.blanks,
          rings.depth,
          family.table.frames,
          memory.slots,
          memory.stride,
          ring_memory,
          ring_memory + rings.stride * rings.depth,
          rings.stride};
}

// Computes the value and, if requested, the posteriors, which overwrite the weights.
template <class Real>
double solve(const TransducerLattice& l, const Utterance& utterance, bool is_nan, void* saved,
             bool want_posteriors, const Rings& rings, double* ring_memory,
             const CpuLatticeKernels<Real>& lattice) {
  const Saved<Real> memory(saved, utterance);
  const Family family(l, utterance);
  const auto fill = [&](Real value) {
    std::fill(memory.slots, memory.slots + family.table.arcs() * memory.stride, value);
  };
  if (utterance.frames == 0) return std::numeric_limits<double>::infinity();
  if (is_nan) {
    fill(std::numeric_limits<Real>::quiet_NaN());
    return std::numeric_limits<double>::quiet_NaN();
  }
  const CpuLattice<Real> job = lattice_of(utterance, family, memory, rings, ring_memory);
  const CpuOutcome outcome = lattice.forward(job, want_posteriors);
  if (!(outcome.exponent > kCpuNoPath)) {
    if (want_posteriors) fill(Real(0));
    return std::numeric_limits<double>::infinity();
  }
  if (want_posteriors) lattice.reverse(job, outcome);
  return -(outcome.exponent + std::log2(outcome.mantissa)) * kLn2<double>;
}

// Computes every utterance's loss from its weights, by all threads. is_nan: (B,). rings: Rings::elements()
// for each of lattice_workers().
inline int lattice_workers(const TransducerLattice& l, const Execution& execution) {
  return std::clamp(threads_of(execution), 1, std::max(l.batch, 1));
}
template <class Real>
void solve_batch(const TransducerLattice& l, const Batch& batch, const std::int32_t* is_nan, void* saved,
                 bool want_posteriors, double* ring_memory, const CpuLatticeKernels<Real>& lattice,
                 Real* loss, const Execution& execution) {
  const Rings rings(l);
  std::atomic<int> next{0};
  run_workers(execution, lattice_workers(l, execution), [&](int worker) {
    const host::FlushToZero flush;
    double* const own = ring_memory + worker * rings.elements();
    for (int b = next++; b < l.batch; b = next++) {
      double value = solve<Real>(l, batch[b], is_nan[b] != 0, saved, want_posteriors, rings, own, lattice);
      if (l.zero_infinity && value == std::numeric_limits<double>::infinity()) value = 0;
      loss[b] = static_cast<Real>(value);
    }
  });
}

}  // namespace on_host
}  // namespace warpalign::detail::transducer
