// Host side of the joint by warpgroups. Nodes go through the workspace a chunk at a time:
//
//   transducer_joint()            pack; for each chunk: hidden, logits, weights; lattice
//   transducer_joint_gradient()   live nodes counted, scanned and listed; pack; for each chunk of them:
//                                 hidden, logits, outer, pull back, add; round
//
// How many nodes are live stays on the device: launches for chunks behind them end at once.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/joint/launch_joint.h"
#include "transducer/cuda/joint/wide_plan.cuh"

namespace warpalign::detail::transducer {
namespace {

template <class Half>
const cuda::Kernel kPack{kKernels, "joint wide pack", cuda::type_name<Half>(), wide_pack_kernel<Half>};
template <class Half>
const cuda::Kernel kHidden{kKernels, "joint wide hidden", cuda::type_name<Half>(),
                           wide_hidden_kernel<Half, false>};
template <class Half>
const cuda::Kernel kLogits{kKernels, "joint wide logits", cuda::type_name<Half>(),
                           wide_logits_kernel<Half, false>};
const cuda::Kernel kWeights{kKernels, "joint wide weights", nullptr, wide_weights_kernel};
template <class Half>
const cuda::Kernel kLiveHidden{kKernels, "joint wide live hidden", cuda::type_name<Half>(),
                               wide_hidden_kernel<Half, true>};
template <class Half>
const cuda::Kernel kGradient{kKernels, "joint wide gradient", cuda::type_name<Half>(),
                             wide_logits_kernel<Half, true>};
template <class Half>
const cuda::Kernel kOuter256{kKernels, "joint wide outer 256", cuda::type_name<Half>(),
                             wide_outer_kernel<Half, 256>};
template <class Half>
const cuda::Kernel kOuter216{kKernels, "joint wide outer 216", cuda::type_name<Half>(),
                             wide_outer_kernel<Half, 216>};
template <class Half>
const cuda::Kernel kBack256{kKernels, "joint wide back 256", cuda::type_name<Half>(),
                            wide_back_kernel<Half, 256>};
template <class Half>
const cuda::Kernel kBack216{kKernels, "joint wide back 216", cuda::type_name<Half>(),
                            wide_back_kernel<Half, 216>};
template <class Half>
const cuda::Kernel kAdd{kKernels, "joint wide add", cuda::type_name<Half>(), wide_add_kernel<Half>};

template <class Half>
Status pack(const TransducerJointProblem& p, const WidePlan<Half>& plan, const WidePacked<Half>& to,
            cudaStream_t stream) {
  return cuda::launch(kPack<Half>, {plan.pack_blocks(), kJointThreads, 0, stream},
                      static_cast<const Half*>(p.weight), static_cast<const Half*>(p.bias),
                      static_cast<int>(p.hidden), plan.columns(), to);
}

// Everything in the workspace of the first call.
template <class Half>
struct WideMemory {
  typename Plan<float>::Exchange exchange;
  Saved<float> saved;  // without a gradient
  BandList band;       // of a pruned joint
  WidePacked<Half> packed;
  std::int32_t chunk;
  Half* h;
  std::int32_t* label;
  WideParts parts;

