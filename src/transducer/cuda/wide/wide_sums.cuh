// Sums of a joint network's gradients over states and frames, after the products by warpgroups.
#pragma once

#include <cstdint>

#include "transducer/cuda/joint/joint_rows.cuh"
#include "transducer/cuda/wide/wide_product.cuh"

namespace warpalign::detail::transducer {

// Adds a chunk's dh to the sums of frames and of states. A frame's sum has kParts parts, by u % kParts, which
// are added at the end. A state's sum has a part for each segment of kSegment frames, added in order. The
// terms of a part are added in order. If a chunk ends within a part (of a frame, or of each state's segment),
// the part is stored for the next chunk. So results do not depend on the size of chunks. With a band, a
// state has few frames, whose terms are added in order, without segments.
//
// dh is of a half type; or float32, with the upper halves of its numbers in one part and the lower halves in
// the next one.
template <class Storage>
struct WideSums {
  using Half = WideFactor<Storage>;
  Batch batch;
  JointChunk chunk;
  LivePlaces places;
  Panels<Half> dh;
  int hidden;
  Storage* frames;          // (B T, H); null: not wanted
  const float* parts_from;  // (kParts, panels, 8)
  float* parts_to;
  float* states;               // (B (U+1), H); null: not wanted
  const float* segments_from;  // (U+1, panels, 8); not used with a band
  float* segments_to;
  Band band;

  static constexpr int kParts = 8;                          // parts of a frame, in neighbouring lanes
  static constexpr int kPanels = cuda::kWarpSize / kParts;  // panels of a frame that a warp owns
  static constexpr int kSegment = 32;                       // frames of a segment
  static constexpr int kSegments = 8;                       // segments at a time, in neighbouring lanes
  static constexpr int kStates = cuda::kWarpSize / kSegments;
  static constexpr bool kSplit = std::is_same_v<Storage, float>;
  static constexpr int kAtOnce = kSplit ? 4 : 8;  // loads of a sum in flight

  // sum += those of the rows, `step` apart, that are in the chunk.
  __device__ __forceinline__ void add(float (&sum)[8], std::int64_t row, std::int64_t step, int count,
                                      int column) const {
    for (int first = 0; first < count; first += kAtOnce) {
      int place[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        place[k] = first + k < count ? places[row + (first + k) * step] - chunk.first : -1;
      }
      add_rows(sum, place, column);
    }
  }

  // sum += those of kAtOnce rows of the chunk, in order. A place outside of the chunk adds 0.
  __device__ __forceinline__ void add_rows(float (&sum)[8], const int (&place)[kAtOnce], int column) const {
    const int rows = chunk.rows();
    cuda::Bits128 bits[kAtOnce], lower[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      bits[k] = {};
      lower[k] = {};
      if (place[k] >= 0 && place[k] < rows) {
        bits[k] = *reinterpret_cast<const cuda::Bits128*>(dh.at(place[k], column));
        if constexpr (kSplit) {
          lower[k] = *reinterpret_cast<const cuda::Bits128*>(dh.at(place[k], column, 1));
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        float low, high;
        if constexpr (kSplit) {
          const SplitPair pair(bits[k].words[w], lower[k].words[w]);
          low = pair.first();
          high = pair.second();
        } else {
          cuda::widen_pair<Half>(bits[k].words[w], low, high);
        }
        sum[2 * w] += low;
        sum[2 * w + 1] += high;
      }
    }
  }

  // Adds panels kPanels group, ... of a frame.
  __device__ __forceinline__ void add_frame(std::int64_t frame, int group, bool continues, bool may_go_on,
                                            int lane) const {
    const int all = batch.lattice.states, part = lane % kParts;
    // The part's states: every kParts-th of the frame's, from `first` on.
    int first = part, end = all;
    if (band) {
      const auto b = static_cast<int>(frame / batch.lattice.frames);
      const int begin =
          band.begin(b, static_cast<int>(frame - static_cast<std::int64_t>(b) * batch.lattice.frames));
      first = begin + ((part - begin) & (kParts - 1));
      end = begin + band.width;
    }
    const int own = max((end - first + kParts - 1) / kParts, 0);
    const int panel = group * kPanels + lane / kParts;
    int column = 8 * panel;
    const bool exists = column < hidden;
    const std::int64_t at = (static_cast<std::int64_t>(part) * dh.count + panel) * 8;
    float sum[8] = {};
    if (exists && continues) {
#pragma unroll
      for (int k = 0; k < 8; ++k) sum[k] = parts_from[at + k];
    }
    if (exists) add(sum, frame * all + first, kParts, own, column);
    if (exists && may_go_on) {
#pragma unroll
      for (int k = 0; k < 8; ++k) parts_to[at + k] = sum[k];
    }
    // Each step halves the number of columns per lane.
    const bool upper = lane & 4, upper_pair = lane & 2, upper_one = lane & 1;
    float four[4], two[2];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float theirs = cuda::shuffle_xor(upper ? sum[k] : sum[k + 4], 4);
      four[k] = (upper ? sum[k + 4] : sum[k]) + theirs;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float theirs = cuda::shuffle_xor(upper_pair ? four[k] : four[k + 2], 2);
      two[k] = (upper_pair ? four[k + 2] : four[k]) + theirs;
    }
    const float one = (upper_one ? two[1] : two[0]) + cuda::shuffle_xor(upper_one ? two[0] : two[1], 1);
    column += part;
    if (column < hidden) frames[frame * hidden + column] = cuda::narrow<Storage>(one);
  }

