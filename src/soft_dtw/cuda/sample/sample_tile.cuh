// A warp computes one tile of 32 x 32 cells of a pair's table: its costs, with a lane for each column, then
// the recursion, with a lane for each row. Lane t is t columns behind lane 0.
#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/rows/ragged.h"
#include "cuda/threads/warp.cuh"
#include "soft_dtw/band.h"
#include "soft_dtw/sample.h"

namespace warpalign::detail::soft_dtw {

static_assert(kSampleTile == cuda::kWarpSize);

struct SampleParams {
  SoftDtwProblem problem;
  SoftDtwSamples samples;
  int first_pair;  // of this turn
  SampleState* borders;
  std::int64_t borders_per_pair;  // states of a pair's rows, then of its columns
  std::int64_t rows_per_pair;
  std::uint8_t* has_paths;  // (pairs of the turn)
};

// One pair of the batch.
struct SampledPair {
  const SoftDtwProblem& p;
  int b, n, m;
  SampleBorders borders;
  SampleScale scale;

  // turn: the pair's number within the turn.
  static __device__ SampledPair of(const SampleParams& params, int turn) {
    const SoftDtwProblem& p = params.problem;
    const int b = params.first_pair + turn;
    SampleState* const borders = params.borders + turn * params.borders_per_pair;
    double gamma = p.gamma;
    if (p.gammas) {
      gamma = p.dtype == DType::kFloat64 ? static_cast<const double*>(p.gammas)[b]
                                         : static_cast<const float*>(p.gammas)[b];
    }
    return {p,
            b,
            cuda::true_length(p.x_lengths, b, p.n),
            cuda::true_length(p.y_lengths, b, p.m),
            {borders, borders + params.rows_per_pair},
            SampleScale(gamma, p.step_penalty)};
  }
};

// A step of a series, of numbers of type In.
template <class In>
__device__ __forceinline__ const In* sampled_step(const StridedTensor& series, int b, int i) {
  return static_cast<const In*>(series.data) + b * series.stride[0] + i * series.stride[1];
}

// 1 / |x| of a step; 0 for one that is too short to have a direction.
template <class In>
__device__ double sampled_reciprocal_norm(const StridedTensor& series, int b, int i, int dim) {
  const In* const step = sampled_step<In>(series, b, i);
  double largest = 0;
  for (int d = 0; d < dim; ++d) {
    const double size = fabs(static_cast<double>(step[d * series.stride[2]]));
    if (!(size <= largest)) largest = size;  // NaN stays
  }
  if (largest < (sizeof(In) == 4 ? FLT_MIN : DBL_MIN)) return 0;
  double squares = 0;
  for (int d = 0; d < dim; ++d) {
    const double part = static_cast<double>(step[d * series.stride[2]]) / largest;
    squares += part * part;
  }
  return 1.0 / (largest * sqrt(squares));
}

// Writes the sums over all features of term(x, y, row) to the costs of a tile's rows. Lane c has column
// column0 + c, or the pair's last one.
template <class In, class Term>
__device__ __forceinline__ void sum_features(const SampledPair& pair, int row0, int rows, int column0,
                                             int lane, SampleCell* tile, const Term& term) {
  constexpr int kAtOnce = 8, kRows = 4;
  const SoftDtwProblem& p = pair.p;
  const In* const y = sampled_step<In>(p.y, pair.b, min(column0 + lane, pair.m - 1));
  for (int first = 0; first < p.dim; first += kAtOnce) {
    double own[kAtOnce];
#pragma unroll
    for (int d = 0; d < kAtOnce; ++d) {
      own[d] = first + d < p.dim ? static_cast<double>(y[(first + d) * p.y.stride[2]]) : 0.0;
    }
    // Four rows at a time: their sums do not wait for one another.
    for (int r0 = 0; r0 < rows; r0 += kRows) {
      double x[kRows][kAtOnce];
      double sums[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = min(r0 + r, rows - 1);
        const In* const step = sampled_step<In>(p.x, pair.b, row0 + row) + first * p.x.stride[2];
#pragma unroll
        for (int d = 0; d < kAtOnce; ++d) {
          x[r][d] = first + d < p.dim ? static_cast<double>(step[d * p.x.stride[2]]) : 0.0;
        }
        sums[r] = first > 0 ? tile[row * kSampleTile + lane].cost : 0.0;
      }
#pragma unroll
      for (int d = 0; d < kAtOnce; ++d) {
        if (first + d >= p.dim) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r] += term(x[r][d], own[d], min(r0 + r, rows - 1));
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r0 + r < rows) tile[(r0 + r) * kSampleTile + lane].cost = sums[r];
      }
    }
  }
}

template <class In>
__device__ void make_cosines(const SampledPair& pair, int row0, int rows, int column0, int lane,
                             SampleCell* tile) {
  const SoftDtwProblem& p = pair.p;
  const double of_row = sampled_reciprocal_norm<In>(p.x, pair.b, min(row0 + lane, pair.n - 1), p.dim);
  const double of_column = sampled_reciprocal_norm<In>(p.y, pair.b, min(column0 + lane, pair.m - 1), p.dim);
  sum_features<In>(pair, row0, rows, column0, lane, tile,
                   [&](double x, double y, int r) { return x * cuda::shuffle(of_row, r) * (y * of_column); });
  for (int r = 0; r < rows; ++r) {
    double& cost = tile[r * kSampleTile + lane].cost;
    cost = 1.0 - cost;
  }
}

