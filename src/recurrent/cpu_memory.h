// What the CPU path keeps in memory: the tape, and weights packed for its products.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "core/arena.h"
#include "cpu/dispatch.h"
#include "recurrent/cpu_loops.h"
#include "recurrent/cpu_rows.h"

namespace warpalign::detail::recurrent {

template <class Real>
const CpuKernelsOf<Real>& selected_kernels() {
  const CpuKernels& all =
      cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
  if constexpr (sizeof(Real) == sizeof(double)) {
    return all.f64;
  } else {
    return all.f32;
  }
}

// Real as a DType.
template <class Real>
constexpr DType kTypeOf = sizeof(Real) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;

template <class Real>
Real* take(Arena& arena, Index count, bool wanted = true) {
  return wanted ? arena.take<Real>(static_cast<std::size_t>(count)) : nullptr;
}

// h and c of a cell before each chunk of steps but the first: (chunks, B, pp and hp). LstmProblem::recompute
template <class Real>
struct KeptStates {
  Real* states = nullptr;  // null: not wanted
  Index chunk = 0;         // steps
  Index of_h = 0, of_c = 0;

  KeptStates() = default;
  KeptStates(const LstmProblem& p, int cell, const void* kept) : chunk(chunk_steps(p)) {
    const CellSizes s(p, 0);
    of_h = s.batch * s.pp, of_c = s.batch * s.hp;
    // Backward passes only read.
    states = static_cast<Real*>(const_cast<void*>(kept)) + cell * (kMostChunks - 1) * (of_h + of_c);
  }
  // Masks are drawn by a step's number, which a chunk does not know.
  static int chunk_steps(const LstmProblem& p) {
    const bool by_number = p.training && (p.dropout > 0 || p.zoneout_hidden > 0 || p.zoneout_cell > 0);
    return steps_of_chunks(p, by_number || p.bidirectional || p.row_starts || p.resets);
  }

  // Before chunk k > 0.
  [[nodiscard]] Real* h(Index k) const { return states + (k - 1) * (of_h + of_c); }
  [[nodiscard]] Real* c(Index k) const { return h(k) + of_h; }
  // After step t, which is not the last.
  void keep(Index t, const Real* h_now, const Real* c_now) const {
    if (!states || (t + 1) % chunk != 0) return;
    std::copy_n(h_now, of_h, h((t + 1) / chunk));
    std::copy_n(c_now, of_c, c((t + 1) / chunk));
  }
};

// What a cell writes for each row: i, f, g, o in `gates`; with layer norm W x, R h and c~ normalised before
// gamma, and their three factors 1 / sqrt(var + eps). The tape holds all rows, but h of the last layer, which
// is y. Without a tape, all but h (and c, if it is asked for) holds the rows of some steps at a time.
template <class Real>
struct CellRows {
  Real *gates, *c, *h, *norm_x, *norm_h, *norm_c, *scale;
  Index base = 0;  // the row that stands first in all but c and h
  KeptStates<Real> kept;

  // `rows` of what is not of all rows; 0: nothing at all.
  CellRows(const LstmProblem& p, const CellSizes& s, Index rows, bool with_c, bool with_h, Arena& arena)
      : gates(take<Real>(arena, rows * s.gates(), rows > 0)),
        c(take<Real>(arena, s.rows * s.hp, rows > 0 && with_c)),
        h(take<Real>(arena, s.rows * s.pp, rows > 0 && with_h)),
        norm_x(take<Real>(arena, rows * s.gates(), p.layer_norm)),
        norm_h(take<Real>(arena, rows * s.gates(), p.layer_norm)),
        norm_c(take<Real>(arena, rows * s.hp, p.layer_norm)),
        scale(take<Real>(arena, rows * 3, p.layer_norm)) {}
};

// Panels of 64 columns: entry (k, column) of panel n lies at (n depth + k) 64 + column.
//
// Column j is entry base[j], base[j] + 1, ...; null: 0. A block of entries is read along the columns and
// written along the panel's rows while it is in the first cache.
template <class T, class Real>
void pack_columns(const T* const (&base)[kPanel], Index depth, Real* to) {
  constexpr Index kBlock = 32;
  for (Index begin = 0; begin < depth; begin += kBlock) {
    const Index end = std::min(begin + kBlock, depth);
    for (int j = 0; j < kPanel; ++j) {
      const T* const from = base[j];
      for (Index k = begin; k < end && from; ++k) to[k * kPanel + j] = wide<Real>(from[k]);
      for (Index k = begin; k < end && !from; ++k) to[k * kPanel + j] = Real(0);
    }
  }
}

// A row-major matrix of (4H, columns) or, if it is not gated, (rows, columns).
struct Matrix {
  const void* data = nullptr;
  DType dtype{};
  Index rows = 0, columns = 0;
  bool gated = false;  // rows 4H, in gate order

