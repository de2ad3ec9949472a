// Computes costs into a panel, and copies E out of it: conversions between tiles of rows and columns, and
// lines. A block owns a tile.
#include <type_traits>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "cuda/threads/warp.cuh"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/panel/panel.h"
#include "soft_dtw/cuda/panel/panel_tile.cuh"
#include "soft_dtw/cuda/panel/panel_units.cuh"
#include "soft_dtw/cuda/tiles/metric.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kChunk = 32;  // features in shared memory at a time

// The source of costs: a matrix, differences of the series, or their products. Matrices are copied here only
// with a band (panel_matrix.cu).
enum class CostsFrom : unsigned char { kMatrix, kDifferences, kProducts };

// A chunk of the features of 64 rows and 64 columns: for differences, [feature][step].
struct Chunks {
  Factors<kChunk> x, y;
};
// The same for products, [step][feature], as in global memory; and four steps of y, whose mean is the origin.
struct ProductChunks {
  UnitPart x, y;
  float near[4][kChunk];
};
static_assert(kChunk == kTerms);
// Double buffer: one chunk is copied while the other one is multiplied. The costs then use the same memory.
union TileMemory {
  CostTile costs;
  Chunks differences[2];
};
struct ProductMemory {
  union {
    CostTile costs;
    ProductChunks chunks[2];  // a chunk's high parts overwrite it when it is split
  };
  UnitPart x_lo, y_lo;
  float squares[2][kPanelRows];
};

__device__ __forceinline__ void copy_matrix(const Params& p, const PanelTile& tile, CostTile& costs) {
  const float* const from =
      static_cast<const float*>(p.cost) + static_cast<std::int64_t>(tile.pair) * p.cost_stride[0];
#pragma unroll 4
  for (int k = threadIdx.x; k < kPanelRows * kPanelColumns; k += kTileThreads) {
    const int r = k / kPanelColumns, c = k % kPanelColumns;
    if (tile.holds(r, c)) {
      costs.of[r * CostTile::kStride + c] =
          __ldg(from + (tile.row0 + r) * p.cost_stride[1] + (tile.column0 + c) * p.cost_stride[2]);
    }
  }
}

