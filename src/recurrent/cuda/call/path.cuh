// The functions of path.h, for a file that compiles them for one element type.
#pragma once

#include "recurrent/cuda/call/path.h"
#include "recurrent/cuda/schedule/backward_call.cuh"
#include "recurrent/cuda/schedule/forward_call.cuh"

namespace warpalign::detail::recurrent {

template <class T>
std::size_t CudaPath<T>::packed_bytes(const LstmProblem& p) {
  return packed_cell_bytes<T>(p) * cells_of(p);
}

template <class T>
Status CudaPath<T>::pack(const LstmProblem& p, void* packed, const Execution& execution) {
  Queue queue(execution);
  Arena arena(packed);
  for (int layer = 0; layer < p.layers; ++layer) {
    for (int d = 0; d < directions_of(p); ++d) {
      CudaCell<T> cell = plain_cell<T>(p, layer, d);
      take_packed(p, cell, arena);
      pack_forward(queue, p, cell, p.weights[layer * directions_of(p) + d], false);
    }
  }
  return queue.status();
}

template <class T>
std::size_t CudaPath<T>::tape_bytes(const LstmProblem& p) {
  const int last = p.layers - 1;
  return tape_bytes_below<T>(p, last) + directions_of(p) * tape_cell_bytes<T>(p, last);
}

template <class T>
std::size_t CudaPath<T>::workspace_bytes(const LstmProblem& p, const LstmOutputs& out,
                                         const Execution& execution) {
  return ForwardCall<T>(p, out, execution, {}).bytes();
}

template <class T>
Status CudaPath<T>::forward(const LstmProblem& p, const LstmOutputs& out, Workspace workspace,
                            const Execution& execution) {
  return ForwardCall<T>(p, out, execution, workspace).run();
}

template <class T>
std::size_t CudaPath<T>::backward_workspace_bytes(const LstmProblem& p, const LstmGradients& gradients,
                                                  const Execution& execution) {
  return BackwardCall<T>(p, {}, {}, gradients, execution, {}).bytes();
}

template <class T>
Status CudaPath<T>::backward(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                             const LstmGradients& gradients, Workspace workspace,
                             const Execution& execution) {
  return BackwardCall<T>(p, kept, incoming, gradients, execution, workspace).run();
}

template <class T>
std::string CudaPath<T>::describe(const LstmProblem& p, const Execution& execution, bool backward) {
  const Queue queue(execution);
  return SweepPlan<T>(Question(queue, p, backward, false)).describe();
}

}  // namespace warpalign::detail::recurrent
