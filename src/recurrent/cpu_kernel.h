// The data of the LSTM's CPU kernels, which are compiled once per instruction set.
//
// Units come in panels of 16. A row of gates has 64 entries per panel: 16 of i, of f, of g, of o. Rows of all
// other kinds are padded with zeros to a multiple of 16 entries.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace warpalign::detail::recurrent {

constexpr int kUnits = 16;
constexpr int kPanel = 4 * kUnits;
// A product adds up so many terms at a time, and then these sums: rounding errors stay those of short sums,
// and the terms stay in the cache.
constexpr int kDepthBlock = 256;

// c[m][j] = start[j] + sum over k of a[m a_row + k a_column] b[k b_row + j], for j < columns. The order of
// the sum depends on depth alone.
template <class Real>
struct CpuProduct {
  const Real* a;
  std::int64_t a_row, a_column;
  const Real* b;
  std::int64_t b_row;
  Real* c;
  std::int64_t c_row;
  std::int64_t rows, depth;
  int columns;        // a multiple of 16; with row_product at most 64
  const Real* start;  // null: 0
  bool add;           // c[m][j] instead of start[j]
};

// One panel of some rows: entry (row, u) of an array lies at row * its stride + u.
template <class Real>
struct CpuCell {
  std::int64_t rows;
  Real* gates;  // z, then i, f, g, o; backward: i, f, g, o
  std::int64_t gates_row;
  const Real* c_before;
  std::int64_t c_before_row;
  Real* cell;  // c~ (forward: written)
  std::int64_t cell_row;
  bool hard;
  // s(z) = slope z + offset for low < z < high.
  Real slope, offset, low, high;
};

// m = o u(v).
template <class Real>
struct CpuOutput {
  std::int64_t rows;
  const Real* gates;
  std::int64_t gates_row;
  const Real* v;
  std::int64_t v_row;
  Real* m;
  std::int64_t m_row;
  bool hard;
};

// From the gradient with respect to m: dz_o and that with respect to v.
template <class Real>
struct CpuOutputBackward {
  std::int64_t rows;
  const Real* gates;
  std::int64_t gates_row;
  const Real* v;
  std::int64_t v_row;
  const Real* dm;
  std::int64_t dm_row;
  Real* dz;
  std::int64_t dz_row;
  Real* dv;
  std::int64_t dv_row;
  bool hard;
  Real slope;
};

// From the gradient with respect to c~: dz_i, dz_f, dz_g, and f times it, which goes to c[t-1].
template <class Real>
struct CpuCellBackward {
  std::int64_t rows;
  const Real* gates;
  std::int64_t gates_row;
  const Real* c_before;
  std::int64_t c_before_row;
  const Real* dcell;
  std::int64_t dcell_row;
  Real* dz;
  std::int64_t dz_row;
  Real* dc_before;
  std::int64_t dc_before_row;
  bool hard;
  Real slope;
  bool keep;  // dc_before is added to
};

template <class Real>
struct CpuKernelsOf {
  // to[k 64 + j] = base[j][k] for k < depth, j < 64; null: 0.
  void (*pack_panel)(const Real* const* base, std::int64_t depth, Real* to);
  void (*product)(const CpuProduct<Real>&);
  // The same with base[j][k] in place of b, which is null; a_column is 1. base[j] null: 0. The order of the
  // sum is another one, and depends on depth alone too.
  void (*row_product)(const CpuProduct<Real>&, const Real* const* base);
  void (*cell)(const CpuCell<Real>&);
  // c~ alone, from i, f, g and c[t-1]: the same bits as the forward pass.
  void (*cell_again)(const CpuCell<Real>&);
  void (*output)(const CpuOutput<Real>&);
  void (*output_backward)(const CpuOutputBackward<Real>&);
  void (*cell_backward)(const CpuCellBackward<Real>&);
};

// The kernels of one instruction set.
struct CpuKernels {
  CpuKernelsOf<float> f32;
  CpuKernelsOf<double> f64;
};

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::recurrent
