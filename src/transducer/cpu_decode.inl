// The CPU kernels of decoding: hidden rows, and their products with the output layer's weights. Vectors run
// along the summed axis, and a row's sums do not depend on the other rows. Included once per instruction set,
// with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA defined.
#include "core/constants.h"
#include "cpu/simd.h"
#include "transducer/cpu_decode_kernel.h"
#include "transducer/cpu_kernel.h"

// clang-format off: needs what is above
#include "cpu/largest.inl"
#include "cpu/rows.inl"
// clang-format on

namespace WARPALIGN_SIMD_NAMESPACE {

// NaN stays NaN.
template <class V>
WARPALIGN_INLINE V relu(V v) {
  return max(V{}, v);
}
// 1 - 2 / (e^2v + 1). Above 20 it is 1 in every type; NaN stays NaN.
template <class Real, class V>
WARPALIGN_INLINE V tanh_of(V v) {
  v = max(splat(Real(-20)), min(splat(Real(20)), v));
  return Real(1) - Real(2) / (exp_of(v + v) + Real(1));
}

// The first `count` elements; the other lanes are 0.
template <class Real>
WARPALIGN_INLINE typename VectorOf<Real>::Type load_first(const Real* from, Index count) {
  Real buffer[kLanesOf<typename VectorOf<Real>::Type>] = {};
  for (Index k = 0; k < count; ++k) buffer[k] = from[k];
  return load(buffer);
}

template <class Real>
void decode_hidden(const Real* encoder, const Real* predictor, __INT32_TYPE__ hidden, bool is_tanh,
                   Real* out) {
  using V = typename VectorOf<Real>::Type;
  constexpr Index kLanes = kLanesOf<V>;
  const auto activated = [is_tanh](V v) { return is_tanh ? tanh_of<Real>(v) : relu(v); };
  Index k = 0;
  for (; k + kLanes <= hidden; k += kLanes)
    store(out + k, activated(load(encoder + k) + load(predictor + k)));
  if (k < hidden) {  // act(0) = 0
    store(out + k, activated(load_first(encoder + k, hidden - k) + load_first(predictor + k, hidden - k)));
  }
}

// A step of a reduction. In each group of 2 kHalf lanes the upper half is added to the lower one. The sums of
// a's groups fill the lower half of the result, those of b's groups the upper half.
template <int kHalf, class V>
WARPALIGN_INLINE V folded(V a, V b) {
  constexpr int kLanes = kLanesOf<V>;
  decltype(lanes(V{})) low, high;
  for (int k = 0; k < kLanes; ++k) {
    const int place = k % (kLanes / 2);
    low[k] = place / kHalf * 2 * kHalf + place % kHalf + k / (kLanes / 2) * kLanes;
    high[k] = low[k] + kHalf;
  }
#if defined(__clang__)
  V x, y;
  for (int k = 0; k < kLanes; ++k) {
    x[k] = low[k] < kLanes ? a[low[k]] : b[low[k] - kLanes];
    y[k] = high[k] < kLanes ? a[high[k]] : b[high[k] - kLanes];
  }
  return x + y;
#else
  return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
#endif
}

// out[k] = the sum of v[k]'s lanes, for kCount vectors, a power of 2. The order of a vector's sum does not
// depend on kCount.
template <int kCount, int kHalf, class V>
WARPALIGN_INLINE V sums_of_lanes(const V* v) {
  if constexpr (kHalf == 0) {
    return v[0];
  } else if constexpr (kCount == 1) {
    const V next = folded<kHalf>(v[0], v[0]);
    return sums_of_lanes<1, kHalf / 2>(&next);
  } else {
    V next[kCount / 2];
    for (int k = 0; k < kCount / 2; ++k) next[k] = folded<kHalf>(v[2 * k], v[2 * k + 1]);
    return sums_of_lanes<kCount / 2, kHalf / 2>(next);
  }
}
// The same for any count, by powers of 2.
template <int kCount, class V, class Real>
WARPALIGN_INLINE void store_sums_of_lanes(const V* v, Real* out) {
  constexpr int kLanes = kLanesOf<V>;
  if constexpr (kCount >= kLanes) {
    store(out, sums_of_lanes<kLanes, kLanes / 2>(v));
    store_sums_of_lanes<kCount - kLanes>(v + kLanes, out + kLanes);
  } else if constexpr (kCount > 0) {
    constexpr int kBatch = kCount >= 8 ? 8 : kCount >= 4 ? 4 : kCount >= 2 ? 2 : 1;
    const V sums = sums_of_lanes<kBatch, kLanes / 2>(v);
    for (int k = 0; k < kBatch; ++k) out[k] = sums[k];
    store_sums_of_lanes<kCount - kBatch>(v + kBatch, out + kBatch);
  }
}

// v in a register: otherwise the compiler reads it from memory for every product.
template <class V>
WARPALIGN_INLINE V in_register(V v) {
#if defined(__SSE2__)
  __asm__("" : "+v"(v));
#endif
  return v;
}

// Products of kRows hidden rows with kColumns rows of weights.
template <int kRows, int kColumns, class Real>
WARPALIGN_INLINE void decode_tile(const Real* hidden, Index hidden_stride, const Real* weight,
                                  const Real* bias, Index size, Index column, Real* const* out) {
  using V = typename VectorOf<Real>::Type;
  constexpr Index kLanes = kLanesOf<V>;
  V sum[kColumns * kRows] = {};
  const auto add = [&](Index k, const V(&w)[kColumns]) {
    for (int r = 0; r < kRows; ++r) {
      const V h = in_register(load(hidden + r * hidden_stride + k));
      for (int c = 0; c < kColumns; ++c) sum[c * kRows + r] += h * w[c];
    }
  };
  const Real* const from = weight + column * size;
  V w[kColumns];
  Index k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    for (int c = 0; c < kColumns; ++c) w[c] = load(from + c * size + k);
    add(k, w);
  }
  if (k < size) {
    for (int c = 0; c < kColumns; ++c) w[c] = load_first(from + c * size + k, size - k);
    add(k, w);
  }
  Real sums[kColumns * kRows];
  store_sums_of_lanes<kColumns * kRows>(sum, sums);
  for (int c = 0; c < kColumns; ++c) {
    const Real b = bias ? bias[column + c] : Real(0);
    for (int r = 0; r < kRows; ++r) out[r][column + c] = sums[c * kRows + r] + b;
  }
}

