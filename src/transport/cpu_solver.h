// Sinkhorn's iteration on one problem of the batch, on a CPU. The kernels have the loops over a row.
//
// Logits do not contain the weights: t = w + z + lambda - k c in bits, P = R 2^t. Weights are factors in the
// sums, so that weights of any size, including 0, are exact. `free` is log2(weight / sum) without the updated
// potential in the sum (update.h). Potentials are float64; a pass over the costs gets them as pairs of Real
// (cpu_kernel.h).
//
// A step is one sweep: a row's exponentials are summed, its potential is updated, and its part of the column
// sums is added while the exponentials are in the cache. That is one exponential per element. Exponentials
// are in range while no potential changes by more than kCertified bits; changes never grow from one step to
// the next, because soft-min is non-expansive. Then exponentials may also be stored for the next passes
// (CpuKept), which take two multiply-adds per element.
//
// Earlier steps, and those after a change of epsilon, find each row's largest logit while its costs are in
// the cache. If a column's sum is then out of range, they find the largest logits of rows and columns in
// separate passes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "transport/cpu_parallel.h"
#include "transport/cpu_side.h"
#include "transport/cpu_sums.h"

namespace warpalign::detail::transport {

constexpr double kCertified = 60;  // bits
constexpr double kRoom = 16;  // factor by which a potential may grow whose range is found within the pass
constexpr double kLargestRatio = 40;  // bits by which its new potential may exceed that of its range

template <class Real>
struct CpuSolver {
  using Side = CpuSide<Real>;
  using Scratch = CpuScratch<Real>;
  static constexpr double kInf = std::numeric_limits<double>::infinity();

  Side rows;
  Side columns;
  CpuCosts<Real> costs;
  CpuKept<Real> kept;
  const CpuKernelsOf<Real>* kernels = nullptr;
  const BlockTeam* team = nullptr;
  Scratch* scratch = nullptr;  // one per worker
  CpuColumnSums<Real> sums;
  double cost_scale = 1;
  double mass = 0;        // 0: not partial
  double epsilon = 1;     // of the current potentials
  double lambda = 0;      // in bits
  double moved_rows = 0;  // the largest move of the last step, in bits
  double moved_columns = 0;
  double moved_lambda = 0;  // change of lambda by the last pass
  double gap = 0;           // the largest of CpuSide::gap()
  bool certified = false;
  bool all_weigh = true;  // no weight of the reference is 0
  // <C, P> and the mass of the plan after finish(), if they are requested and the last pass computed them.
  struct PlanSums {
    double linear = 0;
    double mass = 0;
    bool wanted = false;  // false for partial transport, whose plan changes after the last pass
    bool known = false;
  } plan_sums{};

  // A solve is start(), any number of step(), finish(), in this order.
  void start() {
    remember(columns);
    find_range_of_columns();
    pass(false);
    update(columns, moved_columns);
  }
  // Updates rows, then columns.
  void step() {
    remember(rows);
    remember(columns);
    if (certified) {
      certified_pass(true);
      update(columns, moved_columns);
    } else if (pass(true, Exponentials::kRanged)) {
      update(columns, moved_columns);
    } else {
      finish_in_two_passes();
      start();
    }
    certify();
  }
  void finish() {
    remember(rows);
    if (certified && !plan_sums.wanted) {
      certified_pass(false);
    } else if (!pass(false, Exponentials::kRanged)) {
      return finish_in_two_passes();
    } else {
      join_plan_sums();
    }
    update(rows, moved_rows);
  }

  // Updates both sides from the old potentials, and averages each with its old value.
  void symmetric_step() {
    remember(rows);
    remember(columns);
    if (certified) {
      certified_pass(false);
    } else {
      find_range_of_columns();
      pass(false);
      std::swap(columns.w, columns.old);  // rows also use the old potentials
      std::swap(columns.free, columns.spare);
      find_range_of_rows();
      pass(false);
      std::swap(columns.free, columns.spare);
      std::copy_n(columns.w, columns.count, columns.old);
    }
    average(rows, moved_rows);
    average(columns, moved_columns);
    if (mass > 0) {
      // Both potentials have changed, so that the mass of the plan needs another pass, which finds its range
      // first.
      std::swap(rows.w, rows.spare);
      find_range_of_rows();
      pass(false);
      std::swap(rows.w, rows.spare);
      move_mass(rows);
    }
    certify();
  }

