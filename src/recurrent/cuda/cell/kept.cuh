// Zoneout in sweeps of one launch: which units of a step keep their state. A kernel draws the bits ahead, a
// byte for four units.
#pragma once

#include "recurrent/cuda/cell/params.cuh"

namespace warpalign::detail::recurrent {

// A byte has the bits of so many units.
constexpr int kKeptUnits = 4;

__host__ __device__ constexpr int kept_words(int hidden) { return (hidden + kKeptUnits - 1) / kKeptUnits; }

// The shares of h and c that a unit keeps.
template <class Real>
struct KeptShares {
  Real h, c;
};
// From the bits of its byte: those of h, and above them those of c.
template <class T>
__device__ __forceinline__ KeptShares<Sum<T>> kept_shares(const CudaCell<T>& cell, unsigned bits, int unit) {
  using Real = Sum<T>;
  if (!cell.kept) return {cell.zoneout_hidden.probability, cell.zoneout_cell.probability};
  return {bits >> unit & 1 ? Real(1) : Real(0), bits >> (kKeptUnits + unit) & 1 ? Real(1) : Real(0)};
}

}  // namespace warpalign::detail::recurrent
