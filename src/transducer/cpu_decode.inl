// The CPU kernels of decoding: hidden rows, their products with the output layer's weights, and a row's best
// column. Lanes lie along the summed axis, and a row's sums do not depend on the rows beside it. Included
// once per instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA defined.
#include "core/constants.h"
#include "cpu/simd.h"
#include "transducer/cpu_decode_kernel.h"
#include "transducer/cpu_kernel.h"

// clang-format off: needs what is above
#include "transducer/cpu_rows.inl"
// clang-format on

namespace WARPALIGN_SIMD_NAMESPACE {

// NaN stays NaN.
template <class V>
WARPALIGN_INLINE V relu(V v) {
  return max(V{}, v);
}
// 1 - 2 / (e^2v + 1). Beyond 20 it is 1 in every type; NaN stays NaN.
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

template <class Real>
WARPALIGN_INLINE Real sum_of_lanes(typename VectorOf<Real>::Type v) {
  constexpr int kLanes = kLanesOf<typename VectorOf<Real>::Type>;
  Real lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  }
  return lane[0];
}

// Products of kRows hidden rows with kColumns rows of weights.
template <int kRows, int kColumns, class Real>
WARPALIGN_INLINE void decode_tile(const Real* hidden, Index hidden_stride, const Real* weight,
                                  const Real* bias, Index size, Real* out, Index out_stride) {
  using V = typename VectorOf<Real>::Type;
  constexpr Index kLanes = kLanesOf<V>;
  V sum[kRows][kColumns] = {};
  const auto add = [&](Index k, const V(&w)[kColumns]) {
    for (int r = 0; r < kRows; ++r) {
      const V h = load(hidden + r * hidden_stride + k);
      for (int c = 0; c < kColumns; ++c) sum[r][c] += h * w[c];
    }
  };
  V w[kColumns];
  Index k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    for (int c = 0; c < kColumns; ++c) w[c] = load(weight + c * size + k);
    add(k, w);
  }
  if (k < size) {
    for (int c = 0; c < kColumns; ++c) w[c] = load_first(weight + c * size + k, size - k);
    add(k, w);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      out[r * out_stride + c] = sum_of_lanes<Real>(sum[r][c]) + (bias ? bias[c] : Real(0));
    }
  }
}

template <int kRows, class Real>
void decode_rows(const Real* hidden, Index hidden_stride, const Real* weight, const Real* bias, Index size,
                 Index columns, Real* out, Index out_stride) {
  // As many sums as there are registers for, with the weights beside them.
  constexpr int kColumns = WARPALIGN_SIMD_BYTES == 64 ? 3 : kRows <= 2 ? 4 : kRows == 4 ? 2 : 1;
  Index c = 0;
  for (; c + kColumns <= columns; c += kColumns) {
    decode_tile<kRows, kColumns>(hidden, hidden_stride, weight + c * size, bias ? bias + c : nullptr, size,
                                 out + c, out_stride);
  }
  for (; c < columns; ++c) {
    decode_tile<kRows, 1>(hidden, hidden_stride, weight + c * size, bias ? bias + c : nullptr, size, out + c,
                          out_stride);
  }
}

template <class Real>
void decode_scores(const Real* hidden, __INT64_TYPE__ hidden_stride, int rows, const Real* weight,
                   const Real* bias, __INT32_TYPE__ size, __INT32_TYPE__ columns, Real* out,
                   __INT64_TYPE__ out_stride) {
  const auto tile = [&]<int kRows>(Index first) {
    decode_rows<kRows>(hidden + first * hidden_stride, hidden_stride, weight, bias, size, columns,
                       out + first * out_stride, out_stride);
  };
  Index r = 0;
  for (; r + 8 <= rows; r += 8) tile.template operator()<8>(r);
  for (; r + 4 <= rows; r += 4) tile.template operator()<4>(r);
  for (; r + 2 <= rows; r += 2) tile.template operator()<2>(r);
  for (; r < rows; ++r) tile.template operator()<1>(r);
}

template <class Real>
CpuRowBest decode_best(const Real* row, __INT32_TYPE__ columns) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kLanes = kLanesOf<V>;
  const Real lowest = static_cast<Real>(-__builtin_inf());
  V largest = splat(lowest);
  int k = 0;
  for (; k + kLanes <= columns; k += kLanes) largest = max(load(row + k), largest);  // NaN is passed over
  Real top = lowest;
  for (int lane = 0; lane < kLanes; ++lane) top = largest[lane] > top ? largest[lane] : top;
  for (; k < columns; ++k) top = row[k] > top ? row[k] : top;
  CpuRowBest best{static_cast<double>(top), -1, row_lse<WideStorage<Real>>(row, columns)};
  for (k = 0; top > lowest && best.column < 0; ++k) {
    if (row[k] == top) best.column = k;
  }
  return best;
}

}  // namespace WARPALIGN_SIMD_NAMESPACE

namespace warpalign::detail::transducer {

const CpuDecode& decode_kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuDecode kKernels{
      {isa::decode_hidden<float>, isa::decode_scores<float>, isa::decode_best<float>},
      {isa::decode_hidden<double>, isa::decode_scores<double>, isa::decode_best<double>}};
  return kKernels;
}

}  // namespace warpalign::detail::transducer
