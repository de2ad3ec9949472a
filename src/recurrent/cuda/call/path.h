// The CUDA path of one element type. launch.cu picks it; kernels_*.cu compile it.
#pragma once

#include <cstddef>
#include <string>

#include "recurrent/problem.h"

namespace warpalign::detail::recurrent {

template <class T>
struct CudaPath {
  static std::size_t packed_bytes(const LstmProblem& p);
  static Status pack(const LstmProblem& p, void* packed, const Execution& execution);
  static std::size_t tape_bytes(const LstmProblem& p);
  static std::size_t workspace_bytes(const LstmProblem& p, const LstmOutputs& out,
                                     const Execution& execution);
  static Status forward(const LstmProblem& p, const LstmOutputs& out, Workspace workspace,
                        const Execution& execution);
  static std::size_t backward_workspace_bytes(const LstmProblem& p, const LstmGradients& gradients,
                                              const Execution& execution);
  static Status backward(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                         const LstmGradients& gradients, Workspace workspace, const Execution& execution);
  static std::string describe(const LstmProblem& p, const Execution& execution, bool backward);
};

}  // namespace warpalign::detail::recurrent
