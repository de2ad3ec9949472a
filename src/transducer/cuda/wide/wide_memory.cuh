// What the joint by warpgroups has in its workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transducer/cuda/wide/wide_plan.cuh"

namespace warpalign::detail::transducer {
inline namespace on_device {

// Everything in the workspace of the first call.
template <class Storage>
struct WideMemory {
  using Half = WideFactor<Storage>;
  typename Plan<float>::Exchange exchange;
  Saved<float> saved;  // without a gradient
  BandList band;       // of a pruned joint
  WidePacked<Storage> packed;
  std::int32_t chunk;
  Half* h;
  std::int32_t* label;
  WideParts parts;

  WideMemory(const WidePlan<Storage>& plan, bool for_gradient, Arena& arena) {
    exchange = plan.plan().exchange(arena, for_gradient);
    if (!for_gradient) saved = plan.plan().save(arena, false);
    if (plan.has_band()) band = BandList(arena, plan.nodes());
    packed = plan.take_packed(arena, false);
    chunk = plan.chunk(false, arena.used());
    const auto rows = static_cast<std::size_t>(chunk);
    h = arena.take<Half>(plan.all_parts(plan.h_part(chunk)), "hidden rows of a chunk");
    label = arena.take<std::int32_t>(rows, "labels of a chunk");
    parts.tiles = plan.label_tiles();
    parts.part = arena.take<RowSum<float>>(rows * parts.tiles, "sums of tiles");
    parts.picked = arena.take<float>(rows * plan.columns().picked(), "logits of arcs");
  }
};

// Everything in the workspace of the second call.
template <class Storage>
struct WideGradientMemory {
  using Half = WideFactor<Storage>;
  LiveList live;
  WidePacked<Storage> packed;
  std::int32_t chunk;
  Half* h;
  Half* g;
  WideNode* node;
  float* posterior;
  float* parts[2] = {};          // of the frame that a chunk ends with
  float* states = nullptr;       // (B (U+1), H); null: not wanted
  float* segments[2] = {};       // of the states, where a chunk ends; null with a band
  float* weight_sums = nullptr;  // (split, packed columns, sums_stride)

  WideGradientMemory(const TransducerJointProblem& p, const TransducerJointGradient& gradient,
                     const WidePlan<Storage>& plan, Arena& arena) {
    live = LiveList(arena, p);
    const std::size_t listed = arena.used();
    packed = plan.take_packed(arena, true);
    for (float*& part : parts) {
      part =
          arena.take<float>(WideSums<Storage>::kParts * plan.h_panels() * std::size_t{8}, "sums of a frame");
    }
    if (gradient.predictor) {
      states = arena.take<float>(
          static_cast<std::size_t>(std::int64_t{p.lattice.batch} * p.lattice.states * p.hidden),
          "gradient of the predictor");
      for (float*& one : segments) {
        if (plan.has_band()) break;  // a state's few nodes are added without segments
        one = arena.take<float>(static_cast<std::size_t>(p.lattice.states) * plan.h_panels() * 8,
                                "sums of states");
      }
    }
    if (gradient.weight || gradient.bias)
      weight_sums = arena.take<float>(plan.split() * plan.sums(), "sums of gradients by weights");
    chunk = plan.chunk(true, arena.used() - listed);
    const auto rows = static_cast<std::size_t>(chunk);
    h = arena.take<Half>(plan.all_parts(plan.h_part(chunk)), "hidden rows of a chunk");
    g = arena.take<Half>(plan.all_parts(plan.g_part(chunk)), "gradients of a chunk's logits");
    node = arena.take<WideNode>(rows, "nodes of a chunk");
    posterior = arena.take<float>(rows * plan.columns().picked(), "posteriors of arcs");
  }
};

}  // namespace on_device
}  // namespace warpalign::detail::transducer