// Sums of differences, 4 rows by 4 columns for each thread: of part(x - y), a feature's part in the cost.
// Parts are summed in chunks of features, so that the rounding error hardly grows with their number.
template <class PartOf>
__device__ __forceinline__ void sum_differences(const Series<float>& rows, const Series<float>& columns,
                                                int dim, const PartOf& part, TileMemory& memory) {
  const OwnSixteen at(static_cast<int>(threadIdx.x), kPanelColumns);
  float total[4][4] = {};
  float next_x[Factors<kChunk>::kPerThread], next_y[Factors<kChunk>::kPerThread];
  rows.load(0, next_x);
  columns.load(0, next_y);
  int place = 0;
  for (int d0 = 0; d0 < dim; d0 += kChunk, place ^= 1) {
    Chunks& chunk = memory.differences[place];
    chunk.x.store(next_x);
    chunk.y.store(next_y);
    __syncthreads();  // the chunk has arrived, and no thread reads the other one any more
    if (d0 + kChunk < dim) {
      rows.load(d0 + kChunk, next_x);
      columns.load(d0 + kChunk, next_y);
    }
    float sum[4][4] = {};
    for (int first = 0; first < min(kChunk, dim - d0); first += 4) {
#pragma unroll
      for (int d = first; d < first + 4; ++d) {
        const float4 a = chunk.x.four(d, at.row0), b = chunk.y.four(d, at.column0);
        const float left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sum[r][c] = part(left[r] - right[c], sum[r][c]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) total[r][c] += sum[r][c];
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    *reinterpret_cast<float4*>(memory.costs.of + (at.row0 + r) * CostTile::kStride + at.column0) = {
        total[r][0], total[r][1], total[r][2], total[r][3]};
  }
}

// Sums costs of the problem's metric, and squared distances where there are no options.
template <bool kOptions>
__device__ __forceinline__ void sum_metric(const Params& p, const PanelTile& tile, TileMemory& memory) {
  const Series<float> rows(p.x, p.x_stride, p.x_offsets, p.series_type, tile.pair, tile.row0, tile.n, p.dim,
                           kOptions ? p.x_mask : nullptr, p.n);
  const Series<float> columns(p.y, p.y_stride, p.y_offsets, p.series_type, tile.pair, tile.column0, tile.m,
                              p.dim, kOptions ? p.y_mask : nullptr, p.m);
  const auto sum = [&](const auto& part) { sum_differences(rows, columns, p.dim, part, memory); };
  if (kOptions && p.metric == Metric::kAbsolute) {
    sum([](float t, float so_far) { return so_far + fabsf(t); });
  } else if (kOptions && p.metric == Metric::kHuber) {
    const Distance<float> huber(Metric::kHuber);
    sum([&](float t, float so_far) { return so_far + huber.of(t); });
  } else {
    sum([](float t, float so_far) { return fmaf(t, t, so_far); });
  }
}

// A thread copies, and then moves, four neighbouring features of every 32nd step of a chunk.
constexpr int kCopiers = kChunk / 4;  // threads that copy one step of a chunk
constexpr int kCopiedSteps = kPanelRows * kCopiers / kTileThreads;
__device__ __forceinline__ int copied_step(int i) {
  return static_cast<int>(threadIdx.x) / kCopiers + i * (kTileThreads / kCopiers);
}
__device__ __forceinline__ int copied_feature() { return static_cast<int>(threadIdx.x) % kCopiers * 4; }

template <class Element>
__device__ __forceinline__ void ask_chunk(const Series<Element>& rows, const Series<Element>& columns, int d0,
                                          bool vectorized, ProductChunks& chunk) {
  const int f = copied_feature();
#pragma unroll
  for (int i = 0; i < kCopiedSteps; ++i) {
    const int s = copied_step(i);
    rows.ask_four(s, d0 + f, vectorized, chunk.x.of + s * UnitPart::kStride + f);
    columns.ask_four(s, d0 + f, vectorized, chunk.y.of + s * UnitPart::kStride + f);
  }
  const int near = copied_step(0);
  if (near < 4) columns.ask_four(near * (kPanelRows / 4), d0 + f, vectorized, chunk.near[near] + f);
}

// Subtracts the origin from the four features in slot `at`, and splits them. The high parts overwrite the
// slot. Returns the sum of the squares of the factors as the units read them.
template <class Element>
__device__ __forceinline__ float split_moved(const Series<Element>& series, float4& at, float4& lo,
                                             const float4& origin, bool three_terms) {
  const float4 v = series.four_in(&at.x);
  const float moved[4] = {v.x - origin.x, v.y - origin.y, v.z - origin.z, v.w - origin.w};
  split_four(moved, three_terms, at, lo);
  if (!three_terms) return at.x * at.x + at.y * at.y + at.z * at.z + at.w * at.w;
  return moved[0] * moved[0] + moved[1] * moved[1] + moved[2] * moved[2] + moved[3] * moved[3];
}

// |x'|^2 + |y'|^2 - 2 <x', y'> on the matrix units, into `costs`. With one term, x' and y' are rounded first,
// so that the cost of similar steps is small.
template <class Element>
__device__ __forceinline__ void multiply_series(const Params& p, const PanelTile& tile,
                                                ProductMemory& memory) {
  const Series<Element> rows(p.x, p.x_stride, p.x_offsets, p.series_type, tile.pair, tile.row0, tile.n,
                             p.dim);
  const Series<Element> columns(p.y, p.y_stride, p.y_offsets, p.series_type, tile.pair, tile.column0, tile.m,
                                p.dim);
  const UnitPlace at;
  float sum[4][4] = {}, own[2][kCopiedSteps] = {};
  ask_chunk(rows, columns, 0, p.vectorized, memory.chunks[0]);
  int place = 0;
  for (int d0 = 0; d0 < p.dim; d0 += kChunk, place ^= 1) {
    ProductChunks& chunk = memory.chunks[place];
    cuda::await_copies();
    __syncthreads();  // the chunk has arrived, and no thread reads the other one any more
    if (d0 + kChunk < p.dim) ask_chunk(rows, columns, d0 + kChunk, p.vectorized, memory.chunks[place ^ 1]);
    const int f = copied_feature();
    float4 origin = {0, 0, 0, 0};
#pragma unroll
    for (const auto& step : chunk.near) {
      const float4 one = columns.four_in(step + f);
      origin = {origin.x + 0.25f * one.x, origin.y + 0.25f * one.y, origin.z + 0.25f * one.z,
                origin.w + 0.25f * one.w};
    }
#pragma unroll
    for (int i = 0; i < kCopiedSteps; ++i) {
      const int s = copied_step(i);
      own[0][i] += split_moved(rows, chunk.x.four(s, f), memory.x_lo.four(s, f), origin, p.three_terms);
      own[1][i] += split_moved(columns, chunk.y.four(s, f), memory.y_lo.four(s, f), origin, p.three_terms);
    }
    __syncthreads();
    float products[4][4] = {};
    multiply_on_units(at, {chunk.x, memory.x_lo}, {chunk.y, memory.y_lo}, p.dim - d0, p.three_terms,
                      products);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[k][i] += products[k][i];
    }
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int i = 0; i < kCopiedSteps; ++i) {
      const float all =
          cuda::reduce_sum<kCopiers>(own[side][i]);  // the sum over the lanes that copy this step
      if (threadIdx.x % kCopiers == 0) memory.squares[side][copied_step(i)] = all;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = at.row(i), c = at.column(k, i);
      const float cost = memory.squares[0][r] + memory.squares[1][c] - 2.0f * sum[k][i];
      memory.costs.of[r * CostTile::kStride + c] = cost < 0.0f ? 0.0f : cost;  // NaN stays
    }
  }
}