  // Changes epsilon. Potentials stay the same in units of the cost.
  void set_epsilon(double to) {
    const double ratio = epsilon / to;
    for (int i = 0; i < rows.count; ++i) rows.w[i] *= ratio;
    for (int j = 0; j < columns.count; ++j) columns.w[j] *= ratio;
    lambda *= ratio;
    epsilon = to;
    certified = kept.valid = false;
  }

  // An estimate of the largest change of a potential by a further step, in bits.
  [[nodiscard]] double moved() const { return std::max({moved_rows, moved_columns, std::abs(moved_lambda)}); }
  [[nodiscard]] bool is_nan() const { return std::isnan(moved_rows) || std::isnan(moved_columns); }
  [[nodiscard]] double k() const { return kLog2E<double> * cost_scale / epsilon; }

  // Calls body(block, scratch) for every block of rows.
  template <class Body>
  void for_blocks(const Body& body) const {
    team->run(blocks(), [&](int block, int worker) { body(block, scratch[worker]); });
  }
  // Calls body(i) for every row of a block.
  template <class Body>
  void for_rows(int block, const Body& body) const {
    const int end = first_row(block + 1, blocks(), rows.count);
    for (int i = first_row(block, blocks(), rows.count); i < end; ++i) body(i);
  }
  // Calls body(i, count) for the rows of a block, kCpuRows at a time: `count` rows from i on.
  template <class Body>
  void for_groups(int block, const Body& body) const {
    const int end = first_row(block + 1, blocks(), rows.count);
    for (int i = first_row(block, blocks(), rows.count); i < end; i += kCpuRows)
      body(i, std::min(kCpuRows, end - i));
  }
  [[nodiscard]] int blocks() const { return blocks_of(rows.count); }

  // Row i's costs and potentials. Costs that are not contiguous are copied, those of points are computed.
  LogitRow<Real> row_at(int i, const Scratch& own) const {
    const bool made = costs.is_made();
    if (made) kernels->costs(points_at(i, own), 1, own.cost, 0);
    const Real* const cost = made ? own.cost : costs.row(i, columns.count, *kernels, own.cost);
    return {cost, columns.hi, columns.lo, rows.hi[i], rows.lo[i], static_cast<Real>(k()), columns.count};
  }
  // `count` points from i on; at most kCpuRows.
  PointRow<Real> points_at(int i, const Scratch& own, int count = 1) const {
    for (int d = 0; d < costs.dim; ++d) {
      const Real* const from = rows.points + static_cast<std::ptrdiff_t>(d) * padded(rows.count) + i;
      for (int k = 0; k < count; ++k) own.point[k * costs.dim + d] = from[k];
    }
    return {costs.kind, own.point, columns.points, padded(columns.count), costs.dim, columns.count};
  }

  // Computes all costs of points, for the passes to read: `to` has (rows, padded columns).
  void store_costs(Real* to) {
    const std::ptrdiff_t stride = padded(columns.count);
    for_blocks([&](int block, const Scratch& own) {
      for_groups(block, [&](int i, int count) {
        kernels->costs(points_at(i, own, count), count, to + i * stride, stride);
      });
    });
    costs.matrix = to;
    costs.row_stride = stride;
    costs.column_stride = 1;
  }

  PotentialGrid split_potentials(double room = 1) {
    return split_all_potentials(rows, columns, lambda, room);
  }

  void begin_sums(int block) const { sums.begin(block, columns.count); }
  // Adds factor e[j] to column j's sum of the block.
  void add_to_sums(int block, int i, const Real* e, double factor) const {
    kernels->accumulate(e, static_cast<Real>(factor), columns.count, sums.partial_of(block, columns.count));
    sums.added_row(block, i - first_row(block, blocks(), rows.count), columns.count);
  }
  void flush_sums(int block) const { sums.flush(block, columns.count); }
  [[nodiscard]] double joined_sum(int j) const { return sums.joined(j, blocks(), columns.count); }

 private:
  static void remember(Side& side) { std::copy_n(side.w, side.count, side.old); }

