// Blocks of rows, distributed among the threads of one problem. A block's results depend on the problem
// alone, and blocks are joined in order: results are bitwise identical for any number of threads.
#pragma once

#include <algorithm>
#include <atomic>

#include "warpalign/execution.h"

namespace warpalign::detail::transport {

constexpr int kMostBlocks = 16;
constexpr int kRowsWorthABlock = 64;

inline int blocks_of(int rows) { return std::clamp(rows / kRowsWorthABlock, 1, kMostBlocks); }
inline int first_row(int block, int blocks, int rows) {
  return static_cast<int>(static_cast<long long>(rows) * block / blocks);
}

class BlockTeam {
 public:
  BlockTeam(const ParallelFor& parallel_for, int threads) : parallel_for_(parallel_for), threads_(threads) {}

  // Calls body(block, worker) for every block. worker < threads identifies scratch memory that no other call
  // uses at the same time.
  template <class Body>
  void run(int blocks, const Body& body) const {
    struct Shared {
      const Body& body;
      const int blocks;
      std::atomic<int> next{0};
    } shared{body, blocks};
    const auto work = [](void* state, int worker) {
      auto& of = *static_cast<Shared*>(state);
      for (int block = of.next++; block < of.blocks; block = of.next++) of.body(block, worker);
    };
    const int workers = std::min(threads_, blocks);
    if (workers == 1) return work(&shared, 0);
    parallel_for_.run(parallel_for_.context, workers, work, &shared);
  }

 private:
  const ParallelFor parallel_for_;
  const int threads_;
};

}  // namespace warpalign::detail::transport
