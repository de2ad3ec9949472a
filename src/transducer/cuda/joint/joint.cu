// The joint's CUDA path: which way to multiply, and what no way can do.
#include <cstdint>

#include "core/plan_log.h"
#include "core/ways.h"
#include "cuda/launch/check.h"
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/plan.cuh"
#include "transducer/cuda/joint/joint_ends.cuh"
#include "transducer/cuda/joint/launch_joint.h"
#include "transducer/tuning.h"

namespace warpalign::detail::transducer {
namespace {

template <class Real>
const cuda::Kernel kLive{kKernels, "joint live", cuda::type_name<Real>(), joint_live_kernel<Real>};
const cuda::Kernel kScan{kKernels, "joint scan", nullptr, joint_scan_kernel};
template <class Storage>
const cuda::Kernel kRound{kKernels, "joint round", cuda::type_name<Storage>(), joint_round_kernel<Storage>};

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Why a way cannot serve a problem; null: it can.
const char* why_not(JointWay way, const TransducerJointProblem& p, const Execution& execution) {
  const cuda::DeviceTraits device = cuda::traits_of(execution.cuda_device);
  if (way == JointWay::kWarpgroups) {
    if (p.dtype == DType::kFloat64) return "warpgroups multiply half types, and parts of float32";
    return device.has_warpgroups ? nullptr : "the device, or this build, has no products by warpgroups";
  }
  if (way == JointWay::kTf32) {
    if (p.dtype != DType::kFloat32) return "TF32 takes the place of float32 alone";
    if (execution.precision == Precision::kHighest) return "precision is kHighest, which TF32 is not";
    return device.has_matrix_units ? nullptr : "the device has no matrix units for TF32";
  }
  return nullptr;
}

JointWay way_for(const TransducerJointProblem& p, const Execution& execution) {
  if (const int way = named_way(execution, kJointWays); way >= 0) return JointWay(way);
  // Warpgroups' tiles are 128 or 256 labels wide: few labels are multiplied by blocks.
  const int fewest_labels = cuda_tuning(cuda::traits_of(execution.cuda_device)).warpgroup_labels;
  if (p.labels >= fewest_labels && !why_not(JointWay::kWarpgroups, p, execution)) {
    return JointWay::kWarpgroups;
  }
  return why_not(JointWay::kTf32, p, execution) ? JointWay::kBlocks : JointWay::kTf32;
}

Status check_joint_way(const TransducerJointProblem& p, const Execution& execution) {
  if (Status s = check_way(execution, kJointWays, "transducer_joint() on CUDA"); !s.ok()) return s;
  return check_serves(named_way(execution, kJointWays), kJointWays,
                      [&](int way) { return why_not(JointWay(way), p, execution); });
}

const char* reason_of(JointWay way, const TransducerJointProblem& p, const Execution& execution) {
  if (names_way(execution)) return "named by Execution::way";
  if (way == JointWay::kWarpgroups) return "many labels, on a device with wgmma";
  if (way == JointWay::kTf32) return "the precision allows TF32";
  return p.dtype == DType::kFloat64 ? "float64" : "few labels, or no products by warpgroups";
}

void describe(const char* call, const TransducerJointProblem& p, const Execution& execution) {
  PlanLog* const log = PlanLog::current();
  if (!log) return;
  const JointWay way = way_for(p, execution);
  log->begin(call, cuda::name_of_device(execution.cuda_device));
  log->way(kJointWays[static_cast<int>(way)], reason_of(way, p, execution));
}

// visitor(JointBlocks<Shape>{}), or visitor(JointWarpgroups<Storage>{}).
template <class Visitor>
decltype(auto) visit_way(const TransducerJointProblem& p, const Execution& execution, Visitor&& visitor) {
  const JointWay way = way_for(p, execution);
#if WARPALIGN_HAS_WARPGROUPS
  if (way == JointWay::kWarpgroups) {
    if (p.dtype == DType::kFloat32) return visitor(JointWarpgroups<float>{});
    if (p.dtype == DType::kFloat16) return visitor(JointWarpgroups<cuda::Float16>{});
    return visitor(JointWarpgroups<cuda::BFloat16>{});
  }
#endif
  if (way == JointWay::kTf32) return visitor(JointBlocks<Tf32Shape>{});
  switch (p.dtype) {
    case DType::kFloat64:
      return visitor(JointBlocks<ProductShape<double>>{});
    case DType::kFloat16:
      return visitor(JointBlocks<ProductShape<cuda::Float16>>{});
    case DType::kBFloat16:
      return visitor(JointBlocks<ProductShape<cuda::BFloat16>>{});
    default:
      return visitor(JointBlocks<ProductShape<float>>{});
  }
}

Status check_limits(const TransducerJointProblem& p, const Execution& execution) {
  const TransducerLattice& l = p.lattice;
  if (std::int64_t{l.batch} * l.frames * l.states > INT32_MAX - (1 << 20)) {
    return Status::unsupported("frames", "more than 2^31 nodes of one batch on a GPU");
  }
  if (is_half(p.dtype) && !cuda::traits_of(execution.cuda_device).has_matrix_units) {
    return Status::unsupported("dtype", "half types on a GPU below compute capability 8.0");
  }
  return check_joint_way(p, execution);
}

}  // namespace

template <class Real>
Status launch_list_live(const LiveRows<Real>& live, const LiveList& to, cudaStream_t stream) {
  const int blocks = static_cast<int>(cuda::div_up(live.count(), std::int64_t{kLiveRows}));
  const cuda::LaunchConfig config{blocks, kJointThreads, 0, stream};
  std::int32_t* const no_list = nullptr;
  const int states = live.batch.lattice.batch * live.batch.lattice.states;
  if (Status s = cuda::launch(kLive<Real>, config, live, to.counts, no_list, to.places, states); !s.ok()) {
    return s;
  }
  if (Status s = cuda::launch(kScan, {1, kJointThreads, 0, stream}, to.counts, blocks, to.count); !s.ok()) {
    return s;
  }
  return cuda::launch(kLive<Real>, config, live, to.counts, to.list, to.places, states);
}
template Status launch_list_live(const LiveRows<float>&, const LiveList&, cudaStream_t);
template Status launch_list_live(const LiveRows<double>&, const LiveList&, cudaStream_t);

template <class Storage>
Status launch_joint_round(const cuda::Sum<Storage>* from, int parts, std::int64_t part_stride,
                          std::int64_t stride, std::int64_t rows, int columns, void* to, void* last,
                          int blocks, cudaStream_t stream) {
  return cuda::launch(kRound<Storage>, {blocks, kJointThreads, 0, stream}, from, parts, part_stride, stride,
                      rows, columns, static_cast<Storage*>(to), static_cast<Storage*>(last));
}
template Status launch_joint_round<float>(const float*, int, std::int64_t, std::int64_t, std::int64_t, int,
                                          void*, void*, int, cudaStream_t);
template Status launch_joint_round<double>(const double*, int, std::int64_t, std::int64_t, std::int64_t, int,
                                           void*, void*, int, cudaStream_t);
template Status launch_joint_round<cuda::Float16>(const float*, int, std::int64_t, std::int64_t, std::int64_t,
                                                  int, void*, void*, int, cudaStream_t);
template Status launch_joint_round<cuda::BFloat16>(const float*, int, std::int64_t, std::int64_t,
                                                   std::int64_t, int, void*, void*, int, cudaStream_t);

const char* joint_way_cuda(int index) { return way_at(kJointWays, index); }

std::size_t joint_saved_bytes_cuda(const TransducerJointProblem& p, const Execution& execution) {
  const TransducerProblem logits = joint_logits_of(p);
  const Band band = saved_band_of(p);
  return p.dtype == DType::kFloat64 ? Plan<double>(logits, execution, -1, band).saved_bytes()
                                    : Plan<float>(logits, execution, -1, band).saved_bytes();
}

std::size_t joint_workspace_bytes_cuda(const TransducerJointProblem& p, const TransducerOutputs& out,
                                       const Execution& execution) {
  return visit_way(p, execution, [&](auto way) { return way.workspace_bytes(p, out, execution); });
}

Status joint_forward_cuda(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                          const Execution& execution) {
  if (Status s = check_limits(p, execution); !s.ok()) return s;
  describe("transducer_joint", p, execution);
  return visit_way(p, execution, [&](auto way) { return way.forward(p, out, workspace, execution); });
}

std::size_t joint_gradient_workspace_bytes_cuda(const TransducerJointProblem& p,
                                                const TransducerJointGradient& g,
                                                const Execution& execution) {
  return visit_way(p, execution, [&](auto way) { return way.gradient_workspace_bytes(p, g, execution); });
}

Status joint_gradient_cuda(const TransducerJointProblem& p, const TransducerJointGradient& g,
                           Workspace workspace, const Execution& execution) {
  if (Status s = check_limits(p, execution); !s.ok()) return s;
  describe("transducer_joint_gradient", p, execution);
  return visit_way(p, execution, [&](auto way) { return way.gradient(p, g, workspace, execution); });
}

}  // namespace warpalign::detail::transducer
