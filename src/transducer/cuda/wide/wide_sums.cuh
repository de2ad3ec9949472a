// Sums of a joint network's gradients over states and frames, after the products by warpgroups.
#pragma once

#include <cstdint>

#include "transducer/cuda/joint/joint_rows.cuh"
#include "transducer/cuda/wide/wide_product.cuh"

namespace warpalign::detail::transducer {

// Adds a chunk's dh to the sums of frames and of states. A frame's sum has kParts parts, by u % kParts, which
// are added at the end. A state's sum has a part for each segment of kSegment frames, added in order. The
// terms of a part are added in order. If a chunk ends within a part (of a frame, or of each state's segment),
// the part is stored for the next chunk. So results do not depend on the size of chunks. With a band, frames
// and states have few nodes, which are added in order, without parts or segments.
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
  const float* parts_from;  // (kParts, panels, 8); with a band (panels, 8)
  float* parts_to;
  float* states;               // (B (U+1), H); null: not wanted
  const float* segments_from;  // (U+1, panels, 8); null with a band
  float* segments_to;
  Band band;

  static constexpr int kParts = 8;                               // parts of a frame, in neighbouring lanes
  static constexpr int kPanels = cuda::kWarpSize / kParts;       // panels of a frame that a warp owns
  static constexpr int kBandFrames = cuda::kWarpSize / kPanels;  // frames that it owns with a band
  static constexpr int kSegment = 32;                            // frames of a segment
  static constexpr int kSegments = 8;                            // segments at a time, in neighbouring lanes
  static constexpr int kStates = cuda::kWarpSize / kSegments;
  static constexpr bool kSplit = std::is_same_v<Storage, float>;
  static constexpr int kAtOnce = kSplit ? 4 : 8;       // loads of 8 columns of a sum in flight
  static constexpr int kBandTerms = kSplit ? 16 : 32;  // loads of 2 columns of a state in flight, with a band
  static constexpr int kBandColumns = 2 * cuda::kWarpSize;  // columns of a state that a warp owns with a band

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
    // The part's states: every kParts-th of the frame's.
    const int own = max((all - part + kParts - 1) / kParts, 0);
    const int panel = group * kPanels + lane / kParts;
    int column = 8 * panel;
    const bool exists = column < hidden;
    const std::int64_t at = (static_cast<std::int64_t>(part) * dh.count + panel) * 8;
    float sum[8] = {};
    if (exists && continues) {
#pragma unroll
      for (int k = 0; k < 8; ++k) sum[k] = parts_from[at + k];
    }
    if (exists) add(sum, frame * all + part, kParts, own, column);
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

