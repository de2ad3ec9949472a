// Shared by the kernels that make a panel's costs or read its E. A block owns a tile: 64 rows of a strip's 64
// columns. Here are a tile's position, and the factors of its products in shared memory.
#pragma once

#include "soft_dtw/cuda/call/params.cuh"
#include "soft_dtw/cuda/panel/panel_elements.cuh"
#include "soft_dtw/cuda/results/cost_range.cuh"

namespace warpalign::detail::soft_dtw {

constexpr int kTileThreads = 256;                           // threads per block
constexpr int kTileLines = kPanelRows + kPanelFurtherRows;  // number of lines with cells of a tile

// Whether a panel's costs and gradients need options: another metric, missing steps, or a band. Penalties
// concern only the sweeps.
inline bool has_panel_options(Metric metric, const std::uint8_t* x_mask, const std::uint8_t* y_mask,
                              const Band& band) {
  return metric != Metric::kSquared || x_mask || y_mask || band.kind != BandKind::kNone;
}
inline bool has_panel_options(const Params& p) {
  return has_panel_options(p.metric, p.x_mask, p.y_mask, p.band);
}

// band_rows(), not inlined: it is long, and called rarely.
__device__ __attribute__((noinline)) inline IndexRange rows_in_band(const Band& band, int column, int n,
                                                                    int m) {
  return band_rows(band, column, n, m);
}

struct PanelTile {
  const Panel& panel;
  int pair;
  int strip;
  int row0;
  int column0;
  int n;  // true lengths of the pair
  int m;

  // The tile of this block, in the order of PanelTile::index().
  __device__ explicit PanelTile(const Params& p)
      : PanelTile(p, static_cast<int>(blockIdx.x) / (p.panel.tiles * p.panel.strips),
                  static_cast<int>(blockIdx.x) / p.panel.tiles % p.panel.strips,
                  static_cast<int>(blockIdx.x) % p.panel.tiles) {}
  __device__ PanelTile(const Params& p, int of_pair, int of_strip, int tile)
      : PanelTile(p, of_pair, of_strip, tile, cuda::true_length(p.x_lengths, of_pair, p.n),
                  cuda::true_length(p.y_lengths, of_pair, p.m)) {}
  __device__ PanelTile(const Params& p, int of_pair, int of_strip, int tile, int true_n, int true_m)
      : panel(p.panel),
        pair(of_pair),
        strip(of_strip),
        row0(tile * kPanelRows),
        column0(of_strip * kPanelColumns),
        n(true_n),
        m(true_m) {}

  [[nodiscard]] __device__ bool has_cells() const { return row0 < n && column0 < m; }
  [[nodiscard]] __device__ bool is_last() const { return row0 + kPanelRows >= n; }
  // Whether row r and column c, counted from the tile's first, are in the pair.
  [[nodiscard]] __device__ bool holds(int r, int c) const {
    return row0 + r >= 0 && row0 + r < n && column0 + c < m;
  }
  [[nodiscard]] __device__ int index() const {
    return (pair * panel.strips + strip) * panel.tiles + row0 / kPanelRows;
  }
  // Whether step r of x (column c: of y) is missing. Not called for cost matrices.
  [[nodiscard]] __device__ bool misses_row(const Params& p, int r) const {
    return is_missing(p.x_mask, pair, p.n, row0 + r);
  }
  [[nodiscard]] __device__ bool misses_column(const Params& p, int c) const {
    return is_missing(p.y_mask, pair, p.m, column0 + c);
  }
  // The rows of column c, counted from the tile's first, whose cells are in the pair, and in the band with
  // options.
  template <bool kOptions>
  [[nodiscard]] __device__ IndexRange rows_of(const Params& p, int c) const {
    if (column0 + c >= m) return {0, 0};
    const bool has_band = kOptions && p.band.kind != BandKind::kNone;
    const IndexRange rows = has_band ? rows_in_band(p.band, column0 + c, n, m) : IndexRange{0, n};
    return {rows.begin - row0, rows.end - row0};
  }
  // Whether the band may have a cell in this tile. Its ranges of rows do not decrease from column to column.
  [[nodiscard]] __device__ bool meets_band(const Params& p) const {
    if (p.band.kind == BandKind::kNone) return true;
    return rows_of<true>(p, 0).begin < min(kPanelRows, n - row0) &&
           rows_of<true>(p, min(kPanelColumns, m - column0) - 1).end > 0;
  }
  // The line of the tile's first cell. Cell (r, c) is r + c / 2 lines later.
  [[nodiscard]] __device__ float* line() const {
    return panel.cells + pair * panel.pair_cells() + strip * panel.strip_cells() +
           static_cast<std::int64_t>(row0) * kPanelColumns;
  }
};

// One tile's costs or E, [row][column]. A line's cells are in different banks.
struct __align__(16) CostTile {
  static constexpr int kStride = kPanelColumns + 4;
  float of[kPanelRows * kStride];
};

// The distance between rows of factors in shared memory. The fragments of a matrix product, 8 neighbouring
// values of 4 rows, are in different banks.
constexpr int kFactorStride = kPanelRows + 8;

// The 4 x 4 elements of a matrix of 64 rows and `width` columns, 16, 32 or 64, that a thread sums. A warp
// owns 16 x 32 or 32 x 16 elements, for which it reads the fewest different addresses of shared memory.
struct OwnSixteen {
  int row0, column0;
  __device__ OwnSixteen(int thread, int width) {
    const int lane = thread % 32, warp = thread / 32;
    const bool is_narrow = width < 32;
    row0 = is_narrow ? warp * 32 + lane / 4 * 4 : warp % 4 * 16 + lane / 8 * 4;
    column0 = is_narrow ? lane % 4 * 4 : warp / 4 * 32 + lane % 8 * 4;
  }
};

// 64 steps of a series, kFeatures features of each, [feature][step]. Four neighbouring steps are one access.
template <int kFeatures>
struct __align__(16) Factors {
  static constexpr int kStride = kFactorStride;
  static constexpr int kPerThread = kPanelRows * kFeatures / kTileThreads;
  float of[kFeatures * kStride];

