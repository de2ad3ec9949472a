// Copies cost matrices into a panel, and E out of it: conversions between tiles of rows and columns, and
// lines. For problems without a band; panel_cells.cu has those with one.
//
// A block owns a tile of 64 rows and 64 columns. Its threads start all their loads before they use the first
// result. Accesses are four columns wide for rows, and two for lines; both are free of bank conflicts in
// shared memory.
#include "core/arena.h"
#include "cuda/threads/warp.cuh"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/panel/panel.h"
#include "soft_dtw/cuda/panel/panel_tile.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kFours = kPanelColumns / 4;            // accesses of a row
constexpr int kRowsAtOnce = kTileThreads / kFours;   // a thread owns every 16th row
constexpr int kOwnRows = kPanelRows / kRowsAtOnce;   // four columns of each
constexpr int kPairs = kPanelColumns / 2;            // accesses of a line
constexpr int kLinesAtOnce = kTileThreads / kPairs;  // a warp owns every 8th line
static_assert(kPairs == 32);

// Blocks per multiprocessor that leave registers for the loads. sm_75 has threads for four.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kCopyBlocks = 4;
#else
constexpr int kCopyBlocks = 6;
#endif

struct OwnFours {
  int row = static_cast<int>(threadIdx.x) / kFours;  // the first one
  int column = static_cast<int>(threadIdx.x) % kFours * 4;
};

// in_fours: four neighbouring columns, from a multiple of 4 on, can be read at a time.
__global__ void __launch_bounds__(kTileThreads, kCopyBlocks)
    matrix_to_panel_kernel(const __grid_constant__ Params p, const bool in_fours) {
  __shared__ CostTile costs;
  __shared__ int largest[kTileThreads / 32];
  const PanelTile tile(p);
  if (!tile.has_cells()) return;
  const OwnFours own;
  const int rows = min(tile.n - tile.row0, kPanelRows), columns = tile.m - tile.column0;
  const float* const from = static_cast<const float*>(p.cost) + tile.pair * p.cost_stride[0] +
                            (tile.row0 + own.row) * p.cost_stride[1] +
                            (tile.column0 + own.column) * p.cost_stride[2];
  float4 own_costs[kOwnRows];
  if (in_fours && rows == kPanelRows && columns >= kPanelColumns) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      own_costs[i] = __ldg(reinterpret_cast<const float4*>(from + i * kRowsAtOnce * p.cost_stride[1]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const auto at = [&](int k) {
        const bool is_cell = own.row + i * kRowsAtOnce < rows && own.column + k < columns;
        return is_cell ? __ldg(from + i * kRowsAtOnce * p.cost_stride[1] + k * p.cost_stride[2]) : 0.0f;
      };
      own_costs[i] = {at(0), at(1), at(2), at(3)};
    }
  }
  int bits = 0;
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const float4 c = own_costs[i];
    *reinterpret_cast<float4*>(costs.of + (own.row + i * kRowsAtOnce) * CostTile::kStride + own.column) = c;
    bits = largest_bits(largest_bits(largest_bits(largest_bits(bits, c.x), c.y), c.z), c.w);
  }
  bits = cuda::reduce_max(bits);
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = bits;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const int one : largest) bits = max(bits, one);
    p.panel.range[tile.index()] = bits;
  }
  // The tile's rows, and in the first and last tile also those outside the pair.
  const int first = tile.row0 == 0 ? -kPanelFurtherRows : 0;
  const int end = tile.is_last() ? tile.n - tile.row0 + kPanelFurtherRows : kPanelRows;
  const int lines = min(end + kPanelFurtherRows, tile.n + kPanelFurtherRows - tile.row0);
  const int pair = static_cast<int>(threadIdx.x) % kPairs;
  auto* const to = reinterpret_cast<float2*>(tile.line()) + pair;
