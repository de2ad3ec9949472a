// The best path of every utterance.
//
//   best(t,u) = max over arcs a into (t, u) of best(source(a)) + log2 weight(a),   best(0,0) = 0
//
// A block owns an utterance, a warp a strip of its columns; lane l is at frame t = s - l at step s. Warps go
// through groups of steps with a barrier of the block after each group; a strip is kLagGroups groups later
// than its left neighbour. If an utterance has more strips than the block has warps, the block makes several
// passes, with the sums of a pass's last column in global memory. A node's step, the last arc of its best
// path, is a byte in global memory. Finally one warp follows the path backward from the end.
//
// Sums are float64: a path's score is as accurate as its weights, and ties are exact if the weights are.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "cuda/launch/shared.cuh"
#include "cuda/memory/streaming.cuh"
#include "cuda/threads/warp.cuh"
#include "transducer/cuda/call/params.cuh"
#include "transducer/cuda/lattice/slot_stage.cuh"
#include "transducer/cuda/lattice/strip.cuh"

namespace warpalign::detail::transducer {

inline constexpr int kPathStrips = 16;  // the most strips of a pass

template <class Real>
struct BestPathParams {
  Batch batch;
  ArcOrder order;        // of batch.arcs
  ArcOrder plain_order;  // of batch.plain
  const Real* slots;     // log2 weights
  int strips;            // number of strips of a pass
  int history;           // number of frames that a strip stores
  bool staged;           // whether slots are staged in shared memory
  std::uint8_t* steps;   // a byte for each place of a node in `slots`
  double* borders;       // between passes: (rows / (strips kStrip) + 1,)
  Real* score;           // this and the following are as in TransducerAlignment; integers are -1 on entry
  std::int32_t* frames;
  std::int32_t* durations;
  std::int32_t* blanks;
};

// Bytes of shared memory, of a strip and of a block.
struct BestPathMemory {
  int ring, stage, border;

  template <class Real>
  static WARPALIGN_ANYWHERE constexpr BestPathMemory of(int history, int slots, bool staged) {
    const int ring = (history * (kStrip + 1) * static_cast<int>(sizeof(double)) + 15) / 16 * 16;
    const int lane_stride = SlotLayout{0, 0, slots}.lane_stride();
    return {ring, staged ? SlotStage<Real>::bytes(slots + 1, lane_stride) : 0,
            kBorderFrames * static_cast<int>(sizeof(double))};
  }
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int of_block(int strips) const {
    return strips * (ring + stage) + (strips + 1) * border;
  }
};
// The rows of steps that the backward walk reads at a time, to the memory of the rings.
inline constexpr int kStepWindow = 32;
static_assert(kStepWindow * kStrip <= 2 * kBorderFrames * static_cast<int>(sizeof(double)) + 3 * 33 * 8);

// A warp's strip.
template <class Real>
class PathStrip {
 public:
  __device__ __forceinline__ PathStrip(const BestPathParams<Real>& p, const Utterance& utterance, int index,
                                       unsigned char* ring, unsigned char* stage)
      : p_(p),
        table_(table_of(p.batch, utterance)),
        order_(utterance.without_durations ? p.plain_order : p.order),
        layout_(utterance.layout),
        lane_(static_cast<int>(threadIdx.x) % kStrip),
        frames_(uniform(utterance.frames)),
        arcs_(uniform(table_.arcs())),
        column_(index * kStrip + lane_),
        exists_(column_ <= utterance.labels),
        is_last_(column_ == utterance.labels),
        slots_(p.slots + utterance.slot + layout_.strip_begin(index)),
        steps_(p.steps + utterance.slot / p.batch.slots +
               static_cast<std::int64_t>(index) * layout_.rows() * kStrip),
        ring_(reinterpret_cast<double*>(ring)),
        stage_(layout_, slots_, stage, p.batch.slots + 1, lane_, lane_) {}

  __device__ __forceinline__ void begin() {
    for (int k = lane_; k < p_.history * kColumns; k += kStrip) ring_[k] = -CUDART_INF;
    end_ = -CUDART_INF;
    place_ = (kStrip * p_.history - lane_) % p_.history;
    ask(0);
    __syncwarp();
  }

