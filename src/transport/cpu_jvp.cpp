// The CPU path of sinkhorn_jvp(). In order: the derivative of the plan's sums at fixed potentials, the
// derivative of the potentials (a linear system), and the derivatives of all outputs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/cpu_linear.h"
#include "transport/cpu_problem.h"
#include "transport/cpu_tangent.h"
#include "transport/problem.h"

namespace warpalign::detail::transport {
namespace {

struct JvpCall {
  const SinkhornProblem& p;
  const SinkhornTangents& along;
  const SinkhornOutputs& out;
};

template <class Real>
class Jvp {
 public:
  Jvp(Arena& arena, const JvpCall& call, int threads)
      : p_(call.p),
        along_(call.along),
        out_(call.out),
        problem_(arena, call.p, threads, true),
        s_(problem_.solver) {
    const int longest = padded(std::max(p_.n, p_.m));
    lay_out(arena, p_.n, tangents_.rows, system_.rows);
    lay_out(arena, p_.m, tangents_.columns, system_.columns);
    for (auto [side, length] : {std::pair{&tangents_.rows, p_.n}, {&tangents_.columns, p_.m}}) {
      if (!along_.x.data && !along_.y.data) continue;
      side->points = arena.take<Real>(static_cast<std::size_t>(padded(length)) * p_.dim);
      if (p_.cost_kind == CostKind::kCosine) side->lengths = arena.take<Real>(padded(length));
    }
    for (double** array :
         {&system_.x, &system_.residual, &system_.direction, &system_.product, &system_.diagonal}) {
      *array = arena.take<double>(static_cast<std::size_t>(p_.m) + 1);
    }
    system_.row_values = arena.take<double>(p_.n);
    system_.weighted = arena.take<Real>(padded(p_.m));
    tangents_.scratch = arena.take<TangentScratch<Real>>(threads);
    for (int k = 0; k < threads; ++k) {
      TangentScratch<Real> own{arena.take<Real>(longest), arena.take<Real>(longest), arena.take<Real>(p_.dim),
                               arena.take<double>(p_.dim)};
      if (tangents_.scratch) tangents_.scratch[k] = own;
    }
  }

  void run(int b, const BlockTeam& team) {
    b_ = b;
    problem_.bind(b, team);
    const double bits = kLog2E<double> / s_.epsilon;
    s_.lambda = bits * number(p_.shift0);
    for (int i = 0; i < s_.rows.count; ++i) s_.rows.w[i] -= s_.lambda;
    settle(s_.rows);
    settle(s_.columns);
    bind_tangents();

    const TangentTotals still = pass({}, nullptr, true);
    const double value = value_tangent(still);
    set_system(still);
    const bool is_double = sizeof(Real) == sizeof(double);
    const auto [steps, error] = system_.solve(p_.max_iterations, is_double ? 1e-12 : 1e-6);
    system_.finish();
    if (is_open()) centre();
    write(value, steps, error);
  }

 private:
  using Side = CpuSide<Real>;

  static void lay_out(Arena& arena, int length, SideTangent<Real>& side, SideOfSystem<Real>& of) {
    for (double** array :
         {&side.potential, &side.weight, &side.ratio, &side.ratio_moved, &of.right, &of.sum}) {
      *array = arena.take<double>(padded(length));
    }
    of.moves = arena.take<bool>(length);
  }

  // Sets potentials that are 0 within tolerance to 0: symmetric updates of partial transport halve the
  // distance to 0 and never reach it.
  void settle(const Side& side) const {
    for (int i = 0; i < side.count && p_.mass > 0; ++i) {
      if (std::abs(side.w[i]) <= p_.tolerance * kLog2E<double>) side.w[i] = 0;
    }
  }

  // Whether a constant can be moved between f and g: in balanced transport.
  [[nodiscard]] bool is_open() const {
    return p_.mass == 0 && std::isinf(p_.a.strength) && std::isinf(p_.b.strength);
  }

