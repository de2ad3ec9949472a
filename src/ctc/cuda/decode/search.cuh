// Prefix beam search on CUDA: a block owns an utterance with all its frames, and runs ctc/beam.h. Four
// threads share a prefix, and up to 32 share a candidate, of which there are about two for each prefix. The
// state of the search is in shared memory. The list of frame t is loaded during the steps of frames t - 2 and
// t - 1.
#pragma once

#include "ctc/beam.h"
#include "ctc/cuda/decode/frames.cuh"
#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "cuda/memory/streaming.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kPrefixLanes = 4;
inline constexpr int kMostSearchThreads = kCtcMostBeams * kPrefixLanes;

WARPALIGN_ANYWHERE constexpr int search_threads(int beams) {
  constexpr int kOfPrefix = 4 * kPrefixLanes;  // so that few comparisons of candidates follow each other
  const int threads = (beams * kOfPrefix + cuda::kWarpSize - 1) / cuda::kWarpSize * cuda::kWarpSize;
  return threads < kMostSearchThreads ? threads : kMostSearchThreads;
}

// Allocates a block's memory in multiples of 16 bytes. With a null base it only computes the size.
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

// Two lists in shared memory, that of frame t in half t % 2; empty if each place has a list of its own.
struct StagedLists {
  double* weight;
  std::int32_t* label;

  WARPALIGN_ANYWHERE StagedLists(const BeamShape& shape, BlockArena& arena)
      : weight(arena.take<double>(shape.own_lists ? 0 : 2 * shape.labels)),
        label(arena.take<std::int32_t>(shape.own_lists ? 0 : 2 * shape.labels)) {}
};

// The ring of three rows of logits in shared memory. The step of row t starts the copy of row t + 2. chunks
// is 0 if rows are read from global memory.
struct RowRing {
  static constexpr int kRows = 3;
  int chunks;  // units of 16 bytes in a row

  // The most bytes of a row in the ring, so that each thread copies few chunks.
  static constexpr int kMostBytes = 8192;
};

struct PrefixParams {
  Batch batch;
  DType dtype;
  const void* logits;
  CtcBeam beam;
  const double* weight;  // as in TopParams
  const std::int32_t* label;
  const FrameEnds* ends;
  RowRing ring;
};

// A block as the crew of a search.
class BlockCrew {
 public:
  // least: an integer in shared memory.
  __device__ __forceinline__ explicit BlockCrew(int* least) : least_(least) {}

  [[nodiscard]] __device__ __forceinline__ static int rank() { return static_cast<int>(threadIdx.x); }
  [[nodiscard]] __device__ __forceinline__ static int size() { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ static void sync() { __syncthreads(); }
  [[nodiscard]] __device__ __forceinline__ static int lane() { return rank() % kPrefixLanes; }
  [[nodiscard]] __device__ __forceinline__ static int lanes() { return kPrefixLanes; }
  [[nodiscard]] __device__ __forceinline__ static int most(int v) {
    return cuda::reduce<kPrefixLanes>(v, [](int a, int b) { return max(a, b); });
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ static int find(const T* all, int count, T v) {
    constexpr int kAtOnce = 4;  // loads in flight together
    int found = -1;
    for (int first = lane(); first < count; first += kAtOnce * kPrefixLanes) {
      T seen[kAtOnce];
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const int i = first + q * kPrefixLanes;
        seen[q] = all[i < count ? i : first];
      }
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const int i = first + q * kPrefixLanes;
        found = (i < count) & (seen[q] == v) ? i : found;
      }
    }
    return found;
  }
  // One atomic addition for each warp.
  [[nodiscard]] __device__ __forceinline__ static int append(std::int32_t* count, bool wanted) {
    const unsigned all = __ballot_sync(cuda::kFullWarp, wanted);
    if (all == 0) return 0;
    const int lane = rank() % cuda::kWarpSize;
    int first = 0;
    if (lane == 0) first = atomicAdd(count, __popc(all));
    return cuda::shuffle(first, 0) + __popc(all & ((1u << lane) - 1));
  }
  __device__ __forceinline__ static void mark(std::uint32_t* bits, int index) {
    atomicOr(bits + index / 32, 1u << (index % 32));
  }
  // Totals are rounded down to float32. ordered() maps their bits to integers of the same order.
  __device__ __forceinline__ void reset_least() const { *least_ = ordered(__float_as_int(CUDART_INF_F)); }
  __device__ __forceinline__ void lower(double total) const {
    atomicMin(least_, ordered(__float_as_int(__double2float_rd(total))));
  }
  [[nodiscard]] __device__ __forceinline__ double least() const { return __int_as_float(ordered(*least_)); }
  // A candidate's place is the number of candidates before it. As many neighbouring lanes as there are
  // threads for share a candidate, and count a part of those before it each.
  __device__ __forceinline__ static void select(const Candidate* candidates, int count, int keep,
                                                std::int32_t* chosen) {
    int sharers = 1;
    while (sharers < cuda::kWarpSize && 2 * sharers * count <= size()) sharers *= 2;
    const int part = rank() % sharers;
    for (int first = 0; first < count;
         first += size() / sharers) {  // the same in all lanes, for shuffle_xor()
      const int s = first + rank() / sharers;
      const Candidate own = candidates[s < count ? s : 0];
      int place = 0;
#pragma unroll 8
      for (int k = part; k < count; k += sharers) place += candidates[k].is_before(own);
      for (int bit = 1; bit < sharers; bit *= 2) place += cuda::shuffle_xor(place, bit);
      const bool counts = s < count && part == 0 && own.score() > kNoPrefix;
      if (counts && place < keep) chosen[place] = s;
    }
  }

