// Sinkhorn's iterations on one problem of the batch, by a team of blocks, entirely on the device.
//
// A pass over the costs computes sums at fixed potentials; an update computes new potentials from them.
// Potentials are the shift of the exponentials, so that no running maximum is needed while sums are in
// float32's range. An update detects sums that are not. Then, and at the beginning, a pass finds each point's
// largest logit first, which is the shift of the sums.
//
// All threads of the team take the same decisions, because they read the same joined numbers.
#pragma once

#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/solve/change.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

template <class Costs>
class Solver {
 public:
  using Real = typename Costs::Real;

  __device__ __forceinline__ Solver(const SolveParams<Real>& p, Team& team, int b)
      : rows(p.rows, b, team.index, p.product, p.mass > 0),
        columns(p.columns, b, team.index, p.product, p.mass > 0),
        p_(p),
        team_(team),
        costs_(p, team, rows, columns) {
    columns.from_last = true;  // by other blocks than the rows, at the same time
  }

  Side<Real> rows;
  Side<Real> columns;
  double epsilon = 0;
  double lambda = 0;  // in bits, for partial transport
  int iterations = 0;

  [[nodiscard]] __device__ __forceinline__ bool is_nan() const {
    return isnan(rows.moved) || isnan(columns.moved);
  }
  [[nodiscard]] __device__ __forceinline__ const Costs& costs() const { return costs_; }

  // Sets the initial potentials, at the first epsilon. Returns the last epsilon.
  __device__ __forceinline__ double set_up() {
    const double wanted = p_.epsilons ? static_cast<double>(p_.epsilons[rows.b]) : p_.epsilon;
    const bool valid = wanted > 0 && !isinf(wanted);
    const double target = valid ? wanted : CUDART_NAN;  // makes every potential NaN
    use_epsilon(valid ? max(target, p_.epsilon_start) : target);
    if (start()) return target;
    use_epsilon(CUDART_NAN);
    return CUDART_NAN;
  }

  // Runs the iterations. On return the potentials are those of the last one.
  __device__ __forceinline__ void run() {
    const double target = set_up();
    // Sums at the first potentials are usually in range, and an update sees those that are not. A mass may be
    // below any number at first, unless annealing begins with an epsilon near the costs.
    certified_ = epsilon > target || !(p_.mass > 0);
    rows.near = columns.near = !(p_.mass > 0);
    if (p_.symmetric_iterations > 0) {
      while (epsilon > target) {
        const double to = max(target, epsilon * p_.epsilon_factor);
        if (p_.mass > 0) {  // its step needs another pass with the new potentials
          symmetric_step();
          set_epsilon(to);
          continue;
        }
        ratio_ = epsilon / to;
        symmetric_step();
        ratio_ = 1;
        take_epsilon(to);
      }
      if (iterate(false, p_.symmetric_iterations, true, [&] { symmetric_step(); })) return;
      if (iterations == p_.max_iterations) return;
    }
    // One sweep updates rows, then columns. With columns first, half a step is done before the sweeps, and
    // the iterations end half a step later.
    if (!p_.rows_first) update(columns);
    while (epsilon > target) {
      if (p_.rows_first) {
        step();
      } else {
        update(rows);
      }
      set_epsilon(max(target, epsilon * p_.epsilon_factor));
      if (!p_.rows_first) update(columns);
    }
    iterations += p_.rows_first ? 0 : 1;
    iterate(is_nan(), p_.max_iterations, false, [&] { step(); });
    if (!p_.rows_first && !has_ended_) update(rows);
  }

  // A pass at the current potentials.
  [[nodiscard]] __device__ __forceinline__ Pass pass_at(const double* rows_at, float rows_top,
                                                        const double* columns_at, float columns_top) const {
    Pass pass{};
    pass.rows_at = rows_at;
    pass.columns_at = columns_at;
    pass.lambda = lambda;
    pass.largest = max(static_cast<double>(rows_top) + abs(lambda), static_cast<double>(columns_top));
    pass.rounder = rounder_of<Real>(pass.largest);
    pass.k = k_;
    pass.epsilon = epsilon;
    return pass;
  }
  [[nodiscard]] __device__ __forceinline__ Pass pass_at_current() const {
    return pass_at(rows.current(), rows.top, columns.current(), columns.top);
  }

