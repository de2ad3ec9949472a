// Host side of the joint's CUDA path. Nodes go through the workspace a chunk at a time:
//
//   transducer_joint()            pack; for each chunk: hidden, logits, weights; lattice
//   transducer_joint_gradient()   live nodes counted, scanned and listed; pack; for each chunk of them:
//                                 hidden, logits, gradient in the logits' place, pull back, outer, add; round
//
// How many nodes are live stays on the device: launches for chunks behind them end at once.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/plan.cuh"
#include "transducer/cuda/joint/joint_kernels.cuh"
#include "transducer/cuda/joint/joint_plan.cuh"
#include "transducer/cuda/joint/launch_joint.h"

namespace warpalign::detail::transducer {
namespace {

// What a product's kernel is called by.
template <class Shape>
constexpr const char* type_of() {
  return std::is_same_v<Shape, Tf32Shape> ? "tf32" : cuda::type_name<typename Shape::Storage>();
}
template <class Storage>
const cuda::Kernel kPack{kKernels, "joint pack", cuda::type_name<Storage>(), joint_pack_kernel<Storage>};
template <class Storage>
const cuda::Kernel kHidden{kKernels, "joint hidden", cuda::type_name<Storage>(),
                           joint_hidden_kernel<Storage>};
template <class Shape>
const cuda::Kernel kLogits{kKernels, "joint logits", type_of<Shape>(), joint_logits_kernel<Shape>};
template <class Storage>
const cuda::Kernel kWeights{kKernels, "joint weights", cuda::type_name<Storage>(),
                            joint_weights_kernel<Storage>};
template <class Storage>
const cuda::Kernel kGradient{kKernels, "joint gradient", cuda::type_name<Storage>(),
                             joint_gradient_kernel<Storage>};
template <class Shape>
const cuda::Kernel kOuter{kKernels, "joint outer", type_of<Shape>(), joint_outer_kernel<Shape>};
template <class Shape>
const cuda::Kernel kBack{kKernels, "joint back", type_of<Shape>(), joint_back_kernel<Shape>};
template <class Real>
const cuda::Kernel kAdd{kKernels, "joint add", cuda::type_name<Real>(), joint_add_kernel<Real>};

template <class Shape>
Status pack(const TransducerJointProblem& p, const JointPlan<Shape>& joint, typename Shape::Storage* to,
            cudaStream_t stream) {
  using Storage = typename Shape::Storage;
  return cuda::launch(kPack<Storage>, {joint.pack_blocks(), kJointThreads, 0, stream},
                      static_cast<const Storage*>(p.weight), joint.packed_bias(),
                      static_cast<int>(joint.columns()), static_cast<int>(p.hidden), to, joint.h_stride());
}

// A chunk's logits, from hidden rows.
template <class Shape>
Status enqueue_logits(const JointPlan<Shape>& joint, const Batch& batch,
                      const JointProducts<typename Shape::Storage>& products, cudaStream_t stream) {
  const std::int32_t most = products.chunk.most;
  if (Status s =
          cuda::launch(kHidden<typename Shape::Storage>, {joint.row_blocks(most), kJointThreads, 0, stream},
                       batch, products.rows, products.chunk);
      !s.ok()) {
    return s;
  }
  return cuda::launch(
      kLogits<Shape>,
      {joint.tiles(most, joint.x_stride()), Shape::kThreads, kProductBytes<Shape, false, false>, stream},
      products);
}

template <class Shape>
Status joint_forward(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                     const Execution& execution) {
  using Storage = typename Shape::Storage;
  using Real = cuda::Sum<Storage>;
  const JointPlan<Shape> joint(p, execution);
  const Plan<Real>& plan = joint.plan();
  if (!plan.status().ok()) return plan.status();
  if (PlanLog* const log = PlanLog::current()) plan.describe(*log);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool for_gradient = out.saved != nullptr;
  Arena scratch(workspace.data);
  const JointMemory<Shape> memory(joint, for_gradient, scratch);
  Arena kept(out.saved);
  const Saved<Real> saved = for_gradient ? plan.save(kept, true) : memory.saved;
  Batch batch = plan.batch();
  batch.places = saved.places;
  if (plan.has_places()) {
    if (Status s = launch_places(batch, saved.places, stream); !s.ok()) return s;
  }
  if (joint.all() > 0) {
    if (Status s = pack(p, joint, memory.weight, stream); !s.ok()) return s;
  }
  JointProducts<Storage> products{};
  products.rows = joint.rows(memory.h, memory.x);
  products.three_terms = execution.precision == Precision::kHigh;
  products.weight = memory.weight;
  products.bias = joint.added_bias();
  products.columns = joint.columns();
  RowsParams<Storage> weights{};
  weights.batch = batch;
  const int blocks = set_rows<Storage>(weights, plan, kRowThreads, kRowBlocks<Storage>);
  weights.logits = memory.x;
  weights.logits_stride[2] = joint.x_stride();
  weights.penalties =
      penalties_of<Real>(p.lattice, static_cast<Real>(std::log(p.lattice.star_penalty)), false);
  weights.sums = saved.sums;
  weights.slots = saved.slots;
  const std::int32_t most = memory.chunk;
  if (const Band band = band_of(p); band && joint.nodes() > 0) {
    if (Status s = launch_band(band, memory.band, joint.nodes(), saved.slots, plan.slot_count(), stream);
        !s.ok()) {
      return s;
    }
  }
  for (std::int64_t first = 0; first < joint.nodes(); first += most) {
    products.chunk = {memory.band.list, memory.band.count, static_cast<std::int32_t>(joint.all()),
                      static_cast<std::int32_t>(first), most};
    if (Status s = enqueue_logits(joint, batch, products, stream); !s.ok()) return s;
    if (Status s = cuda::launch(kWeights<Storage>, {blocks, kRowThreads, 0, stream}, weights, products.chunk);
        !s.ok()) {
      return s;
    }
  }
  return enqueue_lattice(plan, batch, saved, memory.exchange, static_cast<Real*>(out.loss), stream);
}

// The second call.
template <class Shape>
class JointGradientCall {
  using Storage = typename Shape::Storage;
  using Real = cuda::Sum<Storage>;
  static constexpr bool kRounds = !std::is_same_v<Storage, Real>;

