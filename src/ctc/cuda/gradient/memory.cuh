// Shared memory of a block in the passes over segments.
#pragma once

#include "ctc/cuda/gradient/params.cuh"
#include "ctc/cuda/lattice/fetch.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kSegmentGroups = kSegment / kGroup;

// A warp's shared memory.
template <class Real>
struct StripMemory {
  // alpha, by frame. label[f][l] is of the strip's pair l - 1, so that label[f][0] is the state left of the
  // strip.
  State<Real> label[kSegment][kStrip + 1];
  // alpha of blanks, later overwritten by the posteriors of the lane's blank and label.
  State<Real> blank[kSegment][kStrip];
  WeightGroup<Weight<Real>> weights[kSegmentGroups];
  State<Real> edges[kSegment];  // of the neighbouring strip

  __device__ __forceinline__ Real& blank_posterior(int f, int lane) { return part(f, lane)[0]; }
  __device__ __forceinline__ Real& label_posterior(int f, int lane) { return part(f, lane)[1]; }

 private:
  __device__ __forceinline__ Real* part(int f, int lane) { return reinterpret_cast<Real*>(&blank[f][lane]); }
};

template <class Real>
constexpr int posteriors_shared_bytes(int strips) {
  return static_cast<int>(sizeof(Real)) * kSegment + strips * static_cast<int>(sizeof(StripMemory<Real>));
}

// A block's shared memory begins with the sums of each frame, followed by columns, by the occupancies, if
// they are in shared memory, and by the strips.
template <class Real>
struct FrameSums {
  Real all[kSegment];    // sum of all posteriors
  Real blank[kSegment];  // sum of blank's posteriors
};

// A strip's equal labels, which share a slot. For each lane it has the lanes of the equal labels 1, 2, 4, 8
// and 16 places later. A sum over equal labels takes log2 of their number steps: in each a lane adds the sum
// of the lane as many places later as its own sum has labels.
struct EqualLabels {
  static constexpr int kRounds = 5, kNone = cuda::kWarpSize;
  std::uint8_t next[kRounds][kStrip];
  int rounds;
  int slot[kStrip];  // of the first of equal labels; -1 for the others, and for lanes without a label

  // slot_of_lane: the slot of the lane's label; -1 if it has none.
  __device__ __forceinline__ void find(int slot_of_lane, int lane) {
    const unsigned same = __match_any_sync(cuda::kFullWarp, slot_of_lane);
    const unsigned behind = same & ~((2u << lane) - 1);
    slot[lane] = __ffs(static_cast<int>(same)) - 1 == lane ? slot_of_lane : -1;
    int from = behind ? __ffs(static_cast<int>(behind)) - 1 : kNone;
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      next[k][lane] = static_cast<std::uint8_t>(from);
      const int further = cuda::shuffle(from, from % cuda::kWarpSize);
      if (from != kNone) from = further;
    }
    const int most = cuda::reduce_max(slot_of_lane >= 0 ? __popc(same) : 1);
    int steps = 0;
    while (1 << steps < most) ++steps;
    if (lane == 0) rounds = steps;
  }
  // The sum of v over equal labels, valid in the lane of the first of them.
  template <class Real>
  [[nodiscard]] __device__ __forceinline__ Real sum(Real v, int lane) const {
    for (int k = 0; k < rounds; ++k) {
      const int from = next[k][lane];
      const Real other = cuda::shuffle(v, from % cuda::kWarpSize);
      if (from != kNone) v += other;
    }
    return v;
  }
};

// A warp's shared memory.
template <class Real>
struct GradientMemory {
  StripMemory<Real> strip;
  EqualLabels equal;
};

// The number of columns in shared memory; a multiple of 16 bytes.
WARPALIGN_ANYWHERE constexpr int column_count(const Slots& slots) {
  return slots.dense ? 0 : (slots.width + 3) / 4 * 4;
}
template <class Real>
constexpr int gradient_shared_bytes(int strips, const Slots& slots, bool has_occupancies) {
  return static_cast<int>(sizeof(FrameSums<Real>) + strips * sizeof(GradientMemory<Real>)) +
         column_count(slots) * static_cast<int>(sizeof(int)) +
         (has_occupancies ? kSegment * slots.width * static_cast<int>(sizeof(Real)) : 0);
}

}  // namespace warpalign::detail::ctc