  [[nodiscard]] Index hidden() const { return rows / 4; }
  [[nodiscard]] Index padded_rows() const { return gated ? 4 * padded(hidden()) : rows; }
  // The row that stands at `column` of a row of gates; -1: none.
  [[nodiscard]] Index row_at(Index column) const {
    if (!gated) return column < rows ? column : -1;
    const Index unit = column / kPanel * kUnits + column % kUnits;
    return unit < hidden() ? column % kPanel / kUnits * hidden() + unit : -1;
  }
  // Where the matrix' rows begin that are the columns of a panel; null: none.
  template <class T>
  void rows_of_panel(Index panel, const T* (&base)[kPanel]) const {
    for (int j = 0; j < kPanel; ++j) {
      const Index row = row_at(panel * kPanel + j);
      base[j] = row < 0 ? nullptr : static_cast<const T*>(data) + row * columns;
    }
  }
  // Reals of the packed forms.
  [[nodiscard]] Index elements_by_row() const { return panels_of(padded_rows()) * kPanel * columns; }
  [[nodiscard]] Index elements_by_column() const { return panels_of(columns) * kPanel * padded_rows(); }
};

// The right operand of a product with the matrix transposed: its rows are columns of panels.
template <class Real>
void pack_by_row(const Matrix& matrix, const Loops& loops, Real* to) {
  visit_dtype(matrix.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    loops.run(panels_of(matrix.padded_rows()), [&](Index panel, void*) {
      const T* base[kPanel];
      matrix.rows_of_panel(panel, base);
      Real* const packed = to + panel * kPanel * matrix.columns;
      if constexpr (std::is_same_v<T, Real>) {
        selected_kernels<Real>().pack_panel(base, matrix.columns, packed);
      } else {
        pack_columns(base, matrix.columns, packed);
      }
    });
  });
}

// The right operand of a product with the matrix itself.
template <class Real>
void pack_by_column(const Matrix& matrix, const Loops& loops, Real* to) {
  const Index depth = matrix.padded_rows();
  loops.run(panels_of(matrix.columns), [&](Index panel, void*) {
    const Index columns = std::min<Index>(kPanel, matrix.columns - panel * kPanel);
    for (Index k = 0; k < depth; ++k) {
      Real* const entries = to + (panel * depth + k) * kPanel;
      const Index row = matrix.row_at(k);
      if (row >= 0) {
        read_entries(matrix.dtype, matrix.data, row * matrix.columns + panel * kPanel, 1, columns, entries);
      }
      std::fill(entries + (row >= 0 ? columns : 0), entries + kPanel, Real(0));
    }
  });
}

// body(entry of 4H, count, place in a row of gates) for runs of neighbours in both.
template <class Real, class Body>
void for_gate_runs(Index hidden, const Body& body, Real* row) {
  for (Index gate = 0; gate < 4; ++gate) {
    for (Index unit = 0; unit < hidden; unit += kUnits) {
      body(gate * hidden + unit, std::min<Index>(kUnits, hidden - unit), row + gate_column(gate, unit));
    }
  }
}

// A vector of 4H entries as a row of gates; null: `missing`. Padding is 0.
template <class Real>
void read_gate_row(DType dtype, const void* from, Index hidden, Real missing, Real* row) {
  std::fill(row, row + 4 * padded(hidden), Real(0));
  for_gate_runs(
      hidden,
      [&](Index at, Index count, Real* to) {
        if (from) {
          read_entries(dtype, from, at, 1, count, to);
        } else {
          std::fill(to, to + count, missing);
        }
      },
      row);
}

// How a call has W, R and W_hr: packed, by row forward and by column backward; or as they are given, where it
// uses every weight once.
enum class WeightForm { kByRow, kByColumn, kAsGiven };

// A cell's weights.
template <class Real>
struct CellWeights {
  WeightForm form;
  Real *ih, *hh, *hr;  // null as given
  Matrix given_ih, given_hh, given_hr;
  Real *bias, *ln_ih, *ln_hh, *ln_cell, *ln_cell_bias;
  Real* masked;  // R with its dropout, row-major

  CellWeights(const LstmProblem& p, const CellSizes& s, WeightForm of, Arena& arena)
      : form(of),
        ih(take<Real>(arena, elements(matrix_ih(p, s, nullptr)), of != WeightForm::kAsGiven)),
        hh(take<Real>(arena, elements(matrix_hh(p, s, nullptr)), of != WeightForm::kAsGiven)),
        hr(take<Real>(arena, elements(matrix_hr(p, s, nullptr)),
                      of != WeightForm::kAsGiven && p.projection > 0)),
        bias(take<Real>(arena, s.gates())),
        ln_ih(take<Real>(arena, s.gates(), p.layer_norm)),
        ln_hh(take<Real>(arena, s.gates(), p.layer_norm)),
        ln_cell(take<Real>(arena, s.hp, p.layer_norm)),
        ln_cell_bias(take<Real>(arena, s.hp, p.layer_norm)),
        masked(take<Real>(arena, 4 * s.hidden * s.output, drops(p))) {}