  [[nodiscard]] double number(const void* data) const {
    return data ? static_cast<double>(static_cast<const Real*>(data)[b_]) : 0.0;
  }
  [[nodiscard]] double number(const void* data, std::int64_t length, int i) const {
    return data ? static_cast<double>(static_cast<const Real*>(data)[b_ * length + i]) : 0.0;
  }

  void bind_tangents() {
    tangents_.epsilon = number(along_.epsilon);
    tangents_.log_scale = number(along_.log_scale);
    tangents_.lambda = 0;
    bind(tangents_.rows, s_.rows, along_.a, along_.x, p_.n);
    bind(tangents_.columns, s_.columns, along_.b, along_.y, p_.m);
    if (!along_.cost.data) return;
    tangents_.cost = static_cast<const Real*>(along_.cost.data) + b_ * along_.cost.stride[0];
    tangents_.cost_row_stride = along_.cost.stride[1];
    tangents_.cost_column_stride = along_.cost.stride[2];
  }

  void bind(SideTangent<Real>& side, const Side& of, const void* weight, const StridedTensor& points,
            int length) {
    std::fill_n(side.potential, padded(length), 0.0);
    for (int i = 0; i < of.count; ++i) side.weight[i] = number(weight, length, i);
    if (side.points) pack(side, of, points);
  }

  // Transposes the tangents of points; for the cosine, computes those of x / |x| and of |x|.
  void pack(SideTangent<Real>& side, const Side& of, const StridedTensor& from) const {
    const std::ptrdiff_t stride = padded(of.count);
    std::fill_n(side.points, stride * p_.dim, Real(0));
    if (side.lengths) std::fill_n(side.lengths, of.count, Real(0));
    if (!from.data) return;
    const Real* const moved = static_cast<const Real*>(from.data) + b_ * from.stride[0];
    for (int i = 0; i < of.count; ++i) {
      const auto at = [&](int d) {
        return static_cast<double>(moved[i * from.stride[1] + d * from.stride[2]]);
      };
      double along = 0;
      const double length = of.lengths ? static_cast<double>(of.lengths[i]) : 1.0;
      for (int d = 0; d < p_.dim && side.lengths; ++d) {
        along += at(d) * static_cast<double>(of.points[d * stride + i]);
      }
      if (side.lengths) side.lengths[i] = static_cast<Real>(along);
      for (int d = 0; d < p_.dim && length > 0; ++d) {
        const double unit = static_cast<double>(of.points[d * stride + i]);
        side.points[d * stride + i] = static_cast<Real>((at(d) - along * unit) / length);
      }
    }
  }

  // A pass over the rows, then one over the columns. Returns the sums of the first. others_follow: whether
  // costs are read again.
  TangentTotals pass(const typename CpuTangents<Real>::Wanted& of_rows, Real* grad_y, bool others_follow) {
    const TangentTotals totals = tangents_.run(of_rows);
    tangents_.exchange_sides();
    tangents_.run({.grad_points = grad_y});
    tangents_.exchange_sides(others_follow);
    return totals;
  }

  [[nodiscard]] bool moves(const Side& side, int i) const {
    if (!std::isfinite(side.w[i])) return false;
    return side.marginal.partial ? side.w[i] < 0 : side.marginal.strength > 0;
  }

  void set_system(const TangentTotals& still) {
    // The difference of the forces' sums is removed from both sides evenly, because the open constant makes
    // the system singular.
    double row_force = 0, column_force = 0, forces = 0;
    for (int i = 0; i < s_.rows.count; ++i) forces += number(along_.f, p_.n, i);
    system_.partial = p_.mass > 0;
    system_.mass_right = s_.epsilon * (forces - still.mass_moved);
    if (is_open()) {
      for (int j = 0; j < s_.columns.count; ++j) forces -= number(along_.g, p_.m, j);
      row_force = forces / (2.0 * with_weight(s_.rows));
      column_force = -forces / (2.0 * with_weight(s_.columns));
    }
    set_side(system_.rows, s_.rows, tangents_.rows, along_.f, p_.n, row_force);
    set_side(system_.columns, s_.columns, tangents_.columns, along_.g, p_.m, column_force);
  }

