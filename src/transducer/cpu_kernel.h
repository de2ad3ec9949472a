// What the CPU path's driver (cpu.cpp) and its kernels (cpu_kernel.inl, one copy per instruction set) share.
// Plain data only: no inline function here may be compiled under two sets of flags.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/row_kernel.h"

namespace warpalign::detail::transducer {

// Columns that arcs of one node can name: blank, big blanks and a label, or all durations.
constexpr int kCpuColumns = cpu::kRowColumns;

// Elements in front of and behind an utterance's slots that vectors may read (and that hold finite numbers).
constexpr int kCpuPad = 96;

// An utterance's lattice. Nodes are numbered along anti-diagonals: diagonal d = t + u has positions
// low(d) .. high(d), t or u, whichever has fewer values; node (d, position) is number
// begin(d) + position - low(d). A slot's array is indexed by the node that the arc leaves.
template <class Real>
struct CpuLattice {
  std::int32_t frames;  // T >= 1
  std::int32_t states;  // U + 1
  std::int32_t arcs;    // of arcs.h
  std::int32_t blanks;
  std::int32_t depth;           // of the rings: diagonals that an arc can cross, and one more
  const std::int32_t* advance;  // [slot]: frames
  // [slot][node], node_count apart. On entry log2 weights; after forward the arc's share of the node that it
  // leads to; after reverse its posterior.
  Real* slots;
  std::int64_t slot_stride;
  // [diagonal modulo depth][position], ring_stride apart, position 0 at kCpuPad: alpha = mantissa 2^exponent,
  // and on the way back the node's posterior (in mantissa's place).
  double* mantissa;
  double* exponent;
  std::int64_t ring_stride;
};

// log2 of the sum over all paths = exponent + log2(mantissa); exponent below kCpuNoPath: there is none.
struct CpuOutcome {
  double mantissa;
  double exponent;
};
constexpr double kCpuNoPath = -0.5e299;

// The best path's last arc: its step, as arcs.h has it; 0: there is no path.
struct CpuBestEnd {
  double log2_weight;
  std::uint8_t step;
};

// Which arcs best paths come through. steps[node] is the step into the node; node_count + kCpuStepPad bytes.
struct CpuBestPath {
  const std::int32_t* order;  // of slots, preferred ones first
  std::uint8_t* steps;
};
constexpr int kCpuStepPad = 8;

template <class Real>
struct CpuLatticeKernels {
  CpuOutcome (*forward)(const CpuLattice<Real>&, bool want_shares);
  void (*reverse)(const CpuLattice<Real>&, const CpuOutcome&);
  // Reads the weights and leaves them; uses the mantissas' ring.
  CpuBestEnd (*best_path)(const CpuLattice<Real>&, const CpuBestPath&);
};

// The kernels of one instruction set.
struct CpuKernels {
  cpu::RowKernels<float> rows32;
  cpu::RowKernels<double> rows64;
  cpu::RowKernels<float> rows16;    // binary16
  cpu::RowKernels<float> rows_b16;  // bfloat16
  CpuLatticeKernels<float> lattice32;
  CpuLatticeKernels<double> lattice64;
};

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::transducer