  // Finds potentials at which every row's largest logit is about 0.
  void find_range_of_rows() {
    std::fill_n(rows.w, rows.count, 0.0);
    split_potentials();
    for (int j = 0; j < columns.count; ++j) {
      if (columns.reference[j] == 0) columns.hi[j] = static_cast<Real>(-kInf);
    }
    for_blocks([&](int block, const Scratch& own) {
      for_rows(block, [&](int i) { rows.w[i] = -std::ceil(kernels->largest(row_at(i, own))); });
    });
  }
  void find_range_of_columns() {
    std::fill_n(columns.w, columns.count, 0.0);
    split_potentials();
    for_blocks([&](int block, const Scratch& own) {
      std::fill_n(sums.partial_of(block, columns.count), padded(columns.count), static_cast<Real>(-kInf));
      for_rows(block, [&](int i) {
        if (rows.reference[i] != 0) kernels->raise(row_at(i, own), sums.partial_of(block, columns.count));
      });
    });
    for (int j = 0; j < columns.count; ++j) {
      Real top = static_cast<Real>(-kInf);
      for (int block = 0; block < blocks(); ++block) {
        const Real other = sums.partial_of(block, columns.count)[j];
        top = other > top || std::isnan(other) ? other : top;
      }
      columns.w[j] = -std::ceil(static_cast<double>(top));
    }
  }

  void finish_in_two_passes() {
    find_range_of_rows();
    pass(false);
    update(rows, moved_rows);
  }

  // The source of a pass's exponentials: computed from the costs, at the potentials (kMade) or relative to
  // each row's largest logit (kRanged); computed and stored (kStored); or stored by an earlier pass (kKept).
  enum class Exponentials { kMade, kRanged, kStored, kKept };

  // The exponentials of a row at the potential `at`, and the references of the columns in its sum.
  struct Row {
    const Real* e;
    double at;
    double sum;
    const Real* cost = nullptr;  // used with kRanged
  };

  // Computes `free` of both sides, with one exponential per element. With updates_rows columns use the new
  // rows. Returns false if a sum is out of range, which is possible only with kRanged; only `free` has
  // changed then.
  bool pass(bool updates_rows, Exponentials from = Exponentials::kMade) {
    const bool ranged = from == Exponentials::kRanged;
    if (ranged && !all_weigh) return false;
    PotentialGrid grid{};
    if (from == Exponentials::kKept) {
      kept.find_factors(columns);
    } else {
      grid = split_potentials(ranged ? kRoom : 1);
    }
    if (from == Exponentials::kStored) kept.remember(rows, columns, lambda);
    std::atomic<bool> in_range = true;
    for_blocks([&](int block, const Scratch& own) {
      begin_sums(block);
      for_rows(block, [&](int i) {
        const Row row = ranged ? ranged_row(i, own, grid) : exponentials_of(i, own, from);
        rows.free[i] = rows.free_of(i, row.at, std::log2(row.sum));
        const double next = ranged || updates_rows ? next_of(rows, i) : rows.w[i];
        const bool none = std::isinf(next) || std::isinf(row.at);
        if (ranged && !none && !(next - row.at <= kLargestRatio)) in_range = false;
        const double ratio = none ? 1.0 : std::exp2(next - row.at);
        if (ranged && !updates_rows) return add_to_plan_sums(block, i, row, ratio);
        add_to_sums(block, i, row.e, static_cast<double>(rows.reference[i]) * ratio);
      });
      flush_sums(block);
    });
    if (ranged && !updates_rows) return in_range;
    if (ranged && !(in_range && columns_in_range())) return false;
    const double before = lambda;
    if (updates_rows) update(rows, moved_rows);
    for (int j = 0; j < columns.count; ++j) {
      const double at = from == Exponentials::kKept ? kept.columns_at[j] : columns.w[j];
      columns.free[j] = columns.free_of(j, at, std::log2(joined_sum(j)) + (lambda - before));
    }
    return true;
  }

  Row exponentials_of(int i, const Scratch& own, Exponentials from) const {
    Real* const e = from == Exponentials::kMade ? own.e : kept.row(i, columns.count);
    if (from != Exponentials::kKept) {
      return {e, rows.w[i], kernels->exponentials(row_at(i, own), columns.reference, e)};
    }
    return {e, kept.rows_at[i] - lambda, kernels->weighted_sum(e, kept.factors, columns.count)};
  }

