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
#include "transducer/cuda/joint/launch_joint.h"
#include "transducer/problem.h"
#include "transducer/tuning.h"

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

// What a call works on.
template <class Shape>
class JointPlan {
 public:
  using Storage = typename Shape::Storage;
  using Real = cuda::Sum<Storage>;
  static constexpr int kTile = Shape::kTile, kThreads = Shape::kThreads;
  static constexpr bool kTf32 = std::is_same_v<Shape, Tf32Shape>;
  static constexpr bool kAddsBias = kTf32;

  JointPlan(const TransducerJointProblem& problem, const Execution& execution)
      : p_(problem),
        logits_(joint_logits_of(problem)),
        plan_(logits_, execution),
        multiprocessors_(std::max(1, cuda::traits_of(execution.cuda_device).multiprocessors)),
        tuning_(cuda_tuning(cuda::traits_of(execution.cuda_device))),
        columns_(p_.labels + (p_.lattice.tdt ? p_.lattice.durations : 0)),
        h_stride_(rounded_up(p_.hidden + std::int64_t{1}, 8)),
        x_stride_(rounded_up(columns_, 8)) {}
  JointPlan(const JointPlan&) = delete;
  JointPlan& operator=(const JointPlan&) = delete;

  [[nodiscard]] const Plan<Real>& plan() const { return plan_; }
  [[nodiscard]] std::int64_t all() const { return plan_.batch().rows; }
  // The nodes that go through the workspace: all of them, or those of a pruned joint's band.
  [[nodiscard]] std::int64_t nodes() const { return joint_nodes(p_); }
  [[nodiscard]] bool has_band() const { return p_.band != nullptr; }
  [[nodiscard]] std::int32_t columns() const { return columns_; }
  [[nodiscard]] std::int64_t h_stride() const { return h_stride_; }
  [[nodiscard]] std::size_t packed() const { return static_cast<std::size_t>(columns_ * h_stride_); }

  // Parts of a chunk whose gradients by weights are summed apart, so that there are enough blocks.
  [[nodiscard]] std::int32_t weight_parts() const {
    return kTf32 ? tuning_.tf32_weight_parts : tuning_.weight_parts;
  }
  // Bytes of a chunk's rows, at most.
  [[nodiscard]] std::int64_t chunk_bytes(bool for_gradient) const {
    if (kTf32) return tuning_.tf32_chunk_bytes;
    return for_gradient ? tuning_.gradient_chunk_bytes : tuning_.chunk_bytes;
  }

  // Nodes of a chunk: whole tiles of each part, of which the workspace has room for, besides what is taken.
  [[nodiscard]] std::int32_t chunk(bool for_gradient, std::size_t taken) const {
    constexpr std::int64_t kGaps = 512;  // between the arrays
    const auto bytes = static_cast<std::int64_t>(sizeof(Storage));
    std::int64_t row = (x_stride_ + h_stride_) * bytes;
    if (for_gradient) row += h_stride_ * static_cast<std::int64_t>(sizeof(Real));
    const std::int32_t step = kTf32 && !for_gradient ? 1 : weight_parts();  // tiles
    const std::int64_t whole = std::int64_t{kTile} * step;
    const std::int64_t left = p_.workspace_limit - static_cast<std::int64_t>(taken) - kGaps;
    const std::int64_t fitting = std::clamp(left, std::int64_t{0}, chunk_bytes(for_gradient)) / row / whole;
    const auto most = static_cast<std::int32_t>(
        std::max<std::int64_t>(std::min(fitting, cuda::div_up(nodes(), whole)), 1) * step);
    return (kTf32 ? fewest_turns(most, step, for_gradient) : most) * kTile;
  }

  // rows(chunk): what the kernels of a chunk take.
  [[nodiscard]] JointRows<Storage> rows(Storage* h, Storage* x) const {
    return {static_cast<const Storage*>(p_.encoder.data),
            {p_.encoder.stride[0], p_.encoder.stride[1]},
            static_cast<const Storage*>(p_.predictor.data),
            {p_.predictor.stride[0], p_.predictor.stride[1]},
            p_.hidden,
            p_.activation == Activation::kTanh,
            {p_.dropout, p_.seed},
            h,
            h_stride_,
            x,
            x_stride_};
  }
  [[nodiscard]] static int tiles(std::int64_t rows, std::int64_t columns) {
    return static_cast<int>(cuda::div_up(rows, std::int64_t{kTile}) *
                            cuda::div_up(columns, std::int64_t{kTile}));
  }
  [[nodiscard]] std::int64_t x_stride() const { return x_stride_; }

