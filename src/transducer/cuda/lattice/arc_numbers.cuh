// The numbers of a group of forward steps with any arcs: states with 64-bit or with 32-bit exponents. Results
// are bitwise identical if 32 bits suffice.
#pragma once

#include "transducer/cuda/lattice/near_state.cuh"

namespace warpalign::detail::transducer {

template <class Real>
struct FarNumbers {
  using Number = State<Real>;
  static __device__ __forceinline__ Weight<Real> weight(Real w) { return Weight<Real>::of(w); }
  static __device__ __forceinline__ Exponent larger(Exponent a, Exponent b) {
    return transducer::larger(a, b);
  }
  static __device__ __forceinline__ Number zero() { return Number::zero(); }
  static __device__ __forceinline__ Number times(const Number& s, const Weight<Real>& w) {
    return product(s, w);
  }
  static __device__ __forceinline__ Real scale(Exponent exponent, Exponent top) {
    return scale_to<Real>(exponent, top);
  }
  static __device__ __forceinline__ Number normalized(Real mantissa, Exponent exponent) {
    return normal(Number{mantissa, exponent});
  }
  static __device__ __forceinline__ bool holds(const Number&) { return true; }
  static __device__ __forceinline__ bool holds(Real) { return true; }
};
struct NearNumbers {
  using Number = NearState<float>;
  static __device__ __forceinline__ Number weight(float w) { return near_weight(w); }
  static __device__ __forceinline__ int larger(int a, int b) { return max(a, b); }
  static __device__ __forceinline__ Number zero() { return {0, -kDead}; }
  static __device__ __forceinline__ Number times(const Number& s, const Number& w) {
    return {s.mantissa * w.mantissa, s.exponent + w.exponent};
  }
  static __device__ __forceinline__ float scale(int exponent, int top) {
    return power_of_2(max(exponent - top, kLeastPower<float>), 0.0f);
  }
  // Mantissas are 0 or at least 2^-1/2. NaN is replaced by a number: the sweep has detected it in a slot.
  static __device__ __forceinline__ Number normalized(float mantissa, int exponent) {
    const int bits = __float_as_int(mantissa);
    const bool dead = mantissa == 0.0f;
    return {dead ? 0.0f : __int_as_float(cuda::with_exponent_of_one(bits)),
            dead ? zero().exponent : exponent + (bits >> 23) - 127};
  }
  // Whether a number, or a group's steepest weight, is in range.
  static __device__ __forceinline__ bool holds(const Number& s) {
    const bool is_near = static_cast<unsigned>(s.exponent + kFarthest - 1) < 2u * kFarthest - 1;
    return (s.mantissa == 0.0f) | is_near;  // without a branch
  }
  static __device__ __forceinline__ bool holds(float steepest) { return steepest < kSteepest; }
};

}  // namespace warpalign::detail::transducer
