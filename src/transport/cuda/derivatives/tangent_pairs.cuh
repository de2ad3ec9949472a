// The derivative of the plan's pairs along tangents of the inputs and of the potentials. The equations are
// those of the CPU path (cpu_tangent.h):
//
//   P = ra rb e,  e = exp(t),  t = (f + g + lambda - C) / epsilon
//   dt = (df + dg + dlambda - dC) / epsilon - t depsilon / epsilon
//   ratio[i] = sum_j rb e, the row's sum without its own reference weight ra, which may be 0
#pragma once

#include "transport/cuda/points/points.cuh"

namespace warpalign::detail::transport {

// The arrays of a side: (kTangentArrays, length) of every team.
enum class TangentArray {
  kPotential,  // df or dg, in units of the cost
  kRatio,      // ratio, and its derivative
  kRatioMoved,
  kRight,     // the system's right side
  kValues,    // rows: values after the elimination; columns: direction of conjugate gradients
  kSolution,  // columns: the system's solution, residual and product
  kResidual,
  kProduct,
};

// Tangents of the scalars.
struct TangentNumbers {
  double lambda;  // in units of the cost
  double epsilon;
  double log_scale;
};

template <class Real_>
class TangentPairs : public Points<Real_> {
 public:
  using Real = Real_;
  using Points<Real_>::Points;
  static constexpr int kBlocks = 1;  // per multiprocessor, because two tiles of the plan are in shared memory

  static std::size_t shared_bytes(const SolveLayout&) {
    return kScratchBytes + std::max<std::size_t>(kTotalsBytes, sizeof(MovedShared));
  }

  [[nodiscard]] __device__ __forceinline__ const SideTangentParams<Real>& tangents(
      const Side<Real>& side) const {
    return &side == &rows_ ? p_.tangents.rows : p_.tangents.columns;
  }
  [[nodiscard]] __device__ __forceinline__ double* array(const Side<Real>& side, TangentArray which) const {
    const int at = side.team * kTangentArrays + static_cast<int>(which);
    return tangents(side).arrays + static_cast<std::int64_t>(at) * side.p.length;
  }
  // The tangent of a weight.
  [[nodiscard]] __device__ __forceinline__ double weight_moved(const Side<Real>& side, int i) const {
    const Real* const weights = tangents(side).weights;
    return weights ? static_cast<double>(weights[side.row_of_batch() + i]) : 0.0;
  }

  // Computes lengths of the points, and their derivatives. They can be read after the team's next barrier.
  __device__ __forceinline__ float prepare() const {
    Base::prepare();
    if (p_.cost || p_.kind != CostKind::kCosine) return 0;
    for (const Side<Real>* const side : {&rows_, &columns_}) {
      const Table<Real>& moved = tangents(*side).points;
      for_points(*side, team_, [&](int i) {
        double along = 0;
        for (int d = 0; d < p_.dim && moved.data; ++d) {
          along += static_cast<double>(*feature(side->p.points, side->b, i, d)) *
                   static_cast<double>(*feature(moved, side->b, i, d));
        }
        const double inverse = static_cast<double>(inverse_lengths(*side)[i]);
        stretches(*side)[i] = static_cast<Real>(along * inverse * inverse);
      });
    }
    return 0;
  }

 protected:
  using Base = Points<Real_>;
  using Base::columns_;
  using Base::costs_of_tile;
  using Base::feature;
  using Base::first_other;
  using Base::first_own;
  using Base::inverse_lengths;
  using Base::kPiece;
  using Base::kRow;
  using Base::kTile;
  using Base::load_numbers;
  using Base::load_pairs;
  using Base::logit;
  using Base::p_;
  using Base::rows_;
  using Base::shared;
  using Base::team_;
  using typename Base::Quad;
  using typename Base::Shared;
  using typename Base::TilePoints;