  [[nodiscard]] static int with_weight(const Side& side) {
    int count = 0;
    for (int i = 0; i < side.count; ++i) count += side.weight[i] > 0;
    return std::max(count, 1);
  }

  void set_side(SideOfSystem<Real>& of, const Side& side, const SideTangent<Real>& tangent,
                const void* forces, int length, double less) {
    const Marginal& m = side.marginal;
    of.tau = m.partial || std::isinf(m.strength) ? 1.0 : m.strength / (m.strength + s_.epsilon);
    for (int i = 0; i < side.count; ++i) {
      const double ratio = tangent.ratio[i], weight = side.weight[i];
      of.moves[i] = moves(side, i) && ratio > 0;
      of.sum[i] = of.moves[i] ? static_cast<double>(side.reference[i]) * ratio : 0.0;
      double right = ratio > 0 ? -tangent.ratio_moved[i] / ratio : 0.0;
      if (!tangents_.product() && weight > 0) right += tangent.weight[i] / weight;
      if (of.sum[i] > 0) right += (number(forces, length, i) - (weight > 0 ? less : 0.0)) / of.sum[i];
      of.right[i] = s_.epsilon * right;
    }
  }

  // The derivative of the dual at fixed potentials.
  [[nodiscard]] double value_tangent(const TangentTotals& still) const {
    const double bits = s_.epsilon / kLog2E<double>;
    double reference[2] = {}, reference_moved[2] = {}, value = 0;
    const auto side = [&](int k, const Side& of, const SideTangent<Real>& tangent, const void* forces,
                          int length, double lambda) {
      for (int i = 0; i < of.count; ++i) {
        reference[k] += static_cast<double>(of.reference[i]);
        if (tangents_.product()) reference_moved[k] += tangent.weight[i];
        if (!std::isfinite(of.w[i])) continue;
        value += of.marginal.slope(bits * of.w[i]) * tangent.weight[i];
        value += bits * (of.w[i] + lambda) * number(forces, length, i);
      }
    };
    side(0, s_.rows, tangents_.rows, along_.f, p_.n, s_.lambda);
    side(1, s_.columns, tangents_.columns, along_.g, p_.m, 0);
    value += tangents_.epsilon * (reference[0] * reference[1] - still.mass);
    value += s_.epsilon * (reference_moved[0] * reference[1] + reference[0] * reference_moved[1]);
    return value - s_.epsilon * still.mass_moved;
  }

  // Moves the open constant so that the means of both potentials over points with weight are equal.
  void centre() {
    const auto mean = [](const Side& side, const double* potential) {
      double sum = 0;
      for (int i = 0; i < side.count; ++i) sum += side.weight[i] > 0 ? potential[i] : 0.0;
      return sum / with_weight(side);
    };
    const double apart =
        (mean(s_.rows, tangents_.rows.potential) - mean(s_.columns, tangents_.columns.potential)) / 2;
    for (int i = 0; i < s_.rows.count; ++i) tangents_.rows.potential[i] -= apart;
    for (int j = 0; j < s_.columns.count; ++j) tangents_.columns.potential[j] += apart;
  }