  WideMemory(const WidePlan<Half>& plan, bool for_gradient, Arena& arena) {
    exchange = plan.plan().exchange(arena, for_gradient);
    if (!for_gradient) saved = plan.plan().save(arena, false);
    if (plan.has_band()) band = BandList(arena, plan.nodes());
    packed = plan.take_packed(arena, false);
    chunk = plan.chunk(false, arena.used());
    const auto rows = static_cast<std::size_t>(chunk);
    h = arena.take<Half>(rows * plan.h_panels() * 8, "hidden rows of a chunk");
    label = arena.take<std::int32_t>(rows, "labels of a chunk");
    parts.tiles = plan.label_tiles();
    parts.part = arena.take<RowSum<float>>(rows * parts.tiles, "sums of tiles");
    parts.picked = arena.take<float>(rows * plan.columns().picked(), "logits of arcs");
  }
};

template <class Half>
Status wide_forward(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                    const Execution& execution) {
  const WidePlan<Half> wide(p, execution);
  const Plan<float>& plan = wide.plan();
  if (!plan.status().ok()) return plan.status();
  if (PlanLog* const log = PlanLog::current()) plan.describe(*log);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool for_gradient = out.saved != nullptr;
  Arena scratch(workspace.data);
  const WideMemory<Half> memory(wide, for_gradient, scratch);
  Arena kept(out.saved);
  const Saved<float> saved = for_gradient ? plan.save(kept, true) : memory.saved;
  Batch batch = plan.batch();
  batch.places = saved.places;
  if (plan.has_places()) {
    if (Status s = launch_places(batch, saved.places, stream); !s.ok()) return s;
  }
  if (wide.all() > 0) {
    if (Status s = pack(p, wide, memory.packed, stream); !s.ok()) return s;
  }
  WideProducts<Half> products{};
  products.rows = wide.rows(memory.h);
  products.rows.label = memory.label;
  products.packed = memory.packed;
  products.depth = wide.depth();
  products.parts = memory.parts;
  RowsParams<float> weights{};
  weights.batch = batch;
  weights.penalties =
      penalties_of<float>(p.lattice, static_cast<float>(std::log(p.lattice.star_penalty)), false);
  weights.sums = saved.sums;
  weights.slots = saved.slots;
  const std::int32_t most = memory.chunk;
  if (const Band band = band_of(p); band && wide.nodes() > 0) {
    if (Status s = launch_band(band, memory.band, wide.nodes(), saved.slots, plan.slot_count(), stream);
        !s.ok()) {
      return s;
    }
  }
  for (std::int64_t first = 0; first < wide.nodes(); first += most) {
    products.chunk = {memory.band.list, memory.band.count, static_cast<std::int32_t>(wide.all()),
                      static_cast<std::int32_t>(first), most};
    if (Status s = cuda::launch(kHidden<Half>, {wide.hidden_blocks(most), kJointThreads, 0, stream}, batch,
                                products.rows, products.chunk);
        !s.ok()) {
      return s;
    }
    const int blocks = wide.blocks(most / kWideRows * wide.label_tiles());
    if (Status s =
            cuda::launch(kLogits<Half>, {blocks, kWideThreads, kWideBytes<kWideLabels>, stream}, products);
        !s.ok()) {
      return s;
    }
    if (Status s = cuda::launch(kWeights, {plan.blocks_for(most, kJointThreads), kJointThreads, 0, stream},
                                weights, products.chunk, products.rows.columns, products.parts);
        !s.ok()) {
      return s;
    }
  }
  return enqueue_lattice(plan, batch, saved, memory.exchange, static_cast<float*>(out.loss), stream);
}

// Everything in the workspace of the second call.
template <class Half>
struct WideGradientMemory {
  LiveList live;
  WidePacked<Half> packed;
  std::int32_t chunk;
  Half* h;
  Half* g;
  WideNode* node;
  float* posterior;
  float* parts[2] = {};          // of the frame that a chunk ends with
  float* states = nullptr;       // (B (U+1), H); null: not wanted
  float* segments[2] = {};       // of the states, where a chunk ends
  float* weight_sums = nullptr;  // (split, packed columns, sums_stride)

