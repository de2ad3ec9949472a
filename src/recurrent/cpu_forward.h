// The forward pass of one cell (a layer in a direction): products with W for many steps at a time, and the
// sweep over the steps.
#pragma once

#include <algorithm>
#include <cstring>

#include "recurrent/cpu_memory.h"
#include "recurrent/cpu_norm.h"

namespace warpalign::detail::recurrent {

// s(z) = slope z + offset between the rails.
template <class Real>
struct Rails {
  bool hard;
  Real slope, offset, low, high;

  explicit Rails(const LstmProblem& p)
      : hard(p.activation == LstmActivation::kHard),
        slope(static_cast<Real>(p.hard_slope)),
        offset(static_cast<Real>(p.hard_offset)),
        low(static_cast<Real>(-p.hard_offset / p.hard_slope)),
        high(static_cast<Real>((1 - p.hard_offset) / p.hard_slope)) {}
};

// What the sweep works in. State rows are those of the batch.
template <class Real>
struct ForwardState {
  Real *h, *c, *h0, *c0;
  Real* cell;  // c~, where it is not c[t]
  Real* m;     // o u(c~), where it is not h~
  Real* v;     // LN(c~)

  ForwardState(const LstmProblem& p, const CellSizes& s, Arena& arena)
      : h(take<Real>(arena, s.batch * s.pp)),
        c(take<Real>(arena, s.batch * s.hp)),
        h0(take<Real>(arena, s.batch * s.pp)),
        c0(take<Real>(arena, s.batch * s.hp)),
        cell(take<Real>(arena, s.batch * s.hp)),
        m(take<Real>(arena, s.batch * s.hp, p.projection > 0)),
        v(take<Real>(arena, s.batch * s.hp, p.layer_norm)) {}
};

template <class Real>
class ForwardSweep {
 public:
  // x: rows of ip entries. most_rows: of how many rows `rows` has place, in what is not of all.
  ForwardSweep(const LstmProblem& p, int layer, int direction, const CpuKernelsOf<Real>& kernels,
               const Real* x, const CellWeights<Real>& weights, const CellRows<Real>& rows, Index most_rows,
               const ForwardState<Real>& state, const Loops& loops)
      : p_(p),
        s_(p, layer),
        cell_(layer * directions_of(p) + direction),
        reverse_(direction == 1),
        steps_(p),
        masks_(p, layer, direction),
        rails_(p),
        kernels_(kernels),
        x_(x),
        w_(weights),
        rows_(rows),
        most_rows_(most_rows),
        state_(state),
        h_(state.h),
        reads_rows_(!p.lengths && !p.row_starts && !p.resets),
        loops_(loops) {}

  void run() {
    load_state();
    for (int done = 0; done < p_.steps;) {
      const int count = chunk(done);
      const int first = reverse_ ? p_.steps - done - count : done;
      rows_.base = most_rows_ < s_.rows ? steps_.first(first) : 0;
      inputs(steps_.first(first), steps_.first(first + count - 1) + steps_.count(first + count - 1));
      for (int k = 0; k < count; ++k) step(reverse_ ? first + count - 1 - k : first + k);
      done += count;
    }
    if (h_ != state_.h) std::memcpy(state_.h, h_, s_.batch * s_.pp * sizeof(Real));
  }

 private:
  // How many steps after `done` ones have place at once.
  [[nodiscard]] int chunk(int done) const {
    Index rows = 0;
    int count = 0;
    while (done + count < p_.steps) {
      rows += steps_.count(reverse_ ? p_.steps - 1 - done - count : done + count);
      if (count > 0 && rows > most_rows_) break;
      ++count;
    }
    return count;
  }

  void load_state() {
    const auto load = [&](const void* from, DType dtype, Index width, Index stride, Real* first, Real* now) {
      for (Index b = 0; b < s_.batch; ++b) {
        Real* const row = first + b * stride;
        std::fill(row, row + stride, Real(0));
        if (from) read_entries(dtype, from, (cell_ * s_.batch + b) * width, 1, width, row);
      }
      std::memcpy(now, first, s_.batch * stride * sizeof(Real));
    };
    load(p_.h0, p_.dtype, s_.output, s_.pp, state_.h0, state_.h);
    load(p_.c0, p_.cell_dtype, s_.hidden, s_.hp, state_.c0, state_.c);
  }

  Real* gates(Index row) const { return rows_.gates + (row - rows_.base) * s_.gates(); }
  Real* norm_x(Index row) const { return rows_.norm_x + (row - rows_.base) * s_.gates(); }
  Real* norm_h(Index row) const { return rows_.norm_h + (row - rows_.base) * s_.gates(); }
  Real* norm_c(Index row) const { return rows_.norm_c + (row - rows_.base) * s_.hp; }
  Real* scale(Index row) const { return rows_.scale + (row - rows_.base) * 3; }

