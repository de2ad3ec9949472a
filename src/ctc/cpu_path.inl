// The best path of one utterance, and monotonic alignment search: for each state the largest sum of weights
// of the paths to it, in float64, and the predecessor on that path.
namespace WARPALIGN_SIMD_NAMESPACE {

// NOLINTBEGIN(modernize-use-using)
typedef __UINT8_TYPE__ Bytes __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 8)));
typedef __UINT8_TYPE__ UnalignedBytes
    __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 8), aligned(1), may_alias));
// NOLINTEND(modernize-use-using)

WARPALIGN_INLINE void store_bytes(__UINT8_TYPE__* to, I64 v) {
  *reinterpret_cast<UnalignedBytes*>(to) = __builtin_convertvector(v, Bytes);
}

void best_step(const CpuLattice& p, const double* weights, const double* from, double* to,
               const CpuSteps& steps, CpuRange range) {
  const double* const blanks = from + kCpuPad;
  const double* const labels = blanks + p.stride;
  double* const next_blanks = to + kCpuPad;
  double* const next_labels = next_blanks + p.stride;
  const __INT32_TYPE__* const slot = p.slot + kCpuPad;
  const double* const skip = p.skip + kCpuPad;
  const F64 blank_weight = splat(weights[0]);
  const Index first = whole_vector(range.first);
  const F64 dead = splat(kCpuDead);
  store(next_blanks + first - kWide, dead);
  store(next_labels + first - kWide, dead);
  Index k = first;
  for (; k <= range.last; k += kWide) {
    const F64 blank = load(blanks + k), label = load(labels + k), before = load(labels + k - 1);
    const F64 skipping = before + load(skip + k);
    const F64 one = max(blank, label);
    if (steps.at) {
      const I64 by_label = skipping > one ? splat(Index{2}) : (blank > label ? splat(Index{1}) : I64{});
      const I64 by_blank = before > blank ? splat(Index{4}) : I64{};
      store_bytes(steps.at + (k - steps.first), by_label | by_blank);
    }
    store(next_blanks + k, max(before, blank) + blank_weight);
    store(next_labels + k, max(skipping, one) + gather(weights, slot + k));
  }
  store(next_blanks + k, dead);
  store(next_labels + k, dead);
}

void monotonic_step(const double* scores, const double* from, double* to, std::uint8_t* stays,
                    CpuRange range) {
  const Index begin = whole_vector(range.first);
  const F64 dead = splat(kCpuDead);
  store(to + begin - kWide, dead);
  Index s = begin;
  for (; s <= range.last; s += kWide) {
    const F64 same = load(from + s), before = load(from + s - 1);
    store_bytes(stays + s, (same >= before) & 1);
    store(to + s, max(before, same) + load(scores + s));
  }
  store(to + s, dead);
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
