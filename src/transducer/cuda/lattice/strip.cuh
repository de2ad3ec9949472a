// A warp's strip of an utterance's lattice, and the borders through which strips exchange states.
#pragma once

#include "cuda/memory/remote.cuh"
#include "cuda/threads/warp.cuh"
#include "transducer/cuda/lattice/lattice_params.cuh"

namespace warpalign::detail::transducer {

// A number that is the same in all lanes of a warp. The compiler then knows that branches on it do not
// diverge, and moves independent instructions across them.
__device__ __forceinline__ int uniform(int v) { return cuda::shuffle(v, 0); }

// Alpha of a column at a frame, in the form that one strip passes to another: mantissa 2^(exponent + offset).
template <class Real>
struct alignas(16) Border {
  Real mantissa;
  int offset;
  Exponent exponent;

  [[nodiscard]] __device__ __forceinline__ State<Real> state() const { return {mantissa, exponent + offset}; }
};

template <class Real>
struct Strip {
  const LatticeParams<Real>& p;
  const Utterance& utterance;
  int b;
  int panel;
  int warp;
  int lane;
  int index;     // number among the utterance's strips
  int strips;    // number of strips of the utterance
  int frames;    // T_b
  int column;    // u
  bool exists;   // u <= U_b
  bool is_last;  // u = U_b
  Real* slots;   // this lane's slots in row 0

  __device__ __forceinline__ Strip(const LatticeParams<Real>& params, const Utterance& of, int batch_index,
                                   int panel_index)
      : p(params),
        utterance(of),
        b(batch_index),
        panel(panel_index),
        warp(uniform(static_cast<int>(threadIdx.x) / 32)),
        lane(threadIdx.x % 32),
        index(panel_index * params.batch.panel_strips + warp),
        strips(strips_of(uniform(of.states()))),
        frames(uniform(of.frames)),
        column(index * kStrip + lane),
        exists(column <= of.labels),
        is_last(column == of.labels) {
    const SlotLayout& layout = of.layout;
    slots = params.slots + of.slot + (active() ? layout.strip_begin(index) : 0) + lane * layout.lane_stride();
  }

  [[nodiscard]] __device__ __forceinline__ bool active() const { return index < strips; }
  [[nodiscard]] __device__ __forceinline__ bool has_left() const { return index > 0; }
  [[nodiscard]] __device__ __forceinline__ bool has_right() const { return index + 1 < strips; }
  [[nodiscard]] __device__ __forceinline__ bool left_is_remote() const { return has_left() && warp == 0; }
  [[nodiscard]] __device__ __forceinline__ bool right_is_remote() const {
    return has_right() && warp + 1 == p.batch.panel_strips;
  }
  // The number of groups of steps: in the last one every lane reaches frame T, where the end is.
  [[nodiscard]] __device__ __forceinline__ int groups() const {
    return (frames + kStrip + kGroup - 1) / kGroup;
  }

  // Whether the arc exists that consumes `duration` frames and ends at step s. The arc starts at frame
  // t - duration and ends at t = s - lane.
  [[nodiscard]] __device__ __forceinline__ bool has_blank(int t, int duration) const {
    return exists && t >= duration && (t < frames || (t == frames && is_last));
  }
  [[nodiscard]] __device__ __forceinline__ bool has_label(int t, int duration) const {
    return exists && column > 0 && t >= duration && t < frames;
  }
  // Arcs of `duration` frames whose slots are in this column start at frames 0 ... starts() - 1.
  [[nodiscard]] __device__ __forceinline__ int starts(bool is_label, int duration) const {
    const bool any = exists & (!is_label | (column > 0));
    return any ? max(frames + (!is_label & is_last) - duration, 0) : 0;
  }
  // Whether the label that leads to this column is invalid.
  [[nodiscard]] __device__ __forceinline__ bool has_invalid_label() const {
    const TransducerLattice& l = p.batch.lattice;
    return exists && column > 0 && !label_is_valid(l, p.batch.labels, utterance.targets[column - 1]);
  }

  // The index of frame t in the border on the left of the panel, or on its right (of_right).
  [[nodiscard]] __device__ __forceinline__ std::int64_t border(bool of_right, int t) const {
    const int frames_between = p.batch.packed ? frames : p.batch.lattice.frames;
    return utterance.border + static_cast<std::int64_t>(panel - !of_right) * frames_between + t;
  }
};

// A NaN gets the bits of an arithmetic result, because all ones means "not yet".
__device__ __forceinline__ cuda::Word word_of(float v) {
  return isnan(v) ? 0x7fc00000u : static_cast<unsigned>(__float_as_int(v));
}
__device__ __forceinline__ cuda::Word word_of(double v) {
  if (isnan(v)) return 0x7ff8ull << 48;
  return static_cast<cuda::Word>(static_cast<unsigned>(__double2hiint(v))) << 32 |
         static_cast<unsigned>(__double2loint(v));
}
template <class Real>
__device__ __forceinline__ Real real_of(cuda::Word w) {
  if constexpr (sizeof(Real) == 4) {
    return __int_as_float(static_cast<int>(static_cast<unsigned>(w)));
  } else {
    return __hiloint2double(static_cast<int>(w >> 32), static_cast<int>(static_cast<unsigned>(w)));
  }
}

// Receives kWords words for each of a group's frames from another panel. The loads start during the previous
// group. Frames after T are never sent.
template <int kWords>
class RemoteFrames {
  static_assert(kGroup * kWords <= cuda::kWarpSize);

 public:
  // Starts to load frames first ... first + kGroup - 1. words: the address of frame 0.
  __device__ __forceinline__ void ask(const cuda::Word* words, int first, int frames, int lane) {
    const int t = first + lane / kWords;
    expected_ = lane < kGroup * kWords && t >= 0 && t < frames;
    from_ = words + static_cast<std::int64_t>(t) * kWords + lane % kWords;
    word_ = expected_ ? cuda::load_relaxed(from_) : 0;
  }
  // Waits. Returns this lane's word; 0 if it has none.
  __device__ __forceinline__ cuda::Word receive() {
    while (__any_sync(cuda::kFullWarp, word_ == cuda::kNotYet)) {
      if (word_ == cuda::kNotYet) word_ = cuda::load_relaxed(from_);
    }
    return word_;
  }

 private:
  const cuda::Word* from_ = nullptr;
  cuda::Word word_ = 0;
  bool expected_ = false;
};

}  // namespace warpalign::detail::transducer