  // z = W x + b, or LN(W x) + b, of rows begin ... end - 1.
  void inputs(Index begin, Index end) {
    const Index blocks = (end - begin + kRowBlock - 1) / kRowBlock;
    Real* const to = p_.layer_norm ? norm_x(begin) : gates(begin);
    loops_.run(blocks * s_.panels(), [&](Index task, void*) {
      const Index panel = task / blocks, row = task % blocks * kRowBlock;
      CpuProduct<Real> product =
          panel_product(x_ + (begin + row) * s_.ip, s_.ip, w_.ih, s_.input, panel, to + row * s_.gates(),
                        s_.gates(), std::min(kRowBlock, end - begin - row), s_.gates(), false);
      if (!p_.layer_norm) product.start = w_.bias + panel * kPanel;
      multiply(kernels_, product, w_.given_ih, panel);
    });
    if (!p_.layer_norm) return;
    loops_.run(end - begin, [&](Index k, void*) {
      Real* const n = norm_x(begin + k);
      scale(begin + k)[0] = normalise({s_.hidden, true}, p_.layer_norm_eps, n);
      Real* const z = gates(begin + k);
      for (Index j = 0; j < s_.gates(); ++j) z[j] = w_.ln_ih[j] * n[j] + w_.bias[j];
    });
  }

  void step(int t) {
    const Index first = steps_.first(t);
    clear_padding(t);
    steps_.for_runs(t, [&](Index begin, Index count) {
      for (Index b = begin; b < begin + count; ++b) {
        if (!steps_.resets(t, b)) continue;
        std::memcpy(state_.h + b * s_.pp, state_.h0 + b * s_.pp, s_.pp * sizeof(Real));
        std::memcpy(state_.c + b * s_.hp, state_.c0 + b * s_.hp, s_.hp * sizeof(Real));
      }
    });
    loops_.run(s_.panels(), [&](Index panel, void*) {
      steps_.for_runs(t, [&](Index b, Index count) {
        Real* const to = p_.layer_norm ? norm_h(first + b) : gates(first + b);
        multiply(kernels_,
                 panel_product(h_ + b * s_.pp, s_.pp, w_.hh, s_.output, panel, to, s_.gates(), count,
                               s_.gates(), !p_.layer_norm),
                 w_.given_hh, panel);
        if (!p_.layer_norm) units(t, b, count, panel, panel + 1);
      });
    });
    if (p_.layer_norm) {
      loops_.run(s_.batch, [&](Index b, void*) {
        if (steps_.holds(t, b)) normalised_units(t, b);
      });
    }
    if (p_.projection > 0) {
      loops_.run(panels_of(s_.output), [&](Index panel, void*) {
        steps_.for_runs(t, [&](Index b, Index count) {
          multiply(kernels_,
                   panel_product(state_.m + b * s_.hp, s_.hp, w_.hr, s_.hidden, panel,
                                 rows_.h + (first + b) * s_.pp, s_.pp, count, s_.pp, false),
                   w_.given_hr, panel);
          const Index column = panel * kPanel;
          finish_hidden(t, b, count, column, std::min<Index>(kPanel, s_.pp - column));
        });
      });
    }
    if (reads_rows_) {
      h_ = rows_.h + first * s_.pp;
    } else {
      steps_.for_runs(t, [&](Index b, Index count) {
        std::memcpy(state_.h + b * s_.pp, rows_.h + (first + b) * s_.pp, count * s_.pp * sizeof(Real));
      });
    }
    if (t + 1 < p_.steps) rows_.kept.keep(t, h_, state_.c);
  }

  // Rows after their lengths are 0; those of layer norm too, as gradients with respect to gamma are sums over
  // all rows.
  void clear_padding(int t) const {
    if (!p_.lengths) return;
    for (Index b = 0; b < steps_.count(t); ++b) {
      if (steps_.holds(t, b)) continue;
      const Index row = steps_.first(t) + b;
      std::fill_n(rows_.h + row * s_.pp, s_.pp, Real(0));
      if (rows_.c) std::fill_n(rows_.c + row * s_.hp, s_.hp, Real(0));
      if (!p_.layer_norm) continue;
      std::fill_n(norm_h(row), s_.gates(), Real(0));
      std::fill_n(norm_c(row), s_.hp, Real(0));
    }
  }