#pragma unroll 4
  for (int line = static_cast<int>(threadIdx.x) / kPairs; line < lines; line += kLinesAtOnce) {
    const int r = line - pair;
    if (r < first || r >= end) continue;
    float2 cost = {0, 0};
    if (r >= 0 && r < kPanelRows) {
      cost = *reinterpret_cast<const float2*>(costs.of + r * CostTile::kStride + 2 * pair);
    }
    to[line * kPairs] = cost;
  }
}

// in_fours: four neighbouring columns of p.alignment can be written at a time.
__global__ void __launch_bounds__(kTileThreads, 4)
    panel_to_alignment_kernel(const __grid_constant__ Params p, const bool in_fours) {
  __shared__ CostTile e;
  const PanelTile tile(p);
  // Whether the tile has cells of the pair, and the pair is not computed by the rerun.
  const bool counts = tile.has_cells() && !p.uncertified[tile.pair];
  const int rows = counts ? min(tile.n - tile.row0, kPanelRows) : 0;
  const int columns = counts ? tile.m - tile.column0 : 0;
  if (counts) {
    const int pair = static_cast<int>(threadIdx.x) % kPairs;
    const int line = static_cast<int>(threadIdx.x) / kPairs;
    const auto* const from = reinterpret_cast<const float2*>(tile.line()) + pair;
    constexpr int kOwnLines = (kTileLines + kLinesAtOnce - 1) / kLinesAtOnce;
    float2 own_e[kOwnLines];
#pragma unroll
    for (int i = 0; i < kOwnLines; ++i) {
      const int r = line + i * kLinesAtOnce - pair;
      own_e[i] = {0, 0};
      if (r >= 0 && r < rows) own_e[i] = from[(line + i * kLinesAtOnce) * kPairs];
    }
#pragma unroll
    for (int i = 0; i < kOwnLines; ++i) {
      const int r = line + i * kLinesAtOnce - pair;
      if (r >= 0 && r < rows) {
        *reinterpret_cast<float2*>(e.of + r * CostTile::kStride + 2 * pair) = own_e[i];
      }
    }
  }
  __syncthreads();
  const OwnFours own;
  float* const to = static_cast<float*>(p.alignment) +
                    (static_cast<std::int64_t>(tile.pair) * p.n + tile.row0 + own.row) * p.m + tile.column0 +
                    own.column;
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int r = own.row + i * kRowsAtOnce;
    if (tile.row0 + r >= p.n) break;
    const auto at = [&](int k) {
      return r < rows && own.column + k < columns ? e.of[r * CostTile::kStride + own.column + k] : 0.0f;
    };
    float* const here = to + static_cast<std::int64_t>(i) * kRowsAtOnce * p.m;
    if (in_fours && tile.column0 + own.column < p.m) {
      *reinterpret_cast<float4*>(here) = {at(0), at(1), at(2), at(3)};
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (tile.column0 + own.column + k < p.m) here[k] = at(k);
    }
  }
}

const cuda::Kernel kMatrixToPanel{kKernels, "matrix_to_panel", nullptr, matrix_to_panel_kernel};
const cuda::Kernel kPanelToAlignment{kKernels, "panel_to_alignment", nullptr, panel_to_alignment_kernel};

Status launch_tiles(const cuda::Kernel<Params, bool>& kernel, const Params& p, bool in_fours,
                    cudaStream_t stream) {
  return cuda::launch(kernel, {p.batch * p.panel.strips * p.panel.tiles, kTileThreads, 0, stream}, p,
                      in_fours);
}

}  // namespace

Status copy_matrix_to_panel(const Params& p, cudaStream_t stream) {
  const bool in_fours = p.cost_stride[2] == 1 && p.cost_stride[1] % 4 == 0 && p.cost_stride[0] % 4 == 0 &&
                        is_aligned(p.cost, sizeof(float4));
  return launch_tiles(kMatrixToPanel, p, in_fours, stream);
}

Status copy_panel_to_alignment(const Params& p, cudaStream_t stream) {
  const bool in_fours = p.m % 4 == 0 && is_aligned(p.alignment, sizeof(float4));
  return launch_tiles(kPanelToAlignment, p, in_fours, stream);
}

}  // namespace warpalign::detail::soft_dtw
