#include <algorithm>
#include <string>

#include "core/arena.h"
#include "cuda/launch/shared.cuh"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/sample/sample_call.h"
#include "soft_dtw/cuda/sample/sample_tile.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

using cuda::kWarpSize;

constexpr int kTileBytes = kSampleTile * kSampleTile * sizeof(SampleCell);
constexpr int kMostBorderWarps = 8;
constexpr std::size_t kMostBorderBytes = std::size_t{1} << 28;  // but one pair's at least

__device__ SampleCell* own_tile() {
  return reinterpret_cast<SampleCell*>(cuda::dynamic_shared() + threadIdx.x / kWarpSize * kTileBytes);
}

// A block has a pair. Its warps take as many rows of tiles at a time, and go along them one tile apart: what
// a warp reads of the row above was written before the last barrier.
__global__ void __launch_bounds__(kMostBorderWarps* kWarpSize)
    sample_borders_kernel(const __grid_constant__ SampleParams params) {
  const SampledPair pair = SampledPair::of(params, static_cast<int>(blockIdx.x));
  const int warp = threadIdx.x / kWarpSize, warps = blockDim.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int tile_rows = sample_tiles(pair.n), tile_columns = sample_tiles(pair.m);
  __shared__ bool has_paths;  // false: a warp has found a reason why not
  if (threadIdx.x == 0) has_paths = true;
  bool fine = true;
  for (int first = 0; first < tile_rows; first += warps) {
    const int tile_row = first + warp;
    for (int step = 0; step < tile_columns + warps - 1; ++step) {
      const int tile_column = step - warp;
      if (tile_row < tile_rows && tile_column >= 0 && tile_column < tile_columns) {
        const SampledRow row = compute_tile<false>(pair, tile_row, tile_column, lane, own_tile());
        fine = fine && row.fine;
        const bool is_end = tile_column == tile_columns - 1 && tile_row * kSampleTile + lane == pair.n - 1;
        if (is_end) fine = fine && row.last.exponent > kSampleNoPath;
      }
      __syncthreads();
    }
  }
  if (!fine) has_paths = false;
  __syncthreads();
  if (threadIdx.x == 0) params.has_paths[blockIdx.x] = has_paths;
}

// Moves a path of `cells` cells from the end of its place to its beginning, and fills the rest with -1.
__device__ void finish_path(std::int64_t* path, std::int64_t cells, std::int64_t longest, int lane) {
  for (std::int64_t first = 0; first < 2 * longest; first += kWarpSize) {
    const std::int64_t at = first + lane;
    const bool is_cell = at < 2 * cells;
    const std::int64_t value = is_cell ? path[2 * (longest - cells) + at] : -1;
    __syncwarp();  // nothing is written that is still to be read: a path moves towards its beginning
    if (at < 2 * longest) path[at] = value;
    __syncwarp();
  }
}

// A block is a warp with some paths of a pair, one for each of its first lanes.
__global__ void __launch_bounds__(kWarpSize)
    sample_paths_kernel(const __grid_constant__ SampleParams params, int groups, int paths_per_warp) {
  const int turn = static_cast<int>(blockIdx.x) / groups, lane = threadIdx.x;
  const SampledPair pair = SampledPair::of(params, turn);
  const SoftDtwSamples& out = params.samples;
  const int first = static_cast<int>(blockIdx.x) % groups * paths_per_warp, number = first + lane;
  const bool has_path = lane < paths_per_warp && number < out.paths_per_pair;
  const std::int64_t longest = static_cast<std::int64_t>(pair.p.n) + pair.p.m - 1;
  std::int64_t* const paths =
      out.paths + (static_cast<std::int64_t>(pair.b) * out.paths_per_pair + first) * 2 * longest;
  const bool draws_one = has_path && params.has_paths[turn];
  const int tile_columns = sample_tiles(pair.m);
  SamplePlace place{pair.n - 1, pair.m - 1, 0};
  SampleDraws draws(out.seed, pair.b, number);
  const auto note = [&] {
    std::int64_t* const cell = paths + 2 * (lane * longest + longest - 1 - place.steps);
    if (!draws_one) return;
    cell[0] = place.i;
    cell[1] = place.j;
  };
  note();
  while (true) {
    const bool ended = !draws_one || place.i + place.j == 0;
    const long long own =
        ended ? -1 : static_cast<long long>(place.i / kSampleTile) * tile_columns + place.j / kSampleTile;
    const long long next = cuda::reduce(own, [](long long a, long long b) { return a > b ? a : b; });
    if (next < 0) break;
    const int tile_row = static_cast<int>(next / tile_columns),
              tile_column = static_cast<int>(next % tile_columns);
    SampleCell* const tile = own_tile();
    compute_tile<true>(pair, tile_row, tile_column, lane, tile);
    const int row0 = tile_row * kSampleTile, column0 = tile_column * kSampleTile;
    while (own == next && place.i >= row0 && place.j >= column0 && place.i + place.j > 0) {
      sample_step(tile[(place.i - row0) * kSampleTile + place.j - column0].chances, draws, place);
      note();
    }
    __syncwarp();
  }
  __syncwarp();
  const std::int64_t cells = draws_one ? place.steps + 1 : 0;
  if (has_path) out.lengths[static_cast<std::int64_t>(pair.b) * out.paths_per_pair + number] = cells;
  for (int s = 0; s < min(paths_per_warp, out.paths_per_pair - first); ++s) {
    finish_path(paths + s * 2 * longest, cuda::shuffle(cells, s), longest, lane);
  }
}

