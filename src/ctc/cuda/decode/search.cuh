// Prefix beam search on CUDA: a block has an utterance and all its frames, and runs ctc/beam.h. Four threads
// have a prefix. What a search keeps between frames is in shared memory; with label scores, whose lists are
// K + 1 times as many, in the workspace. A frame's list is loaded while the frame before is searched.
#pragma once

#include "ctc/beam.h"
#include "ctc/cuda/decode/frames.cuh"
#include "cuda/launch/shared.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kPrefixLanes = 4;
inline constexpr int kMostSearchThreads = kCtcMostBeams * kPrefixLanes;

WARPALIGN_ANYWHERE constexpr int search_threads(int beams) {
  return (beams * kPrefixLanes + cuda::kWarpSize - 1) / cuda::kWarpSize * cuda::kWarpSize;
}

// Hands out a block's memory, 16 bytes at a time; measures only without memory.
class BlockArena {
 public:
  WARPALIGN_ANYWHERE explicit BlockArena(unsigned char* base) : base_(base) {}

  template <class T>
  WARPALIGN_ANYWHERE T* take(std::size_t count) {
    const std::size_t begin = used_;
    used_ = (begin + count * sizeof(T) + 15) / 16 * 16;
    return base_ ? reinterpret_cast<T*>(base_ + begin) : nullptr;
  }
  [[nodiscard]] WARPALIGN_ANYWHERE std::size_t used() const { return used_; }

 private:
  unsigned char* const base_;
  std::size_t used_ = 0;
};

// Lists of this frame and the next one: that of frame t in half t % 2.
struct StagedLists {
  double* weight;
  std::int32_t* label;

  WARPALIGN_ANYWHERE StagedLists(int count, BlockArena& arena)
      : weight(arena.take<double>(2 * count)), label(arena.take<std::int32_t>(2 * count)) {}
};

struct PrefixParams {
  Batch batch;
  DType dtype;
  const void* logits;
  CtcBeam beam;
  const double* weight;  // as TopParams has them
  const std::int32_t* label;
  const FrameEnds* ends;
  unsigned char* memory;  // of utterances, with label scores; null: shared memory
  std::size_t bytes;      // of one
};

// A block as the crew of a search.
class BlockCrew {
 public:
  [[nodiscard]] __device__ __forceinline__ static int rank() { return static_cast<int>(threadIdx.x); }
  [[nodiscard]] __device__ __forceinline__ static int size() { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ static void sync() { __syncthreads(); }
  [[nodiscard]] __device__ __forceinline__ static int lane() { return rank() % kPrefixLanes; }
  [[nodiscard]] __device__ __forceinline__ static int lanes() { return kPrefixLanes; }
  [[nodiscard]] __device__ __forceinline__ static int most(int v) {
    return cuda::reduce<kPrefixLanes>(v, [](int a, int b) { return max(a, b); });
  }
  [[nodiscard]] __device__ __forceinline__ static int append(std::int32_t* count) {
    return atomicAdd(count, 1);
  }
  __device__ __forceinline__ static void mark(std::uint32_t* bits, int index) {
    atomicOr(bits + index / 32, 1u << (index % 32));
  }
  // Rounded down to float32. Every warp makes it for itself.
  [[nodiscard]] __device__ __forceinline__ static double least_stay(const Candidate* stays, int count) {
    float least = CUDART_INF_F;
    for (int k = rank() % cuda::kWarpSize; k < count; k += cuda::kWarpSize) {
      least = min(least, __double2float_rd(stays[k].score));
    }
    return cuda::reduce(least, [](float a, float b) { return min(a, b); });
  }
  // A candidate's place is the number of those before it.
  __device__ __forceinline__ static void select(const Candidate* candidates, int count, int keep,
                                                std::int32_t* chosen) {
    for (int s = rank(); s < count; s += size()) {
      const Candidate own = candidates[s];
      if (!(own.score > kNoPrefix)) continue;
      int place = 0;
      for (int k = 0; k < count; ++k) place += candidates[k].is_before(own);
      if (place < keep) chosen[place] = s;
    }
  }
};

template <class Real>
class SearchBlock {
 public:
  __device__ __forceinline__ SearchBlock(const PrefixParams& p, int b)
      : p_(p),
        b_(b),
        first_(static_cast<std::int64_t>(b) * p.beam.beams),
        frames_(true_length(p.batch.logit_lengths, b, p.batch.frames)),
        begin_(p.beam.frames_before ? p.beam.frames_before[b] : 0),
        own_lists_(p.beam.label_scores != nullptr) {}

