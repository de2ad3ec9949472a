// The CPU path of plan_apply(), plan_gradient(), plan_topk() and plan_dense().
#include "transport/cpu_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "transport/problem.h"

namespace warpalign::detail::transport {
namespace {

struct ApplyCall {
  const SinkhornProblem& p;
  const PlanProduct& product;
};

template <class Real>
class Apply {
 public:
  Apply(Arena& arena, const ApplyCall& call, int threads) : call_(call), plan_(arena, call.p, threads) {
    const int other = call.product.transposed ? call.p.n : call.p.m;
    columns_ = arena.take<Real>(static_cast<std::size_t>(padded(other)) * call.product.columns);
    sums_ = arena.take<double>(static_cast<std::size_t>(threads) * call.product.columns);
  }

  void run(int b, const BlockTeam& team) {
    const PlanProduct& product = call_.product;
    const int count = product.columns, length = product.transposed ? call_.p.m : call_.p.n;
    plan_.bind(b, team, product.transposed);
    const int m = plan_.s.columns.count;
    plan_.pack(product.v, b, m, count, columns_);
    Real* const result = row_of<Real>(product.result, std::int64_t{length} * count, b);
    std::fill_n(result, std::int64_t{length} * count, Real(0));
    plan_.for_rows([&](int i, int worker, const LogitRow<Real>& row, double) {
      double* const sums = sums_ + static_cast<std::ptrdiff_t>(worker) * count;
      const PointRow<Real> columns{CostKind::kCosine, nullptr, columns_, padded(m), count, m};
      plan_.s.kernels->gradient(columns, {row.cost, plan_.s.scratch[worker].e}, sums);
      Real* const to = result + static_cast<std::int64_t>(i) * count;
      for (int k = 0; k < count; ++k) to[k] = static_cast<Real>(plan_.weight(i) * sums[k]);
    });
  }

 private:
  const ApplyCall& call_;
  CpuPlan<Real> plan_;
  Real* columns_;
  double* sums_;
};

struct GradientCall {
  const SinkhornProblem& p;
  const PlanGradient& g;
};

template <class Real>
class Gradient {
 public:
  Gradient(Arena& arena, const GradientCall& call, int threads)
      : p_(call.p), g_(call.g), plan_(arena, call.p, threads) {
    const int longest = padded(std::max(p_.n, p_.m));
    factors_ = arena.take<Real>(static_cast<std::size_t>(longest) * g_.columns);
    stride_ = longest;
    weights_ = arena.take<Real>(static_cast<std::size_t>(longest) * threads);
    factor_ = arena.take<Real>(static_cast<std::size_t>(g_.columns) * threads);
  }

  void run(int b, const BlockTeam& team) {
    b_ = b;
    const std::int64_t n = p_.n, m = p_.m, dim = p_.dim;
    const double slope = side(team, false,
                              {row_of<Real>(g_.row_sums, n, b), row_of<Real>(g_.grad_a, n, b),
                               row_of<Real>(g_.grad_x, n * dim, b), row_of<Real>(g_.grad_cost, n * m, b)});
    if (g_.grad_epsilon) static_cast<Real*>(g_.grad_epsilon)[b] = static_cast<Real>(slope);
    side(team, true,
         {row_of<Real>(g_.column_sums, m, b), row_of<Real>(g_.grad_b, m, b),
          row_of<Real>(g_.grad_y, m * dim, b), nullptr});
  }

 private:
  // The outputs of one side's pass. Each may be null.
  struct Results {
    Real* sums;
    Real* grad_weights;
    Real* grad_points;
    Real* grad_cost;
  };