  // The row's z, and all its units.
  void normalised_units(int t, Index b) {
    const Index row = steps_.first(t) + b;
    Real* const n = norm_h(row);
    scale(row)[1] = normalise({s_.hidden, true}, p_.layer_norm_eps, n);
    Real* const z = gates(row);
    for (Index j = 0; j < s_.gates(); ++j) z[j] += w_.ln_hh[j] * n[j];
    units(t, b, 1, 0, s_.panels());
  }

  // From z to c[t], and to h[t] or to o u(c~): panels first ... last - 1 of rows b ... b + count - 1.
  void units(int t, Index b, Index count, Index first, Index last) {
    const Index row = steps_.first(t) + b;
    const bool keeps = p_.zoneout_cell > 0;
    Real* const cells = (keeps || p_.layer_norm ? state_.cell : state_.c) + b * s_.hp;
    Real* const c = state_.c + b * s_.hp;
    for (Index panel = first; panel < last; ++panel) {
      CpuCell<Real> cell{};
      cell.rows = count;
      cell.gates = gates(row) + panel * kPanel, cell.gates_row = s_.gates();
      cell.c_before = c + panel * kUnits, cell.c_before_row = s_.hp;
      cell.cell = cells + panel * kUnits, cell.cell_row = s_.hp;
      cell.hard = rails_.hard, cell.slope = rails_.slope, cell.offset = rails_.offset;
      cell.low = rails_.low, cell.high = rails_.high;
      kernels_.cell(cell);
    }
    const Real* v = cells;
    if (p_.layer_norm) {
      Real* const n = norm_c(row);
      Real* const normalised = state_.v + b * s_.hp;
      std::memcpy(n, cells, s_.hp * sizeof(Real));
      scale(row)[2] = normalise({s_.hidden, false}, p_.layer_norm_eps, n);
      for (Index j = 0; j < s_.hp; ++j) normalised[j] = w_.ln_cell[j] * n[j] + w_.ln_cell_bias[j];
      v = normalised;
    }
    const Index column = first * kUnits, width = (last - first) * kUnits;
    if (cells != c) {
      for (Index k = 0; k < count; ++k) {
        Real* const before = c + k * s_.hp + column;
        const Real* const fresh = cells + k * s_.hp + column;
        const auto mix = [&](Index j, Real m) { before[j] = m * before[j] + (1 - m) * fresh[j]; };
        if (keeps) {
          for_kept<Real>(p_, masks_, MaskKind::kCell, t, b + k, column, width, mix);
        } else {
          std::memcpy(before, fresh, width * sizeof(Real));
        }
      }
    }
    for (Index k = 0; k < count && rows_.c; ++k) {
      std::memcpy(rows_.c + (row + k) * s_.hp + column, c + k * s_.hp + column, width * sizeof(Real));
    }
    for (Index panel = first; panel < last; ++panel) {
      CpuOutput<Real> output{};
      output.rows = count;
      output.gates = gates(row) + panel * kPanel, output.gates_row = s_.gates();
      output.v = v + panel * kUnits, output.v_row = s_.hp;
      output.m = (p_.projection > 0 ? state_.m + b * s_.hp : rows_.h + row * s_.pp) + panel * kUnits;
      output.m_row = p_.projection > 0 ? s_.hp : s_.pp;
      output.hard = rails_.hard;
      kernels_.output(output);
    }
    if (p_.projection == 0) finish_hidden(t, b, count, column, width);
  }

  // From h~ to h[t]: zoneout and rounding, in columns first ... first + width - 1.
  void finish_hidden(int t, Index b, Index count, Index first, Index width) const {
    for (Index k = 0; k < count; ++k) {
      Real* const h = rows_.h + (steps_.first(t) + b + k) * s_.pp + first;
      if (p_.zoneout_hidden > 0) {
        const Real* const before = h_ + (b + k) * s_.pp + first;
        for_kept<Real>(p_, masks_, MaskKind::kHidden, t, b + k, first, width,
                       [&](Index j, Real m) { h[j] = m * before[j] + (1 - m) * h[j]; });
      }
      round_entries(p_.dtype, h, width);
    }
  }

  const LstmProblem& p_;
  const CellSizes s_;
  const Index cell_;
  const bool reverse_;
  const Steps steps_;
  const Masks masks_;
  const Rails<Real> rails_;
  const CpuKernelsOf<Real>& kernels_;
  const Real* const x_;
  const CellWeights<Real>& w_;
  CellRows<Real> rows_;
  const Index most_rows_;
  const ForwardState<Real>& state_;
  const Real* h_;          // rows of the batch before the step: state_.h, or those of the step before
  const bool reads_rows_;  // every row has every step, and begins once
  const Loops& loops_;
};

}  // namespace warpalign::detail::recurrent