  __device__ __forceinline__ void run() const {
    const BeamShape shape(p_.beam.beams, own_lists_);
    BlockArena arena(p_.memory ? p_.memory + b_ * p_.bytes : cuda::dynamic_shared());
    const StagedLists staged(shape.labels, arena);
    const BeamMemory memory(shape, arena);
    const BlockCrew crew;
    for (int k = BlockCrew::rank(); k < shape.beams; k += BlockCrew::size()) {
      memory.now[k] = p_.beam.before ? p_.beam.before[first_ + k] : empty_prefix(k);
    }
    PrefixSearch<Real, BlockCrew> search(shape, own_lists_, p_.beam.threshold,
                                         p_.beam.nodes + first_ * p_.beam.capacity, memory, crew);
    bool bad = isnan(memory.now[0].total) || begin_ < 0 || frames_ > p_.beam.capacity - begin_;
    if (!bad) bad = own_lists_ ? step_alone(search, shape) : step_all(search, shape, staged);
    for (int k = BlockCrew::rank(); k < shape.beams; k += BlockCrew::size()) {
      std::int32_t source = k, label = -1;
      if (frames_ > 0 && !bad) search.move_of(k, source, label);
      if (p_.beam.source) p_.beam.source[first_ + k] = source;
      if (p_.beam.label) p_.beam.label[first_ + k] = label;
      p_.beam.after[first_ + k] = bad ? bad_prefix(k) : search.now()[k];
    }
    if (BlockCrew::rank() == 0 && p_.beam.frames_after) p_.beam.frames_after[b_] = begin_ + frames_;
  }

 private:
  using Search = PrefixSearch<Real, BlockCrew>;

  // All frames with one list each. Whether one is bad: then the search ends there.
  __device__ __forceinline__ bool step_all(Search& search, const BeamShape& shape,
                                           const StagedLists& staged) const {
    const std::int64_t row = static_cast<std::int64_t>(b_) * p_.batch.frames;
    const int k = BlockCrew::rank();  // a block has no fewer threads than a list has labels
    double weight = 0;
    std::int32_t label = -1;
    FrameEnds next{};
    const auto load = [&](int t) {
      if (t >= frames_) return;
      if (k < shape.labels) {
        weight = p_.weight[(row + t) * shape.labels + k];
        label = p_.label[(row + t) * shape.labels + k];
      }
      next = p_.ends[row + t];
    };
    const auto store = [&](int t) {
      if (k >= shape.labels) return;
      staged.weight[t % 2 * shape.labels + k] = weight;
      staged.label[t % 2 * shape.labels + k] = label;
    };
    load(0);
    store(0);
    BlockCrew::sync();
    for (int t = 0; t < frames_; ++t) {
      const FrameEnds ends = next;
      if (isnan(ends.lse)) return true;
      load(t + 1);
      const auto weight_of = [&](int c) { return static_cast<double>(logit(t, c)) - ends.lse; };
      const int half = t % 2 * shape.labels;
      search.step({staged.weight + half, staged.label + half, 0, ends.blank}, begin_ + t, weight_of,
                  [&](int, int c) { return weight_of(c); });
      store(t + 1);
      BlockCrew::sync();
    }
    return false;
  }

  // A single frame with a list for each place.
  __device__ __forceinline__ bool step_alone(Search& search, const BeamShape& shape) const {
    if (frames_ == 0) return false;
    const FrameEnds ends = p_.ends[b_];
    if (isnan(ends.lse)) return true;
    const std::int64_t list = first_ * shape.labels;
    search.step(
        {p_.weight + list, p_.label + list, shape.labels, ends.blank}, begin_,
        [&](int c) { return static_cast<double>(logit(0, c)) - ends.lse; },
        [&](int place, int c) {
          const Real* const added =
              static_cast<const Real*>(p_.beam.label_scores) + (first_ + place) * p_.batch.classes;
          return static_cast<double>(logit(0, c) + added[c]) - ends.lse;
        });
    return false;
  }

  [[nodiscard]] __device__ __forceinline__ Real logit(int t, int c) const {
    const std::int64_t at = b_ * p_.batch.stride[0] + t * p_.batch.stride[1] + c * p_.batch.stride[2];
    if constexpr (sizeof(Real) == sizeof(double)) {
      return static_cast<const double*>(p_.logits)[at];
    } else {
      if (p_.dtype == DType::kFloat16) {
        return cuda::widen(static_cast<const cuda::Float16*>(p_.logits)[at]);
      }
      if (p_.dtype == DType::kBFloat16) {
        return cuda::widen(static_cast<const cuda::BFloat16*>(p_.logits)[at]);
      }
      return static_cast<const float*>(p_.logits)[at];
    }
  }

  const PrefixParams& p_;
  const int b_;
  const std::int64_t first_;
  const int frames_, begin_;
  const bool own_lists_;
};

template <class Real>
__global__ void __launch_bounds__(kMostSearchThreads) prefix_kernel(const __grid_constant__ PrefixParams p) {
  SearchBlock<Real>(p, static_cast<int>(blockIdx.x)).run();
}

// A warp for a hypothesis.
inline constexpr int kLabelsThreads = 32;

static __global__ void __launch_bounds__(kLabelsThreads)
    labels_kernel(const __grid_constant__ CtcBeamLabels p) {
  const int place = static_cast<int>(blockIdx.x);
  write_labels(p, place / p.n_best, place % p.n_best, static_cast<int>(threadIdx.x), kLabelsThreads);
}

}  // namespace warpalign::detail::ctc
