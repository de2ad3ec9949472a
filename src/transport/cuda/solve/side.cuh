// Rows or columns of the problem that a team works on: weights, potentials, and sums over the other side.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "cuda/rows/ragged.h"
#include "transport/cuda/solve/params.cuh"
#include "transport/cuda/solve/team.cuh"
#include "transport/update.h"

namespace warpalign::detail::transport {

// A potential as a pair whose hi part is on a grid so coarse that the sum of two is exact. In float64 that is
// not needed: lo is 0.
template <class Real>
struct Potential {
  Real hi;
  Real lo;

  // inf, the potential of a point all of whose costs are inf, is replaced by 0: its logits are -inf in any
  // case.
  static __device__ __forceinline__ Potential split(double v, double rounder) {
    if (v == CUDART_INF) v = 0;
    if constexpr (sizeof(Real) == 8) return {v, 0};
    const double hi = (v + rounder) - rounder;
    return {static_cast<Real>(hi), isinf(v) ? Real(0) : static_cast<Real>(v - hi)};
  }
};

// The number whose addition and subtraction rounds potentials up to `largest` to their grid: 1.5 times a
// power of two.
template <class Real>
__device__ __forceinline__ double rounder_of(double largest) {
  constexpr int kDigits = sizeof(Real) == 4 ? 24 : 53, kBias = 1023, kMostExponent = 900;
  const double top = max(largest, 1.0);
  const int high = __double2hiint(top);
  const bool is_power = (high & 0xfffff) == 0 && __double2loint(top) == 0;
  const int exponent = min((high >> 20) - kBias + (is_power ? 0 : 1), kMostExponent);  // 2^exponent >= top
  return __hiloint2double((exponent + 1 - kDigits + 52 + kBias) << 20 | 0x80000, 0);
}

// Updates the largest finite magnitude. Rounds up, because it determines the grid.
__device__ __forceinline__ void raise(float& top, double v) {
  if (!isinf(v)) top = larger(top, static_cast<float>(abs(v)) * 1.000001f);
}

// The index of an array of potentials.
inline constexpr int kShift = 2;

template <class Real>
struct Side {
  const SideParams<Real>& p;
  const int b;
  const int team;
  const int count;  // true length
  const bool product;
  const Marginal marginal;
  const double uniform;    // the weight of a point, if none are given
  mutable int parts;       // parts of the last pass's sums
  bool from_last = false;  // whether the team's last blocks update the first points
  int now = 0;             // the number of the array with the potentials
  float top = 0;           // their largest finite magnitude
  float top_of_shift = 0;
  double moved = 0;  // the largest move of the last update, in bits
  bool near = false;
  double total = 0;  // sum of the reference's weights

  __device__ __forceinline__ Side(const SideParams<Real>& params, int b, int team, bool product, bool partial)
      : p(params),
        b(b),
        team(team),
        count(cuda::true_length(params.lengths, b, params.length)),
        product(product),
        marginal{partial, params.strength},
        uniform(1.0 / count),
        parts(params.splits) {}

