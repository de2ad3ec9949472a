// The lattice pass: alpha from the start to the end, then posteriors of all arcs from the end to the start.
//
// A block owns a panel at a time: a few strips of one utterance, one warp each. Its warps go through groups
// of steps with a barrier of the block after each group; a strip is kLagGroups groups later than the one that
// it waits for.
//
// If every utterance has one panel, block b computes utterance b. Otherwise blocks take tasks from a counter:
// first the forward sweeps of all first panels, then of all second panels, and so on; then the reverse
// sweeps, last panels first. A task comes after the tasks that it waits for, so that running blocks have
// taken these, and the pass ends with any number of resident blocks.
#pragma once

#include "cuda/launch/shared.cuh"
#include "transducer/cuda/lattice/strip.cuh"

namespace warpalign::detail::transducer {

// Shared memory of a block: the borders left of each strip and right of the last one, then the sweeps'.
template <class Sweep>
constexpr int lattice_shared_bytes(int strips, const SweepShape& shape) {
  return (strips + 1) * kBorderFrames * static_cast<int>(sizeof(Border<double>)) +
         strips * Sweep::shared_bytes(shape);
}

template <class Sweep>
class Lattice {
 public:
  using Real = typename Sweep::Real;

  __device__ __forceinline__ explicit Lattice(const LatticeParams<Real>& p)
      : p_(p),
        warp_(uniform(static_cast<int>(threadIdx.x) / 32)),
        lane_(threadIdx.x % 32),
        borders_(cuda::dynamic_shared()) {}

  // Computes the whole utterance b by one block.
  __device__ __forceinline__ void whole(int b) const {
    const Utterance utterance = utterance_at(p_.batch, b);
    const Strip<Real> strip(p_, utterance, b, 0);
    Sweep sweep(strip, memory());
    const bool invalid = forward(strip, sweep);
    const bool has_end = strip.is_last && strip.active();
    // Every thread gets the outcome from the lane that has the end.
    int outcome = kPaths;
    if (has_end) outcome = conclude(p_, strip.b, strip.frames, sweep.end(), invalid);
    const bool stops = __syncthreads_or(has_end && outcome != kPaths);
    if (p_.outcome && !stops) reverse(strip, sweep);
  }

