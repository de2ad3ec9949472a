// The passes over points of a solve, in float32 or float64, with every kind of cost.
//
// Points with few coordinates take point_rows.cuh unless potentials are huge, all others point_tiles.cuh. A
// team's blocks share the steps of a pass evenly (step_share.cuh).
#pragma once

#include "transport/cuda/points/point_rows.cuh"
#include "transport/cuda/points/point_tiles.cuh"
#include "transport/cuda/points/points.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class PointSums : public Points<Real_> {
 public:
  using Real = Real_;
  using Points<Real_>::Points;
  // The own points of a tile, for more than few coordinates.
  static constexpr int kOwnOfTiles = PointTiles<Real_>::kOwn;

  static std::size_t shared_bytes(const SolveLayout& layout) {
    const std::size_t of_passes = std::max(sizeof(typename PointTiles<Real_>::Shared),
                                           sizeof(typename PointRows<Real_, kMostDimOfRows>::GradientShared));
    return std::max(Points<Real_>::shared_bytes(layout), kScratchBytes + of_passes);
  }

  // Called by all threads of the team. The sums can be read after the team's next barrier.
  template <PassKind kKind>
  __device__ __forceinline__ void run(const Pass& pass, PlanSums& sums) const {
    constexpr PassKind kColumns = kKind == PassKind::kEvaluate ? PassKind::kSums : kKind;
    if (pass.rows) sums_of_side<kKind>(pass, true, sums);
    if (!pass.columns) return;
    if (pass.rows && columns_.p.partials == rows_.p.partials) {
      columns_.parts = rows_.parts;  // a set with itself: the columns' sums are the rows'
    } else {
      sums_of_side<kColumns>(pass, false, sums);
    }
  }

  // Writes the gradients with respect to the points of both sides that are not null.
  __device__ __forceinline__ void write_gradients(const Pass& pass) const {
    if (!has_rows(pass)) return Base::write_gradients(pass);
    if (rows_.p.grad_points) gradient_of_few(pass, true);
    if (columns_.p.grad_points) gradient_of_few(pass, false);
  }

 protected:
  using Base = Points<Real_>;
  using Base::columns_;
  using Base::p_;
  using Base::rows_;
  using Base::team_;

  // The same for tiles alone.
  template <PassKind kKind>
  __device__ __forceinline__ void run_tiles(const Pass& pass, PlanSums& sums) const {
    constexpr PassKind kColumns = kKind == PassKind::kEvaluate ? PassKind::kSums : kKind;
    if (pass.rows) tiles_of_side(kKind, pass, true, sums);
    if (!pass.columns) return;
    if (pass.rows && columns_.p.partials == rows_.p.partials) {
      columns_.parts = rows_.parts;  // a set with itself: the columns' sums are the rows'
    } else {
      tiles_of_side(kColumns, pass, false, sums);
    }
  }

  // Calls body(own tile, part, first stage, last stage) for this block's runs. Sets parts that a tile does
  // not have to the neutral element.
  template <class Body>
  __device__ __forceinline__ void share_steps(const Side<Real>& own, const Side<Real>& other, int tile_points,
                                              int step_points, bool largest, const Body& body) const {
    const StepShare share(cuda::div_up(own.count, tile_points), cuda::div_up(other.count, step_points),
                          team_.blocks, own.p.splits);
    own.parts = share.most_parts();
    share.each(team_.rank, [&](int tile, int part, int first, int last) {
      body(tile, part, first, last);
      if (last < share.stages()) return;
      const Real none = largest ? static_cast<Real>(-CUDART_INF) : Real(0);
      for (int n = static_cast<int>(threadIdx.x); n < tile_points; n += static_cast<int>(blockDim.x)) {
        const int i = tile * tile_points + n;
        if (i >= own.count) break;
        Real* to = own.partials(part) + i;
        for (int k = part + 1; k < own.parts; ++k) *(to += own.p.length) = none;
      }
    });
  }

  // Writes an entry of the plan, in a pass over the rows.
  __device__ __forceinline__ void write_plan(const Pass& pass, int i, int j, Real mass) const {
    if (!p_.plan || i >= rows_.count || j >= columns_.count) return;
    const double plan = pass.is_nan ? CUDART_NAN : p_.plan_scale * static_cast<double>(mass);
    p_.plan[rows_.b * p_.plan_stride[0] + i * p_.plan_stride[1] + j * p_.plan_stride[2]] =
        static_cast<Real>(plan);
  }

 private:
  // Whether point_rows.cuh makes a pass.
  [[nodiscard]] __device__ __forceinline__ bool has_rows(const Pass& pass) const {
    return p_.dim <= kMostDimOfRows && PointRows<Real, kMostDimOfRows>::serves(pass);
  }
  // Calls body.template operator()<kDim, kCost>() for points of few coordinates.
  template <class Body>
  __device__ __forceinline__ void with_few(const Body& body) const {
    switch (p_.kind) {
      case CostKind::kSquaredEuclidean:
        if (p_.dim <= 3) return body.template operator()<3, CostKind::kSquaredEuclidean>();
        if (p_.dim == 4) return body.template operator()<4, CostKind::kSquaredEuclidean>();
        return body.template operator()<kMostDimOfRows, CostKind::kSquaredEuclidean>();
      case CostKind::kEuclidean:
        if (p_.dim <= 3) return body.template operator()<3, CostKind::kEuclidean>();
        return body.template operator()<kMostDimOfRows, CostKind::kEuclidean>();
      case CostKind::kL1:
        return body.template operator()<kMostDimOfRows, CostKind::kL1>();
      case CostKind::kCosine:
        return body.template operator()<kMostDimOfRows, CostKind::kCosine>();
      case CostKind::kHuber:
        return body.template operator()<kMostDimOfRows, CostKind::kHuber>();
    }
  }
  template <PassKind kKind>
  __device__ __forceinline__ void sums_of_side(const Pass& pass, bool of_rows, PlanSums& sums) const {
    if (!has_rows(pass)) return tiles_of_side(kKind, pass, of_rows, sums);
    with_few([&]<int kDim, CostKind kCost>() { by_rows<kDim, kKind, kCost>(pass, of_rows, sums); });
  }
  __device__ __forceinline__ void gradient_of_few(const Pass& pass, bool of_rows) const {
    with_few([&]<int kDim, CostKind kCost>() { gradient_by_rows<kDim, kCost>(pass, of_rows); });
  }
  template <int kDim, CostKind kCost>
  __device__ __attribute__((noinline)) void gradient_by_rows(const Pass& pass, bool of_rows) const {
    using Rows = PointRows<Real, kDim>;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    Real* const to = own.p.grad_points + own.row_of_batch() * p_.dim;
    for (int begin = team_.rank * Rows::kGradientOwn; begin < own.p.length;
         begin += team_.blocks * Rows::kGradientOwn) {
      Rows::template gradient<kCost>(p_, pass, of_rows, own, other, begin, to);
    }
  }
  // Not inlined, for all kinds of passes: they differ only outside the loop over coordinates.
  __device__ __attribute__((noinline)) void tiles_of_side(PassKind kind, const Pass& pass, bool of_rows,
                                                          PlanSums& sums) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    share_steps(own, other, kOwnOfTiles, kPointsStage, kind == PassKind::kLargest,
                [&](int tile, int part, int first, int last) {
                  PointTiles<Real>::run(p_, kind, pass, of_rows, own, other, tile, part, first, last, sums,
                                        [&](int i, int j, Real mass) { write_plan(pass, i, j, mass); });
                });
  }
  template <int kDim, PassKind kKind, CostKind kCost>
  __device__ __attribute__((noinline)) void by_rows(const Pass& pass, bool of_rows, PlanSums& sums) const {
    using Rows = PointRows<Real, kDim>;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    share_steps(own, other, Rows::kOwn, kUnitOfRows, kKind == PassKind::kLargest,
                [&](int tile, int part, int first, int last) {
                  Rows::template run<kKind, kCost>(
                      p_, pass, of_rows, own, other, tile, part, first, last, sums,
                      [&](int i, int j, Real mass) { write_plan(pass, i, j, mass); });
                });
  }
};

// The entry of the kernel in the list.
template <class Real>
constexpr SinkhornKernel<Real> points_entry() {
  SinkhornKernel<Real> kernel = entry<SolveKernel<PointSums<Real>>>();
  kernel.own_points = PointSums<Real>::kOwnOfTiles;
  return kernel;
}

}  // namespace warpalign::detail::transport
