// The soft-DTW cell in linear space: Z = 2^(-R log2(e)/gamma), as a mantissa and an exponent of its own.
//
//   Z[i,j] = 2^(-c[i,j]) (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]),   c = C log2(e)/gamma
//
// The exponent is exact. So the relative error of Z grows with the number of cells on a path and not with the
// magnitude of R, and nothing underflows for any gamma. c is split in n + f with n = round(c). n goes to the
// exponent, 2^-f in [2^-1/2, 2^1/2] to the mantissa: a cell needs one transcendental instruction. Costs are
// not scaled in advance: the factor log2(e)/gamma is an operand of multiply-adds, and c itself is never
// rounded.
//
// The reverse sweep takes transition weights: p_up = Z[i-1,j] / (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]), p_left
// and p_diagonal. The third weight is (1 - p_up) - p_left, so that the three sum to 1 whatever the error of
// the reciprocal. An unreachable predecessor has weight exactly 0.
//
// A penalty multiplies Z[i-1,j] and Z[i,j-1] by 2^-penalty, in units of c.
#pragma once

#include <math_constants.h>

#include "cuda/numbers/scaled_number.cuh"

namespace warpalign::detail::soft_dtw {

template <class Real>
struct Weights {
  Real up;
  Real left;  // at most 1 - up
};

__device__ __forceinline__ float share(float part, float reciprocal) {
  return __saturatef(part * reciprocal);
}
__device__ __forceinline__ double share(double part, double reciprocal) {
  return fmin(part * reciprocal, 1.0);
}

// The weights from three parts of Z and the reciprocal of their sum. If the diagonal's share is below
// rounding, left gets all that up leaves; up gets everything if left is unreachable. Otherwise rounding
// errors would flow along steps that no path takes.
template <class Real>
__device__ __forceinline__ Weights<Real> normalized(Real up, Real left, Real diagonal, Real reciprocal) {
  constexpr Real kNegligible = sizeof(Real) == 4 ? Real(0x1p-25) : Real(0x1p-54);
  Real p_up = share(up, reciprocal);
  const bool no_diagonal = diagonal * reciprocal < kNegligible;
  if (no_diagonal && left == Real(0)) p_up = Real(1);
  const Real rest = Real(1) - p_up;
  return {p_up, no_diagonal ? rest : min(left * reciprocal, rest)};
}

// float32 mantissa, int32 exponent. Mantissas are positive and near 1: normal() scales them into [1, 2), and
// advance() changes them by a factor of less than 2^3 per cell. A group starts from normal ones. The cell is
// exact for |c| < 2^22 and exponents above -2^29. results.cuh certifies both for every pair; Cell64 computes
// the pairs that are not certified.
struct Cell32 {
  using Real = float;
  using Scale = float;
  static constexpr bool kDual = false;
  static constexpr bool kHard = false;
  static constexpr bool kCertifies = true;  // pairs are certified, because its range may be too small
  using State = cuda::ScaledNumber<std::int32_t>;

  static __device__ __forceinline__ State dead() { return State::zero(); }
  static __device__ __forceinline__ State one() { return State::one(); }
  static __device__ __forceinline__ State normal(State s) { return cuda::normal(s); }

  // 2^-c as a power of two and a factor. c is certified to be below 2^22.
  struct Penalty {
    float factor;
    int exponent;
  };
  static __device__ __forceinline__ Penalty penalty(double c) {
    const double whole = fmin(rint(c), 4194304.0);
    return {static_cast<float>(exp2(whole - c)), static_cast<int>(whole)};
  }

  template <bool kWantWeights, bool kOptions>
  static __device__ __forceinline__ State advance(float cost, float scale, const Penalty& penalty, State up,
                                                  State left, State diagonal, Weights<float>* weights) {
    const int largest =
        kOptions ? __viaddmax_s32(max(up.exponent, left.exponent), -penalty.exponent, diagonal.exponent)
                 : __vimax3_s32(up.exponent, left.exponent, diagonal.exponent);
    const int beside = kOptions ? largest + penalty.exponent : largest;
    const float z_up = cuda::scaled(up, beside);  // without the penalty's factor
    const float z_left = cuda::scaled(left, beside);
    const float z_diagonal = cuda::scaled(diagonal, largest);
    // Bitwise identical for exchanged series.
    const float sum = kOptions ? fmaf(z_up + z_left, penalty.factor, z_diagonal) : z_up + z_left + z_diagonal;
    if (kWantWeights) {
      const float factor = kOptions ? penalty.factor : 1.0f;
      *weights = normalized(z_up * factor, z_left * factor, z_diagonal, cuda::reciprocal_fast(sum));
    }
    // Adding 1.5 * 2^23 rounds the cost to an integer, which is then in the low bits.
    constexpr float kRound = 12582912.0f;
    constexpr int kRoundBits = 0x4B400000;
    const float rounded = fmaf(cost, scale, kRound);
    const float fraction = fmaf(cost, -scale, rounded - kRound);
    const int exponent = largest + (kRoundBits - __float_as_int(rounded));
    return {sum * cuda::exp2_fast(fraction), exponent};
  }

