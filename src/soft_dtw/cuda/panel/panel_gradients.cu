// Gradients of the series, from E in a panel.
//
//   grad_x[i] = 2 sum_j E[i,j] (x[i] - y[j]),   grad_y[j] = 2 sum_i E[i,j] (y[j] - x[i])
//
// are the same sum: E times (own step - other step) over the steps of the other series. It is computed from
// differences, or from products on matrix units. Other metrics have slopes instead of differences.
#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/panel/panel.h"
#include "soft_dtw/cuda/panel/panel_tile.cuh"
#include "soft_dtw/cuda/panel/panel_units.cuh"
#include "soft_dtw/cuda/tiles/metric.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kFeatures = kPanelFeatures;  // features per block
constexpr int kOthers = 32;                // steps of the other series in shared memory at a time
static_assert(kFeatures == kPanelRows && kOthers == kTerms && kPanelRows % kOthers == 0 &&
              kPanelColumns % kOthers == 0);

// [other step][own step]: E; and [other step][feature]: the other series, four features in a slot.
struct __align__(16) Factor {
  float of[kOthers * kFactorStride];
};
// Double buffer: one stage is multiplied while the other one is copied.
struct Stage {
  Factor e, others;
};

// Starts copies of E, [other step][own step], from other step `first` of the tile on. own_is_x: own steps are
// rows. A warp reads neighbouring columns of the same line. Missing steps get 0.
template <bool kOptions, bool kOwnIsX>
__device__ __forceinline__ void ask_weights(const Params& p, const PanelTile& tile, int first, Factor& e) {
  constexpr int kColumns = kOwnIsX ? kOthers : kPanelColumns;
  constexpr int kApart = kTileThreads / kColumns;  // distance between the rows of a thread
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int row = (static_cast<int>(threadIdx.x) / kColumns - column / 2) & (kApart - 1);
  const int c = column + (kOwnIsX ? first : 0);
  const int r0 = row + (kOwnIsX ? 0 : first);
  const float* const from = tile.line() + (r0 + c / 2) * kPanelColumns + c;
  float* const to = e.of + (kOwnIsX ? column * kFactorStride + row : row * kFactorStride + column);
  IndexRange rows = tile.rows_of<kOptions>(p, c);
  if (kOptions && rows.end > 0 && tile.misses_column(p, c)) rows.end = 0;
  constexpr int kCount = kOthers * kPanelRows / kTileThreads;
  constexpr int kFurther = kApart * (kOwnIsX ? 1 : kFactorStride);
  if (rows.begin <= r0 && r0 + (kCount - 1) * kApart < rows.end && !(kOptions && p.x_mask)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::copy_async(to + i * kFurther, from + i * kApart * kPanelColumns);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int r = r0 + i * kApart;
    float* const here = to + i * kFurther;
    if (r >= rows.begin && r < rows.end && !(kOptions && tile.misses_row(p, r))) {
      cuda::copy_async(here, from + i * kApart * kPanelColumns);
    } else {
      *here = 0.0f;
    }
  }
}

// A thread copies four neighbouring features of every 16th step: calls visit(step, feature), both counted
// from the block's first.
template <class Visit>
__device__ __forceinline__ void of_own_copies(const Visit& visit) {
  constexpr int kThreads = kFeatures / 4;  // threads that copy one step
#pragma unroll
  for (int i = 0; i < kOthers * kThreads / kTileThreads; ++i) {
    visit(static_cast<int>(threadIdx.x) / kThreads + i * (kTileThreads / kThreads),
          static_cast<int>(threadIdx.x) % kThreads * 4);
  }
}

// Starts copies of the other steps, [step][feature]: `width` features.
template <class Element>
__device__ __forceinline__ void ask_others(const Series<Element>& series, int d0, int width, bool vectorized,
                                           Factor& others) {
  of_own_copies([&](int s, int f) {
    if (f < width) series.ask_four(s, d0 + f, vectorized, others.of + s * kFactorStride + f);
  });
}

