// sinkhorn_normalize() for as many matrices as a vector has lanes. Elements are log2 P.
namespace WARPALIGN_SIMD_NAMESPACE {
namespace {

using warpalign::detail::transport::NormalizeLanes;

// The rows or the columns of the matrices.
struct LineShape {
  int lines, length;
  Index line_step, element_step;  // in vectors
};

template <class Real>
WARPALIGN_INLINE LineShape shape_of(const NormalizeLanes<Real>& a, bool of_rows) {
  return of_rows ? LineShape{a.n, a.m, a.m, 1} : LineShape{a.m, a.n, 1, a.m};
}

template <class V>
WARPALIGN_INLINE V log2_or_nan(V v) {
  const V logarithm = log2_of(v);
  return v == v ? logarithm : v;  // NOLINT(misc-redundant-expression): false for NaN
}

// -log2 of the sum of 2^t over a line; 0 in lanes whose line is -inf. No t is far above 0: an element of a
// normalised matrix is at most 1. Sums that are too small to have all of their digits are made relative to
// the largest element.
template <class Real, class V>
WARPALIGN_INLINE V shift_of(const Real* line, const LineShape& shape) {
  constexpr int kStep = kLanes<Real>;
  const Index step = shape.element_step * kStep;
  V sum{};
  for (int k = 0; k < shape.length; ++k) sum += exp2_of(load(line + k * step));
  const auto is_small = sum < static_cast<Real>(0x1p-60);
  V shift = -log2_or_nan(sum);
  if (!any_bit(is_small)) return shift;
  const V none = V{} - static_cast<Real>(__builtin_inf());
  V top = none;
  for (int k = 0; k < shape.length; ++k) top = max_or_nan(top, load(line + k * step));
  const V base = top == none ? V{} : top;
  V relative{};
  for (int k = 0; k < shape.length; ++k) relative += exp2_of(load(line + k * step) - base);
  const V exact = top == none ? V{} : -(base + log2_or_nan(relative));
  return is_small ? exact : shift;
}

template <class Real>
WARPALIGN_INLINE void normalize_lines(const NormalizeLanes<Real>& a, bool of_rows, Real* shifts) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  const LineShape shape = shape_of(a, of_rows);
  for (int line = 0; line < shape.lines; ++line) {
    Real* const begin = a.elements + line * shape.line_step * kStep;
    const V shift = shift_of<Real, V>(begin, shape);
    if (shifts) store(shifts + line * kStep, shift);
    for (int k = 0; k < shape.length; ++k) {
      Real* const at = begin + k * shape.element_step * kStep;
      store(at, load(at) + shift);
    }
  }
}

// From logits to log2 P[T], with the numbers that each normalisation has added.
template <class Real>
void normalize_logits(const NormalizeLanes<Real>& a) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  const V none = V{} - static_cast<Real>(__builtin_inf());
  for (int i = 0; i < a.n; ++i) {
    Real* const row = a.elements + static_cast<Index>(i) * a.m * kStep;
    V top = none;
    for (int j = 0; j < a.m; ++j) top = max_or_nan(top, load(row + j * kStep));
    top = top == none ? V{} : top;
    for (int j = 0; j < a.m; ++j) {
      store(row + j * kStep, (load(row + j * kStep) - top) * static_cast<Real>(1.4426950408889634074));
    }
  }
  const Index slot = static_cast<Index>(a.n > a.m ? a.n : a.m) * kStep;
  for (int step = 0; step < 2 * a.iterations; ++step) {
    normalize_lines(a, step % 2 == 0, a.history ? a.history + step * slot : nullptr);
  }
}

template <class Real>
void normalize(const NormalizeLanes<Real>& a) {
  constexpr int kStep = kLanes<Real>;
  normalize_logits(a);
  const Index count = static_cast<Index>(a.n) * a.m * kStep;
  for (Index k = 0; k < count; k += kStep) store(a.elements + k, exp2_of(load(a.elements + k)));
}

// The last normalisation, of columns: dlogP = P (G - sum of P G). Sums are of one normalisation's elements,
// so that they cancel as G and its mean do. sums: those of dlogP over rows.
template <class Real>
WARPALIGN_INLINE void pull_last(const NormalizeLanes<Real>& a, Real* sums) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  const Index row_step = static_cast<Index>(a.m) * kStep;
  for (int i = 0; i < a.n; ++i) store(sums + i * kStep, V{});
  for (int j = 0; j < a.m; ++j) {
    const Real* const t = a.elements + j * kStep;
    Real* const g = a.gradient + j * kStep;
    V mean{};
    for (int i = 0; i < a.n; ++i) mean += exp2_of(load(t + i * row_step)) * load(g + i * row_step);
    for (int i = 0; i < a.n; ++i) {
      const V gradient = exp2_of(load(t + i * row_step)) * (load(g + i * row_step) - mean);
      store(g + i * row_step, gradient);
      store(sums + i * kStep, load(sums + i * kStep) + gradient);
    }
  }
}

// The normalisation of lines `of_rows`, after the next one's has been taken back. Let r be the sums of dlogP
// over these lines. Those over the other lines are minus the sums of P r, because dlogP's sums along a line
// that is normalised are 0 from then on: dlogP <- dlogP - P r. undone: what the next normalisation has added.
template <class Real>
WARPALIGN_INLINE void pull_back(const NormalizeLanes<Real>& a, bool of_rows, const Real* undone,
                                const Real* r, Real* sums) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  const LineShape others = shape_of(a, !of_rows);
  for (int line = 0; line < others.lines; ++line) {
    const V back = load(undone + line * kStep);
    V sum{};
    for (int k = 0; k < others.length; ++k) {
      const Index at = (line * others.line_step + k * others.element_step) * kStep;
      const V t = load(a.elements + at) - back;
      const V share = exp2_of(t) * load(r + k * kStep);
      store(a.elements + at, t);
      store(a.gradient + at, load(a.gradient + at) - share);
      sum -= share;
    }
    store(sums + line * kStep, sum);
  }
}

template <class Real>
void normalize_gradient(const NormalizeLanes<Real>& a) {
  constexpr int kStep = kLanes<Real>;
  normalize_logits(a);
  const Index slot = static_cast<Index>(a.n > a.m ? a.n : a.m) * kStep;
  Real* const sums[2] = {a.sums, a.sums + slot};
  pull_last(a, sums[0]);
  for (int step = 2 * a.iterations - 2; step >= 0; --step) {
    pull_back(a, step % 2 == 0, a.history + (step + 1) * slot, sums[step % 2], sums[(step + 1) % 2]);
  }
}

}  // namespace
}  // namespace WARPALIGN_SIMD_NAMESPACE
