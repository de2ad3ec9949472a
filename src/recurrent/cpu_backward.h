// The backward pass of one cell (a layer in a direction): the sweep against the direction's order, which
// turns gradients with respect to h into gradients with respect to z.
#pragma once

#include <algorithm>
#include <cstring>

#include "recurrent/cpu_forward.h"

namespace warpalign::detail::recurrent {

// What the sweep works in, and what it leaves for the products: rows of all steps.
template <class Real>
struct BackwardRows {
  Real* dy;    // by h[t] but for what comes through later steps
  Real* dz;    // by z
  Real* dz_x;  // by W x and by R h: dz, or with layer norm rows of their own
  Real* dz_h;
  Real* h_before;
  Real* dh_new;  // projection: with respect to h~
  Real* m;       // projection: o u(v)
  Real* dv;      // layer norm: with respect to LN(c~)

  BackwardRows(const LstmProblem& p, const CellSizes& s, Arena& arena)
      : dy(take<Real>(arena, s.rows * s.pp)),
        dz(take<Real>(arena, s.rows * s.gates())),
        dz_x(p.layer_norm ? take<Real>(arena, s.rows * s.gates()) : dz),
        dz_h(p.layer_norm ? take<Real>(arena, s.rows * s.gates()) : dz),
        h_before(take<Real>(arena, s.rows * s.pp)),
        dh_new(take<Real>(arena, s.rows * s.pp, p.projection > 0)),
        m(take<Real>(arena, s.rows * s.hp, p.projection > 0)),
        dv(take<Real>(arena, s.rows * s.hp, p.layer_norm)) {}
};
template <class Real>
struct BackwardState {
  Real *dh, *dc, *dh0, *dc0, *h0, *c0;
  Real *c_before, *cell, *dm, *dcell;  // of one step

  BackwardState(const CellSizes& s, Arena& arena)
      : dh(take<Real>(arena, s.batch * s.pp)),
        dc(take<Real>(arena, s.batch * s.hp)),
        dh0(take<Real>(arena, s.batch * s.pp)),
        dc0(take<Real>(arena, s.batch * s.hp)),
        h0(take<Real>(arena, s.batch * s.pp)),
        c0(take<Real>(arena, s.batch * s.hp)),
        c_before(take<Real>(arena, s.batch * s.hp)),
        cell(take<Real>(arena, s.batch * s.hp)),
        dm(take<Real>(arena, s.batch * s.hp)),
        dcell(take<Real>(arena, s.batch * s.hp)) {}
};

template <class Real>
class BackwardSweep {
 public:
  BackwardSweep(const LstmProblem& p, int layer, int direction, const CpuKernelsOf<Real>& kernels,
                const LstmIncoming& incoming, const CellWeights<Real>& weights, const CellRows<Real>& tape,
                const void* y, const BackwardRows<Real>& rows, const BackwardState<Real>& state,
                const Loops& loops)
      : p_(p),
        s_(p, layer),
        cell_(layer * directions_of(p) + direction),
        reverse_(direction == 1),
        steps_(p),
        masks_(p, layer, direction),
        rails_(p),
        kernels_(kernels),
        in_(incoming),
        w_(weights),
        tape_(tape),
        y_(y),
        rows_(rows),
        state_(state),
        loops_(loops) {}

  // rows.dy has been filled.
  void run() {
    load(in_.h_n, p_.dtype, s_.output, s_.pp, state_.dh);
    load(in_.c_n, p_.cell_dtype, s_.hidden, s_.hp, state_.dc);
    load(p_.h0, p_.dtype, s_.output, s_.pp, state_.h0);
    load(p_.c0, p_.cell_dtype, s_.hidden, s_.hp, state_.c0);
    std::fill(state_.dh0, state_.dh0 + s_.batch * s_.pp, Real(0));
    std::fill(state_.dc0, state_.dc0 + s_.batch * s_.hp, Real(0));
    for (int k = 0; k < p_.steps; ++k) step(reverse_ ? k : p_.steps - 1 - k);
    for (Index b = 0; b < s_.batch; ++b) hand_over(b);
  }