  // With a band: adds a panel of a frame, b T + t. A lane owns both.
  __device__ __forceinline__ void add_band_frame(int frame, int panel, bool continues, bool may_go_on) const {
    const int column = 8 * panel;
    float sum[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = continues ? parts_from[column + k] : 0.0f;
    const std::int64_t node = static_cast<std::int64_t>(frame) * band.width;
    for (int first = 0; first < band.width; first += kAtOnce) {
      int place[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        place[k] = first + k < band.width ? places[node + first + k] - chunk.first : -1;
      }
      add_rows(sum, place, column);
    }
    if (may_go_on) {
#pragma unroll
      for (int k = 0; k < 8; ++k) parts_to[column + k] = sum[k];
    }
    Storage* const to = frames + static_cast<std::int64_t>(frame) * hidden + column;
    if (hidden % 8 == 0 && reinterpret_cast<std::uintptr_t>(frames) % 16 == 0) {
      constexpr int kVectors = sizeof(Storage) / 2;
      cuda::Bits128 bits[kVectors];
#pragma unroll
      for (int w = 0; w < 4 * kVectors; ++w) {
        if constexpr (kSplit) {
          bits[w / 4].words[w % 4] = static_cast<std::uint32_t>(__float_as_int(sum[w]));
        } else {
          bits[w / 4].words[w % 4] = cuda::narrow_pair<Half>(sum[2 * w], sum[2 * w + 1]);
        }
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v) reinterpret_cast<cuda::Bits128*>(to)[v] = bits[v];
      return;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (column + k < hidden) to[k] = cuda::narrow<Storage>(sum[k]);
    }
  }

  // With a band: the place in the chunk of state u's node in frame t of utterance b; negative: none.
  [[nodiscard]] __device__ __forceinline__ int band_place(int b, int t, int end, int u) const {
    if (t >= end || !band.has(b, t, u)) return -1;
    const int place = places[band.node(b, t, u)] - chunk.first;
    return place < chunk.rows() ? place : -1;
  }

  // With a band: adds state u of utterance b, from its frames begin to end - 1, in order. A lane owns 2
  // columns. A state may have most frames, so that its sum takes longest of all: kBandTerms loads of it are
  // in flight, and the places of the next frames.
  __device__ __forceinline__ void add_band_state(int b, int u, int begin, int end, int column,
                                                 int lane) const {
    const int all_frames = batch.lattice.frames, all = batch.lattice.states;
    const LiveFrames live = places.frames[b * all + u];
    begin = max(begin, all_frames - live.before);
    end = min(end, live.end);
    if (begin >= end) return;
    float* const to = states + (static_cast<std::int64_t>(b) * all + u) * hidden + column;
    const bool has_first = column < hidden, has_second = column + 1 < hidden;
    float sum[2] = {has_first ? to[0] : 0.0f, has_second ? to[1] : 0.0f};
    const Half* const first_row = dh.at(0, has_first ? column : 0);
    int next = band_place(b, begin + lane, end, u);
    for (int first = begin; first < end; first += cuda::kWarpSize) {
      const int own = next;
      next = band_place(b, first + cuda::kWarpSize + lane, end, u);
      const unsigned mask = __ballot_sync(cuda::kFullWarp, own >= 0);
      const int offset = own >= 0 ? static_cast<int>(dh.at(own, 0) - dh.data) : 0;
      for (int turn = 0; turn < cuda::kWarpSize; turn += kBandTerms) {
        add_terms(sum, first_row, mask >> turn, offset, turn);
      }
    }
    if (has_first) to[0] = sum[0];
    if (has_second) to[1] = sum[1];
  }

  // sum += those of kBandTerms lanes from `turn` on that `mask` has. offset: of the lane's row.
  __device__ __forceinline__ void add_terms(float (&sum)[2], const Half* first_row, unsigned mask, int offset,
                                            int turn) const {
    std::uint32_t upper[kBandTerms] = {}, lower[kSplit ? kBandTerms : 1] = {};
    // Where no lane of 8 has a term, the warp skips them.
#pragma unroll
    for (int group = 0; group < kBandTerms; group += 8) {
      if ((mask >> group & 0xff) == 0) continue;
#pragma unroll
      for (int k = group; k < group + 8; ++k) {
        const Half* const from = first_row + cuda::shuffle(offset, turn + k);
        if ((mask >> k & 1) == 0) continue;
        upper[k] = *reinterpret_cast<const std::uint32_t*>(from);
        if constexpr (kSplit) lower[k] = *reinterpret_cast<const std::uint32_t*>(from + dh.part_stride);
      }
    }
#pragma unroll
    for (int group = 0; group < kBandTerms; group += 8) {
      if ((mask >> group & 0xff) == 0) continue;
#pragma unroll
      for (int k = group; k < group + 8; ++k) {
        float low, high;
        if constexpr (kSplit) {
          const SplitPair pair(upper[k], lower[k]);
          low = pair.first();
          high = pair.second();
        } else {
          cuda::widen_pair<Half>(upper[k], low, high);
        }
        sum[0] += low;
        sum[1] += high;
      }
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
// The frames and utterances of a chunk. Frames are numbered b T + t.
struct WideSumRange {
  int first, last;      // the chunk's first and last frame
  int before;           // the last frame of the previous chunk; `first` if there is none
  bool follows;         // there is a previous chunk
  bool goes_on;         // there is a next chunk
  int first_b, last_b;  // utterances of `before` and `last`

  __device__ __forceinline__ WideSumRange(const JointChunk& chunk, const TransducerLattice& lattice) {
    const int rows = chunk.rows();
    first = chunk.row(0) / lattice.states;
    last = chunk.row(rows - 1) / lattice.states;
    follows = chunk.first > 0;
    goes_on = chunk.first + rows < *chunk.count;
    before = follows ? chunk.row(-1) / lattice.states : first;
    first_b = before / lattice.frames;
    last_b = last / lattice.frames;
  }
  [[nodiscard]] __device__ __forceinline__ int frames() const { return last - first + 1; }
  [[nodiscard]] __device__ __forceinline__ int utterances() const { return last_b - first_b + 1; }
};

template <class Storage>
__device__ __forceinline__ void add_band(const WideSums<Storage>& p, int warp, int warps, int lane) {
  using Sums = WideSums<Storage>;
  const int states = p.batch.lattice.states, all_frames = p.batch.lattice.frames;
  const WideSumRange range(p.chunk, p.batch.lattice);
  const int panels = (p.hidden + 7) / 8, panel_groups = (panels + Sums::kPanels - 1) / Sums::kPanels;
  const int slices = (p.hidden + Sums::kBandColumns - 1) / Sums::kBandColumns;
  const int frame_groups = (range.frames() + Sums::kBandFrames - 1) / Sums::kBandFrames;
  const int of_frames = p.frames ? frame_groups * panel_groups : 0;
  // Tasks of states: one state, and kBandColumns of its columns.
  const int of_states = p.states ? range.utterances() * states * slices : 0;
  for (int task = warp; task < of_states + of_frames; task += warps) {
    if (task < of_states) {
      const int item = task / slices, b = range.first_b + item / states;
      const int begin = max(range.first - b * all_frames, 0);
      const int end = min(range.last - b * all_frames, all_frames - 1) + 1;
      p.add_band_state(b, item % states, begin, end, task % slices * Sums::kBandColumns + 2 * lane, lane);
      continue;
    }
    const int number = task - of_states;
    const int frame = range.first + number / panel_groups * Sums::kBandFrames + lane / Sums::kPanels;
    const int panel = number % panel_groups * Sums::kPanels + lane % Sums::kPanels;
    if (frame > range.last || panel >= panels) continue;
    p.add_band_frame(frame, panel, range.follows && frame == range.before, frame == range.last);
  }
}

template <class Storage>
__global__ void __launch_bounds__(kJointThreads, 3)
    wide_add_kernel(const __grid_constant__ WideSums<Storage> p) {
  using Sums = WideSums<Storage>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp =
      static_cast<int>(blockIdx.x) * kJointWarps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int warps = static_cast<int>(gridDim.x) * kJointWarps;
  if (p.chunk.rows() == 0) return;
  if (p.band) {
    add_band(p, warp, warps, lane);
    return;
  }
  const WideSumRange range(p.chunk, p.batch.lattice);
  const int panels = (p.hidden + 7) / 8, panel_groups = (panels + Sums::kPanels - 1) / Sums::kPanels;
  // Tasks of states: kStates states and a panel.
  const int groups = (p.batch.lattice.states + Sums::kStates - 1) / Sums::kStates;
  const int of_frames = p.frames ? range.frames() * panel_groups : 0;
  const int of_states = p.states ? range.utterances() * groups * panels : 0;
  // States come first, because they take longest.
  for (int task = warp; task < of_states + of_frames; task += warps) {
    if (task < of_states) {
      const int item = task / panels;
      p.add_states(range.first_b + item / groups, item % groups * Sums::kStates, range.before, range.follows,
                   range.last, range.goes_on, task % panels * 8, lane);
    } else {
      const int number = task - of_states;
      const int frame = range.first + number / panel_groups;
      p.add_frame(frame, number % panel_groups, range.follows && frame == range.before, frame == range.last,
                  lane);
    }
  }
}

}  // namespace warpalign::detail::transducer
