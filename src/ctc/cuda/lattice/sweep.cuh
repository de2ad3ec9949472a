// The sweep: states forward from the start and backward from the end, at the same time, over whole utterances
// or over chunks of their frames. It writes checkpoints, the edges of strips, and the loss.
//
// A block owns a panel: at most kPanelStrips strips of one utterance, chunk and direction. A strip has two
// warps. One computes the states; the other one, the helper, computes weights, and exchanges edges with other
// blocks. Frames consist of spans of a few groups. All warps go through turns with a barrier of the block
// after each turn. Let `place` be the strip's place in the panel, in the order of dependence. In turn m the
// helper prepares span m - place; in turn m + 1 the strip goes through it and writes its edges to a ring in
// shared memory; in turn m + 2 the next strip reads them there.
//
// If an utterance has one panel, each block has one task. Otherwise blocks take tasks from a counter, ordered
// so that a panel comes after the panel that it waits for: whatever a task waits for has been taken by a
// running block, so that the sweep ends with any number of resident blocks. Edges between panels go through
// global memory, which is initialised to one-bits (kNotYet).
#pragma once

#include "ctc/cuda/lattice/strip.cuh"
#include "cuda/memory/remote.cuh"

namespace warpalign::detail::ctc {

template <class Element, class Algebra>
struct SweepParams {
  using State = typename Algebra::State;
  Batch batch;
  Emissions<Element> from;
  int chunk;                  // frames of a chunk; a multiple of kSegment
  int first_chunk, chunks;    // of this launch
  Checkpoints<State> starts;  // at the boundaries of chunks; not read at the ends of an utterance
  Checkpoints<State> saves;   // data null: none are stored
  Edges<State> edges;         // data null: none are stored, and panels is 1
  int directions;             // 2, or 1 for forward alone
  int panels, panel_strips;
  int* ticket;  // initialised to -1; null if panels is 1
  typename Algebra::Result
      result;  // of a sweep over whole utterances; its wanted() is false for a sweep over chunks
};

// A block's shared memory.
template <class Algebra>
struct SweepMemory {
  using State = typename Algebra::State;
  using Weight = typename Algebra::Weight;
  static constexpr int kSpanGroups = sizeof(Weight) <= 8 ? 2 : 1;
  static constexpr int kRingFrames = 2 * kSpanGroups * kGroup;
  using Ring = State[kRingFrames];  // a strip's edges, by frame

  WeightGroup<Weight> weights[kPanelStrips][2 * kSpanGroups];  // of two spans of each strip
  // Strip w of the panel reads ring w (forward) or ring w + 1 (backward).
  alignas(16) Ring rings[kPanelStrips + 1];
  bool invalid[kPanelStrips]
              [2];    // whether a strip has read a NaN before the end of a span, or has an invalid label
  double log2_norms;  // written by the helper of an utterance's last strip, at the end
  int task;
};

template <class Element, class Algebra, bool kBack>
class Sweep {
  using State = typename Algebra::State;
  using Strip = ctc::Strip<Algebra, kBack>;
  using Fetcher = ctc::Fetcher<Element, Algebra, kBack ? Labels::kOfBackward : Labels::kOfForward>;
  using Params = SweepParams<Element, Algebra>;
  using Memory = SweepMemory<Algebra>;
  static constexpr int kWords = State::kWords;
  static constexpr int kSpanGroups = Memory::kSpanGroups, kSpan = kSpanGroups * kGroup;  // of frames
  static_assert(kSpan <= cuda::kWarpSize);