// Computes columns first .. last - 1 of kRows rows.
template <int kRows, class Real>
void decode_columns(const Real* hidden, Index hidden_stride, const Real* weight, const Real* bias, Index size,
                    Index first, Index last, Real* const* out) {
  // As many sums as registers allow, together with the weights.
  constexpr int kColumns = kRows == 4 ? 3 : 4;
  Index c = first;
  for (; c + kColumns <= last; c += kColumns) {
    decode_tile<kRows, kColumns>(hidden, hidden_stride, weight, bias, size, c, out);
  }
  for (; c < last; ++c) decode_tile<kRows, 1>(hidden, hidden_stride, weight, bias, size, c, out);
}

// All rows are multiplied by a block of columns while it is in the cache.
template <class Real>
void decode_scores(const Real* hidden, __INT64_TYPE__ hidden_stride, int rows, const Real* weight,
                   const Real* bias, __INT32_TYPE__ size, __INT32_TYPE__ columns, Real* const* out) {
  constexpr Index kBlock = 12;  // a multiple of every kColumns
  for (Index first = 0; first < columns; first += kBlock) {
    const Index last = first + kBlock < columns ? first + kBlock : columns;
    int r = 0;
    const auto take = [&]<int kRows>() {
      for (; r + kRows <= rows; r += kRows) {
        decode_columns<kRows>(hidden + r * hidden_stride, hidden_stride, weight, bias, size, first, last,
                              out + r);
      }
    };
    take.template operator()<4>();
    take.template operator()<2>();
    take.template operator()<1>();
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE

namespace warpalign::detail::transducer {

const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuDecode kKernels{{isa::decode_hidden<float>, isa::decode_scores<float>,
                                       isa::row_lse<isa::WideStorage<float>>, isa::largest_columns<float>},
                                      {isa::decode_hidden<double>, isa::decode_scores<double>,
                                       isa::row_lse<isa::WideStorage<double>>, isa::largest_columns<double>}};
  return kKernels;
}

}  // namespace warpalign::detail::transducer