  // Where products add the bias.
  [[nodiscard]] const Storage* added_bias() const { return kAddsBias ? bias() : nullptr; }

  // Packs the weights.
  [[nodiscard]] Status pack(Storage* to, cudaStream_t stream) const {
    const int blocks = plan_.blocks_for(static_cast<std::int64_t>(packed()), kJointThreads);
    return cuda::launch(kPack<Storage>, {blocks, kJointThreads, 0, stream},
                        static_cast<const Storage*>(p_.weight), kAddsBias ? nullptr : bias(),
                        static_cast<int>(columns_), static_cast<int>(p_.hidden), to, h_stride_);
  }
  // A chunk's logits, from hidden rows.
  [[nodiscard]] Status logits(const Batch& batch, const JointProducts<Storage>& products,
                              cudaStream_t stream) const {
    const int warps = plan_.blocks_for(std::int64_t{products.chunk.most} * cuda::kWarpSize, kJointThreads);
    if (Status s = cuda::launch(kHidden<Storage>, {warps, kJointThreads, 0, stream}, batch, products.rows,
                                products.chunk);
        !s.ok()) {
      return s;
    }
    const int blocks = tiles(products.chunk.most, x_stride_);
    return cuda::launch(kLogits<Shape>, {blocks, kThreads, kProductBytes<Shape, false, false>, stream},
                        products);
  }

 private:
  [[nodiscard]] const Storage* bias() const { return static_cast<const Storage*>(p_.bias); }

  // Of the numbers of a chunk's row tiles from `most` down to a half, the one whose products leave the fewest
  // places of the device without a block.
  [[nodiscard]] std::int32_t fewest_turns(std::int32_t most, std::int32_t step, bool for_gradient) const {
    const int places = multiprocessors_ * Shape::kBlocks;
    const auto turns = [&](std::int64_t columns, std::int32_t row_tiles) {
      return cuda::div_up(row_tiles * tiles(1, columns), places);
    };
    std::int32_t best = most;
    double least = 0;
    for (std::int32_t n = most; n >= (most + 1) / 2; n -= step) {
      double cost = tuning_.tf32_chunk_cost + turns(x_stride_, n) * static_cast<double>(p_.hidden);
      if (for_gradient) cost += turns(p_.hidden, n) * static_cast<double>(columns_);
      cost /= n;
      if (n == most || cost < least) {
        best = n;
        least = cost;
      }
    }
    return best;
  }

  const TransducerJointProblem& p_;
  const TransducerProblem logits_;
  const Plan<Real> plan_;
  const int multiprocessors_;
  const CudaTuning tuning_;
  const std::int32_t columns_;
  const std::int64_t h_stride_, x_stride_;
};

// Everything in the workspace of the first call.
template <class Shape>
struct JointMemory {
  using Storage = typename Shape::Storage;
  using Real = cuda::Sum<Storage>;
  typename Plan<Real>::Exchange exchange;
  Saved<Real> saved;  // without a gradient
  BandList band;      // of a pruned joint
  Storage* weight;
  std::int32_t chunk;  // nodes
  Storage* h;
  Storage* x;

  JointMemory(const JointPlan<Shape>& plan, bool for_gradient, Arena& arena) {
    exchange = plan.plan().exchange(arena, for_gradient);
    if (!for_gradient) saved = plan.plan().save(arena, false);
    if (plan.has_band()) band = BandList(arena, plan.nodes());
    weight = arena.take<Storage>(plan.packed(), "packed weights");
    chunk = plan.chunk(false, arena.used());
    h = arena.take<Storage>(chunk * plan.h_stride(), "hidden rows of a chunk");
    x = arena.take<Storage>(chunk * plan.x_stride(), "logits of a chunk");
  }
};

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
    if (Status s = joint.pack(memory.weight, stream); !s.ok()) return s;
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
    if (Status s = joint.logits(batch, products, stream); !s.ok()) return s;
    if (Status s = cuda::launch(kWeights<Storage>, {blocks, kRowThreads, 0, stream}, weights, products.chunk);
        !s.ok()) {
      return s;
    }
  }
  return enqueue_lattice(plan, batch, saved, memory.exchange, static_cast<Real*>(out.loss), stream);
}