 public:
  __device__ __forceinline__ Sweep(const Params& p, Memory& memory, int b, int chunk, int panel)
      : p_(p),
        memory_(memory),
        b_(b),
        warp_(cuda::shuffle(static_cast<int>(threadIdx.x) / cuda::kWarpSize, 0)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        helps_(warp_ >= p.panel_strips),
        strip_(helps_ ? warp_ - p.panel_strips : warp_),
        utterance_(utterance_at(p.batch, b)),
        strips_(strips_of(utterance_.labels)),
        active_(min(strips_ - panel * p.panel_strips, p.panel_strips)),
        index_(panel * p.panel_strips + strip_),
        first_((p.first_chunk + chunk) * p.chunk),
        last_(min(first_ + p.chunk, utterance_.frames)),
        spans_((last_ - first_ + kSpan - 1) / kSpan),
        place_(kBack ? active_ - 1 - strip_ : strip_),
        ring_in_(kBack ? strip_ + 1 : strip_),
        ring_out_(kBack ? strip_ : strip_ + 1) {}

  __device__ __forceinline__ void run() const {
    if (active_ <= 0 || (first_ >= last_ && first_ > 0)) return;
    if (strip_ >= active_) {
      wait(turns());
    } else if (helps_) {
      help();
    } else {
      walk();
    }
  }

 private:
  // The last strip's helper sends its last edges two turns after it has prepared the last span.
  [[nodiscard]] __device__ __forceinline__ int turns() const { return spans_ + active_ + 1; }
  __device__ __forceinline__ void wait(int turns) const {
#pragma unroll 1
    for (int m = 0; m < turns; ++m) __syncthreads();
  }
  // The first frame of the i-th span, in the order of the sweep.
  [[nodiscard]] __device__ __forceinline__ int frame_of(int i) const {
    return first_ + (kBack ? spans_ - 1 - i : i) * kSpan;
  }
  // This lane's frame of span i; -1 if it has none.
  [[nodiscard]] __device__ __forceinline__ int frame_of_lane(int i) const {
    const int t = frame_of(i) + lane_;
    return lane_ < kSpan && t < last_ ? t : -1;
  }
  [[nodiscard]] __device__ __forceinline__ bool concludes() const {
    return !kBack && p_.result.wanted() && index_ == strips_ - 1;
  }

  // The warp that computes states.
  __device__ __forceinline__ void walk() const {
    Strip strip(p_.batch, utterance_, index_ * kStrip);
    Saves saves = saves_of();
    begin(strip, saves);
    wait(place_ + 1);
#pragma unroll 1
    for (int i = 0; i < spans_; ++i) {
      pass(strip, saves, i);
      __syncthreads();
    }
    wait(turns() - place_ - 1 - spans_);
    if (concludes()) conclude(strip);
  }

  // The warp that computes weights and exchanges edges.
  __device__ __forceinline__ void help() const {
    Fetcher fetcher(p_.batch, p_.from, utterance_, b_, index_ * kStrip, last_);
    typename Fetcher::Loaded ahead[kSpanGroups] = {};
    load(fetcher, ahead, 0);
    const bool has_in = kBack ? index_ + 1 < strips_ : index_ > 0;
    const bool is_remote = has_in && place_ == 0;
    if (!has_in && lane_ < Memory::kRingFrames) memory_.rings[ring_in_][lane_] = State::zero();
    const cuda::Word* const incoming =
        is_remote ? p_.edges.at(b_, kBack, kBack ? index_ : index_ - 1) : nullptr;
    cuda::Word* const outgoing = outgoing_of();
    cuda::Word words[kWords] = {};
    if (is_remote) ask(words, incoming, 0);
    wait(place_);
    if (concludes()) {
      const bool invalid = fetcher.invalid();  // without any frame
      if (lane_ == 0) memory_.invalid[strip_][1] = invalid;
    }
#pragma unroll 1
    for (int i = 0; i < spans_ + 2; ++i) {
      if (i == spans_ && concludes()) {
        const double log2_norms = fetcher.log2_norms();
        if (lane_ == 0) memory_.log2_norms = log2_norms;
      }
      if (i < spans_) {
#pragma unroll
        for (int k = 0; k < kSpanGroups; ++k) {
          fetcher.store(frame_of(i) + k * kGroup, ahead[k], weights_of(i)[k]);
        }
        const bool invalid = fetcher.invalid();
        if (lane_ == 0) memory_.invalid[strip_][i % 2] = invalid;
        load(fetcher, ahead, i + 1);
        if (is_remote) {
          receive(words, incoming, i);
          ask(words, incoming, i + 1);
        }
      }
      if (outgoing && i >= 2) send(outgoing, i - 2);
      __syncthreads();
    }
    wait(turns() - place_ - spans_ - 2);
  }
  // Starts to load the logits of span i.
  __device__ __forceinline__ void load(const Fetcher& fetcher, typename Fetcher::Loaded (&to)[kSpanGroups],
                                       int i) const {
#pragma unroll
    for (int k = 0; k < kSpanGroups; ++k) {
      if (i < spans_) fetcher.load(frame_of(i) + k * kGroup, to[k]);
    }
  }

  // The next boundary at which states are stored, and their address.
  struct Saves {
    int frame;
    Pair<State>* to;
  };
  [[nodiscard]] __device__ __forceinline__ Saves saves_of() const {
    if (!p_.saves.data) return {-1, nullptr};
    const int every = p_.saves.every;
    // No states are stored at the ends of an utterance.
    const int boundary = kBack ? (last_ == utterance_.frames ? last_ - 1 : last_) / every
                               : max((first_ + every - 1) / every, 1);
    return {boundary * every, p_.saves.at(b_, kBack, boundary)};
  }
  __device__ __forceinline__ void save(Strip& strip, Saves& saves, int frame) const {
    if (frame != saves.frame) return;
    strip.save(saves.to);
    strip.mark();
    saves.frame += kBack ? -p_.saves.every : p_.saves.every;
    saves.to += kBack ? -p_.saves.pairs : p_.saves.pairs;
  }
  __device__ __forceinline__ void begin(Strip& strip, Saves& saves) const {
    const int frame = kBack ? last_ : first_;
    if (frame == (kBack ? utterance_.frames : 0)) return strip.begin();
    strip.begin(p_.starts.at(b_, kBack, frame / p_.starts.every));
    save(strip, saves, frame);
  }

  [[nodiscard]] __device__ __forceinline__ WeightGroup<typename Algebra::Weight>* weights_of(int i) const {
    return memory_.weights[strip_] + i % 2 * kSpanGroups;
  }

  // The strip goes through span i.
  __device__ __forceinline__ void pass(Strip& strip, Saves& saves, int i) const {
    const int begin = frame_of(i), place = begin % Memory::kRingFrames;
    const WeightGroup<typename Algebra::Weight>* const weights = weights_of(i);
    const State* const in = memory_.rings[ring_in_] + place;
    State* const out = memory_.rings[ring_out_] + place;
    const bool leaves = lane_ == (kBack ? 0 : kStrip - 1);
#pragma unroll 1
    for (int step = 0; step < kSpanGroups; ++step) {
      const int group = kBack ? kSpanGroups - 1 - step : step, f = group * kGroup;
      strip.pass(
          weights[group], in + f, last_ - begin - f, [](int, const State&, const State&) {},
          [&](int q, const Pair<State>& pair) {
            if (leaves) out[f + q] = pair.label;
          });
    }
    // An invalid strip makes the edges that it passes on NaN, so that all later strips are invalid.
    if (p_.result.wanted()) {
      const bool invalid = memory_.invalid[strip_][i % 2] || strip.edge_is_nan();
      __syncwarp();
      if (invalid && lane_ < kSpan) out[lane_].become_nan();
    }
    const int boundary = kBack ? begin : begin + kSpan;
    if (boundary > first_ && boundary < last_) save(strip, saves, boundary);
  }

  // The address of the strip's edges in global memory; null if they are not stored.
  [[nodiscard]] __device__ __forceinline__ cuda::Word* outgoing_of() const {
    const int strip = kBack ? index_ - 1 : index_;
    if (!p_.edges.data || strip < 0 || strip + 1 >= strips_ || !p_.edges.keeps(strip)) return nullptr;
    return p_.edges.at(b_, kBack, strip);
  }
  // Stores the edges after the frames of span i to global memory, a lane each.
  __device__ __forceinline__ void send(cuda::Word* to, int i) const {
    const int t = frame_of_lane(i);
    if (t < 0) return;
    const State state = memory_.rings[ring_out_][t % Memory::kRingFrames];
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      cuda::store_relaxed(to + static_cast<std::int64_t>(t) * kWords + k, state.word(k));
    }
  }
  // Starts to load the edges after the frames of span i, a lane each; receive() waits for them.
  __device__ __forceinline__ void ask(cuda::Word (&words)[kWords], const cuda::Word* from, int i) const {
    const int t = i < spans_ ? frame_of_lane(i) : -1;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      words[k] = t >= 0 ? cuda::load_relaxed(from + static_cast<std::int64_t>(t) * kWords + k) : 0;
    }
  }
  __device__ __forceinline__ void receive(cuda::Word (&words)[kWords], const cuda::Word* from, int i) const {
    const int t = frame_of_lane(i);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      while (__any_sync(cuda::kFullWarp, words[k] == cuda::kNotYet)) {
        if (words[k] != cuda::kNotYet) continue;
        words[k] = cuda::load_relaxed(from + static_cast<std::int64_t>(t) * kWords + k);
      }
    }
    if (t >= 0) memory_.rings[ring_in_][t % Memory::kRingFrames] = State::of(words);
  }

  // The last strip writes the sum over all paths, or the best path.
  __device__ __forceinline__ void conclude(const Strip& strip) const {
    const bool invalid = memory_.invalid[strip_][(spans_ + 1) % 2] || strip.edge_is_nan();
    const auto end = strip.end();
    const double log2_norms = memory_.log2_norms;
    if (strip.has_end()) p_.result.write(b_, end, invalid || isnan(log2_norms), log2_norms);
  }

  const Params& p_;
  Memory& memory_;
  const int b_, warp_, lane_;
  const bool helps_;
  const int strip_;  // of the panel
  const Utterance utterance_;
  const int strips_, active_;  // of the utterance, and how many of them the panel has
  const int index_;            // of the strip, in the utterance
  const int first_, last_;     // frames first ... last - 1
  const int spans_;            // the first span begins at first
  const int place_;            // turns by which the strip is later than the panel's first one
  const int ring_in_, ring_out_;
};

