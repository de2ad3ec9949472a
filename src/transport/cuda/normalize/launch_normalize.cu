// Normalised logits: the kernels for every type, and their host side.
#include <algorithm>
#include <cstddef>

#include "core/visit_dtype.h"
#include "transport/cuda/normalize/normalize.cuh"
#include "transport/cuda/solve/kernels.cuh"
#include "transport/normalize.h"

namespace warpalign::detail::transport {
namespace {

template <class Element>
const cuda::Kernel kNormalize{kKernels, "normalized logits", cuda::type_name<Element>(),
                              normalize_kernel<Element>};
template <class Element>
const cuda::Kernel kNormalizeGradient{kKernels, "normalized logits, gradient", cuda::type_name<Element>(),
                                      normalize_gradient_kernel<Element>};

// Bytes of a number in sums.
std::size_t real_bytes(DType dtype) { return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float); }

NormalizeLayout layout_of(const NormalizeProblem& p) {
  return p.order == NormalizeOrder::kRowsFirst ? NormalizeLayout(p.n, p.m) : NormalizeLayout(p.m, p.n);
}

// Shared memory of a block of the gradient, where the exchanges are in it.
std::size_t gradient_bytes(const NormalizeProblem& p, const NormalizeLayout& layout) {
  const std::size_t numbers = layout.exchange(normalize_gradient_slots(p.iterations)) + layout.tile();
  return layout.matrices * numbers * real_bytes(p.dtype);
}

// Whether they are. So much is there without asking, and leaves room for five blocks of a multiprocessor's
// 227 KiB.
bool history_is_shared(const NormalizeProblem& p, const NormalizeLayout& layout) {
  return gradient_bytes(p, layout) <= cuda::kSharedBytesOfEveryKernel;
}

template <class Element>
NormalizeParams<Element> params_of(const NormalizeProblem& p, const StridedTensor& grad_plan, void* result) {
  const RowsFirst of(p, grad_plan);
  NormalizeParams<Element> params{};
  params.layout = NormalizeLayout(of.n, of.m);
  params.batch = p.batch;
  params.n = of.n;
  params.m = of.m;
  params.iterations = p.iterations;
  params.logits = static_cast<const Element*>(of.logits.data);
  params.grad_plan = static_cast<const Element*>(of.grad_plan.data);
  params.result = static_cast<Element*>(result);
  std::copy_n(of.logits.stride, 3, params.stride);
  std::copy_n(of.grad_plan.stride, 3, params.grad_stride);
  std::copy_n(of.result_stride, 3, params.result_stride);
  return params;
}

cuda::LaunchConfig config_of(const NormalizeLayout& layout, int batch, std::size_t shared_bytes,
                             const Execution& execution) {
  return {cuda::div_up(batch, layout.matrices), layout.threads, shared_bytes,
          static_cast<cudaStream_t>(execution.stream)};
}

void log_call(const char* name, const Execution& execution) {
  if (PlanLog* const log = PlanLog::current()) log->begin(name, cuda::name_of_device(execution.cuda_device));
}

}  // namespace

Status normalize_cuda(const NormalizeProblem& p, void* plan, const Execution& execution) {
  log_call("sinkhorn_normalize", execution);
  return visit_dtype(p.dtype, [&](auto type) {
    using Element = typename decltype(type)::Type;
    const auto params = params_of<Element>(p, {}, plan);
    const NormalizeLayout& layout = params.layout;
    const std::size_t bytes = layout.matrices * layout.exchange(kNormalizeSlots) * real_bytes(p.dtype);
    return cuda::launch(kNormalize<Element>, config_of(layout, p.batch, bytes, execution), params);
  });
}

std::size_t normalize_cuda_workspace_bytes(const NormalizeProblem& p) {
  const NormalizeLayout layout = layout_of(p);
  if (history_is_shared(p, layout)) return 0;
  const std::size_t matrices =
      static_cast<std::size_t>(cuda::div_up(p.batch, layout.matrices)) * layout.matrices;
  return matrices * layout.exchange(normalize_gradient_slots(p.iterations)) * real_bytes(p.dtype);
}

Status normalize_gradient_cuda(const NormalizeProblem& p, const StridedTensor& grad_plan, void* grad_logits,
                               Workspace workspace, const Execution& execution) {
  log_call("sinkhorn_normalize_gradient", execution);
  return visit_dtype(p.dtype, [&](auto type) {
    using Element = typename decltype(type)::Type;
    auto params = params_of<Element>(p, grad_plan, grad_logits);
    const NormalizeLayout& layout = params.layout;
    std::size_t bytes = gradient_bytes(p, layout);
    if (!history_is_shared(p, layout)) {
      params.history = static_cast<cuda::Sum<Element>*>(workspace.data);
      bytes = layout.matrices * layout.tile() * real_bytes(p.dtype);
    }
    return cuda::launch(kNormalizeGradient<Element>, config_of(layout, p.batch, bytes, execution), params);
  });
}

}  // namespace warpalign::detail::transport
