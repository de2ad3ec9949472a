// The kernels of resident sweeps, with the memory that they need.
#pragma once

#include <string>

#include "cuda/launch/kernel.cuh"
#include "recurrent/cuda/cell/kernel_list.cuh"
#include "recurrent/cuda/grid/resident_backward.cuh"
#include "recurrent/cuda/grid/resident_forward.cuh"

namespace warpalign::detail::recurrent {

constexpr int kMostResidentHidden = 2048;
constexpr int kMostHiddenInRegisters = 1024;

// Such as "grid back, shared memory, options".
inline std::string grid_name(const char* form, bool shares, bool plain = true) {
  return std::string(form) + (shares ? ", shared memory" : "") + (plain ? "" : ", options");
}
template <class T, int kSteps, bool kShares, bool kPlain, int kRows>
inline const cuda::Kernel kResidentForward{
    kKernels, grid_name(kRows == 1 ? "grid of a tile" : "grid", kShares, kPlain).c_str(),
    cuda::type_name<T>(), resident_forward_kernel<T, kSteps, kShares, kPlain, kRows>};
template <class T, int kSplit, int kSteps, bool kShares, bool kPlain>
inline const cuda::Kernel kResidentBackward{kKernels,
                                            grid_name(kSplit == 4   ? "grid of 4 back"
                                                      : kSplit == 2 ? "grid of 2 back"
                                                                    : "grid back",
                                                      kShares, kPlain)
                                                .c_str(),
                                            cuda::type_name<T>(),
                                            resident_backward_kernel<T, kSplit, kSteps, kShares, kPlain>};

// A sweep's kernel, and the shared memory that it needs.
template <class T>
struct ResidentKernel {
  const cuda::Kernel<ResidentParams<T>>* kernel = nullptr;  // null: there is none
  int cluster = 1;                                          // so many blocks share units
  int shared_steps = 0;                                     // steps of weights in shared memory
  std::size_t fixed_bytes = 0, pair_bytes = 0;

  // Shared memory for a slice of so many tiles of rows.
  [[nodiscard]] std::size_t bytes(int tiles) const {
    return fixed_bytes + cuda::div_up(tiles, 2) * pair_bytes;
  }
  // The most tiles of a slice for which so much shared memory is enough.
  [[nodiscard]] int most_tiles(std::size_t bytes) const {
    return static_cast<int>((bytes - fixed_bytes) / pair_bytes) * 2;
  }
};

// The ways of a sweep. Backward a block has four times the depth, and a quarter of the rows, but where blocks
// share units.
template <class T, bool kPlain>
struct ResidentKernels {
  using Kernel = const cuda::Kernel<ResidentParams<T>>*;

  static ResidentKernel<T> of(int hidden, bool backward) {
    constexpr int kSteps = 8, kBackSteps = 32, kSharing = 6, kBackSharing = 24;  // in registers
    const int steps = even_steps((backward ? 4 : 1) * hidden);
    if (hidden > kMostHiddenInRegisters) {
      if (backward) return way<1>(&kResidentBackward<T, 1, kBackSharing, true, kPlain>, steps - kBackSharing);
      return way<4>(&kResidentForward<T, kSharing, true, kPlain, 2>, steps - kSharing);
    }
    if (backward) return way<1>(&kResidentBackward<T, 1, kBackSteps, false, kPlain>, 0);
    return way<4>(&kResidentForward<T, kSteps, false, kPlain, 2>, 0);
  }
  // Forward, of one tile for each group, in calls without options.
  static ResidentKernel<T> of_a_tile(int hidden) {
    constexpr int kSteps = 8, kSharing = 6;
    if (hidden <= kMostHiddenInRegisters) return way<4>(&kResidentForward<T, kSteps, false, true, 1>, 0);
    return way<4>(&kResidentForward<T, kSharing, true, true, 1>, even_steps(hidden) - kSharing);
  }
  // Backward, by blocks that share units: 4, or 2 where registers hold the weights. In calls without options.
  static ResidentKernel<T> split(int hidden) {
    constexpr int kSteps = 16, kSharing = 6;
    if (hidden <= kMostHiddenInRegisters) {
      return clusters<2>(way<2>(&kResidentBackward<T, 2, kSteps, false, true>, 0));
    }
    return clusters<4>(way<4>(&kResidentBackward<T, 4, kSharing, true, true>, even_steps(hidden) - kSharing));
  }

 private:
  static int even_steps(int depth) { return cuda::div_up(depth, 2 * kResidentWarps * kStepEntries) * 2; }
  template <int kWeightTiles>
  static ResidentKernel<T> way(Kernel kernel, int shared_steps) {
    return {kernel, 1, shared_steps,
            sizeof(float) * partials_of_pair(kWeightTiles) + kWeightTiles * shared_steps * kSharedStepBytes,
            kPairBytes};
  }
  template <int kSplit>
  static ResidentKernel<T> clusters(ResidentKernel<T> kernel) {
    kernel.cluster = kSplit;
    kernel.pair_bytes += sizeof(SplitPair<kSplit>);
    return kernel;
  }
};

}  // namespace warpalign::detail::recurrent
