// Rows of logits: the log-sum-exp and the gradient. Vectors begin at a row's first column whatever its
// address, so that results depend bitwise on the numbers alone.
#include "cpu/row_kernel.h"
// clang-format off: in this order
#include "cpu/powers.inl"
#include "cpu/storage.inl"
// clang-format on

namespace WARPALIGN_SIMD_NAMESPACE {

// The columns of a row after its last whole vector, in the last lanes; the other lanes are -inf.
template <class Storage>
WARPALIGN_INLINE typename Storage::V read_tail(const typename Storage::Element* row, int columns) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  constexpr int kLanes = kLanesOf<V>;
  const int count = columns % kLanes;
  const V lowest = splat(static_cast<Real>(-__builtin_inf()));
  if (columns >= kLanes) {
    return lanes(V{}) >= kLanes - count ? Storage::read(row + columns - kLanes) : lowest;
  }
  typename Storage::Element buffer[kLanes] = {};
  for (int k = 0; k < count; ++k) buffer[kLanes - count + k] = row[k];
  return lanes(V{}) >= kLanes - count ? Storage::read(buffer) : lowest;
}
// The first lanes of a vector.
template <class Storage>
WARPALIGN_INLINE void write_first(typename Storage::Element* to, int count, typename Storage::V v) {
  typename Storage::Element buffer[kLanesOf<typename Storage::V>];
  Storage::write(buffer, v);
  for (int k = 0; k < count; ++k) to[k] = buffer[k];
}

// Independent sums, which hide the latency of additions.
constexpr int kChains = 4;

// Prefetches the elements of the next row that follow the two vectors at `at` by one row, so that the next
// row is loaded while this one is computed.
template <class Storage>
WARPALIGN_INLINE void fetch_next_row(const typename Storage::Element* at, std::int32_t columns) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(typename Storage::Element));
  for (int k = 0; k < 2 * kLanesOf<typename Storage::V>; k += kLine) __builtin_prefetch(at + columns + k);
}

// Rotates by `by` lanes: lane k gets lane k + by, the last lanes get the first ones.
template <int by, class V>
WARPALIGN_INLINE V rotated(V v) {
  constexpr int kCount = static_cast<int>(sizeof v / sizeof v[0]);
#if defined(__clang__)
  V result;
  for (int k = 0; k < kCount; ++k) result[k] = v[(k + by) % kCount];
  return result;
#else
  decltype(v < v) from;
  for (int k = 0; k < kCount; ++k) from[k] = (k + by) % kCount;
  return __builtin_shuffle(v, from);
#endif
}
// Combines all lanes by op; the result is in the first lane.
template <int by, class V, class Op>
WARPALIGN_INLINE V joined(V v, const Op& op) {
  if constexpr (by == 0) {
    return v;
  } else {
    return joined<by / 2>(op(v, rotated<by>(v)), op);
  }
}
template <class V, class Op>
WARPALIGN_INLINE auto joined_lanes(V v, const Op& op) {
  return joined<static_cast<int>(sizeof v / sizeof v[0]) / 2>(v, op)[0];
}
WARPALIGN_INLINE double sum_of_lanes(F64 v) {
  return joined_lanes(v, [](F64 a, F64 b) { return a + b; });
}
WARPALIGN_INLINE double sum_of_lanes(F32 v) {
  // NOLINTNEXTLINE(modernize-use-using)
  typedef float Half __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
  Half halves[2];
  __builtin_memcpy(halves, &v, sizeof v);
  return sum_of_lanes(__builtin_convertvector(halves[0], F64) + __builtin_convertvector(halves[1], F64));
}

// The largest number of a row; -inf if there is none. NaN is ignored or is the result.
template <class T>
WARPALIGN_INLINE T row_largest(WideStorage<T>, const T* row, std::int32_t columns) {
  using V = typename VectorOf<T>::Type;
  constexpr int kLanes = kLanesOf<V>;
  const V lowest = splat(static_cast<T>(-__builtin_inf()));
  V largest[kChains] = {lowest, lowest, lowest, lowest};
  std::int32_t k = 0;
  for (; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) largest[c] = max(load(row + k + c * kLanes), largest[c]);
  }
  for (; k + kLanes <= columns; k += kLanes) largest[0] = max(load(row + k), largest[0]);
  if (k < columns) largest[1] = max(read_tail<WideStorage<T>>(row, columns), largest[1]);
  return joined_lanes(max(max(largest[0], largest[1]), max(largest[2], largest[3])),
                      [](V a, V b) { return max(a, b); });
}
// As integers, the bits of positive numbers have the order of the numbers, those of negative ones the
// opposite order. So the largest number is the largest signed integer, or the least unsigned one if all
// numbers are negative.
template <class Format>
WARPALIGN_INLINE float row_largest(ShortStorage<Format>, const __UINT16_TYPE__* row, std::int32_t columns) {
  constexpr int kAtOnce = WARPALIGN_SIMD_BYTES / 2;
  S16Whole high[2] = {S16Whole{} - 0x7fff - 1, S16Whole{} - 0x7fff - 1};
  U16Whole low[2] = {~U16Whole{}, ~U16Whole{}};
  const auto see = [&](const __UINT16_TYPE__* from, int c) {
    const S16Whole v = *reinterpret_cast<const S16WholeUnaligned*>(from);
    high[c] = max(v, high[c]);
    low[c] = min(reinterpret_cast<U16Whole>(v), low[c]);
  };
  if (columns < kAtOnce) {
    __UINT16_TYPE__ all[kAtOnce];
    for (int k = 0; k < kAtOnce; ++k) all[k] = row[k < columns ? k : 0];
    see(all, 0);
  } else {
    std::int32_t k = 0;
    for (; k + 2 * kAtOnce <= columns; k += 2 * kAtOnce) {
      see(row + k, 0);
      see(row + k + kAtOnce, 1);
    }
    if (k + kAtOnce <= columns) see(row + k, 0);
    see(row + columns - kAtOnce, 1);
  }
  const short most = joined_lanes(max(high[0], high[1]), [](S16Whole a, S16Whole b) { return max(a, b); });
  const __UINT16_TYPE__ least =
      joined_lanes(min(low[0], low[1]), [](U16Whole a, U16Whole b) { return min(a, b); });
  const __UINT16_TYPE__ bits = most >= 0 ? static_cast<__UINT16_TYPE__>(most) : least;
  return Format::from_bits(U16{} + bits)[0];
}

