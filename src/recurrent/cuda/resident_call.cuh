// Which calls run as resident sweeps, and their launch.
#pragma once

#include "recurrent/cuda/pair_backward.cuh"
#include "recurrent/cuda/pair_forward.cuh"
#include "recurrent/cuda/product_steps.cuh"

namespace warpalign::detail::recurrent {

constexpr int kMostResidentHidden = 2048;
constexpr int kMostHiddenInRegisters = 1024;

// Whether a device may run the problem this way. The same for every device, since memory is laid out by it.
template <class T>
bool may_be_resident(const LstmProblem& p) {
  return sizeof(T) == 2 && !p.layer_norm && p.projection == 0 && p.hidden % kWordEntries == 0 &&
         p.hidden <= kMostResidentHidden;
}

template <class T, int kSteps, bool kShares, bool kPlain>
inline const cuda::Kernel kResidentForward{
    kKernels,
    kShares ? (kPlain ? "grid, shared memory" : "grid, shared memory, options")
            : (kPlain ? "grid" : "grid, options"),
    cuda::type_name<T>(), resident_forward_kernel<T, kSteps, kShares, kPlain>};
template <class T, int kSteps, bool kShares, bool kPlain>
inline const cuda::Kernel kResidentBackward{
    kKernels,
    kShares ? (kPlain ? "grid back, shared memory" : "grid back, shared memory, options")
            : (kPlain ? "grid back" : "grid back, options"),
    cuda::type_name<T>(), resident_backward_kernel<T, kSteps, kShares, kPlain>};

template <class T, int kSteps, bool kShares, bool kPlain>
inline const cuda::Kernel kPairForward{
    kKernels,
    kShares ? (kPlain ? "grid of pairs, shared memory" : "grid of pairs, shared memory, options")
            : (kPlain ? "grid of pairs" : "grid of pairs, options"),
    cuda::type_name<T>(), pair_forward_kernel<T, kSteps, kShares, kPlain>};
template <class T, int kSteps, bool kShares, bool kPlain>
inline const cuda::Kernel kPairBackward{
    kKernels,
    kShares ? (kPlain ? "grid of pairs back, shared memory" : "grid of pairs back, shared memory, options")
            : (kPlain ? "grid of pairs back" : "grid of pairs back, options"),
    cuda::type_name<T>(), pair_backward_kernel<T, kSteps, kShares, kPlain>};

// A kernel, and where it has the weights. Backward a block has four times the depth, and a quarter of the
// rows.
template <class T>
struct ResidentKernel {
  const cuda::Kernel<ResidentParams<T>>* kernel;
  int weight_tiles, shared_steps;
  bool pairs;  // of tiles of rows

  static ResidentKernel of(int hidden, bool backward, bool plain, bool pairs) {
    return plain ? of<true>(hidden, backward, pairs) : of<false>(hidden, backward, pairs);
  }
  // Shared memory for a slice of so many tiles of rows.
  [[nodiscard]] std::size_t bytes(int tiles) const {
    return fixed_bytes() + (pairs ? cuda::div_up(tiles, 2) * kPairBytes : tiles * kTileBytes);
  }
  // The most tiles of a slice for which so much shared memory is enough.
  [[nodiscard]] int most_tiles(std::size_t bytes) const {
    const std::size_t left = bytes - fixed_bytes();
    return static_cast<int>(pairs ? left / kPairBytes * 2 : left / kTileBytes);
  }