const cuda::Kernel kBorders{kKernels, "sample_borders", nullptr, sample_borders_kernel};
const cuda::Kernel kPaths{kKernels, "sample_paths", nullptr, sample_paths_kernel};

// A warp computes every tile that one of its paths crosses. So a warp for each path is done first, and a warp
// for many saves work: the most that leave each multiprocessor some warps.
int paths_of_warp(int batch, int paths, int multiprocessors) {
  constexpr std::int64_t kWarps = 4;
  int most = kWarpSize;
  while (most > 1 && static_cast<std::int64_t>(batch) * cuda::div_up(paths, most) < kWarps * multiprocessors)
    most /= 2;
  return most;
}

// How pairs take turns, and where everything lies.
struct SamplePlan {
  std::int64_t rows_per_pair, borders_per_pair;
  int pairs;                   // of a turn
  int paths_per_warp, groups;  // groups: warps of a pair
  SampleState* borders;
  std::uint8_t* has_paths;

  SamplePlan(const SoftDtwProblem& p, const SoftDtwSamples& samples, const cuda::DeviceTraits& device,
             Arena& arena)
      : rows_per_pair(std::int64_t{sample_tiles(p.n)} * p.m),
        borders_per_pair(rows_per_pair + std::int64_t{sample_tiles(p.m)} * p.n),
        paths_per_warp(paths_of_warp(p.batch, samples.paths_per_pair, device.multiprocessors)),
        groups(cuda::div_up(samples.paths_per_pair, paths_per_warp)) {
    const std::int64_t fit =
        static_cast<std::int64_t>(kMostBorderBytes / sizeof(SampleState)) / borders_per_pair;
    constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
    pairs = static_cast<int>(std::clamp<std::int64_t>(std::min(fit, kMostBlocks / groups), 1, p.batch));
    borders = arena.take<SampleState>(static_cast<std::size_t>(pairs) * borders_per_pair, "borders of tiles");
    has_paths = arena.take<std::uint8_t>(pairs, "which pairs have paths");
  }
};

}  // namespace

std::size_t sample_workspace_bytes_cuda(const SoftDtwProblem& p, const SoftDtwSamples& samples,
                                        const Execution& execution) {
  Arena arena;
  static_cast<void>(SamplePlan(p, samples, cuda::traits_of(execution.cuda_device), arena));
  return arena.used();
}

Status sample_cuda(const SoftDtwProblem& p, const SoftDtwSamples& samples, Workspace workspace,
                   const Execution& execution) {
  if (Status s = cuda::check_device(execution.cuda_device); !s.ok()) return s;
  PlanLog* const log = PlanLog::current();
  if (log) log->begin("soft_dtw_sample", cuda::name_of_device(execution.cuda_device));
  Arena arena(workspace.data);
  const cuda::DeviceTraits device = cuda::traits_of(execution.cuda_device);
  const SamplePlan plan(p, samples, device, arena);
  const int most = device.shared_bytes_per_block / kTileBytes;
  const int warps = std::clamp(std::min(sample_tiles(p.n), most), 1, kMostBorderWarps);
  if (log) {
    log->line("way", "the only one: borders of tiles, then paths, " + std::to_string(plan.pairs) +
                         " pairs at a time");
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  SampleParams params{p, samples, 0, plan.borders, plan.borders_per_pair, plan.rows_per_pair, plan.has_paths};
  for (; params.first_pair < p.batch; params.first_pair += plan.pairs) {
    const int pairs = std::min(plan.pairs, p.batch - params.first_pair);
    const std::size_t bytes = static_cast<std::size_t>(warps) * kTileBytes;
    Status s = cuda::launch(kBorders, {pairs, warps * kWarpSize, bytes, stream}, params);
    if (s.ok())
      s = cuda::launch(kPaths, {pairs * plan.groups, kWarpSize, kTileBytes, stream}, params, plan.groups,
                       plan.paths_per_warp);
    if (!s.ok()) return s;
  }
  return {};
}

}  // namespace warpalign::detail::soft_dtw