template <class Element, class Algebra>
__device__ __forceinline__ void sweep_task(const SweepParams<Element, Algebra>& p,
                                           SweepMemory<Algebra>& memory, int task) {
  const int items = p.batch.batch * p.chunks * p.directions;
  const int place = task / items, item = task % items;
  const int b = item / p.directions % p.batch.batch, chunk = item / p.directions / p.batch.batch;
  if (!Algebra::kHasBackward || item % p.directions == 0) {
    Sweep<Element, Algebra, false>(p, memory, b, chunk, place).run();
  } else if constexpr (Algebra::kHasBackward) {
    Sweep<Element, Algebra, true>(p, memory, b, chunk, p.panels - 1 - place).run();
  }
}

// A block has two warps for each strip of a panel; the helpers come last.
template <class Element, class Algebra>
__global__ void __launch_bounds__(2 * kPanelStrips * 32, 1)
    sweep_kernel(const __grid_constant__ SweepParams<Element, Algebra> p) {
  __shared__ SweepMemory<Algebra> memory;
  while (true) {
    int task = static_cast<int>(blockIdx.x);
    if (p.panels > 1) {
      __syncthreads();
      if (threadIdx.x == 0) memory.task = atomicAdd(p.ticket, 1) + 1;
      __syncthreads();
      task = memory.task;
    }
    if (task >= p.batch.batch * p.chunks * p.directions * p.panels) return;
    sweep_task(p, memory, task);
    if (p.panels == 1) return;
  }
}

}  // namespace warpalign::detail::ctc