// The largest |cost| of the tile, as bits. Only thread 0 has the result.
__device__ __forceinline__ int largest_of_block(int bits) {
  __shared__ int of_warp[kTileThreads / 32];
  bits = cuda::reduce_max(bits);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;
  __syncthreads();
  for (int w = 1; threadIdx.x == 0 && w < kTileThreads / 32; ++w) bits = max(bits, of_warp[w]);
  return bits;
}

template <CostsFrom kFrom>
using MemoryOf = std::conditional_t<kFrom == CostsFrom::kProducts, ProductMemory, TileMemory>;

// kOptions: metrics, missing steps and bands; cells outside the band are not written. Element: the type of x
// and y in products, float or AnyHalf.
template <CostsFrom kFrom, bool kOptions = false, class Element = float>
__global__ void __launch_bounds__(kTileThreads, kOptions ? 2 : 3)
    panel_costs_kernel(const __grid_constant__ Params p) {
  auto& memory = *reinterpret_cast<MemoryOf<kFrom>*>(cuda::dynamic_shared());
  CostTile& costs = memory.costs;
  const PanelTile tile(p);
  if (!tile.has_cells()) return;
  if (kOptions && !tile.meets_band(p)) {
    if (threadIdx.x == 0) p.panel.range[tile.index()] = 0;
    return;
  }
  if constexpr (kFrom == CostsFrom::kMatrix) {
    copy_matrix(p, tile, costs);
  } else if constexpr (kFrom == CostsFrom::kDifferences) {
    sum_metric<kOptions>(p, tile, memory);
  } else {
    multiply_series<Element>(p, tile, memory);
  }
  __syncthreads();
  // A thread owns two neighbouring columns, whose cells of a line are in the same row.
  constexpr int kPairs = kPanelColumns / 2;
  static_assert(kTileThreads % kPairs == 0);
  const int pair = static_cast<int>(threadIdx.x) % kPairs;
  IndexRange own[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int c = 2 * pair + i;
    own[i] = tile.rows_of<kOptions>(p, c);
    own[i] = {max(own[i].begin, 0), min(own[i].end, kPanelRows)};
    if (kOptions && tile.misses_column(p, min(c, tile.m - 1 - tile.column0))) own[i].end = 0;
  }
  // The tile's rows, and in the first and last tile also those outside the pair.
  const int first = tile.row0 == 0 ? -kPanelFurtherRows : 0;
  const int end = tile.is_last() ? tile.n - tile.row0 + kPanelFurtherRows : kPanelRows;
  const int lines = min(end + kPanelFurtherRows, tile.n + kPanelFurtherRows - tile.row0);
  auto* const to = reinterpret_cast<float2*>(tile.line());
  int bits = 0;
  for (int k = threadIdx.x; k < lines * kPairs; k += kTileThreads) {
    const int r = k / kPairs - pair;
    if (r < first || r >= end) continue;
    float2 cost = {0, 0};
    if (r >= 0 && r < min(kPanelRows, tile.n - tile.row0) && !(kOptions && tile.misses_row(p, r))) {
      const float2 both = *reinterpret_cast<const float2*>(costs.of + r * CostTile::kStride + 2 * pair);
      if (r >= own[0].begin && r < own[0].end) cost.x = both.x;
      if (r >= own[1].begin && r < own[1].end) cost.y = both.y;
    }
    bits = largest_bits(largest_bits(bits, cost.x), cost.y);
    to[k] = cost;
  }
  bits = largest_of_block(bits);
  if (threadIdx.x == 0) p.panel.range[tile.index()] = bits;
}

