// The sweep: states forward from the start and backward from the end, at the same time, over whole utterances
// or over chunks of their frames. It writes checkpoints, the edges of strips, and the loss.
//
// A block owns a panel: at most kPanelStrips strips of one utterance, chunk and direction, one warp each. Its
// warps go through groups of frames with a barrier of the block after each group. At that barrier a strip is
// one group later than its neighbour, whose edges it reads from a ring in shared memory.
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

inline constexpr int kRingFrames = 2 * kGroup;

template <class Element, class Algebra, bool kBack>
class Sweep {
  using State = typename Algebra::State;
  using Strip = ctc::Strip<Element, Algebra, kBack>;
  using Params = SweepParams<Element, Algebra>;
  static constexpr int kWords = State::kWords;

 public:
  using Ring = State[kRingFrames];  // a strip's edges, by frame

  // rings: panel_strips + 1 of them. Warp w reads ring w (forward) or ring w + 1 (backward).
  __device__ __forceinline__ Sweep(const Params& p, Ring* rings, int b, int chunk, int panel)
      : p_(p),
        b_(b),
        warp_(cuda::shuffle(static_cast<int>(threadIdx.x) / cuda::kWarpSize, 0)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        utterance_(utterance_at(p.batch, b)),
        strips_(strips_of(utterance_.labels)),
        panel_first_(panel * p.panel_strips),
        active_(min(strips_ - panel_first_, p.panel_strips)),
        first_((p.first_chunk + chunk) * p.chunk),
        last_(min(first_ + p.chunk, utterance_.frames)),
        in_(rings[kBack ? warp_ + 1 : warp_]),
        out_(rings[kBack ? warp_ : warp_ + 1]) {}

  __device__ __forceinline__ void run() const {
    if (active_ <= 0 || (first_ >= last_ && first_ > 0)) return;
    const int index = panel_first_ + warp_;
    const bool works = warp_ < active_;
    Strip strip(p_.batch, p_.from, utterance_, b_, index * kStrip, first_, last_);
    Saves saves = saves_of();
    if (works) begin(strip, saves);
    const int first_group = first_ / kGroup, groups = (last_ + kGroup - 1) / kGroup - first_group;
    const auto frame_of = [&](int i) { return (first_group + (kBack ? groups - 1 - i : i)) * kGroup; };
    strip.prefetch(frame_of(0));
    const int turn =
        kBack ? active_ - 1 - warp_ : warp_;  // groups by which this warp is later than the first one
    const bool has_in = kBack ? index + 1 < strips_ : index > 0;
    const bool is_remote = works && has_in && turn == 0;
    const cuda::Word* const incoming =
        is_remote ? p_.edges.at(b_, kBack, kBack ? index : index - 1) : nullptr;
    cuda::Word* const outgoing = works ? outgoing_of(index) : nullptr;
    cuda::Word words[kWords] = {};
    if (is_remote) ask(words, incoming, frame_of(0));
    for (int k = 0; k < groups + active_ - 1; ++k) {
      const int i = k - turn;
      if (works && i >= 0 && i < groups) {
        if (is_remote) {
          receive(words, incoming, frame_of(i));
          if (i + 1 < groups) ask(words, incoming, frame_of(i + 1));
        }
        group(strip, saves, frame_of(i), has_in, outgoing);
      }
      __syncthreads();
    }
    if (!kBack && p_.result.wanted() && works && index == strips_ - 1) conclude(strip);
  }

 private:
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

  __device__ __forceinline__ void group(Strip& strip, Saves& saves, int begin, bool has_in,
                                        cuda::Word* outgoing) const {
    State edges[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) edges[q] = State::zero();
    if (has_in) {
#pragma unroll
      for (int q = 0; q < kGroup; ++q) edges[q] = in_[begin % kRingFrames + q];
    }
    const bool leaves = lane_ == (kBack ? 0 : kStrip - 1);
    State* const out = out_ + begin % kRingFrames;
    strip.pass(
        begin, [&](int q) { return edges[q]; }, [](int, const State&, const State&) {},
        [&](int q, const Pair<State>& pair) {
          if (leaves) out[q] = pair.label;
        });
    // An invalid strip makes the edges that it passes on NaN, so that all later strips are invalid.
    if (p_.result.wanted() && __any_sync(cuda::kFullWarp, strip.invalid()) && lane_ < kGroup) {
      out[lane_].become_nan();
    }
    if (outgoing) {
      __syncwarp();
      send(outgoing, begin, out);
    }
    const int boundary = kBack ? begin : begin + kGroup;
    if (boundary > first_ && boundary < last_) save(strip, saves, boundary);
  }

  // The address of a strip's edges in global memory; null if they are not stored.
  [[nodiscard]] __device__ __forceinline__ cuda::Word* outgoing_of(int index) const {
    const int strip = kBack ? index - 1 : index;
    if (!p_.edges.data || strip < 0 || strip + 1 >= strips_ || !p_.edges.keeps(strip)) return nullptr;
    return p_.edges.at(b_, kBack, strip);
  }
  // Lane q sends the edge after frame begin + q.
  __device__ __forceinline__ void send(cuda::Word* to, int begin, const State* out) const {
    const int t = begin + lane_;
    if (lane_ >= kGroup || t < first_ || t >= last_) return;
    const State state = out[lane_];
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      cuda::store_relaxed(to + static_cast<std::int64_t>(t) * kWords + k, state.word(k));
    }
  }
  // Lane q starts to load the edge after frame begin + q; receive() waits for it.
  __device__ __forceinline__ void ask(cuda::Word (&words)[kWords], const cuda::Word* from, int begin) const {
    const int t = begin + lane_;
    const bool exists = lane_ < kGroup && t >= first_ && t < last_;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      words[k] = exists ? cuda::load_relaxed(from + static_cast<std::int64_t>(t) * kWords + k) : 0;
    }
  }
  __device__ __forceinline__ void receive(cuda::Word (&words)[kWords], const cuda::Word* from,
                                          int begin) const {
    const std::int64_t t = begin + lane_;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      while (__any_sync(cuda::kFullWarp, words[k] == cuda::kNotYet)) {
        if (words[k] == cuda::kNotYet) words[k] = cuda::load_relaxed(from + t * kWords + k);
      }
    }
    if (lane_ < kGroup) in_[begin % kRingFrames + lane_] = State::of(words);
    __syncwarp();
  }

  // The last strip writes the sum over all paths, or the best path.
  __device__ __forceinline__ void conclude(const Strip& strip) const {
    const bool invalid = __any_sync(cuda::kFullWarp, strip.invalid());
    const auto end = strip.end();
    const double log2_norms = strip.log2_norms();
    if (strip.has_end()) p_.result.write(b_, end, invalid || isnan(log2_norms), log2_norms);
  }

  const Params& p_;
  const int b_, warp_, lane_;
  const Utterance utterance_;
  const int strips_;
  const int panel_first_, active_;  // the panel's first strip, and its number of strips in this utterance
  const int first_, last_;          // frames first ... last - 1
  State* const in_;
  State* const out_;
};