// The part of grad_x or grad_y that a block owns: 64 own steps, 64 features.
template <bool kOptions, class Element>
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

  // The number of other steps to sum over: 0 if all own steps are after the true length. With a band, pairs
  // that the rerun computes get zeros here.
  [[nodiscard]] __device__ int end() const {
    return own0 < own_length && !(kOptions && p.uncertified[pair]) ? other_length : 0;
  }
  [[nodiscard]] __device__ Series<Element> own() const { return steps(own_is_x, own0); }
  [[nodiscard]] __device__ Series<Element> others(int other0) const { return steps(!own_is_x, other0); }
  [[nodiscard]] __device__ PanelTile tile(int other0) const {
    return {p,
            pair,
            (own_is_x ? other0 : own0) / kPanelColumns,
            (own_is_x ? own0 : other0) / kPanelRows,
            own_is_x ? own_length : other_length,
            own_is_x ? other_length : own_length};
  }
  // The first steps from other0 on, kOthers of them at a time, whose tile meets the band; or end().
  [[nodiscard]] __device__ int next(int other0) const {
    while (kOptions && other0 < end() && !tile(other0).meets_band(p)) other0 += kOthers;
    return min(other0, end());
  }
  // Starts copies of the other steps from other0 on.
  __device__ void ask(int other0, Stage& stage) const {
    const PanelTile from = tile(other0);
    if (own_is_x) {
      ask_weights<kOptions, true>(p, from, other0 % kPanelColumns, stage.e);
    } else {
      ask_weights<kOptions, false>(p, from, other0 % kPanelRows, stage.e);
    }
    ask_others(others(other0), d0, width(), p.vectorized, stage.others);
  }
  // The number of features that are computed: 16, 32 or 64.
  [[nodiscard]] __device__ int width() const { return p.dim - d0 > 32 ? 64 : p.dim - d0 > 16 ? 32 : 16; }
  // Stores `factor` times the sum of own step s and feature f of the part.
  __device__ void store(int s, int f, float sum, float factor = 2.0f) const {
    const GradientSteps own =
        gradient_steps(own_is_x ? p.x_offsets : p.y_offsets, pair, own_is_x ? p.n : p.m, own_length);
    const int step = own0 + s, feature = d0 + f;
    if (step >= own.count || feature >= p.dim) return;
    float* const to = static_cast<float*>(own_is_x ? p.grad_x : p.grad_y);
    to[(own.first + step) * p.dim + feature] = step < own_length ? factor * sum : 0.0f;
  }

 private:
  [[nodiscard]] __device__ Series<Element> steps(bool of_x, int first) const {
    const std::uint8_t* const mask = of_x ? p.x_mask : p.y_mask;
    return {of_x ? p.x : p.y,
            of_x ? p.x_stride : p.y_stride,
            of_x ? p.x_offsets : p.y_offsets,
            p.series_type,
            pair,
            first,
            of_x == own_is_x ? own_length : other_length,
            p.dim,
            kOptions ? mask : nullptr,
            of_x ? p.n : p.m};
  }
};

// Goes over the other steps: calls multiply(stage) when the stage's copies have arrived, while the next stage
// is copied.
template <class Part, class Multiply>
__device__ __forceinline__ void of_other_steps(const Part& part, Stage (&stages)[2],
                                               const Multiply& multiply) {
  const int end = part.end();
  int place = 0;
  int other0 = part.next(0);
  if (other0 < end) part.ask(other0, stages[0]);
  while (other0 < end) {
    cuda::await_copies();
    __syncthreads();  // the stage has arrived, and no thread reads the other one any more
    const int next = part.next(other0 + kOthers);
    if (next < end) part.ask(next, stages[place ^ 1]);
    multiply(stages[place]);
    place ^= 1;
    other0 = next;
  }
}

