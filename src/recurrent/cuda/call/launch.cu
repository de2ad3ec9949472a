// The LSTM's CUDA path: one element type's or another's.
#include "core/visit_dtype.h"
#include "core/ways.h"
#include "recurrent/cuda/call/path.h"
#include "recurrent/cuda/call/way_names.h"
#include "recurrent/cuda/cell/kernel_list.cuh"

namespace warpalign::detail::recurrent {
namespace {

// use(CudaPath<T>{}) for the problem's dtype.
template <class Use>
auto with_path(const LstmProblem& p, const Use& use) {
  return visit_dtype(p.dtype, [&](auto type) { return use(CudaPath<typename decltype(type)::Type>{}); });
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
  return with_path(p, [&](auto path) { return path.forward(p, out, workspace, execution); });
}

std::size_t backward_workspace_bytes_cuda(const LstmProblem& p, const LstmGradients& gradients,
                                          const Execution& execution) {
  return with_path(p, [&](auto path) { return path.backward_workspace_bytes(p, gradients, execution); });
}

Status backward_cuda(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                     const LstmGradients& gradients, Workspace workspace, const Execution& execution) {
  return with_path(
      p, [&](auto path) { return path.backward(p, kept, incoming, gradients, workspace, execution); });
}

std::string describe_cuda(const LstmProblem& p, const Execution& execution, bool backward) {
  return with_path(p, [&](auto path) { return path.describe(p, execution, backward); });
}

const char* way_cuda(int index) { return way_at(kWayNames, index); }

bool kernel_launches_cuda(int index, KernelLaunches& out) { return kKernels.read(index, out); }

}  // namespace warpalign::detail::recurrent