__global__ void __launch_bounds__(kTileThreads, 4) panel_alignment_kernel(const __grid_constant__ Params p) {
  __shared__ CostTile e;
  const PanelTile tile(p);
  const int c = static_cast<int>(threadIdx.x) % kPanelColumns;
  // Pairs that the rerun computes get zeros here.
  const IndexRange own = p.uncertified[tile.pair] ? IndexRange{0, 0} : tile.rows_of<true>(p, c);
  const auto holds = [&](int r) { return r >= own.begin && r < own.end; };
  if (tile.has_cells()) {
    const float* const from = tile.line();
    for (int k = threadIdx.x; k < kTileLines * kPanelColumns; k += kTileThreads) {
      const int r = k / kPanelColumns - c / 2;
      if (r >= 0 && r < kPanelRows && holds(r)) e.of[r * CostTile::kStride + c] = from[k];
    }
  }
  __syncthreads();
  float* const to = static_cast<float*>(p.alignment) + static_cast<std::int64_t>(tile.pair) * p.n * p.m;
  for (int k = threadIdx.x; k < kPanelRows * kPanelColumns; k += kTileThreads) {
    const int r = k / kPanelColumns;
    const int row = tile.row0 + r, column = tile.column0 + c;
    if (row >= p.n || column >= p.m) continue;
    to[static_cast<std::int64_t>(row) * p.m + column] = holds(r) ? e.of[r * CostTile::kStride + c] : 0.0f;
  }
}

using enum CostsFrom;
template <CostsFrom kFrom, bool kOptions, class Element>
inline const cuda::Kernel kPanelCosts{kKernels, "panel_costs",
                                      kFrom == kMatrix ? "matrix with_band"
                                      : kFrom == kDifferences
                                          ? (kOptions ? "differences all_options" : "differences")
                                      : std::is_same_v<Element, AnyHalf> ? "products of_half_types"
                                                                         : "products",
                                      panel_costs_kernel<kFrom, kOptions, Element>};
const cuda::Kernel kPanelAlignment{kKernels, "panel_alignment", "with_band", panel_alignment_kernel};

int blocks_of(const Params& p) { return p.batch * p.panel.strips * p.panel.tiles; }

}  // namespace

Status make_panel(const Params& p, cudaStream_t stream) {
  const auto launch = [&](const cuda::Kernel<Params>& kernel, std::size_t shared_bytes) {
    return cuda::launch(kernel, {blocks_of(p), kTileThreads, shared_bytes, stream}, p);
  };
  if (!p.cost && p.on_matrix_units && !has_panel_options(p)) {
    const bool is_half = p.series_type != DType::kFloat32;
    return launch(is_half ? kPanelCosts<kProducts, false, AnyHalf> : kPanelCosts<kProducts, false, float>,
                  sizeof(ProductMemory));
  }
  if (p.cost && p.band.kind == BandKind::kNone) return copy_matrix_to_panel(p, stream);
  const auto& kernel = p.cost                 ? kPanelCosts<kMatrix, true, float>
                       : has_panel_options(p) ? kPanelCosts<kDifferences, true, float>
                                              : kPanelCosts<kDifferences, false, float>;
  return launch(kernel, sizeof(TileMemory));
}

Status copy_panel_alignment(const Params& p, cudaStream_t stream) {
  if (p.band.kind == BandKind::kNone) return copy_panel_to_alignment(p, stream);
  return cuda::launch(kPanelAlignment, {blocks_of(p), kTileThreads, 0, stream}, p);
}

}  // namespace warpalign::detail::soft_dtw