  __device__ __forceinline__ void tasks() const {
    const int panels = p_.batch.lattice.batch * p_.batch.panels;
    const int all = p_.outcome ? 2 * panels : panels;
    while (true) {
      const int task = take();
      if (task >= all) return;
      const bool is_forward = task < panels;
      const int number = is_forward ? task : 2 * panels - 1 - task;
      const int b = number % p_.batch.lattice.batch;
      const Utterance utterance = utterance_at(p_.batch, b);
      const Strip<Real> strip(p_, utterance, b, number / p_.batch.lattice.batch);
      if (strip.index - warp_ < strip.strips) {  // the same for the whole block
        Sweep sweep(strip, memory());
        if (is_forward) {
          forward_task(strip, sweep);
        } else if (await_outcome(p_.records + b)) {
          reverse(strip, sweep);
        }
      }
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ unsigned char* memory() const {
    return borders_ + (p_.batch.panel_strips + 1) * kBorderFrames * sizeof(Border<double>) +
           warp_ * Sweep::shared_bytes(p_.shape);
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T* border(int left_of) const {
    return reinterpret_cast<T*>(borders_) + left_of * kBorderFrames;
  }

  __device__ __forceinline__ int take() const {
    __shared__ int task;
    __syncthreads();
    if (threadIdx.x == 0) task = atomicAdd(p_.ticket, 1) + 1;  // the counter is initialised to -1
    __syncthreads();
    return uniform(task);
  }

  // Whether the utterance is invalid, for all threads.
  __device__ __forceinline__ bool forward(const Strip<Real>& strip, Sweep& sweep) const {
    if (!strip.utterance.fits) return true;
    Border<Real>* const left = border<Border<Real>>(warp_);
    Border<Real>* const right = border<Border<Real>>(warp_ + 1);
    RemoteFrames<2> remote;
    const cuda::Word* const words = p_.borders + 2 * strip.border(false, 0);
    if (warp_ == 0) left[lane_] = {0, 0, kNothing};
    if (strip.frames == 0) return false;
    if (strip.active()) sweep.begin_forward();
    if (strip.left_is_remote()) remote.ask(words, 0, strip.frames, lane_);
    __syncwarp();
    const int groups = strip.groups();
    for (int k = 0; k < groups + (p_.batch.panel_strips - 1) * kLagGroups; ++k) {
      const int group = k - warp_ * kLagGroups;
      if (strip.active() && group >= 0 && group < groups) {
        const int first = group * kGroup;
        if (strip.left_is_remote()) {
          receive(remote, left, first);
          remote.ask(words, first + kGroup, strip.frames, lane_);
        }
        sweep.forward_group(first, left, right);
        if (strip.right_is_remote()) send(strip, right, first - (kStrip - 1));
      }
      __syncthreads();
    }
    const bool invalid = strip.active() && (sweep.invalid() || strip.has_invalid_label());
    return __syncthreads_or(invalid);
  }

  // Sends a group's frames of alpha to the next panel.
  __device__ __forceinline__ void send(const Strip<Real>& strip, const Border<Real>* right, int first) const {
    __syncwarp();
    const int t = first + lane_ / 2;
    if (lane_ >= 2 * kGroup || t < 0 || t >= strip.frames) return;
    const State<Real> alpha = right[t % kBorderFrames].state();
    const cuda::Word word =
        lane_ % 2 == 0 ? word_of(alpha.mantissa) : static_cast<cuda::Word>(alpha.exponent) << 1;
    cuda::store_relaxed(p_.borders + 2 * strip.border(true, t) + lane_ % 2, word);
  }
  __device__ __forceinline__ void receive(RemoteFrames<2>& remote, Border<Real>* left, int first) const {
    const cuda::Word word = remote.receive();
    Border<Real>& alpha = left[(first + lane_ / 2) % kBorderFrames];
    __syncwarp();
    if (lane_ < 2 * kGroup) {
      if (lane_ % 2 == 0) {
        alpha.mantissa = real_of<Real>(word);
        alpha.offset = 0;
      } else {
        alpha.exponent = static_cast<Exponent>(word) >> 1;
      }
    }
    __syncwarp();
  }

  // The last panel to end writes the outcome.
  __device__ __forceinline__ void forward_task(const Strip<Real>& strip, Sweep& sweep) const {
    Record<Real>* const record = p_.records + strip.b;
    const bool invalid = forward(strip, sweep);
    if (strip.active() && strip.is_last) record->end = sweep.end();
    __threadfence();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (invalid) atomicExch(&record->invalid, 1);
    __threadfence();
    const int panels = p_.batch.panels_of(strip.utterance.states());
    if (atomicAdd(&record->done, 1) + 2 < panels) return;  // the counter is initialised to -1
    __threadfence();
    const State<Real> end{__ldcg(&record->end.mantissa), __ldcg(&record->end.exponent)};
    const bool any_invalid = cuda::load_acquire(&record->invalid) == 1;
    atomicExch(&record->outcome, conclude(p_, strip.b, strip.frames, end, any_invalid));
  }

  // Waits until the utterance's forward sweep has ended. Returns whether it has paths.
  __device__ __forceinline__ bool await_outcome(const Record<Real>* record) const {
    int outcome = kPaths;
    if (threadIdx.x == 0) {
      do {
        outcome = cuda::load_acquire(&record->outcome);
      } while (outcome == kUnknown);
    }
    return !__syncthreads_or(outcome != kPaths);
  }

  __device__ __forceinline__ void reverse(const Strip<Real>& strip, Sweep& sweep) const {
    Real* const left = border<Real>(warp_);
    Real* const right = border<Real>(warp_ + 1);
    RemoteFrames<1> remote;
    const cuda::Word* const words = p_.reverse_borders + strip.border(true, 0);
    const int groups = strip.groups();
    const int last = groups * kGroup - 1;
    __syncthreads();  // no thread reads the borders of the forward sweep any more
    if (strip.active()) sweep.begin_reverse(last);
    if (strip.right_is_remote()) remote.ask(words, last - kGroup + 1 - (kStrip - 1), strip.frames, lane_);
    // The utterance's last strip in this panel goes first.
    const int front = min(p_.batch.panel_strips - 1, strip.strips - 1 - (strip.index - warp_));
    for (int k = 0; k < groups + front * kLagGroups; ++k) {
      const int group = groups - 1 - (k - (front - warp_) * kLagGroups);
      if (strip.active() && group >= 0 && group < groups) {
        const int first = group * kGroup;
        if (strip.right_is_remote()) {
          const cuda::Word word = remote.receive();
          const int t = first - (kStrip - 1) + lane_;
          if (lane_ < kGroup && t >= 0) right[t % kBorderFrames] = real_of<Real>(word);
          __syncwarp();
          remote.ask(words, first - kGroup - (kStrip - 1), strip.frames, lane_);
        }
        sweep.reverse_group(first, right, left);
        if (strip.left_is_remote()) {
          __syncwarp();
          const int t = first + lane_;
          if (lane_ < kGroup && t < strip.frames) {
            cuda::store_relaxed(p_.reverse_borders + strip.border(false, t),
                                word_of(left[t % kBorderFrames]));
          }
        }
      }
      __syncthreads();
    }
  }

  const LatticeParams<Real>& p_;
  const int warp_;
  const int lane_;
  unsigned char* const borders_;
};

template <class Sweep>
__global__ void __launch_bounds__(kPanelStrips * 32, 1)
    lattice_kernel(const __grid_constant__ LatticeParams<typename Sweep::Real> p) {
  const Lattice<Sweep> lattice(p);
  if (p.batch.panels == 1) {
    lattice.whole(static_cast<int>(blockIdx.x));
  } else {
    lattice.tasks();
  }
}

}  // namespace warpalign::detail::transducer
