// What the CPU path's drivers and its kernels (cpu_kernel.inl, one copy per instruction set) share. Plain
// data only: no inline function here may be compiled under two sets of flags.
//
// States come in pairs: pair k is the blank before label k and label k, 0 <= k <= U; label U does not exist.
// A frame's states are a row: four arrays, mantissas and exponents of blanks and of labels (cpu/scaled.inl),
// `stride` doubles apart, pair 0 at kCpuPad.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/row_kernel.h"

namespace warpalign::detail::ctc {

// Elements in front of pair 0 and behind the last whole vector of pairs that vectors may read and write; no
// vector of doubles has more.
constexpr int kCpuPad = 8;

// Doubles of one array of a row for so many labels.
constexpr std::int64_t cpu_stride(std::int64_t labels) {
  return (labels + 1 + kCpuPad - 1) / kCpuPad * kCpuPad + 2 * kCpuPad;
}

// What distinguishes one utterance's lattice. A slot is a class that states name, or star: slot 0 is blank's.
struct CpuLattice {
  std::int32_t labels;       // U
  std::int64_t stride;       // of a row's arrays, and of `slot` and `skip`
  const std::int32_t* slot;  // [kCpuPad + k]: label k's; slots for what is no label: it cannot be emitted
  const double* skip;        // [kCpuPad + k]: 0 where a path may go from label k-1 to label k, else kCpuDead
  std::int32_t slots;
};
// Slots behind the last one that vectors may read; no vector of floats has more.
constexpr int kCpuSlotPad = 16;
constexpr double kCpuDead = -1e300;    // exponent of what no path reaches
constexpr double kCpuNoPath = -5e298;  // exponents below: there is no path

// Pairs first .. last of a frame.
struct CpuRange {
  std::int64_t first;
  std::int64_t last;
};

// Weights of a frame's slots, as mantissas and exponents, or (alignments) as they are. Rounded up to whole
// vectors; slots .. are forbidden.
struct CpuWeights {
  double* mantissa;
  double* exponent;
};

// A frame's weights: w = x[column] - lse - prior; the star's slot has the weight `star`. `column` and `prior`
// go on for kCpuSlotPad slots with blank's column and 0.
struct CpuEmissions {
  const void* row;
  const std::int32_t* column;  // [slot]
  const double* prior;         // [slot]
  std::int32_t slots;
  std::int32_t star_slot;  // 0: none
  double lse;
  double star;
};

// Posteriors of a frame.
struct CpuPosteriors {
  double total_mantissa;  // 1 / mantissa of the sum over all paths
  double total_exponent;
  double* slots;   // [slot]: their sums are added; null: not wanted
  double* labels;  // [kCpuPad + k], or null
};

// One frame's gradient: out[c] = upstream (S p[c] - star e^(x[c] - others) - g[c]), p[c] = e^(x[c] - lse) and
// S 1, or 0 with log_probs; the star's term is not for blank. g is 0 but for the slots' columns. out may be
// row.
template <class Real>
struct CpuFrameGradient {
  const void* row;
  void* out;
  std::int32_t columns;
  double lse, others;
  double star;  // posterior of all states of the star
  double upstream;
  bool log_probs;
  std::int32_t slots;
  std::int32_t blank;
  const std::int32_t* column;
  std::int32_t star_slot;  // 0: none. Its column is none of its own
  const double* g;         // [slot]
  Real* dense;             // [columns]: zeros, on entry and on return; null: few of many columns have slots
  void* mended;            // [slots + kCpuSlotPad] elements; for null
};

// The kernels of one storage type. Half types compute in float.
template <class Real>
struct CpuRowKernels {
  double (*lse)(const void* row, std::int32_t columns);
  // Writes weights as powers, or, with exponent null, the logarithms themselves. Returns whether there is a
  // NaN or +inf.
  bool (*emissions)(const CpuEmissions&, const CpuWeights&);
  void (*gradient)(const CpuFrameGradient<Real>&);
};

// Where best paths come from. Of pair k, at[k - first]: 0, 1 or 2 for label k (itself, blank k, label k-1),
// and 0 or 4 for blank k (itself, label k-1). `first` is a multiple of kCpuPad. Null: not wanted.
struct CpuSteps {
  std::uint8_t* at;
  std::int64_t first;
};

struct CpuKernels {
  CpuRowKernels<float> rows32;
  CpuRowKernels<double> rows64;
  CpuRowKernels<float> rows16;    // binary16
  CpuRowKernels<float> rows_b16;  // bfloat16

  // alpha of a frame from that of the frame before.
  void (*alpha)(const CpuLattice&, const CpuWeights&, const double* from, double* to, CpuRange);
  // beta of a frame, its own weights included, from that of the frame after; and posteriors from alpha.
  void (*beta)(const CpuLattice&, const CpuWeights&, const double* after, double* to, const double* alpha,
               const CpuPosteriors&, CpuRange);
  // Brings mantissas of a row into [1, 2). At most kCpuLazy steps may lie between two calls.
  void (*normalize)(const CpuLattice&, double* row, CpuRange);

  // A frame of the best path from the frame before. Rows are two arrays, of blanks and of labels, `stride`
  // apart.
  void (*best)(const CpuLattice&, const double* weights, const double* from, double* to, const CpuSteps&,
               CpuRange);
  // Monotonic alignment: to[s] = max(from[s], from[s-1]) + scores[s]. stays[s]: 1 where from[s] is not less.
  void (*monotonic)(const double* scores, const double* from, double* to, std::uint8_t* stays, CpuRange);
};

constexpr int kCpuLazy = 32;

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::ctc
