// The joint's launches on a GPU: the ways to multiply, and what they share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "transducer/cuda/joint/live_rows.cuh"
#include "transducer/cuda/pruned/launch_band.h"
#include "transducer/problem.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::detail::transducer {

constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// The ways to multiply.
enum class JointWay { kBlocks, kTf32, kWarpgroups };
inline constexpr const char* kJointWays[] = {"blocks", "tf32", "warpgroups"};

// The problem of the logits, which are not in memory, for sizes and settings.
inline TransducerProblem joint_logits_of(const TransducerJointProblem& p) {
  TransducerProblem logits;
  logits.dtype = p.dtype;
  logits.labels = p.labels;
  logits.lattice = p.lattice;
  return logits;
}

// The second call's list of live nodes. TransducerJointProblem::workspace_limit does not include it.
struct LiveList {
  std::int32_t* count = nullptr;   // number of live nodes
  std::int32_t* counts = nullptr;  // number of live nodes in each block of kLiveRows nodes
  std::int32_t* list = nullptr;    // their rows
  LivePlaces places;

  LiveList() = default;
  LiveList(Arena& arena, const TransducerJointProblem& p) {
    const std::int64_t nodes = joint_nodes(p);
    count = arena.take<std::int32_t>(1, "live nodes: count");
    counts = arena.take<std::int32_t>(static_cast<std::size_t>((nodes + kLiveRows - 1) / kLiveRows),
                                      "live nodes: counts of blocks");
    list = arena.take<std::int32_t>(static_cast<std::size_t>(nodes), "live nodes: list");
    places.words = arena.take<LiveWord>(static_cast<std::size_t>((nodes + 31) / 32), "live nodes: places");
    if (p.band) {
      places.frames = arena.take<LiveFrames>(
          static_cast<std::size_t>(std::int64_t{p.lattice.batch} * p.lattice.states), "live nodes: frames");
    }
  }
};
template <class Real>
Status launch_list_live(const LiveRows<Real>& live, const LiveList& to, cudaStream_t stream);

// Launches joint_round_kernel: the sum of parts, rounded to the caller's type.
template <class Storage>
Status launch_joint_round(const cuda::Sum<Storage>* from, int parts, std::int64_t part_stride,
                          std::int64_t stride, std::int64_t rows, int columns, void* to, void* last,
                          int blocks, cudaStream_t stream);

template <class Storage>
struct ProductShape;
struct Tf32Shape;

// The joint by blocks, each of which owns a tile: every device, every type. Half types and float32 as TF32
// (Tf32Shape): sm_80 and later.
template <class Shape>
struct JointBlocks {
  static std::size_t workspace_bytes(const TransducerJointProblem& p, const TransducerOutputs& out,
                                     const Execution& execution);
  static std::size_t gradient_workspace_bytes(const TransducerJointProblem& p,
                                              const TransducerJointGradient& g, const Execution& execution);
  static Status forward(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                        const Execution& execution);
  static Status gradient(const TransducerJointProblem& p, const TransducerJointGradient& g,
                         Workspace workspace, const Execution& execution);
};

// The joint by warpgroups, for half types and float32 on sm_90.
template <class Storage>
struct JointWarpgroups {
  static std::size_t workspace_bytes(const TransducerJointProblem& p, const TransducerOutputs& out,
                                     const Execution& execution);
  static std::size_t gradient_workspace_bytes(const TransducerJointProblem& p,
                                              const TransducerJointGradient& g, const Execution& execution);
  static Status forward(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                        const Execution& execution);
  static Status gradient(const TransducerJointProblem& p, const TransducerJointGradient& g,
                         Workspace workspace, const Execution& execution);
};

}  // namespace warpalign::detail::transducer