  // log2 Z
  static __device__ double log2_of(State s) { return cuda::log2_of(s); }
};

// float64 mantissa, and a double that holds an integer as exponent. The exponent is exact below 2^53 and
// rounds beyond, so that no magnitude of cost overflows it. This cell serves float64 tensors, and the rerun
// of float32 pairs out of Cell32's range.
struct Cell64 {
  using Real = double;
  using Scale = double;
  static constexpr bool kDual = false;
  static constexpr bool kHard = false;
  static constexpr bool kCertifies = false;
  struct __align__(16) State {
    double mantissa;
    double exponent;
  };

  static constexpr double kDead = -1e300;
  static constexpr double kForbidden = 1e299;  // cost of a cell that no path may use

  static __device__ __forceinline__ State dead() { return {1.0, kDead}; }
  static __device__ __forceinline__ State one() { return {1.0, 0.0}; }
  static __device__ __forceinline__ State normal(State s) { return s; }

  struct Penalty {
    double mantissa;
    double exponent;
  };
  static __device__ __forceinline__ Penalty penalty(double c) {
    const double whole = fmin(rint(c), kForbidden);
    return {c < 0x1p52 ? exp2(whole - c) : 1.0, whole};
  }

  static __device__ __forceinline__ double aligned(State s, double largest) {
    const double shift = s.exponent - largest;
    return shift < -1000.0 ? 0.0 : s.mantissa * __hiloint2double((static_cast<int>(shift) + 1023) << 20, 0);
  }

  template <bool kWantWeights, bool kOptions>
  static __device__ __forceinline__ State advance(double cost, double scale, const Penalty& penalty, State up,
                                                  State left, State diagonal, Weights<double>* weights) {
    if (kOptions) {
      up.mantissa *= penalty.mantissa;
      up.exponent -= penalty.exponent;
      left.mantissa *= penalty.mantissa;
      left.exponent -= penalty.exponent;
    }
    const double largest = fmax(fmax(up.exponent, left.exponent), diagonal.exponent);
    const double z_up = aligned(up, largest);
    const double z_left = aligned(left, largest);
    const double z_diagonal = aligned(diagonal, largest);
    const double sum = z_up + z_left + z_diagonal;
    if (kWantWeights) *weights = normalized(z_up, z_left, z_diagonal, 1.0 / sum);
    const double scaled = fmin(cost * scale, kForbidden);
    const double whole = rint(scaled);
    const double z = sum * exp2(whole - scaled);
    const int high = __double2hiint(z);
    return {__hiloint2double((high & 0x000fffff) | 0x3ff00000, __double2loint(z)),
            fmax(largest - whole + ((high >> 20) - 1023), kDead)};
  }

  static __device__ double log2_of(State s) { return s.exponent + log2(s.mantissa); }
};

// Hard DTW, gamma = 0. The state is R itself, summed in float64. One predecessor has all the weight; among
// equal ones the diagonal comes first, then the one above.
template <class Real_>
struct CellHard {
  using Real = Real_;
  using Scale = Real_;
  static constexpr bool kDual = false;
  static constexpr bool kHard = true;
  static constexpr bool kCertifies = false;
  struct __align__(8) State {
    double value;
  };

  static __device__ __forceinline__ State dead() { return {CUDART_INF}; }
  static __device__ __forceinline__ State one() { return {0.0}; }
  static __device__ __forceinline__ State normal(State s) { return s; }

  struct Penalty {
    double value;
  };
  static __device__ __forceinline__ Penalty penalty(double c) { return {c}; }

  template <bool kWantWeights, bool kOptions>
  static __device__ __forceinline__ State advance(Real cost, Real, const Penalty& penalty, State up,
                                                  State left, State diagonal, Weights<Real>* weights) {
    up.value += penalty.value;
    left.value += penalty.value;
    const double least = fmin(fmin(up.value, left.value), diagonal.value);
    if (kWantWeights) {
      const bool is_diagonal = diagonal.value == least;
      const bool is_up = !is_diagonal && up.value == least;
      *weights = {is_up ? Real(1) : Real(0), is_diagonal || is_up ? Real(0) : Real(1)};
    }
    return {least + cost};
  }

  // R itself instead of -log2 Z.
  static __device__ double log2_of(State s) { return -s.value; }
};

}  // namespace warpalign::detail::soft_dtw
