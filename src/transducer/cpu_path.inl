// The best path of one utterance. Vectors run along anti-diagonals. Each node has the largest sum of log2
// weights of the paths to it, and the last arc of that path.
namespace WARPALIGN_SIMD_NAMESPACE {

// NOLINTNEXTLINE(modernize-use-using)
typedef __UINT8_TYPE__ Steps __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 8)));
// NOLINTNEXTLINE(modernize-use-using)
typedef __UINT8_TYPE__ UnalignedSteps
    __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 8), aligned(1), may_alias));

template <class Real>
class BestPath : Walk<Real> {
 public:
  WARPALIGN_INLINE BestPath(const CpuLattice<Real>& p, const CpuBestPath& path) : Walk<Real>(p), path_(path) {
    for (Index k = 0; k < p.arcs; ++k) {
      order_[k] = path.order[k];
      codes_[k] = p.advance[k] + (k >= p.blanks ? 128 : 0);  // step_of() of arcs.h
    }
  }

  CpuBestEnd find() {
    fill(p_.mantissa, kDead);
    ring(p_.mantissa, 0)[0] = 0;
    for (Index d = 1; d < grid_.count; ++d) {
      double* const best = ring(p_.mantissa, d);
      const Index high = grid_.high(d), origin = grid_.origin(d);
      clear_below(best, d, kDead);
      const Index sources = gather_sources(d);
      for (Index position = grid_.low(d); position <= high; position += kLanes) {
        F64 most = splat(kDead);
        I64 step{};
        for (Index k = 0; k < sources; ++k) {
          const Source& source = sources_[k];
          // NaN, which memory that belongs to no arc may contain, is treated as forbidden.
          const F64 weight = max(read_wide(source.slot + position), splat(kForbidden));
          const F64 sum = load(source.mantissa + position) + weight;
          step = sum > most ? splat(codes_[source.number]) : step;
          most = sum > most ? sum : most;
        }
        const I64 inside = position + lanes(F64{}) <= high;
        store(best + position, inside ? most : splat(kDead));
        // Bytes after the diagonal's end are overwritten by the next diagonal.
        *reinterpret_cast<UnalignedSteps*>(path_.steps + origin + position) =
            __builtin_convertvector(step, Steps);
      }
    }
    return best_end();
  }

 private:
  using Walk<Real>::p_, Walk<Real>::grid_, Walk<Real>::order_, Walk<Real>::sources_, Walk<Real>::ring,
      Walk<Real>::fill, Walk<Real>::clear_below, Walk<Real>::gather_sources, Walk<Real>::find_end,
      Walk<Real>::weight_of_end, Walk<Real>::kLanes;
  using typename Walk<Real>::Source;

  [[nodiscard]] CpuBestEnd best_end() const {
    CpuBestEnd end{kCpuNoPath, 0};
    for (Index k = 0; k < p_.arcs; ++k) {
      const Index slot = order_[k];
      Index diagonal = 0, position = 0;
      if (slot >= p_.blanks || !find_end(slot, &diagonal, &position)) continue;
      const double sum = ring(p_.mantissa, diagonal)[position] + weight_of_end(slot, diagonal, position);
      if (sum > end.log2_weight) end = {sum, static_cast<__UINT8_TYPE__>(codes_[slot])};
    }
    return end;
  }

  const CpuBestPath& path_;
  Index codes_[kMostSlots];
};

template <class Real>
CpuBestEnd best_path(const CpuLattice<Real>& p, const CpuBestPath& path) {
  return BestPath<Real>(p, path).find();
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
