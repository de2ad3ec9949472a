// The part of a problem of kept_rows.cuh that a block owns, its shared memory, and what is made of points,
// also for long_rows.cuh: their costs, which go to the workspace, and gradients with respect to them.
#pragma once

#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/kept/kept_layout.h"
#include "transport/cuda/points/point_cost.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class KeptPoints {
 public:
  using Real = Real_;

  __device__ __forceinline__ KeptPoints(const SolveParams<Real>& p, const Team& team, const Side<Real>& rows,
                                        const Side<Real>& columns)
      : p_(p),
        team_(team),
        rows_(rows),
        columns_(columns),
        shape_(kept_shape<Real>(p.layout)),
        first_(p.layout.first_row(team.rank, rows.count)),
        own_(p.layout.first_row(team.rank + 1, rows.count) - first_) {}

  // Makes the costs of points.
  __device__ __forceinline__ float prepare() const {
    if (p_.dim == 0) return 0;
    for (int begin = 0; begin < shape_.stride; begin += kStagedPoints) {
      stage(columns_, begin);
      const int end = min(begin + kStagedPoints, shape_.stride);
      for (int n = group(); n < own_; n += shape_.groups) {
        const Features x = features_of(rows_, first_ + n);
        const Real scale = inverse_length(x);
        for (int j = begin + place(); j < end; j += shape_.lanes) {
          costs_of_points(n)[j] = j < columns_.count ? cost_of(x, scale, j - begin) : Real(0);
        }
      }
    }
    return 0;
  }
  __device__ __forceinline__ void take_extent(float) const {}

  // Writes the gradients with respect to the points of both sides that are not null; none of given costs.
  __device__ __forceinline__ void write_gradients(const Pass& pass) const {
    if (p_.dim == 0) return;
    const Potentials of_rows{rows_, pass.rows_at, pass.lambda}, of_columns{columns_, pass.columns_at, 0};
    const auto write = [&](const Potentials& own, const Potentials& other) {
      if (!own.side.p.grad_points) return;
      if (p_.dim <= 8) return gradient_of<8>(pass, own, other);
      gradient_of<kMostKeptDim>(pass, own, other);
    };
    write(of_rows, of_columns);
    write(of_columns, of_rows);
  }

 protected:
  struct Shared {
    Real* parts;     // (groups, part_stride): sums of columns
    Real* kernel;    // (rows, stride): exponentials
    Real* received;  // (2, blocks of the cluster, stride + kToldFlags)
    Real* rows;      // (padded, 2)
    Real* scales;    // (2, padded to 4): of rows, before an iteration and after it, in turns
    int scales_stride;
    Real* scaled;  // (stride): columns' weights in the reference times their scales
    Real* hi;      // (stride): parts of the columns' potentials, as in Potential
    Real* lo;
    Real* weights;  // (stride): columns' weights in the reference
  };
  [[nodiscard]] static __device__ __forceinline__ KeptBlock& block() {
    return *reinterpret_cast<KeptBlock*>(cuda::dynamic_shared() + kScratchBytes);
  }
  [[nodiscard]] static __device__ __forceinline__ Real* arrays() {
    return reinterpret_cast<Real*>(cuda::dynamic_shared() + kScratchBytes + sizeof(KeptBlock));
  }
  [[nodiscard]] __device__ __forceinline__ Shared shared() const {
    const KeptArrays sizes = kept_arrays<Real>(shape_, p_.layout);
    Shared s;
    s.parts = arrays();
    s.kernel = s.parts + sizes.parts;
    s.received = s.kernel + sizes.kernel;
    s.rows = s.received + sizes.received;
    s.scales = s.rows + sizes.rows;
    s.scales_stride = static_cast<int>(sizes.scales / 2);
    s.scaled = s.scales + sizes.scales;
    s.hi = s.scaled + shape_.stride;
    s.lo = s.hi + shape_.stride;
    s.weights = s.lo + shape_.stride;
    return s;
  }

  [[nodiscard]] __device__ __forceinline__ KeptBlock::Places places() const {
    const KeptArrays sizes = kept_arrays<Real>(shape_, p_.layout);
    const auto number = [](std::size_t size) { return static_cast<int>(size); };
    KeptBlock::Places at;
    at.kernel = number(sizes.parts);
    at.received = at.kernel + number(sizes.kernel);
    at.points = at.received + number(sizes.received);
    at.scales = at.points + number(sizes.rows);
    at.scales_stride = number(sizes.scales / 2);
    at.scaled = at.scales + number(sizes.scales);
    at.stride = shape_.stride;
    at.part_stride = shape_.part_stride;
    at.lane_bits = shape_.lane_bits;
    at.groups = shape_.groups;
    at.sharing_bits = shape_.sharing_bits;
    at.telling_bits = shape_.telling_bits;
    at.own = own_;
    at.columns = columns_.count;
    at.rank = team_.rank;
    at.blocks = team_.blocks;
    at.in_cluster = team_.blocks > 1 && p_.layout.cluster > 1 ? 1 : 0;
    return at;
  }

  // The costs of the block's row n, if they are made from points. A block reads those alone that it has made.
  [[nodiscard]] __device__ __forceinline__ Real* costs_of_points(int n) const {
    const std::int64_t row = static_cast<std::int64_t>(team_.index) * rows_.p.length + first_ + n;
    return p_.kept_costs + row * shape_.stride;
  }

  [[nodiscard]] __device__ __forceinline__ int place() const {
    return static_cast<int>(threadIdx.x) & (shape_.lanes - 1);
  }
  [[nodiscard]] __device__ __forceinline__ int group() const {
    return static_cast<int>(threadIdx.x) >> shape_.lane_bits;
  }

 private:
  struct Features {
    const Real* of;
    std::int64_t stride;

    [[nodiscard]] __device__ __forceinline__ Real at(int d) const { return of[d * stride]; }
  };
  [[nodiscard]] __device__ __forceinline__ Features features_of(const Side<Real>& side, int i) const {
    const Table<Real>& points = side.p.points;
    return {points.data + side.b * points.stride[0] + i * points.stride[1], points.stride[2]};
  }
  // The features of the point at place j of shared memory, (kMostKeptDim, kStagedStride) behind which 1 /
  // length lies for the cosine. Between iterations these are the first numbers of arrays().
  [[nodiscard]] __device__ __forceinline__ Features staged(int j) const {
    return {arrays() + j, kStagedStride};
  }
  [[nodiscard]] __device__ __forceinline__ Real staged_inverse_length(int j) const {
    return arrays()[kMostKeptDim * kStagedStride + j];
  }
  // For the cosine 1 / length of a point, 0 for length 0; else 0.
  [[nodiscard]] __device__ __forceinline__ Real inverse_length(const Features& x) const {
    if (p_.kind != CostKind::kCosine) return 0;
    double square = 0;
    for (int d = 0; d < p_.dim; ++d) square += static_cast<double>(x.at(d)) * static_cast<double>(x.at(d));
    return square == 0 ? Real(0) : static_cast<Real>(1 / sqrt(square));
  }
  // Up to kStagedPoints points of a side, from `begin` on, to shared memory.
  __device__ __forceinline__ void stage(const Side<Real>& side, int begin) const {
    Real* const to = arrays();
    const int count = min(side.count - begin, kStagedPoints);
    __syncthreads();  // no thread reads the earlier contents any more
    for (int e = static_cast<int>(threadIdx.x); e < count * p_.dim; e += static_cast<int>(blockDim.x)) {
      const int j = e / p_.dim, d = e % p_.dim;
      to[d * kStagedStride + j] = features_of(side, begin + j).at(d);
    }
    __syncthreads();
    if (p_.kind != CostKind::kCosine) return;
    const int j = static_cast<int>(threadIdx.x);
    if (j < count) to[kMostKeptDim * kStagedStride + j] = inverse_length(staged(j));
    __syncthreads();
  }
  template <CostKind kKind>
  [[nodiscard]] __device__ __forceinline__ Real sum_of(const Features& x, const Features& y) const {
    Real sum = 0;
#pragma unroll 4
    for (int d = 0; d < p_.dim; ++d) sum = with_feature<kKind>(sum, x.at(d), y.at(d));
    return sum;
  }
  // The cost of a point and the one at place j of shared memory. scale: inverse_length(x).
  [[nodiscard]] __device__ __forceinline__ Real cost_of(const Features& x, Real scale, int j) const {
    const Features y = staged(j);
    switch (p_.kind) {
      case CostKind::kEuclidean:
        return sqrt(sum_of<CostKind::kSquaredEuclidean>(x, y));
      case CostKind::kL1:
        return sum_of<CostKind::kL1>(x, y);
      case CostKind::kHuber:
        return sum_of<CostKind::kHuber>(x, y);
      case CostKind::kCosine:
        return 1 - sum_of<CostKind::kCosine>(x, y) * scale * staged_inverse_length(j);
      default:
        return sum_of<CostKind::kSquaredEuclidean>(x, y);
    }
  }

  struct Potentials {
    const Side<Real>& side;
    const double* at;
    double lambda;

    [[nodiscard]] __device__ __forceinline__ Potential<Real> of(int i, double rounder) const {
      return Potential<Real>::split(at[i] + lambda, rounder);
    }
  };
  // The gradient with respect to a side's points, scale * sum over the other points of P dC / dx. Each block
  // has a part of the points, and each of its warps one of them at a time. Costs are made again.
  template <int kFeatures>
  __device__ __attribute__((noinline)) void gradient_of(const Pass& pass, const Potentials& of_own,
                                                        const Potentials& of_other) const {
    const Side<Real>&own = of_own.side, &other = of_other.side;
    const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int end = p_.layout.first_row(team_.rank + 1, own.count);
    const Real k = static_cast<Real>(pass.k);
    Real* const to = own.p.grad_points + own.row_of_batch() * p_.dim;
    for_padding(own, team_, [&](int i) {
      for (int d = 0; d < p_.dim; ++d) to[static_cast<std::int64_t>(i) * p_.dim + d] = 0;
    });
    for (int begin = p_.layout.first_row(team_.rank, own.count); begin < end; begin += warps) {
      const bool exists = begin + static_cast<int>(threadIdx.x) / 32 < end;
      const int i = exists ? begin + static_cast<int>(threadIdx.x) / 32 : begin;
      const Features x = features_of(own, i);
      const Potential<Real> w = of_own.of(i, pass.rounder);
      const Real weight = static_cast<Real>(own.reference(own.weight(i))), inverse = inverse_length(x);
      Real acc[kFeatures] = {}, along = 0;
      for (int first = 0; first < other.count; first += kStagedPoints) {
        stage(other, first);
        const int staged_end = min(other.count - first, kStagedPoints);
        for (int j = lane; exists && j < staged_end; j += 32) {
          const Potential<Real> z = of_other.of(first + j, pass.rounder);
          const Real cost = cost_of(x, inverse, j);
          Real t = fma(-k, cost, w.hi + z.hi);
          if constexpr (sizeof(Real) == 4) t += w.lo + z.lo;
          const Real mass = weight * static_cast<Real>(other.reference(other.weight(first + j))) * exp2_of(t);
          if (mass == 0) continue;
          along += mass * (1 - cost);
          const Real factor = factor_of_slope(mass, cost, j);
          const Features y = staged(j);
#pragma unroll
          for (int d = 0; d < kFeatures; ++d) {
            if (d < p_.dim) acc[d] = fma(factor, slope(x.at(d), y.at(d)), acc[d]);
          }
        }
      }
      along = cuda::reduce_sum(along);
#pragma unroll
      for (int d = 0; d < kFeatures; ++d) {
        Real v = cuda::reduce_sum(acc[d]);
        if (!exists || lane != d || d >= p_.dim) continue;
        if (p_.kind == CostKind::kCosine) v = (along * x.at(d) * inverse - v) * inverse;
        v *= static_cast<Real>(p_.cost_scale);
        to[static_cast<std::int64_t>(i) * p_.dim + d] = pass.is_nan ? static_cast<Real>(CUDART_NAN) : v;
      }
    }
  }
  // The part of the factor of P in a gradient that is the same for all features of a pair.
  [[nodiscard]] __device__ __forceinline__ Real factor_of_slope(Real mass, Real cost, int j) const {
    if (p_.kind == CostKind::kEuclidean) return cost > 0 ? mass / cost : Real(0);
    if (p_.kind == CostKind::kSquaredEuclidean) return 2 * mass;
    return p_.kind == CostKind::kCosine ? mass * staged_inverse_length(j) : mass;
  }
  [[nodiscard]] __device__ __forceinline__ Real slope(Real x, Real y) const {
    return slope_of(p_.kind, x, y);
  }

 protected:
  const SolveParams<Real>& p_;
  const Team& team_;
  const Side<Real>& rows_;
  const Side<Real>& columns_;
  const KeptShape shape_;
  const int first_;  // of the block's rows
  const int own_;    // their number
};

}  // namespace warpalign::detail::transport
