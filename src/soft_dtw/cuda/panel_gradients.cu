// Gradients of the series, from E in a panel.
//
//   grad_x[i] = 2 sum_j E[i,j] (x[i] - y[j]),   grad_y[j] = 2 sum_i E[i,j] (y[j] - x[i])
//
// are one sum, over the steps of the other series, of E times own step less other step: by differences, or by
// products on the matrix units. Other metrics than the squared one have slopes in place of the differences.
#include "cuda/copy_async.cuh"
#include "cuda/launch.cuh"
#include "soft_dtw/cuda/metric.cuh"
#include "soft_dtw/cuda/panel.h"
#include "soft_dtw/cuda/panel_tile.cuh"
#include "soft_dtw/cuda/panel_units.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kFeatures = 64;  // of a block
static_assert(kFeatures == kPanelRows);

// Of a tile, [other step][own step]: E; and [other step][feature]: the other series.
struct __align__(16) TileFactors {
  float of[kPanelRows * kFactorStride];
};

// Begins copies of E, [other step][own step]; own_is_x: own steps are rows. A thread has one column of the
// tile and every fourth row, from the one on whose line it begins. Missing steps have 0.
template <bool kOptions>
__device__ __forceinline__ void ask_weights(const Params& p, const PanelTile& tile, bool own_is_x,
                                            TileFactors& e) {
  static_assert(kTileThreads == 4 * kPanelColumns);
  const int c = static_cast<int>(threadIdx.x) % kPanelColumns;
  const int first = (static_cast<int>(threadIdx.x) / kPanelColumns - c / 2) & 3;
  const float* const from = tile.line() + c / 2 * kPanelColumns + c;
  IndexRange rows = tile.rows_of<kOptions>(p, c);
  if (kOptions && rows.end > 0 && tile.misses_column(p, c)) rows.end = 0;
#pragma unroll
  for (int i = 0; i < kPanelRows / 4; ++i) {
    const int r = first + 4 * i;
    float* const to = e.of + (own_is_x ? c * kFactorStride + r : r * kFactorStride + c);
    if (r >= rows.begin && r < rows.end && !(kOptions && tile.misses_row(p, r))) {
      cuda::copy_async(to, from + r * kPanelColumns);
    } else {
      *to = 0.0f;
    }
  }
}

// Begins copies of 64 steps, [step][feature]; a thread has one feature of every fourth step.
__device__ __forceinline__ void ask_others(const Series& series, int d0, TileFactors& others) {
  static_assert(kTileThreads == 4 * kFeatures);
  const int f = static_cast<int>(threadIdx.x) % kFeatures;
  const int first = static_cast<int>(threadIdx.x) / kFeatures;
#pragma unroll
  for (int i = 0; i < kPanelRows / 4; ++i) {
    const int s = first + 4 * i;
    float* const to = others.of + s * kFactorStride + f;
    if (series.has(s, d0 + f)) {
      cuda::copy_async(to, series.address(s, d0 + f));
    } else {
      *to = 0.0f;
    }
  }
}

// A block's part of grad_x or grad_y: 64 own steps, 64 features.
template <bool kOptions>
struct Part {
  const Params& p;
  int pair;
  bool own_is_x;
  int own0;
  int d0;
  int own_length;
  int other_length;

  __device__ Part(const Params& params, int of_pair, bool is_x, int step, int feature)
      : p(params),
        pair(of_pair),
        own_is_x(is_x),
        own0(step),
        d0(feature),
        own_length(is_x ? cuda::true_length(p.x_lengths, pair, p.n)
                        : cuda::true_length(p.y_lengths, pair, p.m)),
        other_length(is_x ? cuda::true_length(p.y_lengths, pair, p.m)
                          : cuda::true_length(p.x_lengths, pair, p.n)) {}

  // Other steps that count: none where all own steps are behind the true length. With a band, pairs that are
  // computed again begin with zeros.
  [[nodiscard]] __device__ int end() const {
    return own0 < own_length && !(kOptions && p.uncertified[pair]) ? other_length : 0;
  }
  [[nodiscard]] __device__ Series own() const { return steps(own_is_x, own0); }
  [[nodiscard]] __device__ Series others(int other0) const { return steps(!own_is_x, other0); }
  [[nodiscard]] __device__ PanelTile tile(int other0) const {
    return {p, pair, (own_is_x ? other0 : own0) / kPanelColumns, (own_is_x ? own0 : other0) / kPanelRows};
  }
  // sum: of own step s and feature f of the part, times `factor`.
  __device__ void store(int s, int f, float sum, float factor = 2.0f) const {
    const int length = own_is_x ? p.n : p.m;
    const int step = own0 + s, feature = d0 + f;
    if (step >= length || feature >= p.dim) return;
    float* const to = static_cast<float*>(own_is_x ? p.grad_x : p.grad_y);
    to[(static_cast<std::int64_t>(pair) * length + step) * p.dim + feature] =
        step < own_length ? factor * sum : 0.0f;
  }

 private:
  [[nodiscard]] __device__ Series steps(bool of_x, int first) const {
    const std::uint8_t* const mask = of_x ? p.x_mask : p.y_mask;
    return {of_x ? p.x : p.y,
            of_x ? p.x_stride : p.y_stride,
            pair,
            first,
            of_x == own_is_x ? own_length : other_length,
            p.dim,
            kOptions ? mask : nullptr,
            of_x ? p.n : p.m};
  }
};