 private:
  static constexpr float kCertified = 60;  // bits

  // Iterates at the last epsilon, in the costs' own loop if there is one. Returns whether no potential moves.
  template <class Step>
  __device__ __forceinline__ bool iterate(bool over, int most, bool symmetric, const Step& step) {
    while (iterations < most && !over) {
      const int done = iterate_costs(most - iterations, symmetric);
      iterations += max(done, 1);
      if (done == 0) step();
      over = is_over();
    }
    return over;
  }
  // The number of iterations that costs have done in their own loop, at most `most`.
  __device__ __forceinline__ int iterate_costs(int most, bool symmetric) {
    if constexpr (requires { Costs::kMostShortColumns; }) {
      if constexpr (Costs::kMostShortColumns > 0) {
        if (!certified_) return 0;
        const auto found = costs_.iterate(team_, pass_at_current(), most, symmetric, kCertified,
                                          p_.tolerance * kLog2E<double>);
        if (found.done == 0 && found.in_range) return 0;  // no loop for this problem
        has_ended_ = found.ends > 0;
        rows.now = (rows.now + found.done + found.ends) % 2;
        for (Side<Real>* const side : {&rows, &columns}) {
          if (found.done == 0) continue;
          const int k = index_of(*side);
          side->moved = found.last.moved[k];
          side->top = found.last.top[k];
          side->near = found.last.moved[k] <= kCertified && found.last.gap <= kCertified;
        }
        certified_ = found.in_range && rows.near && columns.near;
        return found.done;
      }
    }
    return 0;
  }

  [[nodiscard]] __device__ __forceinline__ int index_of(const Side<Real>& side) const {
    return &side == &columns ? 1 : 0;
  }
  [[nodiscard]] __device__ __forceinline__ bool is_over() const {
    return is_nan() ||
           max(max(rows.moved, columns.moved), abs(moved_lambda_)) < p_.tolerance * kLog2E<double>;
  }

  // Whether the weights allow a plan.
  __device__ __forceinline__ bool start() {
    StartSums mine;
    mine.extent = costs_.prepare();
    for (Side<Real>* const side : {&rows, &columns}) {
      const int k = index_of(*side);
      for_points(*side, team_, [&](int i) {
        const double from =
            side->p.start ? static_cast<double>(side->p.start[side->row_of_batch() + i]) : 0.0;
        const double w = from * (kLog2E<double> / epsilon);
        side->current()[i] = w;
        raise(mine.top[k], w);
        const double weight = side->weight(i);
        mine.total[k] += side->reference(weight);
        mine.weights[k] += weight;
      });
    }
    const StartSums all = team_.joined(mine);
    costs_.take_extent(all.extent);
    rows.top = all.top[0];
    columns.top = all.top[1];
    rows.total = all.total[0];
    columns.total = all.total[1];
    if (!p_.checks_sums) return true;
    if (p_.mass > 0) {
      return p_.mass <= min(all.weights[0], all.weights[1]) * (1 + sum_slack<Real>());
    }
    return !rows.marginal.is_hard() || !columns.marginal.is_hard() ||
           sums_agree(all.weights[0], all.weights[1]);
  }

  // Changes epsilon. Potentials stay the same in units of the cost.
  __device__ __attribute__((noinline)) void set_epsilon(double to) {
    const double ratio = epsilon / to;
    for (const Side<Real>* const side : {&rows, &columns}) {
      for_points(*side, team_, [&](int i) { side->current()[i] *= ratio; });
    }
    take_epsilon(to);
    team_.barrier();
  }
  // Called when the potentials in memory are those of the new epsilon.
  __device__ __forceinline__ void take_epsilon(double to) {
    const double ratio = epsilon / to;
    for (Side<Real>* const side : {&rows, &columns}) {
      side->top = static_cast<float>(side->top * ratio) * 1.000001f;
    }
    lambda *= ratio;
    use_epsilon(to);
  }
  __device__ __forceinline__ void use_epsilon(double to) {
    epsilon = to;
    k_ = kLog2E<double> * p_.cost_scale / to;
  }

