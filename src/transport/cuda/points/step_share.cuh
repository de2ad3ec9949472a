// The division of the steps of a pass over points among a team's blocks. A tile of own points has as many
// steps as the other side has stages. Each block owns a run of steps, which may begin and end within a tile,
// so that the blocks' numbers of steps differ by at most one. A tile's sums have a part from each block that
// works on it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/anywhere.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::transport {

class StepShare {
 public:
  // stages: those of the other side, at least 1. If there are more blocks than steps, the last ones have no
  // run.
  WARPALIGN_ANYWHERE constexpr StepShare(int tiles, int stages, int blocks)
      : stages_(stages),
        steps_(static_cast<std::int64_t>(tiles) * stages),
        blocks_(static_cast<int>(std::clamp<std::int64_t>(steps_, 1, blocks))) {}
  // The same with at most `most` parts of a tile (at least 2, unless there is one stage): fewer blocks have
  // runs if necessary.
  WARPALIGN_ANYWHERE constexpr StepShare(int tiles, int stages, int blocks, int most)
      : StepShare(tiles, stages, blocks) {
    if (most_parts() <= most) return;
    const std::int64_t run = cuda::div_up(stages - 1, std::max(most - 1, 1));
    blocks_ = static_cast<int>(std::max<std::int64_t>(steps_ / std::max<std::int64_t>(run, 1), 1));
  }

  // The number of blocks that work on a tile.
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int parts(int tile) const {
    return rank_of(static_cast<std::int64_t>(tile + 1) * stages_ - 1) - first_rank(tile) + 1;
  }
  // An upper bound of parts(): at most ceil((stages - 1) * blocks / steps) runs begin inside a tile.
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int most_parts() const {
    const std::int64_t apart = (std::int64_t{stages_ - 1} * blocks_ + steps_ - 1) / steps_;
    return static_cast<int>(std::min<std::int64_t>(stages_, apart + 1));
  }

  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int tiles() const { return static_cast<int>(steps_ / stages_); }
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int stages() const { return stages_; }
  // The block that has a tile's first step. The following blocks have the following parts.
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int first_rank(int tile) const {
    return rank_of(static_cast<std::int64_t>(tile) * stages_);
  }

  // Calls body(tile, part, first stage, last stage) for the tiles of a block's run.
  template <class Body>
  WARPALIGN_ANYWHERE constexpr void each(int rank, const Body& body) const {
    if (rank >= blocks_) return;
    std::int64_t at = steps_ * rank / blocks_;
    const std::int64_t end = steps_ * (rank + 1) / blocks_;
    while (at < end) {
      const int tile = static_cast<int>(at / stages_);
      const std::int64_t begin = static_cast<std::int64_t>(tile) * stages_;
      const std::int64_t last = std::min(end, begin + stages_);
      body(tile, rank - first_rank(tile), static_cast<int>(at - begin), static_cast<int>(last - begin));
      at = last;
    }
  }

 private:
  // The block that has a step.
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int rank_of(std::int64_t step) const {
    return static_cast<int>(((step + 1) * blocks_ - 1) / steps_);
  }

  int stages_;
  std::int64_t steps_;
  int blocks_;
};

}  // namespace warpalign::detail::transport
