// The lattice of one utterance: alpha and beta, a vector of pairs of states at a time. A blank has two
// predecessors and a label three:
//
//   alpha[t, blank k] = p[t, blank] (alpha[t-1, blank k] + alpha[t-1, label k-1])
//   alpha[t, label k] = p[t, y_k] (alpha[t-1, label k] + alpha[t-1, blank k] + skip_k alpha[t-1, label k-1])
//   beta[t, blank k] = p[t, blank] (beta[t+1, blank k] + beta[t+1, label k])
//   beta[t, label k] = p[t, y_k] (beta[t+1, label k] + beta[t+1, blank k+1] + skip_{k+1} beta[t+1, label
//   k+1])
//
// Only pairs that a path can be in at a frame are computed, in whole vectors. The next frame also reads one
// vector on either side of them, which is therefore set to unreachable.
namespace WARPALIGN_SIMD_NAMESPACE {

// The four arrays of a row, at pair 0.
template <class Element>
struct Row {
  Element* blank_mantissa;
  Element* blank_exponent;
  Element* label_mantissa;
  Element* label_exponent;

  WARPALIGN_INLINE Row(Element* row, Index stride)
      : blank_mantissa(row + kCpuPad),
        blank_exponent(blank_mantissa + stride),
        label_mantissa(blank_exponent + stride),
        label_exponent(label_mantissa + stride) {}
};

WARPALIGN_INLINE void store_dead(const Row<double>& row, Index at) {
  store(row.blank_mantissa + at, splat(1.0));
  store(row.blank_exponent + at, splat(kCpuDead));
  store(row.label_mantissa + at, splat(1.0));
  store(row.label_exponent + at, splat(kCpuDead));
}

// table[index[k]] for every lane. The gather instruction is slower (AVX-512, AMD EPYC).
WARPALIGN_INLINE F64 gather(const double* table, const __INT32_TYPE__* index) {
  F64 v;
  for (int k = 0; k < kWide; ++k) v[k] = table[index[k]];
  return v;
}

WARPALIGN_INLINE Power sum_of(F64 am, F64 ae, F64 bm, F64 be) {
  const F64 largest = max(ae, be);
  return {aligned_to(largest, am, ae) + aligned_to(largest, bm, be), largest};
}
WARPALIGN_INLINE Power sum_of(F64 am, F64 ae, F64 bm, F64 be, F64 cm, F64 ce) {
  const F64 largest = max(max(ae, be), ce);
  return {aligned_to(largest, am, ae) + aligned_to(largest, bm, be) + aligned_to(largest, cm, ce), largest};
}

WARPALIGN_INLINE Index whole_vector(Index k) { return k / kWide * kWide; }

void alpha_step(const CpuLattice& p, const CpuWeights& weights, const double* from, double* to,
                CpuRange range) {
  const Row<const double> last(from, p.stride);
  const Row<double> next(to, p.stride);
  const __INT32_TYPE__* const slot = p.slot + kCpuPad;
  const double* const skip = p.skip + kCpuPad;
  const F64 blank_mantissa = splat(weights.mantissa[0]), blank_exponent = splat(weights.exponent[0]);
  const Index first = whole_vector(range.first);
  store_dead(next, first - kWide);
  Index k = first;
  for (; k <= range.last; k += kWide) {
    const F64 bm = load(last.blank_mantissa + k), be = load(last.blank_exponent + k);
    const F64 lm = load(last.label_mantissa + k), le = load(last.label_exponent + k);
    const F64 pm = load(last.label_mantissa + k - 1), pe = load(last.label_exponent + k - 1);
    const Power blank = sum_of(bm, be, pm, pe);
    const Power label = sum_of(lm, le, bm, be, pm, pe + load(skip + k));
    store(next.blank_mantissa + k, blank.mantissa * blank_mantissa);
    store(next.blank_exponent + k, blank.exponent + blank_exponent);
    store(next.label_mantissa + k, label.mantissa * gather(weights.mantissa, slot + k));
    store(next.label_exponent + k, label.exponent + gather(weights.exponent, slot + k));
  }
  store_dead(next, k);
}

void beta_step(const CpuLattice& p, const CpuWeights& weights, const double* after, double* to,
               const double* alpha_row, const CpuPosteriors& posteriors, CpuRange range) {
  constexpr double kNegligible = 0x1p-100;
  const Row<const double> last(after, p.stride), alpha(alpha_row, p.stride);
  const Row<double> next(to, p.stride);
  const __INT32_TYPE__* const slot = p.slot + kCpuPad;
  const double* const skip = p.skip + kCpuPad;
  const F64 blank_mantissa = splat(weights.mantissa[0]), blank_exponent = splat(weights.exponent[0]);
  const F64 scale = splat(posteriors.total_mantissa), total = splat(posteriors.total_exponent);
  const Index first = whole_vector(range.first);
  store_dead(next, first - kWide);
  F64 blanks{};
  Index k = first;
  for (; k <= range.last; k += kWide) {
    const F64 bm = load(last.blank_mantissa + k), be = load(last.blank_exponent + k);
    const F64 lm = load(last.label_mantissa + k), le = load(last.label_exponent + k);
    const Power blank = sum_of(bm, be, lm, le);
    const Power label =
        sum_of(lm, le, load(last.blank_mantissa + k + 1), load(last.blank_exponent + k + 1),
               load(last.label_mantissa + k + 1), load(last.label_exponent + k + 1) + load(skip + k + 1));
    blanks += aligned_to(total, load(alpha.blank_mantissa + k) * blank.mantissa * scale,
                         load(alpha.blank_exponent + k) + blank.exponent);
    const F64 of_label = aligned_to(total, load(alpha.label_mantissa + k) * label.mantissa * scale,
                                    load(alpha.label_exponent + k) + label.exponent);
    if (posteriors.labels) store(posteriors.labels + kCpuPad + k, of_label);
    if (posteriors.slots && any_bit(of_label > kNegligible)) {
      for (int lane = 0; lane < kWide; ++lane) posteriors.slots[slot[k + lane]] += of_label[lane];
    }
    store(next.blank_mantissa + k, blank.mantissa * blank_mantissa);
    store(next.blank_exponent + k, blank.exponent + blank_exponent);
    store(next.label_mantissa + k, label.mantissa * gather(weights.mantissa, slot + k));
    store(next.label_exponent + k, label.exponent + gather(weights.exponent, slot + k));
  }
  store_dead(next, k);
  if (posteriors.slots) posteriors.slots[0] += sum_of_lanes(blanks);
}

void normalize_row(const CpuLattice& p, double* data, CpuRange range) {
  const Row<double> row(data, p.stride);
  for (Index k = whole_vector(range.first); k <= range.last; k += kWide) {
    const Power blank = normalized(load(row.blank_mantissa + k), load(row.blank_exponent + k));
    const Power label = normalized(load(row.label_mantissa + k), load(row.label_exponent + k));
    store(row.blank_mantissa + k, blank.mantissa);
    store(row.blank_exponent + k, blank.exponent);
    store(row.label_mantissa + k, label.mantissa);
    store(row.label_exponent + k, label.exponent);
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