  // The factor that the last pass has left out of a side's sum at potential w, in bits.
  [[nodiscard]] __device__ __forceinline__ double bits_left_out(int side, double w) const {
    if constexpr (requires { Costs::kColumnsOfHi; }) {
      if (Costs::kColumnsOfHi && side == 1) return Potential<Real>::split(w, rounder_).lo;
    }
    return 0;
  }

  // Computes new potentials from the sums at potentials `at` (null: 0). moved_lambda: the change of lambda
  // since the pass.
  enum class How { kUpdate, kAverage };
  __device__ __attribute__((noinline)) void change(const Side<Real>& side, const double* at, How how,
                                                   double moved_lambda, Change& mine) const {
    const int k = index_of(side);
    double* const next = side.next();
    const double* const current = side.current();
    for_totals<false, totals_at_once<Costs>()>(side, team_, [&](int i, double sum) {
      const double weight = side.weight(i);
      const double w = at ? at[i] : 0.0;
      const double log2_sum = log2(sum) + moved_lambda + bits_left_out(k, w);
      const double free = free_of(side.target(weight), w, log2_sum);
      double to = side.marginal.updated(free, epsilon);
      const bool follows = side.marginal.follows_sums();
      const bool too_small = follows && log2_sum < -kCertified && !isinf(w);
      if (!(sum < CUDART_INF) || too_small) mine.out_of_range = 1;  // NaN may be infinity times a weight of 0
      const double old = current[i];
      if (to != old) mine.moved[k] = larger(mine.moved[k], static_cast<float>(abs(to - old)));
      if (how == How::kAverage && !isinf(to)) to = (old + to) / 2;
      if (follows && !isinf(to)) mine.gap = larger(mine.gap, static_cast<float>(abs(free - to)));
      raise(mine.top[k], to);
      if (p_.mass > 0 && !isinf(to) && !isinf(w)) {
        mine.mass_bits = sum_in_bits(mine.mass_bits, log2(side.reference(weight)) + log2_sum + (to - w));
      }
      next[i] = to * ratio_;
    });
  }
  __device__ __forceinline__ void take(Side<Real>& side, const Change& all) {
    const int k = index_of(side);
    side.now = 1 - side.now;
    side.moved = all.moved[k];
    side.top = all.top[k];
    side.near = all.moved[k] <= kCertified && all.gap <= kCertified;
    certified_ = rows.near && columns.near;
  }
  __device__ __forceinline__ void move_mass(double mass_bits) {
    if (!(p_.mass > 0)) return;
    moved_lambda_ = log2(p_.mass) - mass_bits;
    lambda += moved_lambda_;
  }

  // A pass for one side alone, at `at`.
  template <PassKind kKind>
  __device__ __attribute__((noinline)) void one_sided(const Side<Real>& side, const double* at, float top) {
    const bool of_rows = index_of(side) == 0;
    Pass pass = of_rows ? pass_at(at, top, columns.current(), columns.top)
                        : pass_at(rows.current(), rows.top, at, top);
    pass.rows = of_rows;
    pass.columns = !of_rows;
    rounder_ = pass.rounder;
    PlanSums unused;
    costs_.template run<kKind>(pass, unused);
    team_.barrier();
  }
  // Computes potentials at which the largest logit of every point is about 0, in side.shift().
  __device__ __attribute__((noinline)) void find_range(Side<Real>& side) {
    one_sided<PassKind::kLargest>(side, nullptr, 0);
    Change mine;
    for_totals<true>(side, team_, [&](int i, double largest) {
      side.shift()[i] = -ceil(largest);
      raise(mine.top[0], ceil(largest));
    });
    side.top_of_shift = team_.joined(mine).top[0];
  }