  // Computes steps first ... first + 7. left, right: sums of the column left of the strip and of its last
  // column, by frame modulo kBorderFrames; left is null if there is no such column.
  __device__ __forceinline__ void group(int first, const double* left, double* right) {
    if (p_.staged) stage_.await();
    ask(first + kGroup);
#pragma unroll 1
    for (int q = 0; q < kGroup; ++q) {
      const int s = first + q, t = s - lane_;
      if (lane_ == 0) ring_[place_ * kColumns] = left ? left[s % kBorderFrames] : -CUDART_INF;
      __syncwarp();
      double best = -CUDART_INF;
      int step = 0;
      for (int k = 0; k < arcs_; ++k) {
        const int arc = order_.slot[k];
        const int duration = table_.frames[arc];
        const bool is_label = table_.is_label(arc);
        // The arc starts at frame t - duration of this column or of the one on the left.
        const bool ends = t == frames_ && is_last_ && !is_label;
        if (!exists_ || t < duration || !(t < frames_ || ends) || (is_label && column_ == 0)) continue;
        const double from = ring_[before(duration) * kColumns + lane_ + !is_label];
        const double sum = from + static_cast<double>(slot(first, q, k, arc, duration));
        if (sum > best) {
          best = sum;
          step = step_of(table_, arc);
        }
      }
      if (column_ == 0 && t == 0) best = 0;
      ring_[place_ * kColumns + lane_ + 1] = best;
      if (lane_ == kStrip - 1) right[(s + 1) % kBorderFrames] = best;
      if (exists_ && t >= 0 && t < frames_) {
        steps_[s * kStrip + lane_] = static_cast<std::uint8_t>(step);
        invalid_ |= isnan(slot(first, q, arcs_, 0, 0));
      }
      if (is_last_ && t == frames_) {
        end_ = best;
        end_step_ = step;
      }
      place_ = place_ + 1 == p_.history ? 0 : place_ + 1;
    }
  }

  [[nodiscard]] __device__ __forceinline__ bool is_last() const { return is_last_; }
  [[nodiscard]] __device__ __forceinline__ bool invalid() const { return invalid_; }
  [[nodiscard]] __device__ __forceinline__ double end() const { return end_; }
  [[nodiscard]] __device__ __forceinline__ int end_step() const { return end_step_; }

 private:
  static constexpr int kColumns = kStrip + 1;  // the column left of the strip comes first

  [[nodiscard]] __device__ __forceinline__ int before(int frames) const {
    const int place = place_ - frames;
    return place < 0 ? place + p_.history : place;
  }
  // Starts to copy the next group's slots: those of every arc, then the nodes' own first slots, which are NaN
  // for invalid nodes.
  __device__ __forceinline__ void ask(int first) const {
    if (!p_.staged) return;
    for (int k = 0; k < arcs_; ++k) {
      const int arc = order_.slot[k];
      stage_.ask(first, k, arc, table_.frames[arc]);
    }
    stage_.ask(first, arcs_, 0, 0);
  }
  [[nodiscard]] __device__ __forceinline__ Real slot(int first, int q, int piece, int arc, int frames) const {
    if (p_.staged) return stage_.slot(first, piece, arc, q);
    return slots_[layout_.slot_of_strip(first + q - frames, lane_, arc)];
  }

  const BestPathParams<Real>& p_;
  const ArcTable& table_;
  const ArcOrder& order_;
  const SlotLayout& layout_;
  const int lane_;
  const int frames_;
  const int arcs_;
  const int column_;
  const bool exists_, is_last_;
  const Real* const slots_;    // of the strip
  std::uint8_t* const steps_;  // the strip's steps, [row][lane]
  double* const ring_;         // [history][33]
  const SlotStage<Real> stage_;
  int place_ = 0;  // place of frame t in the ring
  bool invalid_ = false;
  double end_ = 0;
  int end_step_ = 0;
};

// The end of the best path, at which the backward walk starts.
struct PathEnd {
  double best;
  int step;
};

template <class Real>
class BestPath {
 public:
  __device__ __forceinline__ BestPath(const BestPathParams<Real>& p, int b)
      : p_(p),
        b_(b),
        utterance_(utterance_at(p.batch, b)),
        warp_(uniform(static_cast<int>(threadIdx.x) / kStrip)),
        lane_(static_cast<int>(threadIdx.x) % kStrip),
        memory_(BestPathMemory::of<Real>(p.history, p.batch.slots, p.staged)) {}

  __device__ __forceinline__ void run(PathEnd* end) const {
    if (threadIdx.x == 0) *end = {-CUDART_INF, 0};
    bool invalid = !utterance_.fits;
    const int strips = strips_of(utterance_.states());
    if (utterance_.fits && utterance_.frames > 0) {
      for (int first = 0; first < strips; first += p_.strips) {
        __syncthreads();  // no thread reads the previous pass's shared memory any more
        invalid |= pass(first, strips, end);
      }
    }
    for (int u = static_cast<int>(threadIdx.x); utterance_.fits && u < utterance_.labels; u += blockDim.x) {
      invalid |= !label_is_valid(p_.batch.lattice, p_.batch.labels, utterance_.targets[u]);
    }
    invalid = __syncthreads_or(invalid);
    if (threadIdx.x == 0 && p_.score) {
      p_.score[b_] = static_cast<Real>(invalid ? CUDART_NAN : end->best * kLn2<double>);
    }
    if (warp_ == 0 && !invalid && end->step != 0) walk_back(end->step);
  }

