// In which order a call enqueues its layers and their chunks of steps, and what overlaps. Forward passes
// begin with the first layer and the first chunk, backward passes with the last ones: n and k count from
// there.
#pragma once

#include <algorithm>
#include <span>

namespace warpalign::detail::recurrent {

enum class Overlap {
  kNone,     // layer after layer, chunk after chunk: everything is on the call's own stream
  kStreams,  // layer n sweeps chunk k while layer n + 1 sweeps chunk k - 1, each on a stream of its own
  kPairs,    // a launch sweeps chunks of two layers, each on half of the blocks
};

// Chunk k of the n-th layer to begin.
struct LayerChunk {
  int n, k;
};

// act(list) for chunks that are swept side by side, which are two with kPairs, in an order in which each one
// finds its predecessors: the chunk before, and the same chunk of the layer before.
template <class Act>
void for_turns(Overlap overlap, int layers, int chunks, const Act& act) {
  LayerChunk list[2];
  const auto alone = [&](int n, int k) {
    list[0] = {n, k};
    act(std::span(list, 1));
  };
  if (overlap == Overlap::kNone) {
    for (int n = 0; n < layers; ++n) {
      for (int k = 0; k < chunks; ++k) alone(n, k);
    }
  } else if (overlap == Overlap::kStreams) {
    for (int turn = 0; turn < layers + chunks - 1; ++turn) {
      for (int n = std::max(0, turn - chunks + 1); n <= std::min(turn, layers - 1); ++n) alone(n, turn - n);
    }
  } else {
    // Layers take turns on the halves of the blocks: the second half is a chunk later than the first one.
    const int ends[2] = {(layers + 1) / 2 * chunks, layers / 2 * chunks + 1};
    for (int turn = 0; turn < std::max(ends[0], ends[1]); ++turn) {
      std::size_t count = 0;
      for (int half = 0; half < 2; ++half) {
        if (turn < half || turn >= ends[half]) continue;
        list[count++] = {(turn - half) / chunks * 2 + half, (turn - half) % chunks};
      }
      act(std::span(list, count));
    }
  }
}

}  // namespace warpalign::detail::recurrent