  WideGradientMemory(const TransducerJointProblem& p, const TransducerJointGradient& gradient,
                     const WidePlan<Half>& plan, Arena& arena) {
    live = LiveList(arena, plan.all(), plan.nodes());
    const std::size_t listed = arena.used();
    packed = plan.take_packed(arena, true);
    for (float*& part : parts)
      part = arena.take<float>(WideSums<Half>::kParts * plan.h_panels() * std::size_t{8}, "sums of a frame");
    if (gradient.predictor) {
      states = arena.take<float>(
          static_cast<std::size_t>(std::int64_t{p.lattice.batch} * p.lattice.states * p.hidden),
          "gradient of the predictor");
      for (float*& one : segments) {
        one = arena.take<float>(static_cast<std::size_t>(p.lattice.states) * plan.h_panels() * 8,
                                "sums of states");
      }
    }
    if (gradient.weight || gradient.bias)
      weight_sums = arena.take<float>(plan.split() * plan.sums(), "sums of gradients by weights");
    chunk = plan.chunk(true, arena.used() - listed);
    const auto rows = static_cast<std::size_t>(chunk);
    h = arena.take<Half>(rows * plan.h_panels() * 8, "hidden rows of a chunk");
    g = arena.take<Half>(rows * plan.g_panels() * 8, "gradients of a chunk's logits");
    node = arena.take<WideNode>(rows, "nodes of a chunk");
    posterior = arena.take<float>(rows * plan.columns().picked(), "posteriors of arcs");
  }
};

template <class Half>
Status wide_gradient(const TransducerJointProblem& p, const TransducerJointGradient& g, Workspace workspace,
                     const Execution& execution) {
  const TransducerLattice& l = p.lattice;
  const WidePlan<Half> wide(p, execution);
  const Plan<float>& plan = wide.plan();
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena arena(workspace.data);
  const WideGradientMemory<Half> memory(p, g, wide, arena);
  const std::size_t of_encoder = static_cast<std::size_t>(l.batch) * l.frames * p.hidden;
  const std::size_t of_predictor = static_cast<std::size_t>(l.batch) * l.states * p.hidden;
  const struct {
    void* data;
    std::size_t bytes;
  } cleared[] = {{g.encoder, of_encoder * sizeof(Half)},
                 {memory.states, of_predictor * sizeof(float)},
                 {memory.weight_sums, wide.split() * wide.sums() * sizeof(float)}};
  for (const auto& one : cleared) {
    if (!one.data) continue;
    if (Status s = cuda::set_memory(one.data, 0, one.bytes, stream); !s.ok()) return s;
  }
  if (wide.all() > 0) {
    Arena kept(const_cast<void*>(g.saved));  // NOLINT: only read
    const Saved<float> saved = plan.save(kept, true);
    Batch batch = plan.batch();
    batch.places = saved.places;
    WideProducts<Half> products{};
    products.rows = wide.rows(memory.h);
    products.rows.node = memory.node;
    products.rows.posterior = memory.posterior;
    products.rows.sums = saved.sums;
    products.rows.slots = saved.slots;
    products.rows.outcome = saved.outcome;
    products.rows.grad_loss = static_cast<const float*>(g.grad_loss);
    products.rows.grad_loss_stride = g.grad_loss_stride;
    products.rows.label_factor = static_cast<float>(1.0 + l.fastemit);
    products.packed = memory.packed;
    products.depth = wide.depth();
    products.g = {memory.g, wide.g_panels()};
    products.clamp = static_cast<float>(l.clamp);
    products.weight_sums = memory.weight_sums;
    products.sums_stride = wide.sums_stride();
    products.split = wide.split();
    const LiveRows<float> live{batch, saved.slots, saved.outcome, products.rows.label_factor, band_of(p)};
    if (Status s = launch_list_live(live, memory.live, stream); !s.ok()) return s;
    if (Status s = pack(p, wide, memory.packed, stream); !s.ok()) return s;
    const std::int32_t most = memory.chunk;
    WideSums<Half> sums{
        batch,   {},      {memory.live.places}, products.rows.h, p.hidden, static_cast<Half*>(g.encoder),
        nullptr, nullptr, memory.states,        nullptr,         nullptr};
    const int row_tiles = most / kWideRows;
    int turn = 0;
    for (std::int64_t first = 0; first < wide.nodes(); first += most, ++turn) {
      products.chunk = {memory.live.list, memory.live.count, 0, static_cast<std::int32_t>(first), most};
      if (Status s = cuda::launch(kLiveHidden<Half>, {wide.hidden_blocks(most), kJointThreads, 0, stream},
                                  batch, products.rows, products.chunk);
          !s.ok()) {
        return s;
      }
      const int blocks = wide.blocks(row_tiles * wide.label_tiles());
      if (Status s = cuda::launch(kGradient<Half>, {blocks, kWideThreads, kWideBytes<kWideLabels>, stream},
                                  products);
          !s.ok()) {
        return s;
      }
      if (memory.weight_sums) {
        const bool narrow = wide.outer_width() == 216;
        const cuda::LaunchConfig config{wide.blocks(wide.outer_tiles() * wide.split()), kWideThreads,
                                        narrow ? kWideBytes<216> : kWideBytes<256>, stream};
        if (Status s = cuda::launch(narrow ? kOuter216<Half> : kOuter256<Half>, config, products); !s.ok()) {
          return s;
        }
      }
      if (!g.encoder && !g.predictor) continue;
      const bool narrow = wide.back_width() == 216;
      const cuda::LaunchConfig config{wide.blocks(row_tiles * cuda::div_up(p.hidden, wide.back_width())),
                                      kWideThreads, narrow ? kWideBytes<216> : kWideBytes<256>, stream};
      if (Status s = cuda::launch(narrow ? kBack216<Half> : kBack256<Half>, config, products); !s.ok()) {
        return s;
      }
      sums.chunk = products.chunk;
      sums.parts_from = memory.parts[turn % 2];
      sums.parts_to = memory.parts[(turn + 1) % 2];
      sums.segments_from = memory.segments[turn % 2];
      sums.segments_to = memory.segments[(turn + 1) % 2];
      if (Status s = cuda::launch(kAdd<Half>, {wide.add_blocks(most), kJointThreads, 0, stream}, sums);
          !s.ok()) {
        return s;
      }
    }
  }
  const auto blocks_of = [&](std::size_t n) {
    return std::max(plan.blocks_for(static_cast<std::int64_t>(n), kJointThreads), 1);
  };
  if (memory.weight_sums) {
    // Labels, then durations, which the packed columns have in front.
    const WideColumns& columns = wide.columns();
    const struct {
      int from, to, count;
    } groups[] = {{columns.first_label, 0, columns.labels}, {0, columns.labels, columns.durations}};
    for (const auto& group : groups) {
      if (group.count == 0) continue;
      Half* const weight =
          g.weight ? static_cast<Half*>(g.weight) + std::int64_t{group.to} * p.hidden : nullptr;
      Half* const bias = g.bias ? static_cast<Half*>(g.bias) + group.to : nullptr;
      if (Status s =
              launch_joint_round<Half>(memory.weight_sums + group.from * wide.sums_stride(), wide.split(),
                                       static_cast<std::int64_t>(wide.sums()), wide.sums_stride(),
                                       group.count, p.hidden, weight, bias, blocks_of(wide.sums()), stream);
          !s.ok()) {
        return s;
      }
    }
  }
  if (!memory.states || of_predictor == 0) return {};
  return launch_joint_round<Half>(memory.states, 1, 0, p.hidden, std::int64_t{l.batch} * l.states, p.hidden,
                                  g.predictor, nullptr, blocks_of(of_predictor), stream);
}

}  // namespace

template <class Half>
std::size_t JointWarpgroups<Half>::workspace_bytes(const TransducerJointProblem& p,
                                                   const TransducerOutputs& out, const Execution& execution) {
  Arena arena;
  static_cast<void>(WideMemory<Half>(WidePlan<Half>(p, execution), out.saved != nullptr, arena));
  return arena.used();
}
template <class Half>
std::size_t JointWarpgroups<Half>::gradient_workspace_bytes(const TransducerJointProblem& p,
                                                            const TransducerJointGradient& g,
                                                            const Execution& execution) {
  Arena arena;
  static_cast<void>(WideGradientMemory<Half>(p, g, WidePlan<Half>(p, execution), arena));
  return arena.used();
}
template <class Half>
Status JointWarpgroups<Half>::forward(const TransducerJointProblem& p, const TransducerOutputs& out,
                                      Workspace workspace, const Execution& execution) {
  return wide_forward<Half>(p, out, workspace, execution);
}
template <class Half>
Status JointWarpgroups<Half>::gradient(const TransducerJointProblem& p, const TransducerJointGradient& g,
                                       Workspace workspace, const Execution& execution) {
  return wide_gradient<Half>(p, g, workspace, execution);
}

template struct JointWarpgroups<cuda::Float16>;
template struct JointWarpgroups<cuda::BFloat16>;

}  // namespace warpalign::detail::transducer