  void load(const LstmProblem& p, const CellSizes& s, const LstmWeights& w, const Masks& masks,
            const Loops& loops) {
    given_ih = matrix_ih(p, s, w.ih), given_hh = matrix_hh(p, s, w.hh), given_hr = matrix_hr(p, s, w.hr);
    if (drops(p)) {
      loops.run(4 * s.hidden, [&](Index row, void*) {
        Real* const entries = masked + row * s.output;
        read_entries(p.dtype, w.hh, row * s.output, 1, s.output, entries);
        masks.drop(MaskKind::kWeight, p.weight_dropout, row, 0, 0, s.output, entries);
      });
      given_hh.data = masked;
      given_hh.dtype = kTypeOf<Real>;
    }
    if (ih) pack(given_ih, loops, ih);
    if (hh) pack(given_hh, loops, hh);
    if (hr) pack(given_hr, loops, hr);
    read_gate_row(p.dtype, w.bias_ih, s.hidden, Real(0), bias);
    if (w.bias_hh) {
      for_gate_runs(
          s.hidden, [&](Index at, Index count, Real* to) { add_entries(p.dtype, w.bias_hh, at, count, to); },
          bias);
    }
    if (!p.layer_norm) return;
    read_gate_row(p.dtype, w.ln_ih, s.hidden, Real(1), ln_ih);
    read_gate_row(p.dtype, w.ln_hh, s.hidden, Real(1), ln_hh);
    for (Real* row : {ln_cell, ln_cell_bias}) std::fill(row, row + s.hp, Real(0));
    read_entries(p.dtype, w.ln_cell, 0, 1, s.hidden, ln_cell);
    read_entries(p.dtype, w.ln_cell_bias, 0, 1, s.hidden, ln_cell_bias);
  }

  static bool drops(const LstmProblem& p) { return p.training && p.weight_dropout > 0; }

 private:
  static Matrix matrix_ih(const LstmProblem& p, const CellSizes& s, const void* data) {
    return {data, p.dtype, 4 * s.hidden, s.input, true};
  }
  static Matrix matrix_hh(const LstmProblem& p, const CellSizes& s, const void* data) {
    return {data, p.dtype, 4 * s.hidden, s.output, true};
  }
  static Matrix matrix_hr(const LstmProblem& p, const CellSizes& s, const void* data) {
    return {data, p.dtype, s.output, s.hidden, false};
  }
  [[nodiscard]] Index elements(const Matrix& matrix) const {
    return form == WeightForm::kByColumn ? matrix.elements_by_column() : matrix.elements_by_row();
  }
  void pack(const Matrix& matrix, const Loops& loops, Real* to) const {
    form == WeightForm::kByColumn ? pack_by_column(matrix, loops, to) : pack_by_row(matrix, loops, to);
  }
};

// The product of `rows` rows of `a` with panel `panel` of a packed matrix, into the same columns of c. Null:
// for multiply() with the matrix itself.
template <class Real>
CpuProduct<Real> panel_product(const Real* a, Index a_row, const Real* packed, Index depth, Index panel,
                               Real* c, Index c_row, Index rows, Index padded_columns, bool add) {
  CpuProduct<Real> product{};
  product.a = a, product.a_row = a_row, product.a_column = 1;
  product.b = packed ? packed + panel * depth * kPanel : nullptr, product.b_row = kPanel;
  product.c = c + panel * kPanel, product.c_row = c_row;
  product.rows = rows, product.depth = depth;
  product.columns = static_cast<int>(std::min<Index>(kPanel, padded_columns - panel * kPanel));
  product.add = add;
  return product;
}

// The product with panel `panel` of a matrix: packed, or the matrix itself, of type Real.
template <class Real>
void multiply(const CpuKernelsOf<Real>& kernels, const CpuProduct<Real>& product, const Matrix& matrix,
              Index panel) {
  if (product.b) return kernels.product(product);
  const Real* base[kPanel];
  matrix.rows_of_panel(panel, base);
  kernels.row_product(product, base);
}

// The same product with the columns of panel `panel`: packed, or the matrix itself. That is of type Real,
// with a multiple of 16 columns.
template <class Real>
void multiply_by_column(const CpuKernelsOf<Real>& kernels, CpuProduct<Real> product, const Matrix& matrix,
                        Index panel) {
  if (product.b) return kernels.product(product);
  product.b_row = matrix.columns;
  const auto add = [&](Index row, Index count, const Real* a) {
    product.a = a;
    product.b = static_cast<const Real*>(matrix.data) + row * matrix.columns + panel * kPanel;
    product.depth = count;
    kernels.product(product);
    product.add = true;
  };
  if (!matrix.gated) return add(0, matrix.rows, product.a);
  for_gate_runs(matrix.hidden(), add, product.a);
}

// Rows that a task of a product over many rows takes.
constexpr Index kRowBlock = 48;

}  // namespace warpalign::detail::recurrent
