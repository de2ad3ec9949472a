// The source of costs, and the consumer of E, for costs in a panel in global memory (panel.h).
//
// A lane owns 2 columns. A segment's lines are copied to shared memory one segment in advance,
// asynchronously. E overwrites the costs in the panel immediately: a cell's weights, which need its cost, are
// made before its E is known.
//
// kHelpers: warps that recompute ahead of the wave in the reverse sweep. kOptions: kNone or kPaths. With a
// band, costs of cells outside are undefined.
#pragma once

#include "cuda/memory/copy_async.cuh"
#include "soft_dtw/cuda/sweep/band_steps.cuh"
#include "soft_dtw/cuda/sweep/recompute.cuh"

namespace warpalign::detail::soft_dtw {

template <int kHelpers_, Options kOptions_ = Options::kNone>
class PanelCosts {
  using Wave = soft_dtw::Wave<Cell32, float, PanelCosts>;

 public:
  static constexpr int kColumns = 2;
  static constexpr int kCarried = 0;
  static constexpr int kFeatures = 0;
  static constexpr CostSource kSource = CostSource::kPanel;
  // Longer segments need more lines in shared memory, and are no faster. A segment's first pass leaves out
  // the last group, so that short segments recompute less.
  static constexpr int kSegment = 2;
  static constexpr int kHelpers = kHelpers_;
  static constexpr int kRoles = 1 + kHelpers;
  static_assert(kHelpers <= 2);
  static constexpr CrewKind kCrew = kHelpers == 0   ? CrewKind::kNone
                                    : kHelpers == 1 ? CrewKind::kOneHelper
                                                    : CrewKind::kTwoHelpers;
  static constexpr bool kTakesWeights = kHelpers > 0;
  static constexpr int kPhases = kTakesWeights ? kHelpers : 1;
  static constexpr int kStartsInWork = kSegment;
  static constexpr bool kHasGradient = true;
  static constexpr Options kOptions = kOptions_;
  static constexpr bool kMeets = true;

 private:
  static constexpr bool kPaths = kOptions == Options::kPaths;
  static_assert(kPaths || kOptions == Options::kNone);
  static_assert(kPanelColumns == 32 * kColumns);
  static constexpr int kSteps = kSegment * kGroup;  // of a segment
  struct __align__(16) Line {
    float of[kPanelColumns];
  };
  // Lines of the current segment and of the next one, for the wave in the forward sweep and for the first
  // helper in the reverse sweep.
  struct Lines {
    Line of[2][kSteps];
  };
  using Queue = WeightQueue<float, kColumns>;

 public:
  static constexpr int kWarpBytes =
      kPhases * static_cast<int>(sizeof(Lines)) + kHelpers * static_cast<int>(sizeof(Queue));
  static constexpr int kLeastWarpBytes = kWarpBytes;
  static __device__ __forceinline__ constexpr int warp_bytes(const Params&) { return kWarpBytes; }

  __device__ explicit PanelCosts(const Wave& w)
      : w_(w),
        scale_(static_cast<float>(w.pair.scale)),
        lines_(reinterpret_cast<Lines*>(w.source_memory)[w.role > 0 ? w.role - 1 : 0]) {}

  static __device__ float largest_cost(const Params&, int2 bits, double scale) {
    return __int_as_float(max(bits.x, 0)) * static_cast<float>(scale);
  }
  // The largest cost of the strip's tiles, as bits. Each lane has the largest of some of them.
  [[nodiscard]] __device__ int2 range_bits() const {
    const Panel& panel = w_.params.panel;
    const int tiles = div_up(w_.pair.n, kPanelRows);
    const int* const range =
        panel.range + (static_cast<std::int64_t>(w_.pair.index) * panel.strips + w_.strip) * panel.tiles;
    int bits = 0;
    for (int k = w_.lane; k < tiles; k += 32) bits = max(bits, range[k]);
    return {bits, -1};
  }

  // A band's first group. Segments are counted from the band's end, as for few features.
  static __device__ int first_band_group(int least, int end) {
    return max(end - div_up(end - least, kSegment) * kSegment, 0);
  }
  static __device__ void init(const Params&, unsigned char* memory, int lane) {
    for (int h = 0; h < kHelpers; ++h) queue_in(memory, h).init(lane);
  }
  __device__ void begin_panel() const {
    for (int h = 0; h < kHelpers; ++h) queue_in(w_.source_memory, h).reset(w_.lane);
  }
  __device__ void clear_gradients() const {}

  __device__ void begin_forward() { begin_strip(); }
  __device__ void begin_forward_segment(int segment) { begin_segment(segment, segment + 1); }
  __device__ __forceinline__ void begin_forward_group(int group) { find_costs(group); }
  __device__ void end_forward_group(int) const {}