  struct alignas(16) MovedShared : Shared {
    Real own_moved[kPiece][kRow];
    Real other_moved[kPiece][kRow];
    Real potential_moved[2][kTile];  // [own, other points], over epsilon
    Real weight_moved[2][kTile];     // tangents of the reference's weights
    Real stretch[2][kTile];
    Real plan_second[kTile][kRow];
    Real features_moved[kTile][kRow];
  };
  [[nodiscard]] static __device__ __forceinline__ MovedShared& moved_shared() {
    return *reinterpret_cast<MovedShared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  [[nodiscard]] __device__ __forceinline__ Real* stretches(const Side<Real>& side) const {
    return tangents(side).stretches + static_cast<std::int64_t>(side.team) * side.p.length;
  }

  // Loads the tangents of a tile's potentials, weights and lengths.
  __device__ __forceinline__ void load_moved(const TilePoints& points, int place, double lambda,
                                             double epsilon) const {
    MovedShared& s = moved_shared();
    const Side<Real>& side = points.side;
    for (int k = static_cast<int>(threadIdx.x); k < kTile; k += static_cast<int>(blockDim.x)) {
      const int i = points.point(k);
      const bool exists = i >= 0;
      const double potential = exists ? array(side, TangentArray::kPotential)[i] + lambda : 0.0;
      s.potential_moved[place][k] = static_cast<Real>(potential / epsilon);
      s.weight_moved[place][k] = exists && side.product ? static_cast<Real>(weight_moved(side, i)) : Real(0);
      const bool has_length = exists && !p_.cost && p_.kind == CostKind::kCosine;
      s.stretch[place][k] = has_length ? stretches(side)[i] : Real(0);
    }
  }

  // Computes the thread's costs and their derivatives, not scaled. Called by all threads of the block.
  __device__ __attribute__((noinline)) void tangents_of_tile(const TilePoints& own, const TilePoints& other,
                                                             Real (&costs)[4][4], Real (&moved)[4][4]) const {
    costs_of_tile(own, other, costs);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) moved[r][c] = 0;
    }
    if (p_.cost) {
      if (p_.tangents.cost) load_pairs(p_.tangents.cost, p_.tangents.cost_stride, 0, own, other, moved);
      return;
    }
    const Table<Real>&own_table = tangents(own.side).points, &other_table = tangents(other.side).points;
    if (!own_table.data && !other_table.data) return;
    MovedShared& s = moved_shared();
    for (int first = 0; first < p_.dim; first += kPiece) {
      __syncthreads();
      this->template load_columns<kPiece, true>(s.own, own.side.p.points, own, first);
      this->template load_columns<kPiece, true>(s.other, other.side.p.points, other, first);
      this->template load_columns<kPiece, true>(s.own_moved, own_table, own, first);
      this->template load_columns<kPiece, true>(s.other_moved, other_table, other, first);
      __syncthreads();
#pragma unroll 2
      for (int d = 0; d < kPiece; ++d) {
        const Quad x = *reinterpret_cast<const Quad*>(&s.own[d][first_own()]);
        const Quad y = *reinterpret_cast<const Quad*>(&s.other[d][first_other()]);
        const Quad x_moved = *reinterpret_cast<const Quad*>(&s.own_moved[d][first_own()]);
        const Quad y_moved = *reinterpret_cast<const Quad*>(&s.other_moved[d][first_other()]);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (p_.kind == CostKind::kCosine) {
              moved[r][c] = fma(x.v[r], y_moved.v[c], fma(x_moved.v[r], y.v[c], moved[r][c]));
            } else {
              moved[r][c] = fma(this->slope(x.v[r], y.v[c]), x_moved.v[r] - y_moved.v[c], moved[r][c]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = first_own() + r;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = first_other() + c;
        Real& v = moved[r][c];
        if (p_.kind == CostKind::kSquaredEuclidean) v *= 2;
        if (p_.kind == CostKind::kEuclidean) v = costs[r][c] > 0 ? v / costs[r][c] : Real(0);
        if (p_.kind == CostKind::kCosine) {
          v = (s.stretch[0][i] + s.stretch[1][j]) * (1 - costs[r][c]) -
              v * s.inverse_length[0][i] * s.inverse_length[1][j];
        }
      }
    }
  }

  // The results for one pair of the thread, each with its derivative.
  struct Pair {
    Real share = 0;  // summand of the ratio, and its derivative
    Real share_moved = 0;
    Real mass = 0;  // P, and its derivative
    Real mass_moved = 0;
    Real logit = 0;  // t, and its derivative
    Real logit_moved = 0;
  };
  [[nodiscard]] __device__ __forceinline__ Pair pair_at(int r, int c, Real cost, Real cost_moved,
                                                        const Pass& pass,
                                                        const TangentNumbers& numbers) const {
    const MovedShared& s = moved_shared();
    const int i = first_own() + r, j = first_other() + c;
    const Real bits = logit(r, c, cost, static_cast<Real>(pass.k));
    const Real e = exp2_of(bits);
    Pair pair;
    if (e == 0) return pair;
    pair.logit = bits * static_cast<Real>(1 / kLog2E<double>);
    const Real scale = static_cast<Real>(p_.cost_scale / pass.epsilon);
    pair.logit_moved = s.potential_moved[0][i] + s.potential_moved[1][j] -
                       scale * fma(static_cast<Real>(numbers.log_scale), cost, cost_moved) -
                       static_cast<Real>(numbers.epsilon / pass.epsilon) * pair.logit;
    const Real ra = s.weight[0][i], rb = s.weight[1][j];
    pair.share = e * rb;
    pair.share_moved = e * fma(rb, pair.logit_moved, s.weight_moved[1][j]);
    pair.mass = ra * pair.share;
    pair.mass_moved = fma(ra, pair.share_moved, s.weight_moved[0][i] * pair.share);
    return pair;
  }

  // The derivative of slope(x, y); for a cosine, that of y.
  [[nodiscard]] __device__ __forceinline__ Real bent(Real x, Real y, Real x_moved, Real y_moved) const {
    switch (p_.kind) {
      case CostKind::kCosine:
        return y_moved;
      case CostKind::kL1:
        return 0;
      case CostKind::kHuber:
        return abs(x - y) <= 1 ? x_moved - y_moved : Real(0);
      default:
        return x_moved - y_moved;
    }
  }
};

}  // namespace warpalign::detail::transport