  // With a band: adds state u of utterance b, from its frames begin to end - 1. A lane owns 8 columns.
  __device__ __forceinline__ void add_band_state(int b, int u, int begin, int end, int column,
                                                 int lane) const {
    const int all_frames = batch.lattice.frames, all = batch.lattice.states, rows = chunk.rows();
    float* const to = states + (static_cast<std::int64_t>(b) * all + u) * hidden + column;
    float sum[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = column + k < hidden ? to[k] : 0.0f;
    bool any = false;
    for (int first = begin; first < end; first += cuda::kWarpSize) {
      const int t = first + lane;
      int own = -1;
      if (t < end && band.has(b, t, u)) {
        own = places[(static_cast<std::int64_t>(b) * all_frames + t) * all + u] - chunk.first;
      }
      unsigned mask = __ballot_sync(cuda::kFullWarp, own >= 0 && own < rows);
      any |= mask != 0;
      while (mask != 0) {
        int place[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const bool is_term = mask != 0;
          const int from = cuda::shuffle(own, is_term ? __ffs(static_cast<int>(mask)) - 1 : 0);
          place[k] = is_term && column < hidden ? from : -1;
          mask &= mask - 1;
        }
        add_rows(sum, place, column);
      }
    }
    if (!any) return;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (column + k < hidden) to[k] = sum[k];
    }
  }

  // Adds states first_state to first_state + kStates - 1 of utterance b. If `follows`, `before` is the last
  // frame of the previous chunk, otherwise the first frame of this one; `last` is this chunk's last frame (as
  // b T + t).
  __device__ __forceinline__ void add_states(int b, int first_state, int before, bool follows, int last,
                                             bool goes_on, int column, int lane) const {
    const int all_frames = batch.lattice.frames, all = batch.lattice.states;
    const int u = first_state + lane % kStates;
    const bool exists = u < all;
    const int begin = max(before - b * all_frames, 0), end = min(last - b * all_frames, all_frames - 1) + 1;
    const int first_segment = begin / kSegment, last_segment = (end - 1) / kSegment;
    const bool continues = follows && before / all_frames == b;
    const bool is_open = goes_on && last / all_frames == b;
    const std::int64_t at = (static_cast<std::int64_t>(u) * dh.count + column / 8) * 8;
    float* const to = states + (static_cast<std::int64_t>(b) * all + u) * hidden + column;
    const bool writes = exists && lane < kStates;
    float total[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) total[k] = writes && column + k < hidden ? to[k] : 0.0f;
    for (int segment = first_segment + lane / kStates; segment - lane / kStates <= last_segment;
         segment += kSegments) {
      float sum[8] = {};
      if (exists && segment <= last_segment) {
        if (continues && segment == first_segment) {
#pragma unroll
          for (int k = 0; k < 8; ++k) sum[k] = segments_from[at + k];
        }
        const int from = max(begin, segment * kSegment), until = min(end, (segment + 1) * kSegment);
        add(sum, (static_cast<std::int64_t>(b) * all_frames + from) * all + u, all, until - from, column);
        if (is_open && segment == last_segment) {
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            segments_to[at + k] = sum[k];
            sum[k] = 0;
          }
        }
      }
#pragma unroll
      for (int s = 0; s < kSegments; ++s) {
#pragma unroll
        for (int k = 0; k < 8; ++k) total[k] += cuda::shuffle(sum[k], s * kStates + lane % kStates);
      }
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (writes && column + k < hidden) to[k] = total[k];
    }
  }
};
template <class Storage>
__global__ void __launch_bounds__(kJointThreads, 3)
    wide_add_kernel(const __grid_constant__ WideSums<Storage> p) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp =
      static_cast<int>(blockIdx.x) * kJointWarps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int warps = static_cast<int>(gridDim.x) * kJointWarps;
  const int rows = p.chunk.rows(), states = p.batch.lattice.states, all_frames = p.batch.lattice.frames;
  if (rows == 0) return;
  using Sums = WideSums<Storage>;
  const int panels = (p.hidden + 7) / 8, panel_groups = (panels + Sums::kPanels - 1) / Sums::kPanels;
  // Tasks of states: kStates states and a panel; with a band, one state and a panel for each lane.
  const int groups = p.band ? states : (states + Sums::kStates - 1) / Sums::kStates;
  const int slices = p.band ? (panels + cuda::kWarpSize - 1) / cuda::kWarpSize : panels;
  const int first = p.chunk.row(0) / states,
            last = p.chunk.row(rows - 1) / states;  // the chunk's first and last frame, as b T + t
  const bool follows = p.chunk.first > 0, goes_on = p.chunk.first + rows < *p.chunk.count;
  const int before = follows ? p.chunk.row(-1) / states : first;
  const int first_b = before / all_frames, last_b = last / all_frames;
  const int of_frames = p.frames ? (last - first + 1) * panel_groups : 0;
  const int of_states = p.states ? (last_b - first_b + 1) * groups * slices : 0;
  // States come first, because they take longest.
  for (int task = warp; task < of_states + of_frames; task += warps) {
    const bool is_state = task < of_states;
    const int number = is_state ? task : task - of_states;
    if (is_state) {
      const int item = number / slices;
      if (p.band) {
        const int b = first_b + item / groups;
        const int begin = max(first - b * all_frames, 0),
                  end = min(last - b * all_frames, all_frames - 1) + 1;
        p.add_band_state(b, item % groups, begin, end, (number % slices * cuda::kWarpSize + lane) * 8, lane);
        continue;
      }
      p.add_states(first_b + item / groups, item % groups * Sums::kStates, before, follows, last, goes_on,
                   number % panels * 8, lane);
    } else {
      const int frame = first + number / panel_groups;
      p.add_frame(frame, number % panel_groups, follows && frame == before, frame == last, lane);
    }
  }
}

}  // namespace warpalign::detail::transducer