 public:
  JointGradientCall(const TransducerJointProblem& problem, const TransducerJointGradient& gradient,
                    Workspace workspace, const Execution& execution)
      : p_(problem),
        g_(gradient),
        joint_(problem, execution),
        arena_(workspace.data),
        memory_(problem, gradient, joint_, arena_),
        frames_(kRounds ? memory_.frames : static_cast<Real*>(gradient.encoder)),
        states_(kRounds ? memory_.states : static_cast<Real*>(gradient.predictor)),
        three_terms_(execution.precision == Precision::kHigh),
        stream_(static_cast<cudaStream_t>(execution.stream)) {}

  [[nodiscard]] Status enqueue() const {
    if (Status s = clear(); !s.ok()) return s;
    if (joint_.all() > 0) {
      if (Status s = enqueue_chunks(); !s.ok()) return s;
    }
    return round();
  }

 private:
  [[nodiscard]] std::int64_t encoder_rows() const {
    return std::int64_t{p_.lattice.batch} * p_.lattice.frames;
  }
  [[nodiscard]] std::int64_t predictor_rows() const {
    return std::int64_t{p_.lattice.batch} * p_.lattice.states;
  }

  [[nodiscard]] Status clear() const {
    const struct {
      void* data;
      std::size_t count;
    } cleared[] = {{frames_, static_cast<std::size_t>(encoder_rows() * p_.hidden)},
                   {states_, static_cast<std::size_t>(predictor_rows() * p_.hidden)},
                   {memory_.weight_sums, joint_.weight_parts() * joint_.packed()}};
    for (const auto& one : cleared) {
      if (!one.data) continue;
      if (Status s = cuda::set_memory(one.data, 0, one.count * sizeof(Real), stream_); !s.ok()) return s;
    }
    return {};
  }

  // The passes over a chunk's rows of logits, which become their gradients.
  [[nodiscard]] GradientParams<Storage> rows(const Saved<Real>& saved, int* blocks) const {
    GradientParams<Storage> rows{};
    rows.batch = joint_.plan().batch();
    rows.batch.places = saved.places;
    *blocks = set_rows<Storage>(rows, joint_.plan(), kGradientThreads, kGradientBlocks<Storage>);
    rows.logits = rows.grad = memory_.x;
    rows.duration_logits = rows.duration_grad = memory_.x + p_.labels;
    for (auto* stride :
         {&rows.logits_stride, &rows.grad_stride, &rows.duration_stride, &rows.duration_grad_stride}) {
      (*stride)[2] = joint_.x_stride();
    }
    rows.sums = saved.sums;
    rows.slots = saved.slots;
    rows.outcome = saved.outcome;
    rows.grad_loss = static_cast<const Real*>(g_.grad_loss);
    rows.grad_loss_stride = g_.grad_loss_stride;
    rows.label_factor = static_cast<Real>(1.0 + p_.lattice.fastemit);
    rows.clamp = static_cast<Real>(p_.lattice.clamp);
    return rows;
  }

  [[nodiscard]] Status enqueue_chunks() const {
    Arena kept(const_cast<void*>(g_.saved));  // NOLINT: only read
    const Saved<Real> saved = joint_.plan().save(kept, true);
    int blocks = 0;
    const GradientParams<Storage> rows = this->rows(saved, &blocks);
    const LiveRows<Real> live{rows.batch, saved.slots, saved.outcome, rows.label_factor, band_of(p_)};
    if (Status s = launch_list_live(live, memory_.live, stream_); !s.ok()) return s;
    if (Status s = pack(p_, joint_, memory_.weight, stream_); !s.ok()) return s;
    JointProducts<Storage> products{};
    products.rows = joint_.rows(memory_.h, memory_.x);
    products.three_terms = three_terms_;
    products.weight = memory_.weight;
    products.bias = joint_.added_bias();
    products.columns = joint_.columns();
    products.dh = memory_.dh;
    products.weight_sums = memory_.weight_sums;
    products.parts = joint_.weight_parts();
    const std::int32_t most = memory_.chunk;
    for (std::int64_t first = 0; first < joint_.nodes(); first += most) {
      products.chunk = {memory_.live.list, memory_.live.count, 0, static_cast<std::int32_t>(first), most};
      if (Status s = enqueue_logits(joint_, rows.batch, products, stream_); !s.ok()) return s;
      if (Status s =
              cuda::launch(kGradient<Storage>, {blocks, kGradientThreads, 0, stream_}, rows, products.chunk);
          !s.ok()) {
        return s;
      }
      if (Status s = enqueue_products(rows.batch, products); !s.ok()) return s;
    }
    return {};
  }

