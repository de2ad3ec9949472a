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
#include "transducer/cuda/wide/wide_memory.cuh"
#include "transducer/cuda/wide/wide_plan.cuh"

namespace warpalign::detail::transducer {
namespace {

template <class Storage>
const cuda::Kernel kPack{kKernels, "joint wide pack", cuda::type_name<Storage>(), wide_pack_kernel<Storage>};
template <class Storage>
const cuda::Kernel kHidden{kKernels, "joint wide hidden", cuda::type_name<Storage>(),
                           wide_hidden_kernel<Storage>};
template <class Storage>
const cuda::Kernel kLogits{kKernels, "joint wide logits", cuda::type_name<Storage>(),
                           wide_logits_kernel<Storage, false>};
const cuda::Kernel kWeights{kKernels, "joint wide weights", nullptr, wide_weights_kernel};
template <class Storage>
const cuda::Kernel kGradient{kKernels, "joint wide gradient", cuda::type_name<Storage>(),
                             wide_logits_kernel<Storage, true>};
const cuda::Kernel kOuter128{kKernels, "joint wide outer 128", cuda::type_name<float>(),
                             wide_outer_kernel<float, 128>};
template <class Half>
const cuda::Kernel kOuter256{kKernels, "joint wide outer 256", cuda::type_name<Half>(),
                             wide_outer_kernel<Half, 256>};
template <class Half>
const cuda::Kernel kOuter216{kKernels, "joint wide outer 216", cuda::type_name<Half>(),
                             wide_outer_kernel<Half, 216>};
const cuda::Kernel kBack128{kKernels, "joint wide back 128", cuda::type_name<float>(),
                            wide_back_kernel<float, 128>};
template <class Half>
const cuda::Kernel kBack256{kKernels, "joint wide back 256", cuda::type_name<Half>(),
                            wide_back_kernel<Half, 256>};
template <class Half>
const cuda::Kernel kBack216{kKernels, "joint wide back 216", cuda::type_name<Half>(),
                            wide_back_kernel<Half, 216>};
template <class Storage>
const cuda::Kernel kAdd{kKernels, "joint wide add", cuda::type_name<Storage>(), wide_add_kernel<Storage>};

template <class Storage>
Status pack(const TransducerJointProblem& p, const WidePlan<Storage>& plan, const WidePacked<Storage>& to,
            cudaStream_t stream) {
  return cuda::launch(kPack<Storage>, {plan.pack_blocks(), kJointThreads, 0, stream},
                      static_cast<const Storage*>(p.weight), static_cast<const Storage*>(p.bias),
                      static_cast<int>(p.hidden), plan.columns(), to);
}

template <class Storage>
Status wide_forward(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                    const Execution& execution) {
  const WidePlan<Storage> wide(p, execution);
  const Plan<float>& plan = wide.plan();
  if (!plan.status().ok()) return plan.status();
  if (PlanLog* const log = PlanLog::current()) plan.describe(*log);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool for_gradient = out.saved != nullptr;
  Arena scratch(workspace.data);
  const WideMemory<Storage> memory(wide, for_gradient, scratch);
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
  WideProducts<Storage> products{};
  products.rows = wide.rows(memory.h, memory.chunk);
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
    if (Status s = cuda::launch(kHidden<Storage>, {wide.hidden_blocks(most), kJointThreads, 0, stream}, batch,
                                wide.inputs(), products.rows, products.chunk);
        !s.ok()) {
      return s;
    }
    const int blocks = wide.blocks(most / kWideRows * wide.label_tiles());
    if (Status s = cuda::launch(kLogits<Storage>,
                                {blocks, kWideThreads, kWideBytes<kWideLabels<Storage>>, stream}, products);
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

// The second call.
template <class Storage>
class WideGradient {
  using Half = WideFactor<Storage>;

 public:
  WideGradient(const TransducerJointProblem& problem, const TransducerJointGradient& gradient,
               Workspace workspace, const Execution& execution)
      : p_(problem),
        g_(gradient),
        wide_(problem, execution),
        arena_(workspace.data),
        memory_(problem, gradient, wide_, arena_),
        stream_(static_cast<cudaStream_t>(execution.stream)) {}

  [[nodiscard]] Status enqueue() const {
    if (Status s = clear(); !s.ok()) return s;
    if (wide_.all() > 0) {
      if (Status s = enqueue_chunks(); !s.ok()) return s;
    }
    if (memory_.weight_sums) {
      if (Status s = round_weights(); !s.ok()) return s;
    }
    const std::size_t states = of_states();
    if (!memory_.states || states == 0) return {};
    return launch_joint_round<Storage>(memory_.states, 1, 0, p_.hidden,
                                       std::int64_t{p_.lattice.batch} * p_.lattice.states, p_.hidden,
                                       g_.predictor, nullptr, blocks_of(states), stream_);
  }

 private:
  [[nodiscard]] std::size_t of_states() const {
    return static_cast<std::size_t>(p_.lattice.batch) * p_.lattice.states * p_.hidden;
  }
  [[nodiscard]] int blocks_of(std::size_t n) const {
    return std::max(wide_.plan().blocks_for(static_cast<std::int64_t>(n), kJointThreads), 1);
  }

  [[nodiscard]] Status clear() const {
    const std::size_t of_encoder = static_cast<std::size_t>(p_.lattice.batch) * p_.lattice.frames * p_.hidden;
    const struct {
      void* data;
      std::size_t bytes;
    } cleared[] = {{g_.encoder, of_encoder * sizeof(Storage)},
                   {memory_.states, of_states() * sizeof(float)},
                   {memory_.weight_sums, wide_.split() * wide_.sums() * sizeof(float)}};
    for (const auto& one : cleared) {
      if (!one.data) continue;
      if (Status s = cuda::set_memory(one.data, 0, one.bytes, stream_); !s.ok()) return s;
    }
    return {};
  }

  [[nodiscard]] WideProducts<Storage> products(const Saved<float>& saved) const {
    WideProducts<Storage> products{};
    products.rows = wide_.rows(memory_.h, memory_.chunk);
    products.rows.node = memory_.node;
    products.rows.posterior = memory_.posterior;
    products.rows.sums = saved.sums;
    products.rows.slots = saved.slots;
    products.rows.outcome = saved.outcome;
    products.rows.grad_loss = static_cast<const float*>(g_.grad_loss);
    products.rows.grad_loss_stride = g_.grad_loss_stride;
    products.rows.label_factor = static_cast<float>(1.0 + p_.lattice.fastemit);
    products.packed = memory_.packed;
    products.depth = wide_.depth();
    products.g = {memory_.g, wide_.g_panels(), wide_.g_part(memory_.chunk)};
    products.clamp = static_cast<float>(p_.lattice.clamp);
    products.weight_sums = memory_.weight_sums;
    products.sums_stride = wide_.sums_stride();
    products.split = wide_.split();
    return products;
  }

  [[nodiscard]] Status enqueue_chunks() const {
    Arena kept(const_cast<void*>(g_.saved));  // NOLINT: only read
    const Saved<float> saved = wide_.plan().save(kept, true);
    Batch batch = wide_.plan().batch();
    batch.places = saved.places;
    WideProducts<Storage> products = this->products(saved);
    const LiveRows<float> live{batch, saved.slots, saved.outcome, products.rows.label_factor, band_of(p_)};
    if (Status s = launch_list_live(live, memory_.live, stream_); !s.ok()) return s;
    if (Status s = pack(p_, wide_, memory_.packed, stream_); !s.ok()) return s;
    WideSums<Storage> sums{
        batch,   {},      memory_.live.places, products.rows.h, p_.hidden, static_cast<Storage*>(g_.encoder),
        nullptr, nullptr, memory_.states,      nullptr,         nullptr,   band_of(p_)};
    const std::int32_t most = memory_.chunk;
    int turn = 0;
    for (std::int64_t first = 0; first < wide_.nodes(); first += most, ++turn) {
      products.chunk = {memory_.live.list, memory_.live.count, 0, static_cast<std::int32_t>(first), most};
      sums.chunk = products.chunk;
      sums.parts_from = memory_.parts[turn % 2];
      sums.parts_to = memory_.parts[(turn + 1) % 2];
      sums.segments_from = memory_.segments[turn % 2];
      sums.segments_to = memory_.segments[(turn + 1) % 2];
      if (Status s = enqueue_chunk(batch, products, sums); !s.ok()) return s;
    }
    return {};
  }

  [[nodiscard]] Status enqueue_chunk(const Batch& batch, const WideProducts<Storage>& products,
                                     const WideSums<Storage>& sums) const {
    const std::int32_t most = products.chunk.most;
    const int row_tiles = most / kWideRows;
    if (Status s = cuda::launch(kHidden<Storage>, {wide_.hidden_blocks(most), kJointThreads, 0, stream_},
                                batch, wide_.inputs(), products.rows, products.chunk);
        !s.ok()) {
      return s;
    }
    const int blocks = wide_.blocks(row_tiles * wide_.label_tiles());
    if (Status s = cuda::launch(kGradient<Storage>,
                                {blocks, kWideThreads, kWideBytes<kWideLabels<Storage>>, stream_}, products);
        !s.ok()) {
      return s;
    }
    if (memory_.weight_sums) {
      const int width = wide_.outer_width();
      const cuda::LaunchConfig config{wide_.blocks(wide_.outer_tiles() * wide_.split()), kWideThreads,
                                      wide_bytes(width), stream_};
      if (Status s = cuda::launch(outer_kernel(width), config, products); !s.ok()) return s;
    }
    if (!g_.encoder && !g_.predictor) return {};
    const int width = wide_.back_width();
    const cuda::LaunchConfig config{wide_.blocks(row_tiles * cuda::div_up(p_.hidden, width)), kWideThreads,
                                    wide_bytes(width), stream_};
    if (Status s = cuda::launch(back_kernel(width), config, products); !s.ok()) return s;
    return cuda::launch(kAdd<Storage>, {wide_.add_blocks(most), kJointThreads, 0, stream_}, sums);
  }

  [[nodiscard]] static std::size_t wide_bytes(int width) {
    return width == 128 ? kWideBytes<128> : width == 216 ? kWideBytes<216> : kWideBytes<256>;
  }
  [[nodiscard]] static const auto& outer_kernel(int width) {
    if constexpr (std::is_same_v<Storage, float>)
      return kOuter128;
    else
      return width == 216 ? kOuter216<Half> : kOuter256<Half>;
  }
  [[nodiscard]] static const auto& back_kernel(int width) {
    if constexpr (std::is_same_v<Storage, float>)
      return kBack128;
    else
      return width == 216 ? kBack216<Half> : kBack256<Half>;
  }

  // Rounds the sums of labels, and those of durations, which the packed columns have before them.
  [[nodiscard]] Status round_weights() const {
    const WideColumns& columns = wide_.columns();
    const struct {
      int from, to, count;
    } groups[] = {{columns.first_label, 0, columns.labels}, {0, columns.labels, columns.durations}};
    for (const auto& group : groups) {
      if (group.count == 0) continue;
      auto* const weight =
          g_.weight ? static_cast<Storage*>(g_.weight) + std::int64_t{group.to} * p_.hidden : nullptr;
      auto* const bias = g_.bias ? static_cast<Storage*>(g_.bias) + group.to : nullptr;
      if (Status s = launch_joint_round<Storage>(memory_.weight_sums + group.from * wide_.sums_stride(),
                                                 wide_.split(), static_cast<std::int64_t>(wide_.sums()),
                                                 wide_.sums_stride(), group.count, p_.hidden, weight, bias,
                                                 blocks_of(wide_.sums()), stream_);
          !s.ok()) {
        return s;
      }
    }
    return {};
  }

  const TransducerJointProblem& p_;
  const TransducerJointGradient& g_;
  const WidePlan<Storage> wide_;
  Arena arena_;
  const WideGradientMemory<Storage> memory_;
  cudaStream_t stream_;
};

}  // namespace

template <class Storage>
std::size_t JointWarpgroups<Storage>::workspace_bytes(const TransducerJointProblem& p,
                                                      const TransducerOutputs& out,
                                                      const Execution& execution) {
  Arena arena;
  static_cast<void>(WideMemory<Storage>(WidePlan<Storage>(p, execution), out.saved != nullptr, arena));
  return arena.used();
}
template <class Storage>
std::size_t JointWarpgroups<Storage>::gradient_workspace_bytes(const TransducerJointProblem& p,
                                                               const TransducerJointGradient& g,
                                                               const Execution& execution) {
  Arena arena;
  static_cast<void>(WideGradientMemory<Storage>(p, g, WidePlan<Storage>(p, execution), arena));
  return arena.used();
}
template <class Storage>
Status JointWarpgroups<Storage>::forward(const TransducerJointProblem& p, const TransducerOutputs& out,
                                         Workspace workspace, const Execution& execution) {
  return wide_forward<Storage>(p, out, workspace, execution);
}
template <class Storage>
Status JointWarpgroups<Storage>::gradient(const TransducerJointProblem& p, const TransducerJointGradient& g,
                                          Workspace workspace, const Execution& execution) {
  return WideGradient<Storage>(p, g, workspace, execution).enqueue();
}

template struct JointWarpgroups<cuda::Float16>;
template struct JointWarpgroups<cuda::BFloat16>;
template struct JointWarpgroups<float>;

}  // namespace warpalign::detail::transducer