 private:
  void load(const void* from, DType dtype, Index width, Index stride, Real* rows) const {
    for (Index b = 0; b < s_.batch; ++b) {
      Real* const row = rows + b * stride;
      std::fill(row, row + stride, Real(0));
      if (from) read_entries(dtype, from, (cell_ * s_.batch + b) * width, 1, width, row);
    }
  }

  void step(int t) {
    const Index first = steps_.first(t);
    clear_padding(t);
    if (p_.projection > 0) {
      loops_.run(s_.batch, [&](Index b, void*) {
        if (steps_.holds(t, b)) hidden(t, b, 1, 0, s_.pp, rows_.dh_new + (first + b) * s_.pp, s_.pp);
      });
      loops_.run(panels_of(s_.hidden), [&](Index panel, void*) {
        steps_.for_runs(t, [&](Index b, Index count) {
          multiply_by_column(kernels_,
                             panel_product(rows_.dh_new + (first + b) * s_.pp, s_.pp, w_.hr, s_.output, panel,
                                           state_.dm + b * s_.hp, s_.hp, count, s_.hp, false),
                             w_.given_hr, panel);
        });
      });
    }
    if (p_.layer_norm) {
      loops_.run(s_.batch, [&](Index b, void*) {
        if (steps_.holds(t, b)) units(t, b, 1, 0, s_.panels());
      });
    } else {
      loops_.run(s_.panels(), [&](Index panel, void*) {
        steps_.for_runs(t, [&](Index b, Index count) { units(t, b, count, panel, panel + 1); });
      });
    }
    // hidden() has left what zoneout keeps of dh.
    loops_.run(panels_of(s_.output), [&](Index panel, void*) {
      steps_.for_runs(t, [&](Index b, Index count) {
        multiply_by_column(
            kernels_,
            panel_product(rows_.dz_h + (first + b) * s_.gates(), s_.gates(), w_.hh, s_.gates(), panel,
                          state_.dh + b * s_.pp, s_.pp, count, s_.pp, p_.zoneout_hidden > 0),
            w_.given_hh, panel);
      });
    });
    for (Index b = 0; b < steps_.count(t); ++b) {
      if (steps_.holds(t, b) && steps_.resets(t, b)) hand_over(b);
    }
  }

  // dh and dc go to (h0, c0), and become 0.
  void hand_over(Index b) const {
    const auto move = [b](Index stride, Real* from, Real* to) {
      for (Index k = b * stride; k < (b + 1) * stride; ++k) to[k] += from[k], from[k] = 0;
    };
    move(s_.pp, state_.dh, state_.dh0);
    move(s_.hp, state_.dc, state_.dc0);
  }

  void clear_padding(int t) const {
    if (!p_.lengths) return;
    for (Index b = 0; b < steps_.count(t); ++b) {
      if (steps_.holds(t, b)) continue;
      const Index row = steps_.first(t) + b;
      const auto clear = [row](Real* rows, Index stride) {
        if (rows) std::fill(rows + row * stride, rows + (row + 1) * stride, Real(0));
      };
      clear(rows_.dz, s_.gates());
      if (p_.layer_norm) clear(rows_.dz_x, s_.gates()), clear(rows_.dz_h, s_.gates());
      clear(rows_.h_before, s_.pp);
      clear(rows_.dh_new, s_.pp);
      clear(rows_.m, s_.hp);
      clear(rows_.dv, s_.hp);
    }
  }

  // Where the row's state before step t is, as a row of the tape; -1: it is (h0, c0).
  [[nodiscard]] Index row_before(int t, Index b) const {
    const int before = reverse_ ? t + 1 : t - 1;
    return steps_.resets(t, b) || !steps_.holds(before, b) ? -1 : steps_.first(before) + b;
  }