template <class Element, class Algebra>
__device__ __forceinline__ void sweep_task(const SweepParams<Element, Algebra>& p,
                                           typename Sweep<Element, Algebra, false>::Ring* rings, int task) {
  const int items = p.batch.batch * p.chunks * p.directions;
  const int place = task / items, item = task % items;
  const int b = item / p.directions % p.batch.batch, chunk = item / p.directions / p.batch.batch;
  if (!Algebra::kHasBackward || item % p.directions == 0) {
    Sweep<Element, Algebra, false>(p, rings, b, chunk, place).run();
  } else if constexpr (Algebra::kHasBackward) {
    Sweep<Element, Algebra, true>(p, rings, b, chunk, p.panels - 1 - place).run();
  }
}

template <class Element, class Algebra>
__global__ void __launch_bounds__(kPanelStrips * 32, 1)
    sweep_kernel(const __grid_constant__ SweepParams<Element, Algebra> p) {
  __shared__ typename Sweep<Element, Algebra, false>::Ring rings[kPanelStrips + 1];
  __shared__ int taken;
  while (true) {
    int task = static_cast<int>(blockIdx.x);
    if (p.panels > 1) {
      __syncthreads();
      if (threadIdx.x == 0) taken = atomicAdd(p.ticket, 1) + 1;
      __syncthreads();
      task = taken;
    }
    if (task >= p.batch.batch * p.chunks * p.directions * p.panels) return;
    sweep_task(p, rings, task);
    if (p.panels == 1) return;
  }
}

}  // namespace warpalign::detail::ctc