// Everything in the workspace of the second call.
template <class Shape>
struct JointGradientMemory {
  using Storage = typename Shape::Storage;
  using Real = cuda::Sum<Storage>;
  LiveList live;
  Storage* weight;
  std::int32_t chunk;  // nodes
  Storage* h;
  Storage* x;
  Real* dh = nullptr;           // (chunk, h_stride); null: not wanted
  Real* frames = nullptr;       // (B T, H), half types
  Real* states = nullptr;       // (B (U+1), H), half types
  Real* weight_sums = nullptr;  // (weight_parts(), columns, h_stride)

  JointGradientMemory(const TransducerJointProblem& p, const TransducerJointGradient& g,
                      const JointPlan<Shape>& plan, Arena& arena) {
    const std::int64_t batch = p.lattice.batch;
    live = LiveList(arena, plan.all(), plan.nodes());
    const std::size_t listed = arena.used();
    weight = arena.take<Storage>(plan.packed(), "packed weights");
    constexpr bool kRounds = !std::is_same_v<Storage, Real>;
    if (kRounds && g.encoder)
      frames = arena.take<Real>(batch * p.lattice.frames * p.hidden, "gradient of the encoder");
    if (kRounds && g.predictor)
      states = arena.take<Real>(batch * p.lattice.states * p.hidden, "gradient of the predictor");
    if (g.weight || g.bias)
      weight_sums = arena.take<Real>(plan.weight_parts() * plan.packed(), "sums of gradients by weights");
    chunk = plan.chunk(true, arena.used() - listed);
    h = arena.take<Storage>(chunk * plan.h_stride(), "hidden rows of a chunk");
    x = arena.take<Storage>(chunk * plan.x_stride(), "logits of a chunk");
    if (g.encoder || g.predictor) dh = arena.take<Real>(chunk * plan.h_stride(), "gradients of hidden rows");
  }
};

