// A frame's weights from its logits, and its gradient.
namespace WARPALIGN_SIMD_NAMESPACE {

constexpr int kWide = WARPALIGN_SIMD_BYTES / 8;
static_assert(kCpuPad % kWide == 0);

// One number of a row, as float or double.
WARPALIGN_INLINE float read_one(WideStorage<float>, const float* from) { return *from; }
WARPALIGN_INLINE double read_one(WideStorage<double>, const double* from) { return *from; }
template <class Format>
WARPALIGN_INLINE float read_one(ShortStorage<Format>, const __UINT16_TYPE__* from) {
  return Format::from_bits(U16{} + *from)[0];
}

template <class Storage>
bool emissions(const CpuEmissions& e, const CpuWeights& to) {
  constexpr int kAtOnce = kLanesOf<typename Storage::V>;
  static_assert(kAtOnce <= kCpuSlotPad);
  const auto* const row = static_cast<const typename Storage::Element*>(e.row);
  const I64 numbers = lanes(F64{});
  const F64 lse = splat(e.lse), forbidden = splat(kForbidden);
  I64 bad{};
  for (Index k = 0; k <= e.slots; k += kAtOnce) {
    typename Storage::Element picked[kAtOnce];
    typename Storage::Real numbers_of[kAtOnce];
    for (int lane = 0; lane < kAtOnce; ++lane) picked[lane] = row[e.column[k + lane]];
    store(numbers_of, Storage::read(picked));
    for (int h = 0; h < kAtOnce && k + h <= e.slots; h += kWide) {
      F64 x = read_wide(numbers_of + h) - lse;
      if (e.star_slot > 0) x = k + h + numbers == Index{e.star_slot} ? splat(e.star) : x;
      bad |= ~(x < __builtin_inf());
      const F64 w = k + h + numbers < Index{e.slots} ? x - load(e.prior + k + h) : forbidden;
      if (!to.exponent) {
        store(to.mantissa + k + h, max(w, forbidden));
        continue;
      }
      const Power power = power_of(w * kLog2E<double>);
      store(to.mantissa + k + h, power.mantissa);
      store(to.exponent + k + h, power.exponent);
    }
  }
  return any_bit(bad);
}

// e^(x - shift) = e^(x - near) factor, for a shift that Real cannot represent exactly; near is the nearest
// Real.
template <class Real>
struct Shift {
  Real near;
  double factor;  // e^(near - shift)

  WARPALIGN_INLINE explicit Shift(double shift) {
    const bool finite = shift > -__builtin_inf() && shift < __builtin_inf();
    near = static_cast<Real>(shift);
    factor = finite ? __builtin_exp(static_cast<double>(near) - shift) : 0;
  }
};

// upstream (share e^(x - lse) - star e^(x - others) - g), a vector at a time. Without kShare, or kStar, the
// fields that only they use are not read.
template <class Storage, bool kShare, bool kStar>
WARPALIGN_INLINE void dense_pass(const CpuFrameGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  using Element = typename Storage::Element;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const x = static_cast<const Element*>(r.row);
  auto* const out = static_cast<Element*>(r.out);
  const Shift<Real> all(r.lse), rest(r.others);
  const V lse = splat(all.near), others = splat(rest.near), upstream = splat(static_cast<Real>(r.upstream));
  const V share = splat(static_cast<Real>(all.factor)), star = splat(static_cast<Real>(r.star * rest.factor));
  const auto of = [&](V v, V g) -> V {
    V sum = -g;
    if constexpr (kShare) sum += exp_of(v - lse) * share;
    if constexpr (kStar) sum -= exp_of(v - others) * star;
    return sum * upstream;
  };
  // The star's term does not apply to blank.
  const Real blank = kStar && kShare ? (exp_of(splat(read_one(Storage{}, x + r.blank)) - lse) * share)[0] : 0;
  std::int32_t k = 0;
  for (; k + kLanes <= r.columns; k += kLanes) {
    Storage::write(out + k, of(Storage::read(x + k), load(r.dense + k)));
  }
  if (k < r.columns) {
    Element tail[kLanes] = {};
    V g{};
    for (std::int32_t j = k; j < r.columns; ++j) {
      tail[j - k] = x[j];
      g[j - k] = r.dense[j];
    }
    write_first<Storage>(out + k, r.columns - k, of(Storage::read(tail), g));
  }
  if (kStar) write_first<Storage>(out + r.blank, 1, (blank - splat(r.dense[r.blank])) * upstream);
}

// The gradient of all columns, with g in a dense array.
template <class Storage>
WARPALIGN_INLINE void dense_gradient(const CpuFrameGradient<typename Storage::Real>& r) {
  using Real = typename Storage::Real;
  for (std::int32_t k = 0; k < r.slots; ++k) {
    if (k == 0 || k != r.star_slot) r.dense[r.column[k]] = static_cast<Real>(r.g[k]);
  }
  if (r.log_probs) {
    r.star > 0 ? dense_pass<Storage, false, true>(r) : dense_pass<Storage, false, false>(r);
  } else {
    r.star > 0 ? dense_pass<Storage, true, true>(r) : dense_pass<Storage, true, false>(r);
  }
  for (std::int32_t k = 0; k < r.slots; ++k) r.dense[r.column[k]] = Real(0);
}

// The gradient if few of many columns have slots, and there is no star. The columns with slots are computed
// from the row before it may be overwritten.
template <class Storage>
WARPALIGN_INLINE void sparse_gradient(const CpuFrameGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  using Element = typename Storage::Element;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const x = static_cast<const Element*>(r.row);
  auto* const out = static_cast<Element*>(r.out);
  auto* const mended = static_cast<Element*>(r.mended);
  const Shift<Real> all(r.lse);
  const Real share = static_cast<Real>(all.factor), upstream = static_cast<Real>(r.upstream);
  for (std::int32_t k = 0; k < r.slots; k += kLanes) {
    const int count = r.slots - k < kLanes ? r.slots - k : kLanes;
    Element picked[kLanes] = {};
    V g{};
    for (int lane = 0; lane < count; ++lane) {
      picked[lane] = x[r.column[k + lane]];
      g[lane] = static_cast<Real>(r.g[k + lane]);
    }
    const V v = r.log_probs ? -g : exp_of(Storage::read(picked) - all.near) * share - g;
    Storage::write(mended + k, v * upstream);
  }
  if (r.log_probs) {
    for (std::int32_t c = 0; c < r.columns; ++c) out[c] = Element(0);
  } else {
    cpu::RowGradient<Real> common{};
    common.lse = all.near;
    common.scored = share;
    common.upstream = upstream;
    common.clip = static_cast<Real>(__builtin_inf());
    if (__builtin_isinf(share * upstream)) {
      common_gradient<Storage, true>(x, out, r.columns, common);
    } else {
      common_gradient<Storage, false>(x, out, r.columns, common);
    }
  }
  for (std::int32_t k = 0; k < r.slots; ++k) out[r.column[k]] = mended[k];
}

template <class Storage>
void frame_gradient(const CpuFrameGradient<typename Storage::Real>& r) {
  if (r.dense) {
    dense_gradient<Storage>(r);
  } else {
    sparse_gradient<Storage>(r);
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
