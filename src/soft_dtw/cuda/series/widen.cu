#include <algorithm>
#include <cstdint>

#include "cuda/rows/ragged.h"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/panel/panel_elements.cuh"
#include "soft_dtw/cuda/series/widen.h"
#include "soft_dtw/packed.h"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kThreads = 256;

// Widens one pair's series by `parts` blocks. The threads of all of them stride over the elements together.
__device__ __forceinline__ void widen(const HalfSeries::Side& side, bool is_bfloat16, int pair, int dim,
                                      int part, int parts) {
  const StridedTensor& series = side.series;
  const auto* const from =
      static_cast<const AnyHalf*>(series.data) + first_element(side.offsets, series.stride, pair);
  const GradientSteps own =
      gradient_steps(side.offsets, pair, side.length, cuda::true_length(side.lengths, pair, side.length));
  float* const to = side.widened + own.first * dim;
  const std::int64_t first = static_cast<std::int64_t>(part) * kThreads + threadIdx.x;
  const std::int64_t apart = static_cast<std::int64_t>(parts) * kThreads;
  const std::int64_t steps_apart = apart / dim, features_apart = apart % dim;
  const std::int64_t elements = static_cast<std::int64_t>(own.count) * dim;
  std::int64_t step = first / dim, feature = first % dim;
  for (std::int64_t k = first; k < elements; k += apart) {
    to[k] = loaded(from + step * series.stride[1] + feature * series.stride[2], is_bfloat16);
    step += steps_apart;
    feature += features_apart;
    if (feature >= dim) feature -= dim, ++step;
  }
}

__global__ void __launch_bounds__(kThreads) widen_kernel(const __grid_constant__ HalfSeries s, int parts) {
  const int pair = static_cast<int>(blockIdx.x) / parts, part = static_cast<int>(blockIdx.x) % parts;
  if (s.only && !s.only[pair]) return;
  const bool is_bfloat16 = s.type == DType::kBFloat16;
  widen(s.x, is_bfloat16, pair, s.dim, part, parts);
  widen(s.y, is_bfloat16, pair, s.dim, part, parts);
}

const cuda::Kernel kWiden{kKernels, "widen", nullptr, widen_kernel};

}  // namespace

Status widen_series(const HalfSeries& series, cudaStream_t stream) {
  // Eight elements of the longer series per thread; one block per pair for a rerun, in which few pairs are
  // widened.
  const std::int64_t most =
      static_cast<std::int64_t>(std::max(series.x.length, series.y.length)) * series.dim;
  constexpr std::int64_t kMostParts = 64;
  const auto parts =
      static_cast<int>(series.only ? 1 : std::min(kMostParts, 1 + (most - 1) / (8 * kThreads)));
  return cuda::launch(kWiden, {series.batch * parts, kThreads, 0, stream}, series, parts);
}

}  // namespace warpalign::detail::soft_dtw