 private:
  [[nodiscard]] std::size_t fixed_bytes() const {
    return (pairs ? 2 : 1) * partials_bytes(weight_tiles) + weight_tiles * shared_steps * kSharedStepBytes;
  }
  template <bool kPlain>
  static ResidentKernel of(int hidden, bool backward, bool pairs) {
    if (hidden > kMostHiddenInRegisters) {
      constexpr int kForward = 8, kBackward = 24;  // steps in registers
      const int steps = cuda::div_up((backward ? 4 : 1) * hidden, kResidentWarps * kStepEntries);
      if (backward) return {of_tiles<true, kBackward, true, kPlain>(pairs), 1, steps - kBackward, pairs};
      return {of_tiles<false, kForward, true, kPlain>(pairs), 4, steps - kForward, pairs};
    }
    if (backward) return {of_tiles<true, 32, false, kPlain>(pairs), 1, 0, pairs};
    return {of_tiles<false, 8, false, kPlain>(pairs), 4, 0, pairs};
  }
  template <bool kBackward, int kSteps, bool kShares, bool kPlain>
  static const cuda::Kernel<ResidentParams<T>>* of_tiles(bool pairs) {
    if constexpr (kBackward) {
      if (pairs) return &kPairBackward<T, kSteps, kShares, kPlain>;
      return &kResidentBackward<T, kSteps, kShares, kPlain>;
    } else {
      if (pairs) return &kPairForward<T, kSteps, kShares, kPlain>;
      return &kResidentForward<T, kSteps, kShares, kPlain>;
    }
  }
};

// Enqueues the sweep of a layer; false: it needs a launch per step.
template <class T>
bool run_resident(Queue& queue, const LstmProblem& p, const StepParams<T>& step, bool backward) {
  if constexpr (sizeof(T) == 2) {
    constexpr int kFirstMajor = 8;  // with the matrix instructions of 16-bit types
    int device = 0;
    if (!may_be_resident<T>(p) || !queue.status().ok() || !cuda::to_status(cudaGetDevice(&device)).ok()) {
      return false;
    }
    if (has_few_steps(queue, p)) return false;
    if (cuda::attribute(cudaDevAttrComputeCapabilityMajor, device) < kFirstMajor) return false;
    auto way = ResidentKernel<T>::of(p.hidden, backward, is_plain(p), false);
    const auto most = static_cast<std::size_t>(std::max(cuda::limits_of(device).shared_bytes_per_block, 0));
    if (most < way.bytes(1)) return false;
    const int directions = directions_of(p), ranks = cuda::div_up(p.hidden, kOwnUnits);
    cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
    config.shared_bytes = most;  // so that a block has a multiprocessor to itself
    int resident = 0;
    if (!cuda::resident_blocks(way.kernel->function(), config, &resident).ok()) return false;
    const int most_groups = resident / (directions * ranks);
    if (most_groups == 0) return false;
    const int all_tiles = cuda::div_up(p.batch, 8);
    if (all_tiles >= kTilesOfProducts * most_groups && takes_products<T>(queue, p)) return false;
    // A row's bits depend on the way, so that one way has to serve all batches where they must not.
    const auto pairs = ResidentKernel<T>::of(p.hidden, backward, is_plain(p), true);
    if (cuda::div_up(all_tiles, most_groups) >= kTilesOfPairs && !queue.execution().batch_invariant &&
        takes_words(p, step) && most >= pairs.bytes(kTilesOfPairs)) {
      int of_pairs = 0;
      const Status status = cuda::resident_blocks(pairs.kernel->function(), config, &of_pairs);
      if (status.ok() && of_pairs >= most_groups * directions * ranks) way = pairs;
    }
    const int most_tiles = way.most_tiles(most);
    ResidentParams<T> params{{step.cell[0], step.cell[1]}, ranks, 0, 0, 0, way.shared_steps};
    for (int d = 0; d < directions; ++d) {  // all one-bits: nothing is there yet
      const CudaCell<T>& cell = params.cell[d];
      const std::size_t entries = cell.at.rows * (backward ? cell.gates_stride : cell.hidden);
      queue.fill(backward ? cell.dz : cell.tape_h, 0xff, entries * sizeof(T));
    }
    while (params.first_tile < all_tiles) {
      const int left = all_tiles - params.first_tile;
      params.tiles = std::min(cuda::div_up(left, most_groups), most_tiles);
      params.groups = std::min(cuda::div_up(left, params.tiles), most_groups);
      config.shared_bytes = way.bytes(params.tiles);
      config.blocks = directions * params.groups * ranks;
      const Status status = queue.launch_cooperative(*way.kernel, config, params);
      if (!status.ok() && params.first_tile == 0) return false;
      queue.fail(status);
      params.first_tile += params.groups * params.tiles;
    }
    return true;
  } else {
    return false;
  }
}

}  // namespace warpalign::detail::recurrent
