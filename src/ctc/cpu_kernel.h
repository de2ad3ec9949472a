// Types shared by the drivers of the CPU path and its kernels (cpu_kernel.inl, one copy per instruction set).
// Plain data only: an inline function here would be compiled with several sets of flags, and the linker would
// merge the copies.
//
// States come in pairs: pair k is the blank before label k and label k, 0 <= k <= U; label U does not exist.
// A frame's states are a row: four arrays, mantissas and exponents of blanks and of labels (cpu/scaled.inl),
// `stride` doubles apart, pair 0 at kCpuPad.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/row_kernel.h"

namespace warpalign::detail::ctc {

// The number of elements before pair 0, and after the last whole vector of pairs, that vectors may read and
// write: the most elements of a vector of doubles.
constexpr int kCpuPad = 8;

// The number of doubles of one array of a row with this number of labels.
constexpr std::int64_t cpu_stride(std::int64_t labels) {
  return (labels + 1 + kCpuPad - 1) / kCpuPad * kCpuPad + 2 * kCpuPad;
}

// One utterance's lattice. A slot is a class that some state emits, or the star; slot 0 is blank.
struct CpuLattice {
  std::int32_t labels;  // U
  std::int64_t stride;  // of a row's arrays, and of `slot` and `skip`
  const std::int32_t*
      slot;            // [kCpuPad + k]: of label k; `slots`, which cannot be emitted, if there is no label k
  const double* skip;  // [kCpuPad + k]: 0 if a path may go from label k-1 to label k, else kCpuDead
  std::int32_t slots;
};
// The number of slots after the last one that vectors may read: the most elements of a vector of floats.
constexpr int kCpuSlotPad = 16;
constexpr double kCpuDead = -1e300;    // exponent of an unreachable state
constexpr double kCpuNoPath = -5e298;  // a sum with a smaller exponent has no path

// Pairs first .. last of a frame.
struct CpuRange {
  std::int64_t first;
  std::int64_t last;
};

// Weights of a frame's slots: mantissas and exponents, or logarithms for alignments. Arrays are rounded up to
// whole vectors; entries from `slots` on cannot be emitted.
struct CpuWeights {
  double* mantissa;
  double* exponent;
};

// A frame's weights: w = x[column] - lse - prior; the star's slot has the weight `star`. `column` and `prior`
// have kCpuSlotPad more entries: blank's column, and 0.
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
  double* slots;   // [slot]: the posteriors are added to it; may be null
  double* labels;  // [kCpuPad + k], or null
};

// One frame's gradient: out[c] = upstream (S p[c] - star e^(x[c] - others) - g[c]), p[c] = e^(x[c] - lse) and
// S is 1, or 0 with log_probs; the star's term does not apply to blank. g is 0 outside of the slots' columns.
// out may be row.
template <class Real>
struct CpuFrameGradient {
  const void* row;
  void* out;
  std::int32_t columns;
  double lse, others;
  double star;  // sum of the posteriors of the star's states
  double upstream;
  bool log_probs;
  std::int32_t slots;
  std::int32_t blank;
  const std::int32_t* column;
  std::int32_t star_slot;  // 0: none. The star has no column of its own
  const double* g;         // [slot]
  Real* dense;             // [columns]: zeros, on entry and on return; null if few of many columns have slots
  void* mended;            // [slots + kCpuSlotPad] elements; used if dense is null
};

// The kernels of one storage type. Half types are computed in float.
template <class Real>
struct CpuRowKernels {
  double (*lse)(const void* row, std::int32_t columns);
  // Writes weights as powers, or, with exponent null, the logarithms themselves. Returns whether one of them
  // is NaN or +inf.
  bool (*emissions)(const CpuEmissions&, const CpuWeights&);
  void (*gradient)(const CpuFrameGradient<Real>&);
};

// Predecessors on best paths. at[k - first] is the sum of 0, 1 or 2 for label k (from itself, blank k, label
// k-1) and 0 or 4 for blank k (from itself, label k-1). `first` is a multiple of kCpuPad. `at` may be null.
struct CpuSteps {
  std::uint8_t* at;
  std::int64_t first;
};

struct CpuKernels {
  CpuRowKernels<float> rows32;
  CpuRowKernels<double> rows64;
  CpuRowKernels<float> rows16;    // binary16
  CpuRowKernels<float> rows_b16;  // bfloat16

  // alpha of a frame from alpha of the previous frame.
  void (*alpha)(const CpuLattice&, const CpuWeights&, const double* from, double* to, CpuRange);
  // beta of a frame, its own weights included, from beta of the next frame; and posteriors from alpha and
  // beta.
  void (*beta)(const CpuLattice&, const CpuWeights&, const double* after, double* to, const double* alpha,
               const CpuPosteriors&, CpuRange);
  // Scales a row's mantissas into [1, 2). Called at least every kCpuLazy frames.
  void (*normalize)(const CpuLattice&, double* row, CpuRange);

  // The best sums of a frame from those of the previous frame. Rows are two arrays, of blanks and of labels,
  // `stride` apart.
  void (*best)(const CpuLattice&, const double* weights, const double* from, double* to, const CpuSteps&,
               CpuRange);
  // Monotonic alignment: to[s] = max(from[s], from[s-1]) + scores[s]. stays[s]: 1 if from[s] >= from[s-1].
  void (*monotonic)(const double* scores, const double* from, double* to, std::uint8_t* stays, CpuRange);
  // Decoding: the largest columns of a row (cpu/largest.inl).
  int (*largest32)(const float* row, const float* added, std::int32_t columns, int count,
                   cpu::Column<float>* out);
  int (*largest64)(const double* row, const double* added, std::int32_t columns, int count,
                   cpu::Column<double>* out);
};

constexpr int kCpuLazy = 32;

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::ctc
