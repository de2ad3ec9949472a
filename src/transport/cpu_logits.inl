// The kernels of cpu_kernel.h for a row of logits. Sums of float32 are made by a vector's lanes over kChunk
// elements, and added in float64, in an order that depends on the row's length alone.
namespace WARPALIGN_SIMD_NAMESPACE {
namespace {

using warpalign::detail::transport::LogitRow;
using warpalign::detail::transport::RowTotals;

constexpr int kChunk = 512;

template <class Real>
constexpr int kLanes = WARPALIGN_SIMD_BYTES / static_cast<int>(sizeof(Real));

template <class Real>
WARPALIGN_INLINE double sum_of_lanes(typename VectorOf<Real>::Type v) {
  double sum = 0;
  for (int k = 0; k < kLanes<Real>; ++k) sum += static_cast<double>(v[k]);
  return sum;
}

// The first `count` lanes from memory, the others from `fill`.
template <class Real>
WARPALIGN_INLINE typename VectorOf<Real>::Type load_part(const Real* from, int count, Real fill) {
  typename VectorOf<Real>::Type v = typename VectorOf<Real>::Type{} + fill;
  for (int k = 0; k < count; ++k) v[k] = from[k];
  return v;
}

// A NaN on either side gives NaN.
template <class V>
WARPALIGN_INLINE V max_or_nan(V a, V b) {
  const V larger = a > b ? a : b;
  return a == a ? larger : a;  // NOLINT(misc-redundant-expression): false for NaN
}

// 2^t for t up to 127 (float64: 1023). The result is 0 below the smallest normal number, and NaN for NaN.
#if WARPALIGN_SIMD_BYTES == 64
// Rounding and scaling by a power of two are single instructions. The mask comes from a comparison that is
// true for NaN.
WARPALIGN_INLINE F32 exp2_of(F32 t) {
  // _MM_FROUND_TO_NEAREST_INT, _CMP_NLT_US, _MM_FROUND_CUR_DIRECTION
  constexpr int kNearest = 0, kNotLess = 5, kCurrent = 4;
  const F32 bounded = min(splat(127.0f), t);
  const auto normal = __builtin_ia32_cmpps512_mask(t, splat(-126.0f), kNotLess, -1, kCurrent);
  const F32 whole = __builtin_ia32_rndscaleps_mask(bounded, kNearest, F32{}, -1, kCurrent);
  const F32 power = exp2_negated(whole - bounded);
  return __builtin_ia32_scalefps512_mask(power, whole, F32{}, normal, kCurrent);
}
WARPALIGN_INLINE F64 exp2_of(F64 t) {
  constexpr int kNearest = 0, kNotLess = 5, kCurrent = 4;
  const F64 bounded = min(splat(1023.0), t);
  const auto normal = __builtin_ia32_cmppd512_mask(t, splat(-1022.0), kNotLess, -1, kCurrent);
  const F64 whole = __builtin_ia32_rndscalepd_mask(bounded, kNearest, F64{}, -1, kCurrent);
  const F64 power = exp2_negated(whole - bounded);
  return __builtin_ia32_scalefpd512_mask(power, whole, F64{}, normal, kCurrent);
}
#else
WARPALIGN_INLINE F32 exp2_of(F32 t) {
  const F32 magic = splat(0x1.8p23f);
  const F32 bounded = max(splat(-126.0f), min(splat(127.0f), t));
  const F32 shifted = bounded + magic;
  const F32 whole = shifted - magic;
  const F32 power = from_bits(bits_of(exp2_negated(whole - bounded)) + (bits_of(shifted) << 23));
  return t < -126.0f ? F32{} : (t == t ? power : t);
}
WARPALIGN_INLINE F64 exp2_of(F64 t) {
  const F64 magic = splat(0x1.8p52);
  const F64 bounded = max(splat(-1022.0), min(splat(1023.0), t));
  const F64 shifted = bounded + magic;
  const F64 whole = shifted - magic;
  const F64 power = from_bits(bits_of(exp2_negated(whole - bounded)) + (bits_of(shifted) << 52));
  return t < -1022.0 ? F64{} : (t == t ? power : t);
}
#endif

// Calls body(j, costs) for every vector of the row. Costs after its end are inf, whose exponential is 0.
template <class Real, class Body>
WARPALIGN_INLINE void for_costs(const Real* cost, int begin, int end, const Body& body) {
  constexpr int kStep = kLanes<Real>;
  int j = begin;
  for (; j + kStep <= end; j += kStep) body(j, load(cost + j));
  if (j < end) body(j, load_part(cost + j, end - j, static_cast<Real>(__builtin_inf())));
}

template <class Real>
struct Logits {
  using V = typename VectorOf<Real>::Type;
  const LogitRow<Real>& row;