 private:
  // The function is its own inverse.
  [[nodiscard]] __device__ __forceinline__ static int ordered(int bits) {
    return bits ^ ((bits >> 31) & 0x7fffffff);
  }

  int* const least_;
};

template <class Real>
class SearchBlock {
 public:
  __device__ __forceinline__ SearchBlock(const PrefixParams& p, int b)
      : p_(p),
        b_(b),
        first_(static_cast<std::int64_t>(b) * p.beam.beams),
        frames_(true_length(p.batch.logit_lengths, b, p.batch.frames)),
        begin_(p.beam.frames_before ? p.beam.frames_before[b] : 0) {}

  __device__ __forceinline__ void run() const {
    const BeamShape shape(p_.beam.beams, p_.beam.label_scores != nullptr);
    BlockArena arena(cuda::dynamic_shared());
    const StagedLists staged(shape, arena);
    const BeamMemory memory(shape, arena);
    auto* const rows = arena.take<cuda::Bits128>(RowRing::kRows * p_.ring.chunks);
    __shared__ int least;
    const BlockCrew crew(&least);
    for (int k = BlockCrew::rank(); k < shape.beams; k += BlockCrew::size()) {
      memory.now[k] = p_.beam.before ? p_.beam.before[first_ + k] : empty_prefix(k);
    }
    PrefixSearch<Real, BlockCrew> search(shape, p_.beam.threshold, p_.beam.nodes + first_ * p_.beam.capacity,
                                         memory, crew);
    bool bad = isnan(memory.now[0].total) || begin_ < 0 || frames_ > p_.beam.capacity - begin_;
    if (!bad) bad = shape.own_lists ? step_alone(search, shape) : step_all(search, shape, staged, rows);
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

  // Searches all frames, each with one list. Returns true at the first frame whose logits have a NaN or +inf.
  __device__ __forceinline__ bool step_all(Search& search, const BeamShape& shape, const StagedLists& staged,
                                           cuda::Bits128* rows) const {
    const std::int64_t row = static_cast<std::int64_t>(b_) * p_.batch.frames;
    const int k = BlockCrew::rank();  // a block has at least as many threads as a list has labels
    double weight = 0;
    std::int32_t label = -1;
    FrameEnds now{}, next{};
    const auto load = [&](int t) {
      if (t >= frames_) return;
      if (k < shape.labels) {
        weight = p_.weight[(row + t) * shape.labels + k];
        label = p_.label[(row + t) * shape.labels + k];
      }
      next = p_.ends[row + t];
    };
    const auto store = [&](int t) {
      now = next;
      if (k >= shape.labels) return;
      staged.weight[t % 2 * shape.labels + k] = weight;
      staged.label[t % 2 * shape.labels + k] = label;
    };
    load(0);
    store(0);
    copy_row(0, rows);
    copy_row(1, rows);
    cuda::await_copy_groups<1>();
    BlockCrew::sync();
    load(1);
    for (int t = 0; t < frames_; ++t) {
      const FrameEnds ends = now;
      if (isnan(ends.lse)) return true;
      // The half of the staged lists that is overwritten was read in the previous step, which ended with a
      // barrier.
      store(t + 1);
      load(t + 2);
      copy_row(t + 2, rows);
      cuda::await_copy_groups<1>();  // row t + 1 has arrived; the step's barriers make it visible to all
                                     // threads
      const int half = t % 2 * shape.labels;
      const auto weight_of = [&](int c) {
        const Real x =
            p_.ring.chunks > 0 ? element(rows + t % RowRing::kRows * p_.ring.chunks, c) : logit(t, c);
        return static_cast<double>(x) - ends.lse;
      };
      search.step({staged.weight + half, staged.label + half, 0, ends.blank}, begin_ + t, weight_of,
                  [](int, int, double lp) { return lp; });
    }
    return false;
  }

  // Searches a single frame with a list for each place. Returns true if its logits have a NaN or +inf.
  __device__ __forceinline__ bool step_alone(Search& search, const BeamShape& shape) const {
    if (frames_ == 0) return false;
    const FrameEnds ends = p_.ends[b_];
    if (isnan(ends.lse)) return true;
    const std::int64_t list = first_ * shape.labels;
    search.step(
        {p_.weight + list, p_.label + list, shape.labels, ends.blank}, begin_,
        [&](int c) { return static_cast<double>(logit(0, c)) - ends.lse; },
        [&](int place, int c, double) {
          const Real* const added =
              static_cast<const Real*>(p_.beam.label_scores) + (first_ + place) * p_.batch.classes;
          return static_cast<double>(logit(0, c) + added[c]) - ends.lse;
        });
    return false;
  }

  // Starts the copy of row t to the ring. Commits one group of copies, which may be empty.
  __device__ __forceinline__ void copy_row(int t, cuda::Bits128* rows) const {
    if (t < frames_ && p_.ring.chunks > 0) {
      const std::int64_t size = element_size();
      const auto* const from =
          reinterpret_cast<const cuda::Bits128*>(static_cast<const unsigned char*>(p_.logits) +
                                                 (b_ * p_.batch.stride[0] + t * p_.batch.stride[1]) * size);
      cuda::Bits128* const to = rows + t % RowRing::kRows * p_.ring.chunks;
      for (int k = BlockCrew::rank(); k < p_.ring.chunks; k += BlockCrew::size()) {
        cuda::copy_async_l2(to + k, from + k);
      }
    }
    cuda::end_copy_group();
  }
  [[nodiscard]] __device__ __forceinline__ int element_size() const {
    if constexpr (sizeof(Real) == sizeof(double)) return 8;
    return p_.dtype == DType::kFloat32 ? 4 : 2;
  }

  [[nodiscard]] __device__ __forceinline__ Real logit(int t, int c) const {
    return element(p_.logits, b_ * p_.batch.stride[0] + t * p_.batch.stride[1] + c * p_.batch.stride[2]);
  }
  [[nodiscard]] __device__ __forceinline__ Real element(const void* data, std::int64_t at) const {
    if constexpr (sizeof(Real) == sizeof(double)) {
      return static_cast<const double*>(data)[at];
    } else {
      if (p_.dtype == DType::kFloat16) return cuda::widen(static_cast<const cuda::Float16*>(data)[at]);
      if (p_.dtype == DType::kBFloat16) return cuda::widen(static_cast<const cuda::BFloat16*>(data)[at]);
      return static_cast<const float*>(data)[at];
    }
  }

  const PrefixParams& p_;
  const int b_;
  const std::int64_t first_;
  const int frames_, begin_;
};

template <class Real>
__global__ void __launch_bounds__(kMostSearchThreads) prefix_kernel(const __grid_constant__ PrefixParams p) {
  SearchBlock<Real>(p, static_cast<int>(blockIdx.x)).run();
}

// A warp owns a hypothesis.
inline constexpr int kLabelsThreads = 32;

static __global__ void __launch_bounds__(kLabelsThreads)
    labels_kernel(const __grid_constant__ CtcBeamLabels p) {
  const int place = static_cast<int>(blockIdx.x);
  write_labels(p, place / p.n_best, place % p.n_best, static_cast<int>(threadIdx.x), kLabelsThreads);
}

}  // namespace warpalign::detail::ctc