  __device__ void begin_reverse() { begin_strip(); }
  __device__ void begin_reverse_segment(int segment, bool) { begin_segment(segment, segment - kPhases); }
  __device__ __forceinline__ void begin_reverse_group(int group) {
    find_costs(group);
    find_e(group);
  }
  __device__ void end_reverse_group(int) const {}
  __device__ void end_reverse() const {}
  __device__ void help_forward(int) const {}
  __device__ void help_reverse(int helper) {
    if constexpr (kTakesWeights) recompute_strip(w_, *this, queue_in(w_.source_memory, helper), helper);
  }
  __device__ void begin_taking(const Recomputation<Wave>&, int, int) const {}
  // The weights of group i of a segment. `order` counts segments from the last one.
  __device__ __forceinline__ void take_weights(int order, int i, int group,
                                               Weights<float> (&weights)[kGroup][kColumns]) {
    using Strip = Recomputation<Wave>;
    const int count = Strip::groups(w_, Strip::segments(w_) - 1 - order);
    queue_in(w_.source_memory, order % kPhases)
        .take(groups_of_helper_before(w_, order) + count - 1 - i, w_.lane, weights);
    find_e(group);
  }

  [[nodiscard]] __device__ __forceinline__ float scale() const { return scale_; }
  [[nodiscard]] __device__ __forceinline__ float cost(int q, int k) const {
    const float2 both = *reinterpret_cast<const float2*>(here_ + q * kPanelColumns);
    return (k == 1) != w_.from_back ? both.y : both.x;
  }
  [[nodiscard]] __device__ __forceinline__ bool forbids(int q, int k) const {
    return kPaths && !in_band_.hold(q, k);
  }
  __device__ __forceinline__ void take(int q, int k, float e, float*) {
    if (k == 1) {
      second_ = e;
      return;
    }
    const int line = w_.from_back ? line_ - q : line_ + q;
    if (line < 0 || line >= lines_of_pair()) return;
    const float2 both = w_.from_back ? float2{second_, e} : float2{e, second_};
    *reinterpret_cast<float2*>(cells_ + static_cast<std::int64_t>(line) * kPanelColumns + 2 * column()) =
        both;
  }
  __device__ void finish_rows(int, const float*) const {}

 private:
  static __device__ __forceinline__ Queue& queue_in(unsigned char* memory, int helper) {
    return reinterpret_cast<Queue*>(memory + kPhases * sizeof(Lines))[helper];
  }
  // This lane's place in a line, in pairs of columns.
  [[nodiscard]] __device__ __forceinline__ int column() const {
    return w_.from_back ? 31 - w_.lane : w_.lane;
  }
  [[nodiscard]] __device__ __forceinline__ int lines_of_pair() const { return w_.pair.n + kPanelFurtherRows; }
  // The line of a step, which may be outside the pair's lines.
  [[nodiscard]] __device__ __forceinline__ int line_of(int step) const {
    return w_.from_back ? lines_of_pair() - 1 + w_.shift - step : step - w_.shift;
  }

  __device__ __forceinline__ void begin_strip() {
    const Panel& panel = w_.params.panel;
    cells_ = panel.cells + w_.pair.index * panel.pair_cells() + w_.true_strip() * panel.strip_cells();
    asked_ = -1;
    if constexpr (kPaths) in_band_.begin_strip(w_, kColumns * (w_.strip * 32 + w_.lane));
  }
  // Waits for the segment's lines in shared memory, and starts to copy those of `next`.
  __device__ __forceinline__ void begin_segment(int segment, int next) {
    if (asked_ != segment) ask(segment);
    cuda::await_copies();
    __syncwarp();  // the lines have arrived, and no lane reads the other buffer any more
    in_work_ = lines_.of[place_];
    first_step_ = (w_.own.first + segment * kSegment) * kGroup;
    if (next >= 0 && w_.own.first + next * kSegment < w_.own.end) ask(next);
  }
  // Lines outside the pair are replaced by its first or last one: no path leads from there to the result.
  __device__ __forceinline__ void ask(int segment) {
    asked_ = segment;
    place_ ^= 1;
    const int step0 = (w_.own.first + segment * kSegment) * kGroup;
    constexpr int kPieces = sizeof(Line) / sizeof(float4);
#pragma unroll
    for (int i = 0; i < kSteps * kPieces / 32; ++i) {
      const int piece = i * 32 + w_.lane;
      const int line = min(max(line_of(step0 + piece / kPieces), 0), lines_of_pair() - 1);
      const auto* const from =
          reinterpret_cast<const float4*>(cells_ + static_cast<std::int64_t>(line) * kPanelColumns);
      cuda::copy_async_l2(reinterpret_cast<float4*>(lines_.of[place_]) + piece, from + piece % kPieces);
    }
  }
  __device__ __forceinline__ void find_costs(int group) {
    here_ = in_work_[group * kGroup - first_step_].of + 2 * column();
    if constexpr (kPaths) in_band_.begin_group(group);
  }
  __device__ __forceinline__ void find_e(int group) { line_ = line_of(group * kGroup); }

  const Wave& w_;
  const float scale_;
  Lines& lines_;
  float* cells_ = nullptr;         // of the strip
  const Line* in_work_ = nullptr;  // the lines of the current segment
  const float* here_ = nullptr;    // the lane's costs of the group's first step
  int first_step_ = 0;             // of the current segment
  int asked_ = -1;                 // the segment that was copied last, to lines_.of[place_]
  int place_ = 0;
  int line_ = 0;  // of the group's first step
  float second_;  // E of the lane's second column
  BandSteps<kColumns> in_band_;
};

}  // namespace warpalign::detail::soft_dtw