  WARPALIGN_INLINE V at(int j, V cost) const {
    const V exact = load(row.z_hi + j) + row.w_hi;
    const V rest = load(row.z_lo + j) + row.w_lo;
    return subtract_product(exact, cost, V{} + row.k) + rest;
  }
};

template <class Real>
double exponentials(const LogitRow<Real>& row, const Real* weight, Real* e) {
  using V = typename VectorOf<Real>::Type;
  const Logits<Real> logits{row};
  double sum = 0;
  for (int begin = 0; begin < row.m; begin += kChunk) {
    V lanes_sum{};
    for_costs(row.cost, begin, begin + kChunk < row.m ? begin + kChunk : row.m, [&](int j, V cost) {
      const V power = exp2_of(logits.at(j, cost));
      store(e + j, power);
      lanes_sum += power * load(weight + j);
    });
    sum += sum_of_lanes<Real>(lanes_sum);
  }
  return sum;
}

template <class Real>
double largest(const LogitRow<Real>& row) {
  using V = typename VectorOf<Real>::Type;
  const Logits<Real> logits{row};
  V top = V{} - static_cast<Real>(__builtin_inf());
  for_costs(row.cost, 0, row.m, [&](int j, V cost) { top = max_or_nan(top, logits.at(j, cost)); });
  Real result = top[0];
  for (int k = 1; k < kLanes<Real>; ++k)
    result = top[k] > result || __builtin_isnan(top[k]) ? top[k] : result;
  return static_cast<double>(result);
}

template <class Real>
void raise(const LogitRow<Real>& row, Real* tops) {
  using V = typename VectorOf<Real>::Type;
  const Logits<Real> logits{row};
  for_costs(row.cost, 0, row.m,
            [&](int j, V cost) { store(tops + j, max_or_nan(load(tops + j), logits.at(j, cost))); });
}

// Two independent sums, which hide the latency of multiply-adds.
template <class Real>
double weighted_sum(const Real* e, const Real* weight, int m) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  double sum = 0;
  for (int begin = 0; begin < m; begin += kChunk) {
    const int end = begin + kChunk < m ? begin + kChunk : m;
    V even{}, odd{};
    int j = begin;
    for (; j + 2 * kStep <= end; j += 2 * kStep) {
      even += load(e + j) * load(weight + j);
      odd += load(e + j + kStep) * load(weight + j + kStep);
    }
    for (; j < end; j += kStep) even += load(e + j) * load(weight + j);
    sum += sum_of_lanes<Real>(even + odd);
  }
  return sum;
}

template <class Real>
double weighted_cost(const Real* e, const Real* weight, const Real* cost, int m) {
  using V = typename VectorOf<Real>::Type;
  double sum = 0;
  for (int begin = 0; begin < m; begin += kChunk) {
    V lanes_sum{};
    for_costs(cost, begin, begin + kChunk < m ? begin + kChunk : m, [&](int j, V of_pair) {
      const V p = load(e + j) * load(weight + j);
      lanes_sum += p == 0 ? V{} : p * of_pair;
    });
    sum += sum_of_lanes<Real>(lanes_sum);
  }
  return sum;
}

template <class Real>
void accumulate(const Real* e, Real factor, int m, Real* sums) {
  for (int j = 0; j < m; j += kLanes<Real>) store(sums + j, load(sums + j) + load(e + j) * factor);
}

template <class Real>
RowTotals plan(const LogitRow<Real>& row, const Real* weight, Real factor, Real* e) {
  using V = typename VectorOf<Real>::Type;
  const Logits<Real> logits{row};
  RowTotals totals{0, 0};
  for (int begin = 0; begin < row.m; begin += kChunk) {
    V linear{};
    V entropy{};
    for_costs(row.cost, begin, begin + kChunk < row.m ? begin + kChunk : row.m, [&](int j, V cost) {
      const V p = load(e + j) * load(weight + j) * factor;
      store(e + j, p);
      linear += p == 0 ? V{} : p * cost;
      entropy += p == 0 ? V{} : p * logits.at(j, cost);
    });
    totals.linear += sum_of_lanes<Real>(linear);
    totals.logits += sum_of_lanes<Real>(entropy);
  }
  return totals;
}

// Widens binary16 (IEEE 754-2019 section 3.4) by selections instead of branches, so that the compiler uses
// vectors.
template <class Real>
void widen(const __UINT16_TYPE__* halves, int m, Real* to) {
  for (int j = 0; j < m; ++j) {
    const __UINT32_TYPE__ half = halves[j], magnitude = half & 0x7fffu;
    // The exponent's bias changes from 15 to 127. A subnormal number has the unit in the last place of the
    // float32 2^-1.
    const __UINT32_TYPE__ normal = (magnitude << 13) + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23);
    const float subnormal = __builtin_bit_cast(float, magnitude | 0x3f000000u) - 0.5f;
    const __UINT32_TYPE__ bits = magnitude < 0x400u ? __builtin_bit_cast(__UINT32_TYPE__, subnormal) : normal;
    to[j] = static_cast<Real>(__builtin_bit_cast(float, bits | (half & 0x8000u) << 16));
  }
}

}  // namespace
}  // namespace WARPALIGN_SIMD_NAMESPACE