  // Returns d s / d epsilon.
  double side(const BlockTeam& team, bool transposed, const Results& to) {
    const std::int64_t length = transposed ? p_.m : p_.n, dim = p_.dim;
    const bool product = p_.reference == TransportReference::kProduct;
    plan_.bind(b_, team, transposed);
    auto& s = plan_.s;
    if (to.sums) std::fill_n(to.sums, length, Real(0));
    if (to.grad_weights) std::fill_n(to.grad_weights, length, Real(0));
    if (to.grad_points) std::fill_n(to.grad_points, length * dim, Real(0));
    if (to.grad_cost) std::fill_n(to.grad_cost, length * p_.m, Real(0));
    if (!(to.sums || to.grad_weights || to.grad_points || to.grad_cost || (!transposed && g_.grad_epsilon))) {
      return 0;
    }
    const StridedTensor& own_factors = transposed ? g_.v : g_.u;
    if (g_.columns > 0) {
      plan_.pack(transposed ? g_.u : g_.v, b_, s.columns.count, g_.columns, factors_);
    }
    std::fill_n(s.rows.spare, s.rows.count, 0.0);  // a row's part of sum P t
    plan_.for_rows([&](int i, int worker, const LogitRow<Real>& row, double) {
      Real* const e = s.scratch[worker].e;
      const Real* const w = weights_of(i, worker, transposed, own_factors);
      const double level = s.rows.w[i] / kLog2E<double>, k = s.k() / kLog2E<double>;
      double sum = 0, with_t = 0;
      for (int j = 0; j < row.m; ++j) {
        if (e[j] == 0) continue;
        const double q = static_cast<double>(e[j]) * static_cast<double>(w[j]);
        sum += q;
        with_t += q * (level + s.columns.w[j] / kLog2E<double> - k * static_cast<double>(row.cost[j]));
        e[j] = static_cast<Real>(plan_.weight(i) * q);
      }
      if (to.grad_weights && product) to.grad_weights[i] = static_cast<Real>(sum);
      if (to.sums) to.sums[i] = static_cast<Real>(plan_.weight(i) * sum);
      s.rows.spare[i] = plan_.weight(i) * with_t;
      const double per_cost = -s.cost_scale / s.epsilon;
      if (to.grad_cost) {
        Real* const out = to.grad_cost + i * std::int64_t{p_.m};
        for (int j = 0; j < row.m; ++j) out[j] = static_cast<Real>(per_cost * static_cast<double>(e[j]));
      }
      if (!to.grad_points) return;
      const CpuScratch<Real>& own = s.scratch[worker];
      s.kernels->gradient(s.points_at(i, own), {row.cost, e}, own.gradient);
      through_length(s.costs, s.rows, i, own);
      for (int d = 0; d < dim; ++d)
        to.grad_points[i * dim + d] = static_cast<Real>(per_cost * own.gradient[d]);
    });
    return -std::accumulate(s.rows.spare, s.rows.spare + s.rows.count, 0.0) / s.epsilon;
  }

  // Row i of W.
  const Real* weights_of(int i, int worker, bool transposed, const StridedTensor& own_factors) const {
    const int m = plan_.s.columns.count;
    Real* const to = weights_ + static_cast<std::ptrdiff_t>(worker) * stride_;
    if (g_.columns == 0) {
      const std::int64_t row = g_.w.stride[transposed ? 2 : 1], column = g_.w.stride[transposed ? 1 : 2];
      const Real* const from = static_cast<const Real*>(g_.w.data) + b_ * g_.w.stride[0] + i * row;
      for (int j = 0; j < m; ++j) to[j] = from[j * column];
      return to;
    }
    Real* const factor = factor_ + static_cast<std::ptrdiff_t>(worker) * g_.columns;
    const Real* const from =
        static_cast<const Real*>(own_factors.data) + b_ * own_factors.stride[0] + i * own_factors.stride[1];
    for (int k = 0; k < g_.columns; ++k) factor[k] = from[k * own_factors.stride[2]];
    plan_.s.kernels->products({CostKind::kCosine, factor, factors_, padded(m), g_.columns, m}, to);
    return to;
  }

  const SinkhornProblem& p_;
  const PlanGradient& g_;
  CpuPlan<Real> plan_;
  Real* factors_;
  Real* weights_;
  Real* factor_;
  std::ptrdiff_t stride_;
  int b_ = 0;
};

struct TopCall {
  const SinkhornProblem& p;
  const PlanTop& top;
};

template <class Real>
class Top {
 public:
  Top(Arena& arena, const TopCall& call, int threads) : call_(call), plan_(arena, call.p, threads) {
    length_ = std::max(call.p.n, call.p.m);
    order_ = arena.take<std::int32_t>(static_cast<std::size_t>(length_) * threads);
  }

