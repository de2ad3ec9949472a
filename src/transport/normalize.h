// What the paths of sinkhorn_normalize() share. Arguments have been checked by api_normalize.cpp.
#pragma once

#include <cstddef>
#include <utility>

#include "warpalign/sinkhorn_normalize.h"

namespace warpalign::detail::transport {

std::size_t normalize_cpu_workspace_bytes(const NormalizeProblem&, bool gradient, const Execution&);
Status normalize_cpu(const NormalizeProblem&, void* plan, Workspace, const Execution&);
Status normalize_gradient_cpu(const NormalizeProblem&, const StridedTensor& grad_plan, void* grad_logits,
                              Workspace, const Execution&);

std::size_t normalize_cuda_workspace_bytes(const NormalizeProblem&);  // of the gradient
Status normalize_cuda(const NormalizeProblem&, void* plan, const Execution&);
Status normalize_gradient_cuda(const NormalizeProblem&, const StridedTensor& grad_plan, void* grad_logits,
                               Workspace, const Execution&);

// Matrices whose rows are normalised first: the problem's own, or their transposes.
struct RowsFirst {
  std::int32_t n, m;
  StridedTensor logits;
  StridedTensor grad_plan;        // no data: not given
  std::int64_t result_stride[3];  // of the plan, or of the gradient

  RowsFirst(const NormalizeProblem& p, const StridedTensor& given)
      : n(p.n),
        m(p.m),
        logits(p.logits),
        grad_plan(given),
        result_stride{static_cast<std::int64_t>(p.n) * p.m, p.m, 1} {
    if (p.order == NormalizeOrder::kRowsFirst) return;
    std::swap(n, m);
    std::swap(logits.stride[1], logits.stride[2]);
    std::swap(grad_plan.stride[1], grad_plan.stride[2]);
    std::swap(result_stride[1], result_stride[2]);
  }
};

}  // namespace warpalign::detail::transport
