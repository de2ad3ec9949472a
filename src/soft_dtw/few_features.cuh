// The source of costs, and the taker of E, for series of at most F features: a lane keeps its columns of y in
// registers and meets the rows of x one by one; shared memory holds nothing of either.
//
// grad_y of a lane's columns is summed in registers over the strip. grad_x[i] = 2 sum_j E[i,j] (x[i] - y[j])
// is summed along the row as E is: from lane to lane, and from strip to strip through the channel; the
// left-most strip writes it.
#pragma once

#include "soft_dtw/cost_range.cuh"
#include "soft_dtw/params.cuh"

namespace warpalign::softdtw {

template <class Cell, class In_, int W, int F>
class FewFeatures {
  using In = In_;
  using Real = typename Cell::Real;

 public:
  static constexpr int kColumns = W;
  static constexpr int kCarried = F;
  __device__ FewFeatures(const Params<In>& p, int lane, Real*)
      : p_(p), lane_(lane), scale_(static_cast<Real>(p.scale)) {}

  // Which bounds every cost: how far x and y reach from y[0], as bits. All of x passes through the first
  // strip.
  [[nodiscard]] __device__ int2 range_bits() const { return {x_reach_, y_reach_}; }
  static __device__ float largest_cost(int2 bits, const Params<In>& p) {
    const float reach = __int_as_float(bits.x) + __int_as_float(bits.y);
    return p.dim * reach * reach * static_cast<float>(p.scale);
  }

  __device__ void begin_forward(const Pair<In>& pair, int column0) {
    begin_strip(pair, column0);
    notes_x_ = column0 == 0;
#pragma unroll
    for (int f = 0; f < F; ++f) {
      origin_[f] = f < p_.dim ? Real(__ldg(pair.y + f * p_.y_stride[2])) : Real(0);
#pragma unroll
      for (int k = 0; k < W; ++k) y_reach_ = largest_bits(y_reach_, y_[k][f] - origin_[f]);
    }
  }

  __device__ void begin_strip(const Pair<In>& pair, int column0) {
    pair_ = &pair;
    column_ = column0 + lane_ * W;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const In* y = pair.y + min(column_ + k, pair.m - 1) * p_.y_stride[1];
#pragma unroll
      for (int f = 0; f < F; ++f) y_[k][f] = f < p_.dim ? Real(__ldg(y + f * p_.y_stride[2])) : Real(0);
    }
  }
  __device__ void begin_forward_phase(int) const {}

  __device__ void begin_reverse(const Pair<In>& pair, int column0, int) {
    begin_strip(pair, column0);
#pragma unroll
    for (int k = 0; k < W; ++k) {
#pragma unroll
      for (int f = 0; f < F; ++f) grad_y_[k][f] = Real(0);
    }
  }
  __device__ void begin_reverse_phase(int) const {}

  // Rows before the first and behind the last repeat those: they add nothing to the reach of x.
  __device__ __forceinline__ void begin_group(int s0) {
    const bool inside = s0 >= cuda::kWarpSize - 1 && s0 + kGroup <= pair_->n;
    if (inside) {
      const In* x = pair_->x + (s0 - lane_) * p_.x_stride[1];
#pragma unroll
      for (int q = 0; q < kGroup; ++q, x += p_.x_stride[1]) load_row(q, x);
    } else {
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        load_row(q, pair_->x + min(max(s0 + q - lane_, 0), pair_->n - 1) * p_.x_stride[1]);
      }
    }
  }

  __device__ __forceinline__ void begin_noted_group(int s0) {
    begin_group(s0);
    if (!notes_x_) return;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
#pragma unroll
      for (int f = 0; f < F; ++f) x_reach_ = largest_bits(x_reach_, x_[q][f] - origin_[f]);
    }
  }

  [[nodiscard]] __device__ __forceinline__ Real cost(int q, int k) const {
    Real sum = 0;
#pragma unroll
    for (int f = 0; f < F; ++f) sum += (x_[q][f] - y_[k][f]) * (x_[q][f] - y_[k][f]);
    return sum * scale_;
  }

  // carried: F partial sums of grad_x over the columns on the right.
  __device__ __forceinline__ void take(int q, int k, Real e, Real* carried) {
#pragma unroll
    for (int f = 0; f < F; ++f) {
      const Real g = Real(2) * e * (x_[q][f] - y_[k][f]);
      grad_y_[k][f] -= g;
      carried[f] += g;
    }
  }

  // rows[q]: E, and the complete sums of grad_x of row s0 + q; called by lane 0 of the left-most strip.
  __device__ __forceinline__ void finish_rows(int s0, const Real (&rows)[kGroup][1 + F]) const {
    if (!pair_->grad_x) return;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      if (s0 + q >= pair_->n) break;
      In* to = pair_->grad_x + static_cast<std::int64_t>(s0 + q) * p_.dim;
#pragma unroll
      for (int f = 0; f < F; ++f) {
        if (f < p_.dim) to[f] = static_cast<In>(rows[q][1 + f]);
      }
    }
  }
  __device__ void end_reverse_phase(int, bool) const {}

  __device__ void end_reverse() const {
    if (!pair_->grad_y) return;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (column_ + k >= pair_->m) break;
      In* to = pair_->grad_y + static_cast<std::int64_t>(column_ + k) * p_.dim;
#pragma unroll
      for (int f = 0; f < F; ++f) {
        if (f < p_.dim) to[f] = static_cast<In>(grad_y_[k][f]);
      }
    }
  }

 private:
  __device__ __forceinline__ void load_row(int q, const In* x) {
#pragma unroll
    for (int f = 0; f < F; ++f) x_[q][f] = f < p_.dim ? Real(__ldg(x + f * p_.x_stride[2])) : Real(0);
  }

  const Params<In>& p_;
  const int lane_;
  const Real scale_;
  const Pair<In>* pair_ = nullptr;
  int column_ = 0;  // first of this lane
  int x_reach_ = 0;
  int y_reach_ = 0;
  bool notes_x_ = false;
  Real origin_[F];
  Real y_[W][F];
  Real x_[kGroup][F];
  Real grad_y_[W][F];
};

}  // namespace warpalign::softdtw