// The sum of e^(x - shift) over a row.
template <class Storage>
WARPALIGN_INLINE double row_sum(const typename Storage::Element* row, std::int32_t columns,
                                typename Storage::Real shift) {
  using V = typename Storage::V;
  constexpr int kLanes = kLanesOf<V>;
  const typename Storage::SumPowers power(typename Storage::Real(1));
  V sum[kChains] = {};
  std::int32_t k = 0;
  for (; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    for (int c = 0; c < kChains; c += 2) {
      const auto* const at = row + k + c * kLanes;
      const Pair<V> x = Storage::read_pair(at);
      sum[c] += power(x.a - shift);
      sum[c + 1] += power(x.b - shift);
      fetch_next_row<Storage>(at, columns);
    }
  }
  for (; k + kLanes <= columns; k += kLanes) sum[0] += power(Storage::read(row + k) - shift);
  if (k < columns) sum[1] += power(read_tail<Storage>(row, columns) - shift);
  return sum_of_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// The shift is the largest number: if one probability is nearly 1, its exponential is exactly 1, and p S - g
// is accurate to the digits of the other ones.
template <class Storage>
double row_lse(const void* data, std::int32_t columns) {
  using Real = typename Storage::Real;
  const auto* const row = static_cast<const typename Storage::Element*>(data);
  const Real top = row_largest(Storage{}, row, columns);
  // If no number is finite, the shift is 0: e^(x - 0) is 0 for -inf and NaN for NaN. For +inf the result is
  // NaN.
  const Real shift = top > -__builtin_inf() ? top : Real(0);
  return static_cast<double>(shift) + __builtin_log(row_sum<Storage>(row, columns, shift));  // log 0 = -inf
}

// The gradient of columns that have no arc, G clip(p_k S). out may be x.
template <class Storage, bool kClips>
WARPALIGN_INLINE void common_gradient(const typename Storage::Element* x, typename Storage::Element* out,
                                      std::int32_t columns,
                                      const cpu::RowGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  constexpr int kLanes = kLanesOf<V>;
  // Local copies, which stores to out cannot change for the compiler.
  const V lse = splat(r.lse), upstream = splat(r.upstream), clip = splat(r.clip);
  const typename Storage::GradientPowers power(kClips ? r.scored : r.scored * r.upstream);
  const auto of = [=](V v) -> V {
    const V share = power(v - lse);
    return kClips ? min(clip, share) * upstream : share;
  };
  if (columns < kLanes) {
    typename Storage::Element row[kLanes] = {};
    for (std::int32_t k = 0; k < columns; ++k) row[k] = x[k];
    write_first<Storage>(out, columns, of(Storage::read(row)));
    return;
  }
  // The last vector overlaps the previous one, and is read before that one is written.
  const V last = of(Storage::read(x + columns - kLanes));
  std::int32_t k = 0;
  for (; k + 2 * kLanes <= columns; k += 2 * kLanes) {
    const Pair<V> v = Storage::read_pair(x + k);
    Storage::write_pair(out + k, {of(v.a), of(v.b)});
    fetch_next_row<Storage>(x + k, columns);
  }
  if (k + kLanes <= columns) Storage::write(out + k, of(Storage::read(x + k)));
  Storage::write(out + columns - kLanes, last);
}

template <class Storage>
void row_gradient(const void* from, void* to, std::int32_t columns,
                  const cpu::RowGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  using Element = typename Storage::Element;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const x = static_cast<const Element*>(from);
  auto* const out = static_cast<Element*>(to);

  // The gradients of the arcs' columns are computed before the row may be overwritten.
  Element mended[cpu::kRowColumns];
  static_assert(cpu::kRowColumns % kLanes == 0 || kLanes % cpu::kRowColumns == 0);
  for (int c = 0; c < r.columns; c += kLanes) {
    const int count = r.columns - c < kLanes ? r.columns - c : kLanes;
    Element picked[kLanes] = {};
    V g{};
    for (int k = 0; k < count; ++k) {
      picked[k] = x[r.column[c + k]];
      g[k] = r.g[c + k];
    }
    const V v = r.log_probs ? -g : exp_of(Storage::read(picked) - r.lse) * r.scored - g;
    write_first<Storage>(mended + c, count, min(splat(r.clip), max(splat(-r.clip), v)) * r.upstream);
  }
  if (r.log_probs) {
    for (std::int32_t k = 0; k < columns; ++k) out[k] = Element(0);
  } else if (r.clip < __builtin_inf() || __builtin_isinf(r.scored * r.upstream)) {
    // Half types multiply `scored` and `upstream` into a polynomial's coefficients, which must be finite.
    common_gradient<Storage, true>(x, out, columns, r);
  } else {
    common_gradient<Storage, false>(x, out, columns, r);
  }
  for (int c = 0; c < r.columns; ++c) out[r.column[c]] = mended[c];
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