// Gradients from differences. A thread owns 4 own steps and 4 features. With few features, groups of threads
// share the other steps, and their sums are added in the groups' order.
template <bool kOptions>
__device__ __forceinline__ void sum_differences(const Part<kOptions, float>& part, Stage (&stages)[2]) {
  const int width = part.width();
  const int groups = kFeatures / width;
  const int threads = kTileThreads / groups;  // per group
  const int group = static_cast<int>(threadIdx.x) / threads;
  const OwnSixteen at(static_cast<int>(threadIdx.x) % threads, width);
  float own[4][4], sum[4][4] = {};
  const Series<float> series = part.own();
  const Slope<float> slope(kOptions ? part.p.metric : Metric::kSquared);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int f = 0; f < 4; ++f) own[s][f] = series.at(at.row0 + s, part.d0 + at.column0 + f);
  }
  const auto multiply = [&](const Stage& stage) {
    const int count = kOthers / groups;
    const float* weights = stage.e.of + group * count * kFactorStride + at.row0;
    const float* others = stage.others.of + group * count * kFactorStride + at.column0;
    for (int k0 = 0; k0 < count; k0 += 4, weights += 4 * kFactorStride, others += 4 * kFactorStride) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float4 a = *reinterpret_cast<const float4*>(weights + k * kFactorStride);
        const float4 b = *reinterpret_cast<const float4*>(others + k * kFactorStride);
        const float weight[4] = {a.x, a.y, a.z, a.w}, other[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int s = 0; s < 4; ++s) {
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            const float difference = own[s][f] - other[f];
            // Outside a band differences may be infinite; slopes are finite.
            sum[s][f] += weight[s] * (kOptions ? slope.of(weight[s], difference) : difference);
          }
        }
      }
    }
  };
  of_other_steps(part, stages, multiply);
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(stages);  // [group][own step][feature]
  static_assert(sizeof(float) * kFeatures * kPanelRows <= sizeof(Stage));
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    *reinterpret_cast<float4*>(sums + (group * kPanelRows + at.row0 + s) * width + at.column0) = {
        sum[s][0], sum[s][1], sum[s][2], sum[s][3]};
  }
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.x); k < kPanelRows * width; k += kTileThreads) {
    float all = sums[k];
    for (int g = 1; g < groups; ++g) all += sums[g * kPanelRows * width + k];
    part.store(k / width, k % width, all, slope.factor);
  }
}

struct ProductMemory {
  Stage stages[2];
  UnitPart weights[2], others[2];  // hi and lo of [own step][other step], and of [feature][other step]
  float sums[kTileThreads];        // each thread's sum of weights
  float origin[kFeatures];
  int is_cancelled;
};

static_assert(sizeof(ProductMemory) <= kMostProductBytes);

// Gradients from products on matrix units: (sum_j E) x' - E Y'. x' and Y' are relative to an origin near the
// own steps, which are close to the other steps with E > 0. A stage's products are summed separately and then
// added to the total, because the additions of the units truncate.
template <class Element>
__device__ __forceinline__ void sum_products(const Part<false, Element>& part, ProductMemory& memory) {
  const UnitPlace at;
  const Series<Element> series = part.own();
  const int thread = static_cast<int>(threadIdx.x);
  const bool three_terms = part.p.three_terms;
  if (thread < kFeatures) memory.origin[thread] = mean_of_tile(series, part.d0 + thread);
  if (thread == 0) memory.is_cancelled = 0;
  __syncthreads();
  // A thread splits four neighbouring other steps of one own step, and of one feature, at a time.
  constexpr int kFours = kTileThreads / kPanelRows;
  const int row = thread % kPanelRows;
  const float origin = memory.origin[row];
  const bool is_feature = row < part.width();
  float sum[4][4] = {}, weight = 0;
  const auto multiply = [&](const Stage& stage) {
#pragma unroll
    for (int k = thread / kPanelRows * 4; k < kOthers; k += 4 * kFours) {
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = stage.e.of[(k + i) * kFactorStride + row];
      weight += split_four(v, three_terms, memory.weights[0].four(row, k), memory.weights[1].four(row, k));
      if (!is_feature) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = series.one_in(stage.others.of + (k + i) * kFactorStride + row / 4 * 4, row % 4) - origin;
      }
      split_four(v, three_terms, memory.others[0].four(row, k), memory.others[1].four(row, k));
    }
    __syncthreads();
    if (at.column0 >= part.width()) return;  // the whole warp
    float products[4][4] = {};
    multiply_on_units(at, {memory.weights[0], memory.weights[1]}, {memory.others[0], memory.others[1]},
                      kTerms, three_terms, products);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[k][i] += products[k][i];
    }
  };
  of_other_steps(part, memory.stages, multiply);
  memory.sums[thread] = weight;
  __syncthreads();
  Cancellation cancellation;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float* const sums = memory.sums + at.row(i);
    static_assert(kFours == 4);
    const float all = (sums[0] + sums[kPanelRows]) + (sums[2 * kPanelRows] + sums[3 * kPanelRows]);
    const bool is_own = part.own0 + at.row(i) < part.own_length;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int j = i; j < i + 2; ++j) {
        const int column = at.column(k, j);
        const float term = all * (series.at(at.row(i), part.d0 + column) - memory.origin[column]);
        part.store(at.row(i), column, term - sum[k][j]);
        if (is_own && part.d0 + column < part.p.dim) cancellation.add(term, term - sum[k][j]);
      }
    }
  }
  if (!part.p.cancelled) return;
  if (cancellation.is_large() && thread % 32 == 0) memory.is_cancelled = 1;
  __syncthreads();
  if (thread == 0) part.p.cancelled[blockIdx.x] = memory.is_cancelled;
}

