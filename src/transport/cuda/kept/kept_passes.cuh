// Single passes over problems of kept_rows.cuh: sums or largest logits of rows, of columns, or of both, and
// the results. A block of the team owns neighbouring rows. Costs are given, float64, float32 or binary16, and
// read again in every pass; those of points are made once, and read in the same way.
#pragma once

#include "transport/cuda/kept/kept_costs.cuh"
#include "transport/cuda/kept/kept_points.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class KeptPasses : public KeptPoints<Real_> {
 public:
  using Real = Real_;
  static constexpr const char* name() { return "kept rows"; }
  static constexpr int kMostThreads = kMostKeptColumns<Real>;
  static constexpr int kBlocks = 1;

  using KeptPoints<Real_>::KeptPoints;

  static std::size_t shared_bytes(const SolveLayout& layout) { return kept_shared_bytes<Real>(layout); }

  [[nodiscard]] __device__ __forceinline__ bool sweeps() const { return true; }

  // Called by all threads of the team. The sums can be read after the team's next barrier.
  template <PassKind kKind>
  __device__ __forceinline__ void run(const Pass& pass, PlanSums& sums) const {
    if constexpr (kMostQuads == 4) {
      if (shape_.quads == 4) return pass_over<kKind, 4>(pass, sums);
    }
    pass_over<kKind, 2>(pass, sums);
  }

 protected:
  using Base = KeptPoints<Real_>;
  using Base::columns_;
  using Base::first_;
  using Base::group;
  using Base::own_;
  using Base::p_;
  using Base::place;
  using Base::rows_;
  using Base::shape_;
  using Base::shared;
  using Base::team_;
  using typename Base::Shared;
  static constexpr int kMostQuads = kMostKeptColumns<Real> / 128;
  static constexpr int kMostRounds = 128;  // the most rows that a lane sums before it goes to memory

  using Quad = KeptQuad<Real>;

  // The column that the thread shares with its neighbours; it need not exist.
  [[nodiscard]] __device__ __forceinline__ int own_column() const {
    return static_cast<int>(threadIdx.x) >> shape_.sharing_bits;
  }
  // Calls body(q, j, exists) for the lane's quads: the first column j, and whether there is memory for it.
  template <int kQuads, class Body>
  __device__ __forceinline__ void for_quads(const Body& body) const {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int j = 4 * (q * shape_.lanes + place());
      body(q, j, j < shape_.stride);
    }
  }

  const bool plan_has_quads_ = are_quads(p_.plan, p_.plan_stride, columns_.p.length);

  using CostRows = KeptCosts<Real>;
  [[nodiscard]] __device__ __forceinline__ CostRows cost_rows() const {
    return {p_, rows_, columns_, first_};
  }
  // The lane's costs of the block's row n, or of its last row; 0 for columns that do not exist. All loads
  // come before the first use.
  template <int kQuads>
  __device__ __forceinline__ void load(const CostRows& from, int n, Quad (&costs)[kQuads]) const {
    for_quads<kQuads>(
        [&](int q, int j, bool) { costs[q] = from.quad(min(n, own_ - 1), min(j, shape_.stride - 4)); });
    for_quads<kQuads>([&](int q, int j, bool) { costs[q] = from.existing(costs[q], j); });
  }

  // Leaves a lane's sums of columns in shared memory.
  template <int kQuads>
  __device__ __forceinline__ void store_parts(const Quad (&acc)[kQuads]) const {
    Real* const to = shared().parts + group() * shape_.part_stride;
    for_quads<kQuads>([&](int q, int j, bool exists) {
      if (exists) *reinterpret_cast<Quad*>(to + j) = acc[q];
    });
  }
  // Joins the lane's sums of earlier rows, which lie there, to these.
  template <int kQuads, class Join>
  __device__ __forceinline__ void join_parts(Quad (&acc)[kQuads], const Join& join) const {
    const Real* const from = shared().parts + group() * shape_.part_stride;
    for_quads<kQuads>([&](int q, int j, bool exists) {
      if (!exists) return;
      const Quad earlier = *reinterpret_cast<const Quad*>(from + j);
#pragma unroll
      for (int c = 0; c < 4; ++c) acc[q].v[c] = join(earlier.v[c], acc[q].v[c]);
    });
  }
  // The sum of a column over the groups, or the largest of its numbers. All threads call it, after a barrier.
  template <bool kLargest = false>
  [[nodiscard]] __device__ __forceinline__ Real total_of_column(int j) const {
    const Real* const parts = shared().parts + min(j, shape_.stride - 1);
    const int sharing = shape_.sharing, stride = shape_.part_stride;
    const auto join = [](Real a, Real b) { return kLargest ? larger(a, b) : a + b; };
    Real total = kLargest ? minus_infinity() : Real(0);
    int g = static_cast<int>(threadIdx.x) & (sharing - 1);
#pragma unroll 8
    for (; g < shape_.groups; g += sharing) total = join(total, parts[g * stride]);
#pragma unroll
    for (int bit = 1; bit < 8; bit *= 2) {
      if (bit < sharing) total = join(total, cuda::shuffle_xor(total, bit));
    }
    return total;
  }

  [[nodiscard]] static __device__ __forceinline__ Real minus_infinity() {
    return static_cast<Real>(-CUDART_INF);
  }

 private:
  // Columns' numbers to shared memory. Columns that do not exist have exponentials of 0.
  __device__ __forceinline__ void load_columns(const Pass& pass) const {
    const Shared at = shared();
    __syncthreads();  // no thread reads the earlier contents any more
    for (int j = static_cast<int>(threadIdx.x); j < shape_.stride; j += static_cast<int>(blockDim.x)) {
      Potential<Real> z{minus_infinity(), 0};
      Real weight = 0;
      if (j < columns_.count) {
        z = Potential<Real>::split(pass.columns_at ? pass.columns_at[j] : 0.0, pass.rounder);
        weight = static_cast<Real>(columns_.reference(columns_.weight(j)));
      }
      at.hi[j] = z.hi;
      at.lo[j] = z.lo;
      at.weights[j] = weight;
    }
    __syncthreads();
  }

  // What a pass needs of the rows' side, in registers: those of *this would be loaded again after every
  // store.
  struct RowsAt {
    const double* potentials;  // of the block's first row; null: 0
    const Real* weights;       // of the block's first row; null: uniform
    double uniform, lambda, rounder, epsilon;
    Marginal marginal;
    bool product, updates;

    [[nodiscard]] __device__ __forceinline__ double reference(double weight) const {
      return product ? weight : 1.0;
    }
  };
  [[nodiscard]] __device__ __forceinline__ RowsAt rows_at(const Pass& pass) const {
    const Real* const weights = rows_.p.weights;
    return {pass.rows_at ? pass.rows_at + first_ : nullptr,
            weights ? weights + rows_.row_of_batch() + first_ : nullptr,
            rows_.uniform,
            pass.lambda,
            pass.rounder,
            pass.epsilon,
            rows_.marginal,
            rows_.product,
            pass.updates_rows};
  }

  // The factor of a row's exponentials in the columns' sums, as in Dense.
  [[nodiscard]] static __device__ __forceinline__ Real factor_of(const RowsAt& rows, double at, double weight,
                                                                 Real sum) {
    const double reference = rows.reference(weight);
    if (isnan(sum)) return sum;
    if (!rows.updates || !(sum > 0) || isinf(sum)) return static_cast<Real>(reference);
    const double target = rows.product ? 0.0 : log2_in<Real>(weight);
    const double next =
        rows.marginal.updated(free_of(target, at, log2_in<Real>(static_cast<double>(sum))), rows.epsilon);
    if (isinf(next) || isinf(at)) return static_cast<Real>(reference);
    return static_cast<Real>(reference * exp2_in<Real>(next - at));
  }

  // A row of the block, whose exponentials are 0 if it does not exist.
  struct Row {
    int n;
    bool exists;
    double at;
    double weight;
    Potential<Real> w;
  };
  [[nodiscard]] __device__ __forceinline__ Row row_of(const RowsAt& rows, int n) const {
    Row row{min(n, own_ - 1), n < own_, 0, rows.uniform, {minus_infinity(), 0}};
    if (rows.potentials) row.at = rows.potentials[row.n];
    if (rows.weights) row.weight = static_cast<double>(rows.weights[row.n]);
    if (row.exists) row.w = Potential<Real>::split(row.at + rows.lambda, rows.rounder);
    return row;
  }

  // A row's exponentials, or its logits for kLargest, and their sum, or the largest, over the lane's columns.
  template <PassKind kKind, int kQuads>
  __device__ __forceinline__ Real entries_of(const Pass& pass, const RowsAt& rows, const Row& row,
                                             const Quad (&costs)[kQuads], Quad (&e)[kQuads],
                                             PlanSums& sums) const {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    const Real none = kLargest ? minus_infinity() : Real(0);
    const Shared at = shared();
    const Real k = static_cast<Real>(pass.k), of_row = static_cast<Real>(rows.reference(row.weight));
    Real own = none, linear = 0, logits = 0;
    for_quads<kQuads>([&](int q, int j, bool has_memory) {
      e[q] = {{none, none, none, none}};
      if (!has_memory) return;
      const Quad hi = *reinterpret_cast<const Quad*>(at.hi + j);
      const Quad lo = *reinterpret_cast<const Quad*>(at.lo + j);
      const Quad weights = *reinterpret_cast<const Quad*>(at.weights + j);
      [[maybe_unused]] Quad masses{};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Real t = fma(-k, costs[q].v[c], row.w.hi + hi.v[c]);
        if constexpr (sizeof(Real) == 4) t += row.w.lo + lo.v[c];
        if constexpr (kLargest) {
          e[q].v[c] = t;
          if (weights.v[c] > 0) own = larger(own, t);
        } else {
          e[q].v[c] = exp2_of(t);
          const Real weighted = e[q].v[c] * weights.v[c];
          own += weighted;
          if constexpr (kKind == PassKind::kEvaluate) {
            const Real mass = of_row * weighted;
            if (mass != 0) {
              linear += mass * costs[q].v[c];
              logits += mass * t;
            }
            masses.v[c] = mass;
          }
        }
      }
      if constexpr (kKind == PassKind::kEvaluate) {
        if (row.exists && p_.plan) write_plan(pass, first_ + row.n, j, masses);
      }
    });
    if constexpr (kKind == PassKind::kEvaluate) {
      sums.linear += static_cast<double>(linear);
      sums.logits += static_cast<double>(logits);
    }
    return own;
  }
  // Writes the plan of row i and columns j ... j + 3.
  __device__ __forceinline__ void write_plan(const Pass& pass, int i, int j, Quad masses) const {
    const Real scale = static_cast<Real>(pass.is_nan ? CUDART_NAN : p_.plan_scale);
#pragma unroll
    for (Real& mass : masses.v) mass *= scale;
    Real* const to = p_.plan + rows_.b * p_.plan_stride[0] + i * p_.plan_stride[1] + j * p_.plan_stride[2];
    if (plan_has_quads_ && j + 3 < columns_.count) {
      *reinterpret_cast<Quad*>(to) = masses;
      return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (j + c < columns_.count) to[c * p_.plan_stride[2]] = masses.v[c];
    }
  }

  template <PassKind kKind, int kQuads>
  __device__ __attribute__((noinline)) void pass_over(const Pass& pass, PlanSums& sums) const {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    const auto join = [](Real a, Real b) { return kLargest ? larger(a, b) : a + b; };
    const Real none = kLargest ? minus_infinity() : Real(0);
    load_columns(pass);
    const KeptPasses me(*this);
    const CostRows from = me.cost_rows();
    const RowsAt rows = me.rows_at(pass);
    Real* const row_sums = pass.rows ? rows_.partials(0) + first_ : nullptr;
    // All lanes of a warp have the same number of rounds.
    const int of_part = kMostRounds * me.shape_.groups;
    for (int part = 0; part == 0 || part < me.own_; part += of_part) {
      Quad acc[kQuads];
#pragma unroll
      for (Quad& quad : acc) quad = {{none, none, none, none}};
#pragma unroll 1
      for (int begin = part; begin < min(me.own_, part + of_part); begin += me.shape_.groups) {
        Quad e[kQuads], costs[kQuads];
        me.template load<kQuads>(from, begin + me.group(), costs);
        const Row row = me.row_of(rows, begin + me.group());
        Real own = me.template entries_of<kKind, kQuads>(pass, rows, row, costs, e, sums);
#pragma unroll
        for (int bit = 1; bit < 32; bit *= 2) {
          if (bit < me.shape_.lanes) own = join(own, cuda::shuffle_xor(own, bit));
        }
        if (row_sums && row.exists && me.place() == 0) row_sums[row.n] = own;
        [[maybe_unused]] const bool counts = row.weight > 0 || !rows.product;
        [[maybe_unused]] const Real factor = row.exists ? factor_of(rows, row.at, row.weight, own) : Real(0);
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            Real& sum = acc[q].v[c];
            if constexpr (kLargest) {
              if (counts) sum = larger(sum, e[q].v[c]);
            } else {
              sum = fma(e[q].v[c], factor, sum);
            }
          }
        }
      }
      if (part > 0) me.template join_parts<kQuads>(acc, join);
      me.template store_parts<kQuads>(acc);
    }
    if (!pass.columns) return;
    __syncthreads();
    const int j = own_column();
    const Real total = total_of_column<kLargest>(j);
    if (j < columns_.count) columns_.partials(team_.rank)[j] = total;
  }
};

}  // namespace warpalign::detail::transport