// By differences: a thread has 4 own steps and 4 features.
template <bool kOptions>
__device__ __forceinline__ void sum_differences(const Part<kOptions>& part, TileFactors& e,
                                                TileFactors& others) {
  const int s0 = static_cast<int>(threadIdx.x) / 16 * 4;
  const int f0 = static_cast<int>(threadIdx.x) % 16 * 4;
  float own[4][4], sum[4][4] = {};
  const Series series = part.own();
  const Slope<float> slope(kOptions ? part.p.metric : Metric::kSquared);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int f = 0; f < 4; ++f) own[s][f] = series.at(s0 + s, part.d0 + f0 + f);
  }
  for (int other0 = 0; other0 < part.end(); other0 += kPanelRows) {
    const PanelTile tile = part.tile(other0);
    if (kOptions && !tile.meets_band(part.p)) continue;
    __syncthreads();
    ask_weights<kOptions>(part.p, tile, part.own_is_x, e);
    ask_others(part.others(other0), part.d0, others);
    cuda::await_copies();
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < kPanelRows; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(e.of + k * kFactorStride + s0);
      const float4 b = *reinterpret_cast<const float4*>(others.of + k * kFactorStride + f0);
      const float weight[4] = {a.x, a.y, a.z, a.w}, other[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int f = 0; f < 4; ++f) {
          const float difference = own[s][f] - other[f];
          // Outside a band differences may be infinite, and the slope is not.
          sum[s][f] += weight[s] * (kOptions ? slope.of(weight[s], difference) : difference);
        }
      }
    }
  }
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int f = 0; f < 4; ++f) part.store(s0 + s, f0 + f, sum[s][f], slope.factor);
  }
}

// By products on the matrix units: of each tile (sum_j E) x' - E Y', relative to an origin near the tile's
// other steps. A tile's products are made apart and then added, because the units' own additions truncate.
__device__ __forceinline__ void sum_products(const Part<false>& part, TileFactors& e, TileFactors& others) {
  __shared__ float origin[kFeatures];
  const UnitPlace at;
  const int feature = static_cast<int>(threadIdx.x) % kFeatures;  // that this thread loads
  float own[4][4], sum[4][4] = {};
  const Series series = part.own();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) own[k][i] = series.at(at.row(i), part.d0 + at.column(k, i));
  }
  for (int other0 = 0; other0 < part.end(); other0 += kPanelRows) {
    __syncthreads();
    ask_weights<false>(part.p, part.tile(other0), part.own_is_x, e);
    const Series from = part.others(other0);
    ask_others(from, part.d0, others);
    const float zero = mean_of_tile(from, part.d0 + feature);
    if (threadIdx.x < kFeatures) origin[feature] = zero;
    cuda::await_copies();
#pragma unroll
    for (int i = 0; i < kPanelRows / 4; ++i)  // what this thread has copied
      others.of[(static_cast<int>(threadIdx.x) / kFeatures + 4 * i) * kFactorStride + feature] -= zero;
    __syncthreads();
    float products[4][4] = {}, weights[4] = {};
#pragma unroll 2
    for (int k0 = 0; k0 < kPanelRows; k0 += 8) {
      multiply_on_units<true>(at, e.of + k0 * kFactorStride, others.of + k0 * kFactorStride,
                              part.p.three_terms, products, weights);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[k][i] += weights[i / 2 * 2] * (own[k][i] - origin[at.column(k, i)]) - products[k][i];
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) part.store(at.row(i), at.column(k, i), sum[k][i]);
  }
}

// Blocks of x come first, then those of y.
struct Blocks {
  int features;  // blocks of 64 features
  int x;         // of a pair's grad_x, for each block of features; 0: not wanted
  int y;
};

template <bool kOnMatrixUnits, bool kOptions = false>
__global__ void __launch_bounds__(kTileThreads, kOnMatrixUnits ? 2 : 3)
    panel_gradients_kernel(const __grid_constant__ Params p, const Blocks blocks) {
  __shared__ TileFactors e, others;
  const int block = static_cast<int>(blockIdx.x);
  const int steps = blocks.x + blocks.y;
  const int step = block / blocks.features % steps;
  const bool own_is_x = step < blocks.x;
  const Part<kOptions> part(p, block / blocks.features / steps, own_is_x,
                            (own_is_x ? step : step - blocks.x) * kPanelRows,
                            block % blocks.features * kFeatures);
  if constexpr (kOnMatrixUnits) {
    sum_products(part, e, others);
  } else {
    sum_differences(part, e, others);
  }
}

}  // namespace

Status make_panel_gradients(const Params& p, cudaStream_t stream) {
  const Blocks blocks{cuda::div_up(p.dim, kFeatures), p.grad_x ? cuda::div_up(p.n, kPanelRows) : 0,
                      p.grad_y ? cuda::div_up(p.m, kPanelRows) : 0};
  const int count = p.batch * (blocks.x + blocks.y) * blocks.features;
  if (count == 0) return {};
  const auto kernel = has_panel_options(p) ? panel_gradients_kernel<false, true>
                      : p.on_matrix_units  ? panel_gradients_kernel<true>
                                           : panel_gradients_kernel<false>;
  return cuda::launch(kernel, {count, kTileThreads, 0, stream}, p, blocks);
}

}  // namespace warpalign::detail::soft_dtw