  // Updates one side, from the sums at the other side's potentials.
  __device__ __attribute__((noinline)) void update(Side<Real>& side) {
    if (certified_) {
      one_sided<PassKind::kSums>(side, side.current(), side.top);
      Change mine;
      change(side, side.current(), How::kUpdate, 0, mine);
      const Change all = team_.joined(mine);
      if (all.out_of_range == 0) {
        take(side, all);
        return move_mass(all.mass_bits);
      }
    }
    find_range(side);
    one_sided<PassKind::kSums>(side, side.shift(), side.top_of_shift);
    Change mine;
    change(side, side.shift(), How::kUpdate, 0, mine);
    const Change all = team_.joined(mine);
    take(side, all);
    move_mass(all.mass_bits);
  }

  // Updates rows, then columns.
  __device__ __forceinline__ void step() {
    if (certified_ && costs_.sweeps() && sweep()) return;
    update(rows);
    update(columns);
  }
  // Updates both sides with one read of the costs. Returns false if sums were out of range; nothing has
  // changed then.
  __device__ __attribute__((noinline)) bool sweep() {
    Pass pass = pass_at_current();
    pass.rows = pass.columns = pass.updates_rows = true;
    rounder_ = pass.rounder;
    PlanSums unused;
    costs_.template run<PassKind::kSums>(pass, unused);
    team_.barrier();
    Change mine;
    change(rows, rows.current(), How::kUpdate, 0, mine);
    if (!(p_.mass > 0)) {
      change(columns, columns.current(), How::kUpdate, 0, mine);
      const Change all = team_.joined(mine);
      certified_ = all.out_of_range == 0;
      if (!certified_) return false;
      take(rows, all);
      take(columns, all);
      return true;
    }
    // The columns use the lambda that the rows have changed.
    const Change of_rows = team_.joined(mine);
    if (of_rows.out_of_range != 0) return false;
    const double moved_lambda = log2(p_.mass) - of_rows.mass_bits;
    Change of_columns;
    change(columns, columns.current(), How::kUpdate, moved_lambda, of_columns);
    const Change all = team_.joined(of_columns);
    if (all.out_of_range != 0) return false;
    take(rows, of_rows);
    lambda += moved_lambda;
    take(columns, all);
    move_mass(all.mass_bits);
    return true;
  }

  // Updates both sides from the old potentials, and averages each with its old value.
  __device__ __attribute__((noinline)) void symmetric_step() {
    Change all;
    bool done = false;
    if (certified_) {
      Pass pass = pass_at_current();
      pass.rows = pass.columns = true;
      rounder_ = pass.rounder;
      PlanSums unused;
      costs_.template run<PassKind::kSums>(pass, unused);
      team_.barrier();
      Change mine;
      change(rows, rows.current(), How::kAverage, 0, mine);
      change(columns, columns.current(), How::kAverage, 0, mine);
      all = team_.joined(mine);
      done = all.out_of_range == 0;
    }
    if (!done) {
      all = Change{};
      for (Side<Real>* const side : {&rows, &columns}) {
        find_range(*side);
        one_sided<PassKind::kSums>(*side, side->shift(), side->top_of_shift);
        Change mine;
        change(*side, side->shift(), How::kAverage, 0, mine);
        all.join(team_.joined(mine));
      }
    }
    take(rows, all);
    take(columns, all);
    if (!(p_.mass > 0)) return;
    // Both potentials have changed, so that the mass of the plan needs another pass, which finds its range
    // first.
    find_range(rows);
    one_sided<PassKind::kSums>(rows, rows.shift(), rows.top_of_shift);
    Change mine;
    for_totals<false>(rows, team_, [&](int i, double sum) {
      const double to = rows.current()[i], w = rows.shift()[i];
      if (isinf(to) || isinf(w)) return;
      mine.mass_bits =
          sum_in_bits(mine.mass_bits, log2(rows.reference(rows.weight(i))) + log2(sum) + (to - w));
    });
    move_mass(team_.joined(mine).mass_bits);
  }

  const SolveParams<Real>& p_;
  Team& team_;
  Costs costs_;
  double k_ = 0;  // the factor of costs in logits
  double moved_lambda_ = 0;
  double rounder_ = 0;                          // the rounder of the potentials in the last pass of sums
  double ratio_ = 1;                            // this epsilon over that of the next step
  bool certified_ = false, has_ended_ = false;  // has_ended_: rows are updated behind the last iteration
};

}  // namespace warpalign::detail::transport
