// The LSTM's CUDA path: one element type's or another's.
#include "core/plan_log.h"
#include "core/visit_dtype.h"
#include "cuda/launch/check.h"
#include "recurrent/cuda/call/path.h"
#include "recurrent/cuda/cell/kernel_list.cuh"

namespace warpalign::detail::recurrent {
namespace {

// use(CudaPath<T>{}) for the problem's dtype.
template <class Use>
auto with_path(const LstmProblem& p, const Use& use) {
  return visit_dtype(p.dtype, [&](auto type) { return use(CudaPath<typename decltype(type)::Type>{}); });
}

void add_to_description(const char* call, const LstmProblem& p, const Execution& execution, bool backward) {
  PlanLog* const log = PlanLog::current();
  if (!log) return;
  log->begin(call, cuda::name_of_device(execution.cuda_device));
  log->line("plan", describe_cuda(p, execution, backward));
}

}  // namespace

std::size_t packed_bytes_cuda(const LstmProblem& p) {
  return with_path(p, [&](auto path) { return path.packed_bytes(p); });
}

Status pack_cuda(const LstmProblem& p, void* packed, const Execution& execution) {
  return with_path(p, [&](auto path) { return path.pack(p, packed, execution); });
}

std::size_t tape_bytes_cuda(const LstmProblem& p) {
  return with_path(p, [&](auto path) { return path.tape_bytes(p); });
}

std::size_t workspace_bytes_cuda(const LstmProblem& p, const LstmOutputs& out, const Execution& execution) {
  return with_path(p, [&](auto path) { return path.workspace_bytes(p, out, execution); });
}

Status forward_cuda(const LstmProblem& p, const LstmOutputs& out, Workspace workspace,
                    const Execution& execution) {
  add_to_description("lstm", p, execution, false);
  return with_path(p, [&](auto path) { return path.forward(p, out, workspace, execution); });
}

std::size_t backward_workspace_bytes_cuda(const LstmProblem& p, const LstmGradients& gradients,
                                          const Execution& execution) {
  return with_path(p, [&](auto path) { return path.backward_workspace_bytes(p, gradients, execution); });
}

Status backward_cuda(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                     const LstmGradients& gradients, Workspace workspace, const Execution& execution) {
  add_to_description("lstm_backward", p, execution, true);
  return with_path(
      p, [&](auto path) { return path.backward(p, kept, incoming, gradients, workspace, execution); });
}

std::string describe_cuda(const LstmProblem& p, const Execution& execution, bool backward) {
  return with_path(p, [&](auto path) { return path.describe(p, execution, backward); });
}

bool kernel_launches_cuda(int index, KernelLaunches& out) { return kKernels.read(index, out); }

}  // namespace warpalign::detail::recurrent