  void write(double value, int steps, double error) {
    const std::int64_t n = p_.n, m = p_.m, dim = p_.dim;
    Real* const grad_x = row_of<Real>(out_.grad_x, n * dim, b_);
    Real* const grad_y = row_of<Real>(out_.grad_y, m * dim, b_);
    Real* const grad_cost = row_of<Real>(out_.grad_cost, n * m, b_);
    if (grad_x) std::fill_n(grad_x, n * dim, Real(0));
    if (grad_y) std::fill_n(grad_y, m * dim, Real(0));
    if (grad_cost) std::fill_n(grad_cost, n * m, Real(0));
    const TangentTotals totals = pass({grad_x, grad_cost, m}, grad_y, false);
    double reference[2] = {}, moved[2] = {};
    sum_reference(s_.rows, tangents_.rows, reference[0], moved[0]);
    sum_reference(s_.columns, tangents_.columns, reference[1], moved[1]);
    set(out_.value, value);
    set(out_.linear, totals.linear_moved);
    set(out_.grad_epsilon,
        totals.kl_moved - totals.mass_moved + moved[0] * reference[1] + reference[0] * moved[1]);
    set(out_.error, error);
    if (out_.iterations) out_.iterations[b_] = steps;
    write_side(s_.rows, tangents_.rows, n, out_.f, out_.grad_a, tangents_.lambda, reference[1], moved[1]);
    write_side(s_.columns, tangents_.columns, m, out_.g, out_.grad_b, 0, reference[0], moved[0]);
  }

  void sum_reference(const Side& side, const SideTangent<Real>& tangent, double& sum, double& moved) const {
    for (int i = 0; i < side.count; ++i) {
      sum += static_cast<double>(side.reference[i]);
      if (tangents_.product()) moved += tangent.weight[i];
    }
  }

  // other: sum of the other side's reference weights.
  void write_side(const Side& side, const SideTangent<Real>& tangent, std::int64_t length, void* potential,
                  void* gradient, double lambda, double other, double other_moved) const {
    Real* const to = row_of<Real>(potential, length, b_);
    Real* const grad = row_of<Real>(gradient, length, b_);
    for (std::int64_t i = 0; i < length; ++i) {
      const bool exists = i < side.count && std::isfinite(side.w[i]);
      if (to) to[i] = exists ? static_cast<Real>(tangent.potential[i] + lambda) : Real(0);
      if (!grad) continue;
      double moved = exists ? bend(side, static_cast<int>(i)) * tangent.potential[i] : 0.0;
      if (exists && tangents_.product()) {
        moved -= tangents_.epsilon * (tangent.ratio[i] - other);
        moved -= s_.epsilon * (tangent.ratio_moved[i] - other_moved);
      }
      grad[i] = static_cast<Real>(moved);
    }
  }

  // d slope / d potential, of Marginal::slope.
  [[nodiscard]] double bend(const Side& side, int i) const {
    const Marginal& m = side.marginal;
    if (m.partial || std::isinf(m.strength)) return 1.0;
    return m.strength == 0 ? 0.0 : std::exp(-s_.epsilon / kLog2E<double> * side.w[i] / m.strength);
  }

  void set(void* output, double v) const {
    if (output) static_cast<Real*>(output)[b_] = static_cast<Real>(v);
  }

  const SinkhornProblem& p_;
  const SinkhornTangents& along_;
  const SinkhornOutputs& out_;
  CpuProblem<Real> problem_;
  CpuSolver<Real>& s_;
  CpuTangents<Real> tangents_{problem_};
  PotentialSystem<Real> system_{problem_, tangents_};
  int b_ = 0;
};

}  // namespace

std::size_t sinkhorn_jvp_cpu_workspace_bytes(const SinkhornProblem& p, const SinkhornTangents& along,
                                             const SinkhornOutputs& out, const Execution& execution) {
  const SinkhornProblem of = at_the_solution(p);
  return workspace_bytes_of<Jvp>(JvpCall{of, along, out}, execution);
}

Status sinkhorn_jvp_cpu(const SinkhornProblem& p, const SinkhornTangents& along, const SinkhornOutputs& out,
                        Workspace workspace, const Execution& execution) {
  const SinkhornProblem of = at_the_solution(p);
  run_batch<Jvp>("sinkhorn_jvp", JvpCall{of, along, out}, workspace, execution);
  return {};
}

}  // namespace warpalign::detail::transport