 private:
  // Computes strips first ... first + p_.strips - 1. Returns whether this thread has read a NaN.
  __device__ __forceinline__ bool pass(int first, int strips, PathEnd* end) const {
    unsigned char* const shared = cuda::dynamic_shared();
    double* const borders = reinterpret_cast<double*>(shared);
    unsigned char* const own =
        shared + (p_.strips + 1) * memory_.border + warp_ * (memory_.ring + memory_.stage);
    double* const left = borders + warp_ * kBorderFrames;
    double* const right = left + kBorderFrames;
    const int index = first + warp_;
    const bool active = index < strips;
    double* const between = p_.borders + utterance_.row / (p_.strips * kStrip);
    const bool from_memory = first > 0 && warp_ == 0,
               to_memory = active && warp_ + 1 == p_.strips && index + 1 < strips;
    const int frames = uniform(utterance_.frames);
    const int groups = (frames + kStrip + kGroup - 1) / kGroup;
    PathStrip<Real> strip(p_, utterance_, active ? index : 0, own, own + memory_.ring);
    if (active) strip.begin();
    for (int k = 0; k < groups + (p_.strips - 1) * kLagGroups; ++k) {
      const int group = k - warp_ * kLagGroups;
      if (active && group >= 0 && group < groups) {
        const int step = group * kGroup;
        if (from_memory) {
          if (lane_ < kGroup && step + lane_ < frames)
            left[(step + lane_) % kBorderFrames] = between[step + lane_];
          __syncwarp();
        }
        strip.group(step, index > 0 ? left : nullptr, right);
        if (to_memory) {
          __syncwarp();
          const int t = step - (kStrip - 1) + lane_;
          if (lane_ < kGroup && t >= 0 && t < frames) between[t] = right[t % kBorderFrames];
        }
      }
      __syncthreads();
    }
    if (active && strip.is_last()) *end = {strip.end(), strip.end_step()};
    return active && strip.invalid();
  }

  // Called by one warp: follows the path from the end to node (0, 0).
  __device__ __forceinline__ void walk_back(int step) const {
    unsigned char* const window = cuda::dynamic_shared();
    const SlotLayout& layout = utterance_.layout;
    const std::uint8_t* const steps = p_.steps + utterance_.slot / p_.batch.slots;
    const TransducerLattice& l = p_.batch.lattice;
    const std::int64_t first_label =
        l.flat_targets ? utterance_.targets - l.targets : static_cast<std::int64_t>(b_) * (l.states - 1);
    int t = utterance_.frames, u = utterance_.labels;
    int strip = -1, first_row = 0;
    while (true) {
      const bool is_label = (step & kLabelStep) != 0;
      const int frames = step & (kLabelStep - 1);
      t -= frames;
      u -= is_label;
      if (lane_ == 0) {
        if (is_label) {
          if (p_.frames) p_.frames[first_label + u] = t;
          if (p_.durations) p_.durations[first_label + u] = frames;
        } else if (p_.blanks) {
          const std::int64_t row = utterance_.row + static_cast<std::int64_t>(t) * utterance_.states() + u;
          p_.blanks[p_.batch.packed ? row : static_cast<std::int64_t>(b_) * l.frames + t] = frames;
        }
      }
      if (t == 0 && u == 0) return;
      const int row = t + u % kStrip;
      if (u / kStrip != strip || row < first_row) {
        strip = u / kStrip;
        first_row = max(row - (kStepWindow - 1), 0);
        const std::uint8_t* const from =
            steps + (static_cast<std::int64_t>(strip) * layout.rows() + first_row) * kStrip;
        __syncwarp();
        for (int k = lane_; k < (row - first_row + 1) * kStrip / static_cast<int>(sizeof(cuda::Bits128));
             k += kStrip) {
          reinterpret_cast<cuda::Bits128*>(window)[k] = reinterpret_cast<const cuda::Bits128*>(from)[k];
        }
        __syncwarp();
      }
      step = window[(row - first_row) * kStrip + u % kStrip];
    }
  }

  const BestPathParams<Real>& p_;
  const int b_;
  const Utterance utterance_;
  const int warp_;
  const int lane_;
  const BestPathMemory memory_;
};

template <class Real>
__global__ void __launch_bounds__(kPathStrips* kStrip, 1)
    best_path_kernel(const __grid_constant__ BestPathParams<Real> p) {
  __shared__ PathEnd end;
  BestPath<Real>(p, static_cast<int>(blockIdx.x)).run(&end);
}

}  // namespace warpalign::detail::transducer
