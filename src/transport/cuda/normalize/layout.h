// How a matrix is shared out to lanes. Plain numbers, computed on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/anywhere.h"

namespace warpalign::detail::transport {

inline constexpr int kLineElements = 16;  // the most elements of a row, and of a column, that a lane owns
inline constexpr int kNormalizeThreads = 128;  // of a block with several matrices
inline constexpr int kMostNormalizeThreads = 256;

// lines: rows or columns that a group of lanes has, at least max(n, m). parts: lanes that share a line,
// neighbours in a warp. A lane's elements of its lines begin at part * 4 * quads.
struct NormalizeLayout {
  int lines = 0, parts = 0, quads = 0;
  int matrices = 0;  // of a block
  int threads = 0;   // of a block

  NormalizeLayout() = default;
  NormalizeLayout(int n, int m) {
    const int longest = std::max({n, m, 4});
    lines = static_cast<int>(std::bit_ceil(static_cast<unsigned>(longest)));
    parts = std::max(1, lines / kLineElements);
    quads = (longest + 4 * parts - 1) / (4 * parts);
    const int lanes = lines * parts;
    matrices = std::max(1, kNormalizeThreads / lanes);
    threads = matrices * lanes;
  }

  // Numbers of a matrix: `slots` rows of `lines` each, for what lanes tell each other.
  [[nodiscard]] WARPALIGN_ANYWHERE std::size_t exchange(int slots) const {
    return static_cast<std::size_t>(lines) * slots;
  }
  // A matrix in shared memory. A row has one number more, so that a column's are in different banks.
  [[nodiscard]] WARPALIGN_ANYWHERE int tile_stride() const { return lines + 1; }
  [[nodiscard]] WARPALIGN_ANYWHERE std::size_t tile() const {
    return static_cast<std::size_t>(lines) * tile_stride();
  }
};

}  // namespace warpalign::detail::transport
