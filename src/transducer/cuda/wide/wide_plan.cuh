// What a call of the joint by warpgroups works on: sizes that follow from the problem, and what goes into the
// workspace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transducer/cuda/call/plan.cuh"
#include "transducer/cuda/joint/launch_joint.h"
#include "transducer/cuda/wide/wide_kernels.cuh"
#include "transducer/tuning.h"

namespace warpalign::detail::transducer {
inline namespace on_device {

// The width of tiles that cover so many columns with the least beside them.
template <class Storage>
int width_for(int columns) {
  if (std::is_same_v<Storage, float>) return 128;
  const int narrow = cuda::div_up(columns, 216) * 216, wide = cuda::div_up(columns, 256) * 256;
  return narrow < wide ? 216 : 256;
}

inline WideColumns columns_of(const TransducerJointProblem& p) {
  const TransducerLattice& l = p.lattice;
  WideColumns c{};
  c.labels = p.labels;
  c.durations = l.tdt ? l.durations : 0;
  c.first_label = l.tdt ? kDurationColumns : 0;
  c.blank[c.blanks++] = c.first_label + l.blank;
  for (int k = 0; !l.tdt && k < l.durations; ++k) c.blank[c.blanks++] = l.big_blank_column[k];
  return c;
}

// What a call works on.
template <class Storage>
class WidePlan {
 public:
  using Half = WideFactor<Storage>;

  WidePlan(const TransducerJointProblem& problem, const Execution& execution)
      : p_(problem),
        logits_(joint_logits_of(problem)),
        plan_(logits_, execution, -1, saved_band_of(problem)),
        multiprocessors_(std::max(1, cuda::traits_of(execution.cuda_device).multiprocessors)),
        tuning_(cuda_tuning(cuda::traits_of(execution.cuda_device))),
        factor_parts_(factor_parts_of(execution.precision)),
        columns_(columns_of(problem)) {}
  WidePlan(const WidePlan&) = delete;
  WidePlan& operator=(const WidePlan&) = delete;

  [[nodiscard]] const Plan<float>& plan() const { return plan_; }
  [[nodiscard]] const WideColumns& columns() const { return columns_; }
  [[nodiscard]] std::int32_t factor_parts() const { return factor_parts_; }
  [[nodiscard]] std::int64_t all() const { return plan_.batch().rows; }
  // The nodes that go through the workspace: all of them, or those of a pruned joint's band.
  [[nodiscard]] std::int64_t nodes() const { return joint_nodes(p_); }
  [[nodiscard]] bool has_band() const { return p_.band != nullptr; }
  [[nodiscard]] std::int32_t packed() const { return columns_.first_label + columns_.labels; }
  [[nodiscard]] std::int64_t weight_rows() const { return rounded_up(packed(), kWideLabels<Storage>); }
  [[nodiscard]] std::int32_t depth() const {
    return static_cast<std::int32_t>(rounded_up(p_.hidden, kWideDepth));
  }
  [[nodiscard]] std::int32_t h_panels() const { return std::max(depth(), p_.hidden / 8 * 8 + 8) / 8; }
  [[nodiscard]] std::int32_t g_panels() const {
    return static_cast<std::int32_t>(rounded_up(packed(), kWideRows)) / 8;
  }
  [[nodiscard]] std::int64_t sums_stride() const { return rounded_up(p_.hidden + std::int64_t{1}, 2); }
  [[nodiscard]] std::size_t sums() const { return static_cast<std::size_t>(packed() * sums_stride()); }
  [[nodiscard]] std::int32_t label_tiles() const {
    return static_cast<std::int32_t>(weight_rows() / kWideLabels<Storage>);
  }
  [[nodiscard]] int outer_width() const { return width_for<Storage>(p_.hidden + 1); }
  [[nodiscard]] int back_width() const { return width_for<Storage>(p_.hidden); }
  [[nodiscard]] int outer_tiles() const {
    return cuda::div_up(8 * g_panels(), kWideRows) * cuda::div_up(p_.hidden + 1, outer_width());
  }
  // Parts of a chunk whose gradients by weights are summed apart, so that there are enough tiles.
  [[nodiscard]] std::int32_t split() const {
    return std::clamp(multiprocessors_ / outer_tiles(), 1, tuning_.warpgroup_weight_parts);
  }
  [[nodiscard]] int blocks(int tiles) const { return std::max(std::min(tiles, multiprocessors_), 1); }

  // Nodes of a chunk: whole tiles, of which the workspace has room for, besides the bytes that are taken. Of
  // these numbers down to a half, the one whose chunks cost least: they leave few multiprocessors without a
  // tile, and, where the host knows the number of nodes, the last chunk is as large as the others. The number
  // of live nodes is known within a band alone, where most nodes are live. Of equal ones the smallest.
  [[nodiscard]] std::int32_t chunk(bool for_gradient, std::size_t taken) const {
    std::int64_t row = 16 * h_panels() * factor_parts_ + 4 * columns_.picked();
    row += for_gradient ? 16 * g_panels() * factor_parts_ + static_cast<std::int64_t>(sizeof(WideNode))
                        : 8 * label_tiles() + 4;
    constexpr std::int64_t kGaps = 512;  // between the arrays
    const std::int64_t left = p_.workspace_limit - static_cast<std::int64_t>(taken) - kGaps;
    const std::int64_t most_bytes = tuning_.warpgroup_chunk_bytes;
    const std::int64_t fitting = std::clamp(left, std::int64_t{0}, most_bytes) / (row * kWideRows);
    const std::int64_t all_tiles = cuda::div_up(nodes(), std::int64_t{kWideRows});
    const int most = static_cast<int>(std::max<std::int64_t>(std::min(fitting, all_tiles), 1));
    const bool knows_nodes = !for_gradient || has_band();
    const auto turns = [&](int tiles) {
      return cuda::div_up(tiles, multiprocessors_) * factor_parts_ * (factor_parts_ + 1) / 2;
    };
    int best = most;
    double least = 0;
    for (int tiles = most; tiles >= (most + 1) / 2; --tiles) {
      double cost = tuning_.warpgroup_chunk_cost +
                    turns(tiles * label_tiles()) * double{kWideLabels<Storage>} * p_.hidden;
      if (for_gradient) {
        cost += turns(tiles * cuda::div_up(p_.hidden, back_width())) * double(back_width()) * packed();
      }
      cost *= knows_nodes ? static_cast<double>(cuda::div_up(all_tiles, std::int64_t{tiles})) : 1.0 / tiles;
      if (tiles == most || cost <= least) {
        best = tiles;
        least = cost;
      }
    }
    return best * kWideRows;
  }

  [[nodiscard]] WideInputs<Storage> inputs() const {
    WideInputs<Storage> inputs{};
    inputs.encoder = static_cast<const Storage*>(p_.encoder.data);
    inputs.predictor = static_cast<const Storage*>(p_.predictor.data);
    inputs.aligned = p_.hidden % 8 == 0 && is_aligned(inputs.encoder, 16) && is_aligned(inputs.predictor, 16);
    for (int axis = 0; axis < 2; ++axis) {
      inputs.encoder_stride[axis] = p_.encoder.stride[axis];
      inputs.predictor_stride[axis] = p_.predictor.stride[axis];
      inputs.aligned &= inputs.encoder_stride[axis] % 8 == 0 && inputs.predictor_stride[axis] % 8 == 0;
    }
    return inputs;
  }

  // Numbers of a part of a chunk's hidden rows, and of its gradients.
  [[nodiscard]] std::int64_t h_part(std::int32_t chunk) const { return std::int64_t{chunk} * h_panels() * 8; }
  [[nodiscard]] std::int64_t g_part(std::int32_t chunk) const { return std::int64_t{chunk} * g_panels() * 8; }
  // Numbers of all parts.
  [[nodiscard]] std::size_t all_parts(std::int64_t part) const {
    return static_cast<std::size_t>(part * factor_parts_);
  }

  [[nodiscard]] WideRows<Half> rows(Half* h, std::int32_t chunk) const {
    WideRows<Half> rows{};
    rows.hidden = p_.hidden;
    rows.is_tanh = p_.activation == Activation::kTanh;
    rows.dropout = {p_.dropout, p_.seed};
    rows.factor_parts = factor_parts_;
    rows.h = {h, h_panels(), h_part(chunk)};
    rows.columns = columns_;
    return rows;
  }

  [[nodiscard]] WidePacked<Storage> take_packed(Arena& arena, bool with_back) const {
    WidePacked<Storage> packed{};
    const std::int64_t part = weight_rows() * depth();
    packed.rows = static_cast<std::int32_t>(weight_rows());
    packed.factor_parts = factor_parts_;
    packed.weight = {arena.take<Half>(all_parts(part), "packed weights"), depth() / 8, part};
    if (with_back) {
      packed.back = {arena.take<Half>(all_parts(part), "packed weights, transposed"), depth() / 8, part};
    }
    packed.bias = arena.take<float>(static_cast<std::size_t>(weight_rows()), "bias");
    packed.duration_bias = arena.take<float>(kDurationColumns, "bias of durations");
    return packed;
  }
  // Blocks that pack the weights.
  [[nodiscard]] int pack_blocks() const {
    return plan_.blocks_for(weight_rows() * (depth() / 8), kJointThreads);
  }
  // Blocks whose warps take 32 rows and 8 panels each.
  [[nodiscard]] int hidden_blocks(std::int32_t chunk) const {
    return plan_.blocks_for(std::int64_t{chunk} * cuda::div_up(h_panels(), 8), kJointThreads);
  }

  // Blocks whose warps take a task each of an utterance's states, and of the frames that a chunk has at
  // least.
  [[nodiscard]] int add_blocks(std::int32_t chunk) const {
    using Sums = WideSums<Storage>;
    const std::int64_t states = p_.lattice.states, panels = cuda::div_up(p_.hidden, 8);
    const std::int64_t of_states = has_band() ? states * cuda::div_up(p_.hidden, Sums::kBandColumns)
                                              : cuda::div_up(states, std::int64_t{Sums::kStates}) * panels;
    const std::int64_t of_frames = (chunk / (has_band() ? std::int64_t{p_.band_states} : states) + 2) *
                                   cuda::div_up(panels, std::int64_t{Sums::kPanels});
    return plan_.blocks_for((of_states + of_frames) * cuda::kWarpSize, kJointThreads);
  }

 private:
  // float32 as the sum of three bfloat16 parts has 24 bits, of two parts 16.
  [[nodiscard]] static std::int32_t factor_parts_of(Precision precision) {
    if (!std::is_same_v<Storage, float>) return 1;
    return precision == Precision::kHighest ? 3 : 2;
  }

  const TransducerJointProblem& p_;
  const TransducerProblem logits_;
  const Plan<float> plan_;
  const int multiprocessors_;
  const CudaTuning tuning_;
  const std::int32_t factor_parts_;
  const WideColumns columns_;
};

}  // namespace on_device
}  // namespace warpalign::detail::transducer
