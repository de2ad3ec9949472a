// The properties that distinguish the soft-DTW kernels. registry.h lists those that exist.
#pragma once

namespace warpalign::detail::soft_dtw {

// The number format of the recursion (cell.cuh, dual.cuh).
enum class Arithmetic : unsigned char {
  kFloat32,      // Cell32: float32 mantissas, certified
  kFloat64,      // Cell64: float64, and the rerun of pairs that Cell32 cannot certify
  kDual,         // CellDual: second order
  kHardFloat32,  // CellHard<float>: hard DTW
  kHardFloat64,  // CellHard<double>
};

// The source of costs.
enum class CostSource : unsigned char {
  kFewFeatures,  // series of at most 4 features, in registers
  kTiles,        // series of any number of features, or a cost matrix, in tiles in shared memory
  kPanel,        // a panel in global memory (panel.h)
};

// The options that a kernel supports, beyond squared distances and all paths.
enum class Options : unsigned char {
  kNone,   // nothing
  kPaths,  // bands and penalties
  kAll,    // also other costs, missing steps, subsequences, the gradient by gamma
};

// The sweeps of a kernel.
enum class Sweeps : unsigned char {
  kForward,  // values alone
  kBoth,     // values and gradients
  kAsAsked,  // decided at run time by Layout::gradient
};

// The warps that work on a strip beside the wave's (crew.cuh).
enum class CrewKind : unsigned char {
  kNone,
  kOneHelper,   // few features, panels: one warp recomputes weights ahead of the wave
  kTwoHelpers,  // the same: two do
  kSmall,       // tiles: 1 + 2 makers; the wave makes the weights of whole segments
  kFrugal,      // tiles: 1 + 2 makers; the wave makes weights group by group
  kLarge,       // tiles: 2 + 4 makers, and a warp that makes weights ahead of the wave
  kForwardTwo,  // tiles, values alone: 2 makers of costs
};

constexpr int kMostFewFeatures = 4;
constexpr int kMostMeetingFeatures = 64;  // of sweeps in tiles that meet

struct KernelKey {
  Arithmetic arithmetic;
  CostSource source;
  Options options;
  Sweeps sweeps;
  CrewKind crew;
  bool meets;            // sweeps may start from both ends of a pair (meeting.cuh)
  int columns_per_lane;  // W
  int features;          // number of features in registers; 0: costs come in tiles

  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

// The text of a key.
struct KernelName {
  char text[96];
};
KernelName name_of(const KernelKey& key);

}  // namespace warpalign::detail::soft_dtw