template <bool kOptions, class Element>
__device__ __forceinline__ Part<kOptions, Element> part_of_block(const Params& p,
                                                                 const GradientBlocks& blocks) {
  const int block = static_cast<int>(blockIdx.x);
  const int steps = blocks.x + blocks.y;
  const int step = block / blocks.features % steps;
  const bool own_is_x = step < blocks.x;
  return {p, block / blocks.features / steps, own_is_x, (own_is_x ? step : step - blocks.x) * kPanelRows,
          block % blocks.features * kFeatures};
}

template <bool kOptions>
__global__ void __launch_bounds__(kTileThreads, kOptions ? 2 : 3)
    panel_gradients_kernel(const __grid_constant__ Params p, const GradientBlocks blocks) {
  __shared__ Stage stages[2];
  if (p.cancelled && !p.cancelled[blockIdx.x]) return;
  sum_differences(part_of_block<kOptions, float>(p, blocks), stages);
}

template <class Element>
__global__ void __launch_bounds__(kTileThreads, 3)
    panel_products_kernel(const __grid_constant__ Params p, const GradientBlocks blocks) {
  sum_products(part_of_block<false, Element>(p, blocks),
               *reinterpret_cast<ProductMemory*>(cuda::dynamic_shared()));
}

template <bool kOptions>
inline const cuda::Kernel kPanelGradients{kKernels, "panel_gradients",
                                          kOptions ? "differences all_options" : "differences",
                                          panel_gradients_kernel<kOptions>};
template <class Element>
inline const cuda::Kernel kPanelProducts{
    kKernels, "panel_gradients", std::is_same_v<Element, AnyHalf> ? "products of_half_types" : "products",
    panel_products_kernel<Element>};

}  // namespace

Status make_panel_gradients(const Params& p, cudaStream_t stream) {
  const GradientBlocks blocks = gradient_blocks(p.n, p.m, p.dim, p.grad_x, p.grad_y);
  const int count = p.batch * blocks.per_pair();
  if (count == 0) return {};
  const auto launch = [&](const auto& kernel) {
    return cuda::launch(kernel, {count, kTileThreads, 0, stream}, p, blocks);
  };
  if (!p.gradients_by_products) {
    return launch(has_panel_options(p) ? kPanelGradients<true> : kPanelGradients<false>);
  }
  const bool is_half = p.series_type != DType::kFloat32;
  const auto& multiply = is_half ? kPanelProducts<AnyHalf> : kPanelProducts<float>;
  const Status status =
      cuda::launch(multiply, {count, kTileThreads, sizeof(ProductMemory), stream}, p, blocks);
  if (!status.ok() || !p.cancelled) return status;
  return launch(kPanelGradients<false>);
}

}  // namespace warpalign::detail::soft_dtw