  [[nodiscard]] __device__ __forceinline__ std::int64_t row_of_batch() const {
    return static_cast<std::int64_t>(b) * p.length;
  }
  [[nodiscard]] __device__ __forceinline__ double weight(int i) const {
    return p.weights ? static_cast<double>(p.weights[row_of_batch() + i]) : uniform;
  }
  // For a weight, its weight in the reference measure, and log2(weight / that).
  [[nodiscard]] __device__ __forceinline__ double reference(double weight) const {
    return product ? weight : 1.0;
  }
  [[nodiscard]] __device__ __forceinline__ double target(double weight) const {
    return product ? 0.0 : log2(weight);
  }
  [[nodiscard]] __device__ __forceinline__ double* potentials(int which) const {
    return p.potentials + (static_cast<std::int64_t>(team) * 3 + which) * p.length;
  }
  [[nodiscard]] __device__ __forceinline__ double* current() const { return potentials(now); }
  [[nodiscard]] __device__ __forceinline__ double* next() const { return potentials(1 - now); }
  [[nodiscard]] __device__ __forceinline__ double* shift() const { return potentials(kShift); }
  [[nodiscard]] __device__ __forceinline__ Real* partials(int split) const {
    return p.partials + (static_cast<std::int64_t>(team) * p.splits + split) * p.length;
  }
};

// Where a problem's costs begin. Those that a team makes of points belong to the team.
template <class Real>
__device__ __forceinline__ std::int64_t first_cost(const SolveParams<Real>& p, const Side<Real>& rows) {
  return (p.layout.of_points ? rows.team : rows.b) * p.cost_stride[0];
}

// log2(weight / sum), without the potential `at` in the sum: inf if all costs are inf; -inf for a weight of 0
// whose reference is 1.
__device__ __forceinline__ double free_of(double target, double at, double log2_sum) {
  if (target == -CUDART_INF) return -CUDART_INF;
  if (at == CUDART_INF || log2_sum == -CUDART_INF) return CUDART_INF;
  return at + target - log2_sum;
}

// Calls body(i) for the points of a side. A thread of the team owns a point, always the same one.
template <class Real, class Body>
__device__ __forceinline__ void for_points(const Side<Real>& side, const Team& team, const Body& body) {
  const int step = team.blocks * static_cast<int>(blockDim.x);
  for (int i = team.rank * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x); i < side.count;
       i += step) {
    body(i);
  }
}
// The same for the padding after the true length.
template <class Real, class Body>
__device__ __forceinline__ void for_padding(const Side<Real>& side, const Team& team, const Body& body) {
  const int step = team.blocks * static_cast<int>(blockDim.x);
  for (int i = side.count + team.rank * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
       i < side.p.length; i += step) {
    body(i);
  }
}

// The parts of a total that a thread loads at once.
inline constexpr int kTotalsAtOnce = 36;
template <class Costs>
constexpr int totals_at_once() {
  if constexpr (requires { Costs::kTotalsAtOnce; }) return Costs::kTotalsAtOnce;
  return kTotalsAtOnce;
}

// Calls body(i, total) for every point of the side, by one thread of the team. total: its partial sums, added
// in order in float64, or the largest of its parts. Called by all blocks, after a barrier that follows the
// pass.
//
// Some warps share 32 neighbouring points. Each joins a part of the splits, with all loads in flight
// together.
template <bool kLargest, int kAtOnce = kTotalsAtOnce, class Real, class Body>
__device__ __forceinline__ void for_totals(const Side<Real>& side, const Team& team, const Body& body) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int splits = side.parts;
  const int sharing = max(1, min(warps, cuda::div_up(splits, kAtOnce))), groups = warps / sharing;
  const int part = warp % sharing, group = warp / sharing;
  const int first_split = splits * part / sharing, last_split = splits * (part + 1) / sharing;
  auto* const parts = reinterpret_cast<double*>(cuda::dynamic_shared() + kScratchBytes);
  const auto join = [](double a, double v) { return kLargest ? larger(a, v) : a + v; };
  const double none = kLargest ? -CUDART_INF : 0.0;
  const std::int64_t stride = side.p.length;
  const int rank = side.from_last ? team.blocks - 1 - team.rank : team.rank;
  for (int tile = rank * groups; tile * 32 < side.count; tile += team.blocks * groups) {
    const int i = (tile + group) * 32 + lane;
    const bool exists = group < groups && i < side.count;
    double total = none;
    if (exists) {
      const Real* from = side.partials(first_split) + i;
      for (int left = last_split - first_split; left > 0; left -= kAtOnce, from += kAtOnce * stride) {
        Real v[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) v[u] = u < left ? from[u * stride] : static_cast<Real>(none);
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          if (u % 4 == 0 && u >= left) break;
          total = join(total, static_cast<double>(v[u]));
        }
      }
    }
    if (sharing > 1) {
      parts[threadIdx.x] = total;
      __syncthreads();
      if (part == 0) {
        for (int k = 1; k < sharing; ++k) total = join(total, parts[threadIdx.x + 32 * k]);
      }
      __syncthreads();
    }
    if (exists && part == 0) body(i, total);
  }
}

}  // namespace warpalign::detail::transport