  // Element i of a thread. A warp reads 8 features of 4 steps: whole sectors of global memory, and all banks
  // of shared memory.
  static __device__ __forceinline__ int feature(int i) {
    return i % (kFeatures / 8) * 8 + static_cast<int>(threadIdx.x) % 8;
  }
  static __device__ __forceinline__ int step(int i) {
    return i / (kFeatures / 8) * (kTileThreads / 8) + static_cast<int>(threadIdx.x) / 8;
  }
  __device__ __forceinline__ void store(const float(&values)[kPerThread]) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) of[feature(i) * kStride + step(i)] = values[i];
  }
  [[nodiscard]] __device__ __forceinline__ float4 four(int f, int s) const {
    return *reinterpret_cast<const float4*>(of + f * kStride + s);
  }
};

// 64 steps of one pair's x or y. Steps after the last one repeat it. Features after the last one are 0, and
// so are missing steps, which may contain any numbers. mask: (B, padded length), or null.
template <class Element>
class Series {
 public:
  __device__ Series(const void* data, const std::int64_t (&stride)[3], const std::int64_t* offsets,
                    DType type, int pair, int first, int length, int dim, const std::uint8_t* mask = nullptr,
                    int padded_length = 0)
      : data_(static_cast<const Element*>(data) + first_element(offsets, stride, pair)),
        mask_(behind(mask, static_cast<std::int64_t>(pair) * padded_length)),
        step_stride_(stride[1]),
        feature_stride_(stride[2]),
        first_(first),
        last_(length - 1),
        dim_(dim),
        is_bfloat16_(type == DType::kBFloat16) {}

  [[nodiscard]] __device__ __forceinline__ bool has(int step, int feature) const {
    return feature < dim_ && !(mask_ && mask_[min(first_ + step, last_)]);
  }
  [[nodiscard]] __device__ __forceinline__ const Element* address(int step, int feature) const {
    return data_ + min(first_ + step, last_) * step_stride_ + feature * feature_stride_;
  }
  [[nodiscard]] __device__ __forceinline__ float at(int step, int feature) const {
    return has(step, feature) ? loaded(address(step, feature), is_bfloat16_) : 0.0f;
  }
  template <int kCount>
  __device__ __forceinline__ void load(int d0, float (&to)[kCount]) const {
    using Chunk = Factors<kCount * kTileThreads / kPanelRows>;
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = at(Chunk::step(i), d0 + Chunk::feature(i));
  }
  // Starts the copy of four neighbouring features of a step to a slot. Features after the last one are 0.
  __device__ __forceinline__ void ask_four(int step, int feature, bool vectorized, float* slot) const {
    if (vectorized && has(step, feature)) {
      copy_four(slot, address(step, feature));
      return;
    }
    auto* const to = reinterpret_cast<Element*>(slot);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (has(step, feature + k)) {
        copy_one(to + k, address(step, feature + k));
      } else {
        to[k] = {};
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ float4 four_in(const float* slot) const {
    return soft_dtw::four_in<Element>(slot, is_bfloat16_);
  }
  [[nodiscard]] __device__ __forceinline__ float one_in(const float* slot, int k) const {
    return soft_dtw::one_in<Element>(slot, k, is_bfloat16_);
  }

 private:
  const Element* data_;
  const std::uint8_t* mask_;
  std::int64_t step_stride_;
  std::int64_t feature_stride_;
  int first_;
  int last_;
  int dim_;
  bool is_bfloat16_;
};

}  // namespace warpalign::detail::soft_dtw