  // What a chunk's gradients of logits add to all gradients.
  [[nodiscard]] Status enqueue_products(const Batch& batch, const JointProducts<Storage>& products) const {
    if (memory_.weight_sums) {
      const int tiles = joint_.tiles(joint_.columns(), p_.hidden + 1) * joint_.weight_parts();
      if (Status s = cuda::launch(
              kOuter<Shape>, {tiles, Shape::kThreads, kProductBytes<Shape, true, true>, stream_}, products);
          !s.ok()) {
        return s;
      }
    }
    if (!memory_.dh) return {};
    const std::int32_t most = memory_.chunk;
    const int tiles = joint_.tiles(most, p_.hidden);
    if (Status s = cuda::launch(
            kBack<Shape>, {tiles, Shape::kThreads, kProductBytes<Shape, false, true>, stream_}, products);
        !s.ok()) {
      return s;
    }
    const HiddenSums<Real> sums{batch,
                                products.chunk,
                                memory_.live.places,
                                memory_.dh,
                                joint_.h_stride(),
                                p_.hidden,
                                g_.encoder ? frames_ : nullptr,
                                g_.predictor ? states_ : nullptr,
                                band_of(p_)};
    return cuda::launch(kAdd<Real>, {joint_.row_blocks(most), kJointThreads, 0, stream_}, sums);
  }

  [[nodiscard]] Status round() const {
    const auto blocks_of = [&](std::int64_t n) {
      return std::max(joint_.plan().blocks_for(n, kJointThreads), 1);
    };
    if (memory_.weight_sums) {
      const auto packed = static_cast<std::int64_t>(joint_.packed());
      if (Status s = launch_joint_round<Storage>(memory_.weight_sums, joint_.weight_parts(), packed,
                                                 joint_.h_stride(), joint_.columns(), p_.hidden, g_.weight,
                                                 g_.bias, blocks_of(packed), stream_);
          !s.ok()) {
        return s;
      }
    }
    const struct {
      const Real* from;
      void* to;
      std::int64_t rows;
    } rounded[] = {{memory_.frames, g_.encoder, encoder_rows()},
                   {memory_.states, g_.predictor, predictor_rows()}};
    for (const auto& one : rounded) {
      if (!one.from || one.rows == 0) continue;
      if (Status s = launch_joint_round<Storage>(one.from, 1, 0, p_.hidden, one.rows, p_.hidden, one.to,
                                                 nullptr, blocks_of(one.rows * p_.hidden), stream_);
          !s.ok()) {
        return s;
      }
    }
    return {};
  }

  const TransducerJointProblem& p_;
  const TransducerJointGradient& g_;
  const JointPlan<Shape> joint_;
  Arena arena_;
  const JointGradientMemory<Shape> memory_;
  Real* const frames_;  // sums of frames and of states: null, if they are not wanted
  Real* const states_;
  const bool three_terms_;
  cudaStream_t stream_;
};

}  // namespace

template <class Shape>
std::size_t JointBlocks<Shape>::workspace_bytes(const TransducerJointProblem& p, const TransducerOutputs& out,
                                                const Execution& execution) {
  Arena arena;
  static_cast<void>(JointMemory<Shape>(JointPlan<Shape>(p, execution), out.saved != nullptr, arena));
  return arena.used();
}
template <class Shape>
std::size_t JointBlocks<Shape>::gradient_workspace_bytes(const TransducerJointProblem& p,
                                                         const TransducerJointGradient& g,
                                                         const Execution& execution) {
  Arena arena;
  static_cast<void>(JointGradientMemory<Shape>(p, g, JointPlan<Shape>(p, execution), arena));
  return arena.used();
}
template <class Shape>
Status JointBlocks<Shape>::forward(const TransducerJointProblem& p, const TransducerOutputs& out,
                                   Workspace workspace, const Execution& execution) {
  return joint_forward<Shape>(p, out, workspace, execution);
}
template <class Shape>
Status JointBlocks<Shape>::gradient(const TransducerJointProblem& p, const TransducerJointGradient& g,
                                    Workspace workspace, const Execution& execution) {
  return JointGradientCall<Shape>(p, g, workspace, execution).enqueue();
}

template struct JointBlocks<ProductShape<float>>;
template struct JointBlocks<ProductShape<double>>;
template struct JointBlocks<ProductShape<cuda::Float16>>;
template struct JointBlocks<ProductShape<cuda::BFloat16>>;
template struct JointBlocks<Tf32Shape>;

}  // namespace warpalign::detail::transducer