  void run(int b, const BlockTeam& team) {
    const PlanTop& top = call_.top;
    const int count = top.count, length = top.transposed ? call_.p.m : call_.p.n;
    plan_.bind(b, team, top.transposed);
    Real* const values = row_of<Real>(top.values, std::int64_t{length} * count, b);
    std::int32_t* const indices = top.indices + static_cast<std::int64_t>(b) * length * count;
    for (std::int64_t i = 0; i < length; ++i) {
      std::fill_n(values + i * count, count, Real(0));
      std::iota(indices + i * count, indices + (i + 1) * count, 0);
    }
    plan_.for_rows([&](int i, int worker, const LogitRow<Real>& row, double) {
      const Real* const e = plan_.s.scratch[worker].e;
      std::int32_t* const order = order_ + static_cast<std::ptrdiff_t>(worker) * length_;
      std::iota(order, order + row.m, 0);
      const int entries = std::min(count, row.m);
      // NaN is the largest, so that the order is total.
      const auto key = [e](std::int32_t j) {
        return std::isnan(e[j]) ? std::numeric_limits<Real>::infinity() : e[j];
      };
      std::partial_sort(order, order + entries, order + row.m, [&](std::int32_t j, std::int32_t k) {
        return key(j) > key(k) || (key(j) == key(k) && j < k);
      });
      for (int k = 0; k < entries; ++k) {
        indices[static_cast<std::int64_t>(i) * count + k] = order[k];
        values[static_cast<std::int64_t>(i) * count + k] =
            static_cast<Real>(plan_.weight(i) * static_cast<double>(e[order[k]]));
      }
    });
  }

 private:
  const TopCall& call_;
  CpuPlan<Real> plan_;
  std::int32_t* order_;
  int length_;
};

struct DenseCall {
  const SinkhornProblem& p;
  void* plan;
};

template <class Real>
class Dense {
 public:
  Dense(Arena& arena, const DenseCall& call, int threads) : call_(call), plan_(arena, call.p, threads) {}

  void run(int b, const BlockTeam& team) {
    const std::int64_t n = call_.p.n, m = call_.p.m;
    plan_.bind(b, team);
    Real* const result = row_of<Real>(call_.plan, n * m, b);
    std::fill_n(result, n * m, Real(0));
    plan_.for_rows([&](int i, int worker, const LogitRow<Real>& row, double) {
      const Real* const e = plan_.s.scratch[worker].e;
      for (int j = 0; j < row.m; ++j) {
        result[i * m + j] = static_cast<Real>(plan_.weight(i) * static_cast<double>(e[j]));
      }
    });
  }

 private:
  const DenseCall& call_;
  CpuPlan<Real> plan_;
};

}  // namespace

std::size_t plan_apply_cpu_workspace_bytes(const SinkhornProblem& p, const PlanProduct& product,
                                           const Execution& execution) {
  return workspace_bytes_of<Apply>(ApplyCall{p, product}, execution);
}
Status plan_apply_cpu(const SinkhornProblem& p, const PlanProduct& product, Workspace workspace,
                      const Execution& execution) {
  const SinkhornProblem of = at_its_potentials(p);
  run_batch<Apply>("plan_apply", ApplyCall{of, product}, workspace, execution);
  return {};
}

std::size_t plan_gradient_cpu_workspace_bytes(const SinkhornProblem& p, const PlanGradient& gradient,
                                              const Execution& execution) {
  return workspace_bytes_of<Gradient>(GradientCall{p, gradient}, execution);
}
Status plan_gradient_cpu(const SinkhornProblem& p, const PlanGradient& gradient, Workspace workspace,
                         const Execution& execution) {
  const SinkhornProblem of = at_its_potentials(p);
  run_batch<Gradient>("plan_gradient", GradientCall{of, gradient}, workspace, execution);
  return {};
}

std::size_t plan_topk_cpu_workspace_bytes(const SinkhornProblem& p, const PlanTop& top,
                                          const Execution& execution) {
  return workspace_bytes_of<Top>(TopCall{p, top}, execution);
}
Status plan_topk_cpu(const SinkhornProblem& p, const PlanTop& top, Workspace workspace,
                     const Execution& execution) {
  const SinkhornProblem of = at_its_potentials(p);
  run_batch<Top>("plan_topk", TopCall{of, top}, workspace, execution);
  return {};
}

std::size_t plan_dense_cpu_workspace_bytes(const SinkhornProblem& p, const Execution& execution) {
  return workspace_bytes_of<Dense>(DenseCall{p, nullptr}, execution);
}
Status plan_dense_cpu(const SinkhornProblem& p, void* plan, Workspace workspace, const Execution& execution) {
  const SinkhornProblem of = at_its_potentials(p);
  run_batch<Dense>("plan_dense", DenseCall{of, plan}, workspace, execution);
  return {};
}

}  // namespace warpalign::detail::transport
