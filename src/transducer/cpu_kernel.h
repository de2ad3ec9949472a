// Types shared by the driver of the CPU path (cpu.cpp) and its kernels (cpu_kernel.inl, one copy per
// instruction set). Plain data only: an inline function here would be compiled with several sets of flags,
// and the linker would merge the copies.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/row_kernel.h"

namespace warpalign::detail::transducer {

// The most columns of a row that have arcs: blank, big blanks and a label, or all durations.
constexpr int kCpuColumns = cpu::kRowColumns;

// The number of elements before and after an utterance's slots that vectors may read; they have finite
// values.
constexpr int kCpuPad = 96;

// An utterance's lattice. Nodes are numbered along anti-diagonals: diagonal d = t + u has positions low(d) ..
// high(d), a position being t or u, whichever has fewer values; node (d, position) has the number begin(d) +
// position - low(d). A slot's array is indexed by the node that the arc leaves.
template <class Real>
struct CpuLattice {
  std::int32_t frames;  // T >= 1
  std::int32_t states;  // U + 1
  std::int32_t arcs;    // as ArcTable in arcs.h
  std::int32_t blanks;
  std::int32_t depth;           // diagonals of a ring: one more than an arc can cross
  const std::int32_t* advance;  // [slot]: frames that the arc consumes
  // [slot][node], node_count apart. On entry log2 weights; after forward the arc's share in the node that it
  // leads to; after reverse its posterior.
  Real* slots;
  std::int64_t slot_stride;
  // [diagonal modulo depth][position], ring_stride apart, position 0 at kCpuPad: alpha = mantissa 2^exponent.
  // In the reverse sweep the mantissa is the node's posterior.
  double* mantissa;
  double* exponent;
  std::int64_t ring_stride;
};

// log2 of the sum over all paths = exponent + log2(mantissa). There is no path if exponent < kCpuNoPath.
struct CpuOutcome {
  double mantissa;
  double exponent;
};
constexpr double kCpuNoPath = -0.5e299;

// The step of the best path's last arc (arcs.h); 0 if there is no path.
struct CpuBestEnd {
  double log2_weight;
  std::uint8_t step;
};

// The arcs of best paths. steps[node] is the step into the node; there are node_count + kCpuStepPad bytes.
struct CpuBestPath {
  const std::int32_t* order;  // slots in order of preference
  std::uint8_t* steps;
};
constexpr int kCpuStepPad = 8;

template <class Real>
struct CpuLatticeKernels {
  CpuOutcome (*forward)(const CpuLattice<Real>&, bool want_shares);
  void (*reverse)(const CpuLattice<Real>&, const CpuOutcome&);
  // Does not change the weights; overwrites the ring of mantissas.
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
