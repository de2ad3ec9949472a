// Sampled alignments, for both paths: the cell, the chances of its predecessors, a path's random numbers, and
// what is kept between the two sweeps.
//
// The table is cut in tiles of 32 x 32 cells. The first sweep keeps the last row and the last column of every
// tile. The second one goes from the end to the start: from what is kept beside a tile it computes the tile
// again, with the chances of each cell's predecessors, and draws the steps of all paths within. It visits
// those tiles alone through which a path leads. Tiles are numbered by rows. A path's next tile has a smaller
// number, so that in the order of falling numbers no tile is computed twice.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/anywhere.h"
#include "core/constants.h"
#include "core/philox.h"
#include "warpalign/soft_dtw_sample.h"

namespace warpalign::detail::soft_dtw {

constexpr int kSampleTile = 32;

constexpr int sample_tiles(int length) { return (length + kSampleTile - 1) / kSampleTile; }

// Z = 2^(-R log2(e)/gamma) as a mantissa in [1, 2) and a double that holds an integer as exponent
// (docs/numerics.md).
struct alignas(16) SampleState {
  double mantissa;
  double exponent;
};

// A cell that no path enters. A cost is at most kSampleForbidden, in base 2.
constexpr double kSampleDead = -1e300;
constexpr double kSampleForbidden = 1e299;
constexpr double kSampleNoPath = -1e297;

WARPALIGN_ANYWHERE inline SampleState sample_dead() { return {1.0, kSampleDead}; }

// 2^exponent, for a normal result.
WARPALIGN_ANYWHERE inline double sample_power(int exponent) {
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double power = 0;
  memcpy(&power, &bits, sizeof(power));
  return power;
}

// The number's mantissa for a larger exponent; 0 below 2^-1000 of it.
WARPALIGN_ANYWHERE inline double sample_aligned(const SampleState& state, double exponent) {
  const double shift = state.exponent - exponent;
  return shift < -1000.0 ? 0.0 : state.mantissa * sample_power(static_cast<int>(shift));
}

// What the predecessors contribute to a cell, on one scale.
struct SampleParts {
  double up, left, diagonal;
};

// gamma and the penalty of a pair.
struct SampleScale {
  double per_cost;   // log2(e) / gamma
  SampleState step;  // 2^-penalty, of a step that is not diagonal

  WARPALIGN_ANYWHERE SampleScale(double gamma, double penalty)
      : per_cost(kLog2E<double> / gamma), step{1.0, 0.0} {
    const double c = penalty * per_cost;
    const double whole = rint(c < kSampleForbidden ? c : kSampleForbidden);
    step = {c < 0x1p52 ? exp2(whole - c) : 1.0, -whole};
  }
};

// Z[i,j] = 2^(-c[i,j]) (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]). The caller notes the pairs with NaN or -inf as a
// cost.
WARPALIGN_ANYWHERE inline SampleState sample_advance(double cost, const SampleScale& scale,
                                                     const SampleState& up, const SampleState& left,
                                                     const SampleState& diagonal, SampleParts* parts) {
  const SampleState from_up = {up.mantissa * scale.step.mantissa, up.exponent + scale.step.exponent};
  const SampleState from_left = {left.mantissa * scale.step.mantissa, left.exponent + scale.step.exponent};
  const double beside = from_up.exponent > from_left.exponent ? from_up.exponent : from_left.exponent;
  const double largest = beside > diagonal.exponent ? beside : diagonal.exponent;
  *parts = {sample_aligned(from_up, largest), sample_aligned(from_left, largest),
            sample_aligned(diagonal, largest)};
  const double sum = parts->up + parts->left + parts->diagonal;
  double c = cost * scale.per_cost;
  c = c < kSampleForbidden ? c : kSampleForbidden;
  c = c > -kSampleForbidden ? c : -kSampleForbidden;
  const double whole = rint(c);
  const double z = sum * exp2(whole - c);
  std::uint64_t bits = 0;
  memcpy(&bits, &z, sizeof(bits));
  const double exponent = largest - whole + (static_cast<int>(bits >> 52) - 1023);
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  SampleState state{0, exponent > kSampleDead ? exponent : kSampleDead};
  memcpy(&state.mantissa, &bits, sizeof(bits));
  return state;
}

// The chances of a cell's predecessors: a number u of 31 bits leads to the diagonal one if u < diagonal, else
// to the one above if u < not_left, else to the left one. A predecessor that no path enters has no chance.
struct SampleChances {
  std::uint32_t diagonal;
  std::uint32_t not_left;
};

WARPALIGN_ANYWHERE inline SampleChances sample_chances(const SampleParts& parts) {
  const double unit = 2147483648.0 / (parts.up + parts.left + parts.diagonal);
  const double diagonal = parts.diagonal * unit;
  const double not_left = (parts.diagonal + parts.up) * unit;
  // Without `left` the second number is the whole: it is set, since its rounding may be below.
  return {parts.up + parts.left > 0 ? static_cast<std::uint32_t>(rint(diagonal)) : 0x80000000u,
          parts.left > 0 ? static_cast<std::uint32_t>(rint(not_left)) : 0x80000000u};
}

// A cell of a tile: its cost, then its chances in the same place.
union SampleCell {
  double cost;
  SampleChances chances;
};

// The random numbers of a path: step k takes word k % 4 of Philox's block k / 4.
class SampleDraws {
 public:
  WARPALIGN_ANYWHERE SampleDraws(std::uint64_t seed, std::int32_t pair, std::int32_t path)
      : seed_(seed), pair_(pair), path_(path) {}

  // 31 bits for step k, counted from the path's end.
  WARPALIGN_ANYWHERE std::uint32_t at(std::int32_t k) {
    const std::int32_t block = k / 4;
    if (block != block_) {
      words_ = philox({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(path_),
                        static_cast<std::uint32_t>(pair_), 0}},
                      seed_);
      block_ = block;
    }
    const int word = k % 4;
    const std::uint32_t low = word == 0 ? words_.word[0] : words_.word[1];
    const std::uint32_t high = word == 2 ? words_.word[2] : words_.word[3];
    return (word < 2 ? low : high) >> 1;
  }

 private:
  std::uint64_t seed_;
  std::int32_t pair_, path_;
  std::int32_t block_ = -1;
  PhiloxWords words_{};
};

// Where a path is: a cell, and the number of steps drawn.
struct SamplePlace {
  std::int32_t i, j, steps;
};

// One step towards (0, 0), which has not been reached.
WARPALIGN_ANYWHERE inline void sample_step(const SampleChances& chances, SampleDraws& draws,
                                           SamplePlace& place) {
  const std::uint32_t u = draws.at(place.steps++);
  const bool up = u < chances.not_left;
  const bool diagonal = u < chances.diagonal;
  if (diagonal || up) --place.i;
  if (diagonal || !up) --place.j;
}

// What the first sweep of a pair keeps.
struct SampleBorders {
  SampleState* rows;     // (tiles of n, m): the last row of each row of tiles
  SampleState* columns;  // (tiles of m, n): the last column of each column of tiles

  // Z[i,j] of a cell that is kept, or that is outside of the table.
  [[nodiscard]] WARPALIGN_ANYWHERE SampleState at(int i, int j, int n, int m) const {
    if (i < 0 || j < 0) return i == j ? SampleState{1.0, 0.0} : sample_dead();
    if ((i + 1) % kSampleTile == 0) return rows[static_cast<std::int64_t>(i / kSampleTile) * m + j];
    return columns[static_cast<std::int64_t>(j / kSampleTile) * n + i];
  }
};

}  // namespace warpalign::detail::soft_dtw