  // In columns first ... first + width - 1: dh becomes what zoneout keeps of it, `fresh` the gradient with
  // respect to h~.
  void hidden(int t, Index b, Index count, Index first, Index width, Real* fresh, Index fresh_row) const {
    for (Index k = 0; k < count; ++k) {
      Real* const dh = state_.dh + (b + k) * s_.pp + first;
      const Real* const dy = rows_.dy + (steps_.first(t) + b + k) * s_.pp + first;
      Real* const to = fresh + k * fresh_row;
      for (Index j = 0; j < width; ++j) to[j] = dh[j] += dy[j];
      if (p_.zoneout_hidden > 0) {
        for_kept<Real>(p_, masks_, MaskKind::kHidden, t, b + k, first, width, [&](Index j, Real m) {
          to[j] = (1 - m) * dh[j];
          dh[j] *= m;
        });
      }
      const Index row = row_before(t, b + k);
      Real* const h_before = rows_.h_before + (steps_.first(t) + b + k) * s_.pp + first;
      if (row >= 0 && !tape_.h) {  // h of the last layer is y
        const Index entries = std::min(width, s_.output - first);
        const Index at = (row * directions_of(p_) + (reverse_ ? 1 : 0)) * s_.output + first;
        read_entries(p_.dtype, y_, at, 1, entries, h_before);
        std::fill(h_before + entries, h_before + width, Real(0));
        continue;
      }
      const Real* const before = row < 0 ? state_.h0 + (b + k) * s_.pp : tape_.h + row * s_.pp;
      std::memcpy(h_before, before + first, width * sizeof(Real));
    }
  }

  // From the gradient with respect to o u(c~), or to h, to dz and dc, in panels first ... last - 1.
  void units(int t, Index b, Index count, Index first, Index last) const {
    const Index row = steps_.first(t) + b, column = first * kUnits, width = (last - first) * kUnits;
    if (p_.projection == 0) {
      hidden(t, b, count, column, width, state_.dm + b * s_.hp + column, s_.hp);
    }
    for (Index k = 0; k < count; ++k) {
      const Index from = row_before(t, b + k);
      const Real* const before = from < 0 ? state_.c0 + (b + k) * s_.hp : tape_.c + from * s_.hp;
      std::memcpy(state_.c_before + (b + k) * s_.hp + column, before + column, width * sizeof(Real));
    }
    for (Index panel = first; panel < last && !p_.layer_norm; ++panel) {
      CpuCell<Real> again{};
      again.rows = count;
      again.gates = tape_.gates + row * s_.gates() + panel * kPanel, again.gates_row = s_.gates();
      again.c_before = state_.c_before + b * s_.hp + panel * kUnits, again.c_before_row = s_.hp;
      again.cell = state_.cell + b * s_.hp + panel * kUnits, again.cell_row = s_.hp;
      kernels_.cell_again(again);
    }
    if (p_.layer_norm) {
      const Real* const n = tape_.norm_c + row * s_.hp;
      Real* const v = state_.cell + b * s_.hp;
      for (Index j = 0; j < s_.hp; ++j) v[j] = w_.ln_cell[j] * n[j] + w_.ln_cell_bias[j];
    }
    for (Index panel = first; panel < last; ++panel) output_backward(row, b, count, panel);
    if (p_.layer_norm) {
      Real* const dcell = state_.dcell + b * s_.hp;
      std::memcpy(rows_.dv + row * s_.hp, dcell, s_.hp * sizeof(Real));
      normalise_backward<Real>({s_.hidden, false}, tape_.norm_c + row * s_.hp, tape_.scale[row * 3 + 2],
                               w_.ln_cell, dcell, dcell);
    }
    for (Index k = 0; k < count; ++k) {
      Real* const dc = state_.dc + (b + k) * s_.hp + column;
      Real* const dcell = state_.dcell + (b + k) * s_.hp + column;
      if (in_.c_all) {
        add_entries(p_.cell_dtype, in_.c_all, (cell_ * s_.rows + row + k) * s_.hidden + column,
                    std::min(width, s_.hidden - column), dc);
      }
      if (p_.zoneout_cell > 0) {
        for_kept<Real>(p_, masks_, MaskKind::kCell, t, b + k, column, width, [&](Index j, Real m) {
          dcell[j] += (1 - m) * dc[j];
          dc[j] *= m;
        });
      } else {
        for (Index j = 0; j < width; ++j) dcell[j] += dc[j];
      }
    }
    for (Index panel = first; panel < last; ++panel) cell_backward(row, b, count, panel);
    if (p_.layer_norm) {
      const Real* const dz = rows_.dz + row * s_.gates();
      const Index at = row * s_.gates();
      for (Real* rows : {rows_.dz_x, rows_.dz_h}) std::memcpy(rows + at, dz, s_.gates() * sizeof(Real));
      normalise_backward<Real>({s_.hidden, true}, tape_.norm_x + at, tape_.scale[row * 3], w_.ln_ih, dz,
                               rows_.dz_x + at);
      normalise_backward<Real>({s_.hidden, true}, tape_.norm_h + at, tape_.scale[row * 3 + 1], w_.ln_hh, dz,
                               rows_.dz_h + at);
    }
  }

