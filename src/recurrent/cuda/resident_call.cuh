// Which calls run as resident sweeps, and their launch.
#pragma once

#include "recurrent/cuda/memory.cuh"
#include "recurrent/cuda/resident.cuh"

namespace warpalign::detail::recurrent {

constexpr int kMostResidentHidden = 2048;
constexpr int kMostHiddenInRegisters = 1024;

// Whether a device may run the problem this way. The same for every device, since memory is laid out by it.
template <class T>
bool may_be_resident(const LstmProblem& p) {
  return sizeof(T) == 2 && !p.layer_norm && p.projection == 0 && p.hidden % kWordEntries == 0 &&
         p.hidden <= kMostResidentHidden;
}

// A kernel, and where it has the weights. Backward a block has four times the depth, and a quarter of the
// rows.
template <class T>
struct ResidentKernel {
  void (*run)(ResidentParams<T>);
  int weight_tiles, shared_steps;

  static ResidentKernel of(int hidden, bool backward) {
    if (hidden > kMostHiddenInRegisters) {
      constexpr int kForward = 8, kBackward = 24;  // steps in registers
      const int steps = cuda::div_up((backward ? 4 : 1) * hidden, kResidentWarps * kStepEntries);
      if (backward) return {resident_backward_kernel<T, kBackward, true>, 1, steps - kBackward};
      return {resident_forward_kernel<T, kForward, true>, 4, steps - kForward};
    }
    const int tiles = backward ? 1 : 4;
    if (hidden <= 256) {
      return {backward ? resident_backward_kernel<T, 8, false> : resident_forward_kernel<T, 2, false>, tiles,
              0};
    }
    if (hidden <= 512) {
      return {backward ? resident_backward_kernel<T, 16, false> : resident_forward_kernel<T, 4, false>, tiles,
              0};
    }
    return {backward ? resident_backward_kernel<T, 32, false> : resident_forward_kernel<T, 8, false>, tiles,
            0};
  }
  // Shared memory but for the tiles of rows.
  [[nodiscard]] std::size_t fixed_bytes() const {
    return partials_bytes(weight_tiles) + weight_tiles * shared_steps * kSharedStepBytes;
  }
};

// Enqueues the sweep of a layer; false: it needs a launch per step.
template <class T>
bool run_resident(Queue& queue, const LstmProblem& p, const StepParams<T>& step, bool backward) {
  if constexpr (sizeof(T) == 2) {
    constexpr int kFirstMajor = 8;  // with the matrix instructions of 16-bit types
    // Fewer steps read R no more often than a sweep does before its first one. But bits must not depend on
    // them where they must not depend on the batch.
    constexpr int kFewSteps = 3;
    int device = 0;
    if (!may_be_resident<T>(p) || !queue.status().ok() || !cuda::to_status(cudaGetDevice(&device)).ok()) {
      return false;
    }
    if (p.steps < kFewSteps && !queue.execution().batch_invariant) return false;
    if (cuda::attribute(cudaDevAttrComputeCapabilityMajor, device) < kFirstMajor) return false;
    const auto kernel = ResidentKernel<T>::of(p.hidden, backward);
    const std::size_t fixed = kernel.fixed_bytes();
    const auto most = static_cast<std::size_t>(std::max(cuda::limits_of(device).shared_bytes_per_block, 0));
    if (most < fixed + kTileBytes) return false;
    const int directions = directions_of(p), ranks = cuda::div_up(p.hidden, kOwnUnits);
    cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
    config.shared_bytes = most;  // so that a block has a multiprocessor to itself
    int resident = 0;
    if (!cuda::resident_blocks(kernel.run, config, &resident).ok()) return false;
    const int most_groups = resident / (directions * ranks);
    if (most_groups == 0) return false;
    const int most_tiles = static_cast<int>((most - fixed) / kTileBytes);
    ResidentParams<T> params{{step.cell[0], step.cell[1]}, ranks, 0, 0, 0, kernel.shared_steps};
    for (int d = 0; d < directions; ++d) {  // all one-bits: nothing is there yet
      const CudaCell<T>& cell = params.cell[d];
      const std::size_t entries = cell.at.rows * (backward ? cell.gates_stride : cell.hidden);
      queue.fill(backward ? cell.dz : cell.tape_h, 0xff, entries * sizeof(T));
    }
    const int all_tiles = cuda::div_up(p.batch, 8);
    while (params.first_tile < all_tiles) {
      const int left = all_tiles - params.first_tile;
      params.tiles = std::min(cuda::div_up(left, most_groups), most_tiles);
      params.groups = std::min(cuda::div_up(left, params.tiles), most_groups);
      config.shared_bytes = fixed + params.tiles * kTileBytes;
      config.blocks = directions * params.groups * ranks;
      const Status status = queue.launch_cooperative(kernel.run, config, params);
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
