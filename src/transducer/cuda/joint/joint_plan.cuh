// What a call of the joint by blocks works on: sizes that follow from the problem, and what goes into the
// workspace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transducer/cuda/call/plan.cuh"
#include "transducer/cuda/joint/joint_kernels.cuh"
#include "transducer/cuda/joint/launch_joint.h"
#include "transducer/tuning.h"

namespace warpalign::detail::transducer {
inline namespace on_device {

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
        plan_(logits_, execution, -1, saved_band_of(problem)),
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
  // The bias that is a column of the packed weights.
  [[nodiscard]] const Storage* packed_bias() const { return kAddsBias ? nullptr : bias(); }

  [[nodiscard]] int pack_blocks() const {
    return plan_.blocks_for(static_cast<std::int64_t>(packed()), kJointThreads);
  }
  // Blocks whose warps take a row of a chunk each.
  [[nodiscard]] int row_blocks(std::int32_t chunk) const {
    return plan_.blocks_for(std::int64_t{chunk} * cuda::kWarpSize, kJointThreads);
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
    live = LiveList(arena, p);
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

}  // namespace on_device
}  // namespace warpalign::detail::transducer