template <class Shape>
Status joint_gradient(const TransducerJointProblem& p, const TransducerJointGradient& g, Workspace workspace,
                      const Execution& execution) {
  using Storage = typename Shape::Storage;
  using Real = cuda::Sum<Storage>;
  const TransducerLattice& l = p.lattice;
  using Joint = JointPlan<Shape>;
  const Joint joint(p, execution);
  const Plan<Real>& plan = joint.plan();
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena arena(workspace.data);
  const JointGradientMemory<Shape> memory(p, g, joint, arena);
  const std::int64_t of_encoder = std::int64_t{l.batch} * l.frames * p.hidden;
  const std::int64_t of_predictor = std::int64_t{l.batch} * l.states * p.hidden;
  Real* frames = memory.frames;
  Real* states = memory.states;
  if constexpr (std::is_same_v<Storage, Real>) {
    frames = static_cast<Real*>(g.encoder);
    states = static_cast<Real*>(g.predictor);
  }
  const struct {
    void* data;
    std::size_t count;
  } cleared[] = {{frames, static_cast<std::size_t>(of_encoder)},
                 {states, static_cast<std::size_t>(of_predictor)},
                 {memory.weight_sums, joint.weight_parts() * joint.packed()}};
  for (const auto& one : cleared) {
    if (!one.data) continue;
    if (Status s = cuda::set_memory(one.data, 0, one.count * sizeof(Real), stream); !s.ok()) return s;
  }
  if (joint.all() > 0) {
    Arena kept(const_cast<void*>(g.saved));  // NOLINT: only read
    const Saved<Real> saved = plan.save(kept, true);
    GradientParams<Storage> rows{};
    rows.batch = plan.batch();
    rows.batch.places = saved.places;
    const int blocks = set_rows<Storage>(rows, plan, kGradientThreads, kGradientBlocks<Storage>);
    rows.logits = rows.grad = memory.x;
    rows.duration_logits = rows.duration_grad = memory.x + p.labels;
    for (auto* stride :
         {&rows.logits_stride, &rows.grad_stride, &rows.duration_stride, &rows.duration_grad_stride}) {
      (*stride)[2] = joint.x_stride();
    }
    rows.sums = saved.sums;
    rows.slots = saved.slots;
    rows.outcome = saved.outcome;
    rows.grad_loss = static_cast<const Real*>(g.grad_loss);
    rows.grad_loss_stride = g.grad_loss_stride;
    rows.label_factor = static_cast<Real>(1.0 + l.fastemit);
    rows.clamp = static_cast<Real>(l.clamp);
    const LiveRows<Real> live{rows.batch, saved.slots, saved.outcome, rows.label_factor, band_of(p)};
    if (Status s = launch_list_live(live, memory.live, stream); !s.ok()) {
      return s;
    }
    if (Status s = joint.pack(memory.weight, stream); !s.ok()) return s;
    JointProducts<Storage> products{};
    products.rows = joint.rows(memory.h, memory.x);
    products.three_terms = execution.precision == Precision::kHigh;
    products.weight = memory.weight;
    products.bias = joint.added_bias();
    products.columns = joint.columns();
    products.dh = memory.dh;
    products.weight_sums = memory.weight_sums;
    products.parts = joint.weight_parts();
    const std::int32_t most = memory.chunk;
    for (std::int64_t first = 0; first < joint.nodes(); first += most) {
      products.chunk = {memory.live.list, memory.live.count, 0, static_cast<std::int32_t>(first), most};
      if (Status s = joint.logits(rows.batch, products, stream); !s.ok()) return s;
      if (Status s =
              cuda::launch(kGradient<Storage>, {blocks, kGradientThreads, 0, stream}, rows, products.chunk);
          !s.ok()) {
        return s;
      }
      if (memory.weight_sums) {
        const int tiles = joint.tiles(joint.columns(), p.hidden + 1) * joint.weight_parts();
        if (Status s = cuda::launch(
                kOuter<Shape>, {tiles, Joint::kThreads, kProductBytes<Shape, true, true>, stream}, products);
            !s.ok()) {
          return s;
        }
      }
      if (!memory.dh) continue;
      const int tiles = joint.tiles(most, p.hidden);
      if (Status s = cuda::launch(
              kBack<Shape>, {tiles, Joint::kThreads, kProductBytes<Shape, false, true>, stream}, products);
          !s.ok()) {
        return s;
      }
      const HiddenSums<Real> sums{
          rows.batch,       products.chunk, {memory.live.places},         memory.dh,
          joint.h_stride(), p.hidden,       g.encoder ? frames : nullptr, g.predictor ? states : nullptr};
      const int warps = plan.blocks_for(std::int64_t{most} * cuda::kWarpSize, kJointThreads);
      if (Status s = cuda::launch(kAdd<Real>, {warps, kJointThreads, 0, stream}, sums); !s.ok()) {
        return s;
      }
    }
  }
  const auto blocks_of = [&](std::int64_t n) { return std::max(plan.blocks_for(n, kJointThreads), 1); };
  if (memory.weight_sums) {
    const auto packed = static_cast<std::int64_t>(joint.packed());
    if (Status s = launch_joint_round<Storage>(memory.weight_sums, joint.weight_parts(), packed,
                                               joint.h_stride(), joint.columns(), p.hidden, g.weight, g.bias,
                                               blocks_of(packed), stream);
        !s.ok()) {
      return s;
    }
  }
  const struct {
    const Real* from;
    void* to;
    std::int64_t rows;
  } rounded[] = {{memory.frames, g.encoder, std::int64_t{l.batch} * l.frames},
                 {memory.states, g.predictor, std::int64_t{l.batch} * l.states}};
  for (const auto& one : rounded) {
    if (!one.from || one.rows == 0) continue;
    if (Status s = launch_joint_round<Storage>(one.from, 1, 0, p.hidden, one.rows, p.hidden, one.to, nullptr,
                                               blocks_of(one.rows * p.hidden), stream);
        !s.ok()) {
      return s;
    }
  }
  return {};
}

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
  return joint_gradient<Shape>(p, g, workspace, execution);
}

template struct JointBlocks<ProductShape<float>>;
template struct JointBlocks<ProductShape<double>>;
template struct JointBlocks<ProductShape<cuda::Float16>>;
template struct JointBlocks<ProductShape<cuda::BFloat16>>;
template struct JointBlocks<Tf32Shape>;

}  // namespace warpalign::detail::transducer
