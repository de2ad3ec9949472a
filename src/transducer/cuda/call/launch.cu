// Host side of the losses. Launches:
//
//   transducer()            places, if rows are packed or labels flat; rows; lattice
//   transducer_gradient()   row gradient
//
// A float32 call computes values per row and per arc in float32, and values per utterance in float64.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/plan.cuh"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

template <class Storage>
Status forward(const TransducerProblem& p, const TransducerOutputs& out, Workspace workspace,
               const Execution& execution) {
  using Real = cuda::Sum<Storage>;
  const Plan<Real> plan(p, execution, named_way(execution, kLatticeWays));
  if (!plan.status().ok()) return plan.status();
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("transducer", cuda::name_of_device(execution.cuda_device));
    plan.describe(*log);
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool for_gradient = out.saved != nullptr;
  Arena scratch(workspace.data);
  const auto exchange = plan.exchange(scratch, for_gradient);
  Arena kept(out.saved);
  const Saved<Real> saved = plan.save(for_gradient ? kept : scratch, for_gradient);
  Batch batch = plan.batch();
  batch.places = saved.places;
  if (Status s = enqueue_rows<Storage>(p, plan, batch, saved, stream); !s.ok()) return s;
  return enqueue_lattice(plan, batch, saved, exchange, static_cast<Real*>(out.loss), stream);
}

template <class Storage>
Status gradient(const TransducerProblem& p, const TransducerGradient& g, const Execution& execution) {
  using Real = cuda::Sum<Storage>;
  const Plan<Real> plan(p, execution);
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("transducer_gradient", cuda::name_of_device(execution.cuda_device));
  }
  Arena kept(const_cast<void*>(g.saved));  // NOLINT: only read
  const Saved<Real> saved = plan.save(kept, true);
  GradientParams<Storage> params{};
  params.batch = plan.batch();
  params.batch.places = saved.places;
  // One tile for each warp, and as many blocks as that takes: rows of zeros are faster than others, and the
  // device balances blocks.
  constexpr int kAnyNumber = std::numeric_limits<int>::max();
  const int blocks = set_rows<Storage>(params, plan, kGradientThreads, kAnyNumber);
  params.logits = static_cast<const Storage*>(p.logits.data);
  copy_strides(params.logits_stride, p.logits.stride);
  params.duration_logits = static_cast<const Storage*>(p.duration_logits.data);
  copy_strides(params.duration_stride, p.duration_logits.stride);
  params.sums = saved.sums;
  params.slots = saved.slots;
  params.outcome = saved.outcome;
  params.grad_loss = static_cast<const Real*>(g.grad_loss);
  params.grad_loss_stride = g.grad_loss_stride;
  params.label_factor = static_cast<Real>(1.0 + p.lattice.fastemit);
  params.clamp = static_cast<Real>(p.lattice.clamp);
  params.grad = static_cast<Storage*>(g.logits);
  copy_strides(params.grad_stride, g.logits_stride);
  params.duration_grad = static_cast<Storage*>(g.duration_logits);
  copy_strides(params.duration_grad_stride, g.duration_logits_stride);
  return launch_row_gradient(params, blocks, static_cast<cudaStream_t>(execution.stream));
}

}  // namespace

std::size_t saved_bytes_cuda(const TransducerProblem& p, const Execution& execution) {
  return p.dtype == DType::kFloat64 ? Plan<double>(p, execution).saved_bytes()
                                    : Plan<float>(p, execution).saved_bytes();
}

std::size_t workspace_bytes_cuda(const TransducerProblem& p, const TransducerOutputs& out,
                                 const Execution& execution) {
  const bool for_gradient = out.saved != nullptr;
  const int way = named_way(execution, kLatticeWays);
  return p.dtype == DType::kFloat64 ? Plan<double>(p, execution, way).workspace_bytes(for_gradient)
                                    : Plan<float>(p, execution, way).workspace_bytes(for_gradient);
}

std::size_t gradient_workspace_bytes_cuda(const TransducerProblem&, const TransducerGradient&,
                                          const Execution&) {
  return 0;
}

const char* way_cuda(int index) { return way_at(kLatticeWays, index); }

Status forward_cuda(const TransducerProblem& p, const TransducerOutputs& out, Workspace workspace,
                    const Execution& execution) {
  if (Status s = check_way(execution, kLatticeWays, "transducer() on CUDA"); !s.ok()) return s;
  switch (p.dtype) {
    case DType::kFloat64:
      return forward<double>(p, out, workspace, execution);
    case DType::kFloat16:
      return forward<cuda::Float16>(p, out, workspace, execution);
    case DType::kBFloat16:
      return forward<cuda::BFloat16>(p, out, workspace, execution);
    default:
      return forward<float>(p, out, workspace, execution);
  }
}

Status gradient_cuda(const TransducerProblem& p, const TransducerGradient& g, Workspace,
                     const Execution& execution) {
  if (Status s = check_way(execution, kLatticeWays, "transducer() on CUDA"); !s.ok()) return s;
  switch (p.dtype) {
    case DType::kFloat64:
      return gradient<double>(p, g, execution);
    case DType::kFloat16:
      return gradient<cuda::Float16>(p, g, execution);
    case DType::kBFloat16:
      return gradient<cuda::BFloat16>(p, g, execution);
    default:
      return gradient<float>(p, g, execution);
  }
}

bool kernel_launches_cuda(int index, KernelLaunches& out) { return kKernels.read(index, out); }

}  // namespace warpalign::detail::transducer