template <class In>
__device__ void make_costs(const SampledPair& pair, int row0, int rows, int column0, int lane,
                           SampleCell* tile) {
  const SoftDtwProblem& p = pair.p;
  if (p.cost.data) {
    const int column = min(column0 + lane, pair.m - 1);
    for (int r = 0; r < rows; ++r) {
      const In* const from = sampled_step<In>(p.cost, pair.b, row0 + r);
      tile[r * kSampleTile + lane].cost = static_cast<double>(from[column * p.cost.stride[2]]);
    }
    return;
  }
  const auto sum = [&](const auto& term) { sum_features<In>(pair, row0, rows, column0, lane, tile, term); };
  switch (p.cost_kind) {
    case CostKind::kCosine:
      make_cosines<In>(pair, row0, rows, column0, lane, tile);
      break;
    case CostKind::kL1:
      sum([](double x, double y, int) { return fabs(x - y); });
      break;
    case CostKind::kHuber:
      sum([](double x, double y, int) {
        const double size = fabs(x - y);
        return size <= 1 ? 0.5 * size * size : size - 0.5;
      });
      break;
    case CostKind::kSquaredEuclidean:
    case CostKind::kEuclidean:
      sum([](double x, double y, int) { return (x - y) * (x - y); });
      break;
  }
  const bool is_norm = p.cost_kind == CostKind::kEuclidean;
  if (!is_norm && !p.x_mask && !p.y_mask) return;
  const std::int64_t column = min(column0 + lane, pair.m - 1);
  const bool no_column = p.y_mask && p.y_mask[pair.b * static_cast<std::int64_t>(p.m) + column];
  for (int r = 0; r < rows; ++r) {
    double& cost = tile[r * kSampleTile + lane].cost;
    const bool no_row = p.x_mask && p.x_mask[pair.b * static_cast<std::int64_t>(p.n) + row0 + r];
    if (no_row || no_column) {
      cost = 0;
    } else if (is_norm) {
      cost = sqrt(cost);
    }
  }
}

// What a tile's sweep has found, for each lane's row.
struct SampledRow {
  bool fine;         // all costs in the band were numbers above -inf
  SampleState last;  // the row's last cell in the tile
};

// Computes tile (row, column) of the pair's table of tiles, by the whole warp. The tiles above, on the left
// and between them have been computed. With kChances, the tile's cells get their chances; without, its last
// row and column are kept.
template <bool kChances>
__device__ SampledRow compute_tile(const SampledPair& pair, int tile_row, int tile_column, int lane,
                                   SampleCell* tile) {
  const int n = pair.n, m = pair.m;
  const int row0 = tile_row * kSampleTile, column0 = tile_column * kSampleTile;
  const int rows = min(kSampleTile, n - row0), columns = min(kSampleTile, m - column0);
  const int i = row0 + lane;
  const IndexRange inside = lane < rows ? band_columns(pair.p.band, i, n, m) : IndexRange{0, 0};
  const bool is_used = inside.begin < column0 + columns && inside.end > column0;
  if (__any_sync(cuda::kFullWarp, is_used)) {
    if (pair.p.dtype == DType::kFloat64) {
      make_costs<double>(pair, row0, rows, column0, lane, tile);
    } else {
      make_costs<float>(pair, row0, rows, column0, lane, tile);
    }
  }
  __syncwarp();
  // The row above, a column for each lane, and the cells on the left of the lane's row.
  const SampleState above = lane < columns ? pair.borders.at(row0 - 1, column0 + lane, n, m) : sample_dead();
  SampleState diagonal = lane < rows ? pair.borders.at(i - 1, column0 - 1, n, m) : sample_dead();
  SampleState last = lane < rows ? pair.borders.at(i, column0 - 1, n, m) : sample_dead();
  bool fine = true;
  for (int step = 0; step < rows + columns - 1; ++step) {
    const int c = step - lane;
    const SampleState from_row_above = cuda::shuffle(above, step % kSampleTile);
    const SampleState from_lane_above = cuda::shuffle_up(last);
    if (c < 0 || c >= columns || lane >= rows) continue;
    const SampleState up = lane == 0 ? from_row_above : from_lane_above;
    SampleCell& cell = tile[lane * kSampleTile + c];
    SampleState z = sample_dead();
    if (column0 + c >= inside.begin && column0 + c < inside.end) {
      SampleParts parts;
      fine = fine && cell.cost > -HUGE_VAL;
      z = sample_advance(cell.cost, pair.scale, up, last, diagonal, &parts);
      if (kChances) cell.chances = sample_chances(parts);
    }
    diagonal = up;
    last = z;
    if (!kChances && lane == kSampleTile - 1)
      pair.borders.rows[static_cast<std::int64_t>(tile_row) * m + column0 + c] = z;
  }
  if (!kChances && lane < rows && columns == kSampleTile)
    pair.borders.columns[static_cast<std::int64_t>(tile_column) * n + i] = last;
  __syncwarp();
  return {fine, last};
}

}  // namespace warpalign::detail::soft_dtw