  // The last pass needs no column sums, whose memory has those of the plan.
  void add_to_plan_sums(int block, int i, const Row& row, double ratio) const {
    if (!plan_sums.wanted) return;
    const double factor = static_cast<double>(rows.reference[i]) * ratio;
    sums.totals_of(block, columns.count)[0] +=
        factor * kernels->weighted_cost(row.e, columns.reference, row.cost, columns.count);
    sums.totals_of(block, columns.count)[1] += factor * row.sum;
  }
  void join_plan_sums() {
    plan_sums.linear = cost_scale * joined_sum(0);
    plan_sums.mass = joined_sum(1);
    plan_sums.known = plan_sums.wanted;
  }

  // Row i at a potential at which its largest logit is about 0; NaN if that is beyond the grid.
  Row ranged_row(int i, const Scratch& own, const PotentialGrid& grid) const {
    LogitRow<Real> row = row_at(i, own);
    row.w_hi = row.w_lo = 0;
    const double unit = std::max(grid.unit, 1.0);
    double at = -std::ceil(kernels->largest(row) / unit) * unit;
    if (!(std::abs(at) <= grid.most) && at != kInf) at = std::numeric_limits<double>::quiet_NaN();
    row.w_hi = at == kInf ? Real(0) : static_cast<Real>(at);
    return {own.e, at - lambda, kernels->exponentials(row, columns.reference, own.e), row.cost};
  }

  [[nodiscard]] bool columns_in_range() const {
    for (int j = 0; j < columns.count; ++j) {
      if (!(std::abs(std::log2(joined_sum(j))) <= kCertified)) return false;
    }
    return true;
  }

  // A pass for which certify() has found that exponentials are in range. Stored exponentials below 2^-126
  // have become 0. With the changes since, they would be at most 2^(-126 + change + move), in sums of at
  // least 2^-gap or 2^-move. With moves of at most kCertified / 4 bits, the relative error is below 2^-50.
  void certified_pass(bool updates_rows) {
    const double moves = moved();
    if (kept.valid && kept.change(rows, columns, lambda) + moves + gap <= kCertified) {
      pass(updates_rows, Exponentials::kKept);
      return;
    }
    kept.valid = kept.e && 4 * moves <= kCertified;
    pass(updates_rows, kept.valid ? Exponentials::kStored : Exponentials::kMade);
  }

  [[nodiscard]] double next_of(const Side& side, int i) const {
    return side.marginal.updated(side.free[i], epsilon);
  }

  void update(Side& side, double& moved) {
    moved = 0;
    for (int i = 0; i < side.count; ++i) {
      const double next = next_of(side, i);
      note_move(next, side.old[i], moved);
      side.w[i] = next;
    }
    move_mass(side);
  }
  void average(Side& side, double& moved) {
    moved = 0;
    for (int i = 0; i < side.count; ++i) {
      const double next = next_of(side, i);
      note_move(next, side.old[i], moved);
      side.w[i] = std::isfinite(next) ? (side.old[i] + next) / 2 : next;
    }
  }

  // For partial transport: sets lambda to give the plan its mass. Sums are taken as logarithms, from the
  // side's `free`, because they may underflow if costs are far above epsilon.
  void move_mass(const Side& side) {
    if (!(mass > 0)) return;
    const auto bits = [&](int i) {
      const bool counts = side.reference[i] != 0 && std::isfinite(side.w[i]) && std::isfinite(side.free[i]);
      return counts ? side.target[i] + side.w[i] - side.free[i] : -kInf;
    };
    double top = -kInf;
    for (int i = 0; i < side.count; ++i) top = std::max(top, bits(i));
    double sum = 0;
    for (int i = 0; i < side.count && top > -kInf; ++i) {
      sum += static_cast<double>(side.reference[i]) * std::exp2(bits(i) - top);
    }
    moved_lambda = sum > 0 ? std::log2(mass / sum) - top : kInf;
    lambda += moved_lambda;
  }

  // Finds out whether the sums of the next pass are within a factor of 2^kCertified of the weights: no
  // potential changes much, and on a relaxed side none is far from that at which its sum would be the weight.
  void certify() {
    gap = std::max(rows.gap(), columns.gap());
    certified = moved_rows <= kCertified && moved_columns <= kCertified && gap <= kCertified;
  }
};

}  // namespace warpalign::detail::transport