  // From dm to dz_o and the gradient with respect to c~ through u, in state.dcell.
  void output_backward(Index row, Index b, Index count, Index panel) const {
    CpuOutputBackward<Real> output{};
    output.rows = count;
    output.gates = tape_.gates + row * s_.gates() + panel * kPanel, output.gates_row = s_.gates();
    output.v = state_.cell + b * s_.hp + panel * kUnits, output.v_row = s_.hp;
    output.dm = state_.dm + b * s_.hp + panel * kUnits, output.dm_row = s_.hp;
    output.dz = rows_.dz + row * s_.gates() + panel * kPanel, output.dz_row = s_.gates();
    output.dv = state_.dcell + b * s_.hp + panel * kUnits, output.dv_row = s_.hp;
    output.hard = rails_.hard, output.slope = rails_.slope;
    kernels_.output_backward(output);
    if (!rows_.m) return;
    CpuOutput<Real> again{};
    again.rows = count;
    again.gates = output.gates, again.gates_row = s_.gates();
    again.v = output.v, again.v_row = s_.hp;
    again.m = rows_.m + row * s_.hp + panel * kUnits, again.m_row = s_.hp;
    again.hard = rails_.hard;
    kernels_.output(again);
  }

  // From the gradient with respect to c~ to the other parts of dz, and to dc of the step before.
  void cell_backward(Index row, Index b, Index count, Index panel) const {
    CpuCellBackward<Real> cell{};
    cell.rows = count;
    cell.gates = tape_.gates + row * s_.gates() + panel * kPanel, cell.gates_row = s_.gates();
    cell.c_before = state_.c_before + b * s_.hp + panel * kUnits, cell.c_before_row = s_.hp;
    cell.dcell = state_.dcell + b * s_.hp + panel * kUnits, cell.dcell_row = s_.hp;
    cell.dz = rows_.dz + row * s_.gates() + panel * kPanel, cell.dz_row = s_.gates();
    cell.dc_before = state_.dc + b * s_.hp + panel * kUnits, cell.dc_before_row = s_.hp;
    cell.hard = rails_.hard, cell.slope = rails_.slope;
    cell.keep = p_.zoneout_cell > 0;
    kernels_.cell_backward(cell);
    // Padding may hold the NaN of an infinite x: R's product must not see it.
    const Index units = std::min<Index>(kUnits, s_.hidden - panel * kUnits);
    for (Index k = 0; k < count && units < kUnits; ++k) {
      for (Index gate = 0; gate < 4; ++gate) {
        Real* const entries = cell.dz + k * s_.gates() + gate * kUnits;
        std::fill(entries + units, entries + kUnits, Real(0));
      }
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
  const LstmIncoming& in_;
  const CellWeights<Real>& w_;
  const CellRows<Real>& tape_;
  const void* const y_;
  const BackwardRows<Real>& rows_;
  const BackwardState<Real>& state_;
  const Loops& loops_;
};

}  // namespace warpalign::detail::recurrent
