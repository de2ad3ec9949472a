// Logits that come a chunk of frames at a time: the host side, and the gradient for every type of logits. The
// emissions are the rows pass's (rows/).
#include <algorithm>
#include <cstdint>

#include "core/plan_log.h"
#include "core/visit_dtype.h"
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/call/plan.cuh"
#include "ctc/cuda/head/gradient.cuh"
#include "ctc/head.h"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kHeadGradient{kKernels, "head gradient", cuda::type_name<Element>(),
                                 head_gradient_kernel<Element>};

// The batch, with rows.logits in place of the problem's. All labels are looked at, because their columns are
// those of ctc_head_emission_problem().
Batch batch_of(const CtcProblem& p, const CtcHeadRows& rows) {
  Batch b{};
  b.batch = p.batch;
  b.frames = p.frames;
  b.classes = p.classes;
  b.labels = b.extent = p.labels;
  b.blank = p.blank;
  b.star = p.star;
  b.logit_lengths = p.logit_lengths;
  b.target_lengths = p.target_lengths;
  b.targets = p.targets;
  b.target_stride = p.target_stride < 0 ? p.labels : p.target_stride;
  b.stride[0] = rows.stride * p.frames;
  b.stride[1] = rows.stride;
  b.stride[2] = 1;
  return b;
}

// The most bytes of gradients of labels' columns in a block's shared memory: eight blocks of a multiprocessor
// have so much.
constexpr std::size_t kSharedValues = 16 << 10;
std::size_t bytes_of_values(const CtcProblem& p) {
  return static_cast<std::size_t>(p.labels) * (p.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float));
}

void begin_plan(const char* call, const Execution& execution) {
  if (PlanLog* const log = PlanLog::current()) {
    log->begin(call, cuda::name_of_device(execution.cuda_device));
    log->line("way", "the only one");
  }
}

template <class Element>
Status emissions(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadEmissions& to,
                 cudaStream_t stream) {
  using Real = cuda::Sum<Element>;
  RowsParams<Element> params{};
  params.batch = batch_of(p, rows);
  params.logits = static_cast<const Element*>(rows.logits);
  params.lanes = lanes_of_row<Element>(p);
  params.prior = static_cast<const Real*>(p.prior);
  params.table = static_cast<Real*>(to.emissions);
  params.first_row = rows.first;
  params.last_row = rows.first + rows.count;
  params.origin = rows.first * rows.stride;
  params.log_sums = to.log_sums;
  params.log_sums_of_others = p.star >= 0 ? to.log_sums_of_others : nullptr;
  return launch_rows(params, stream);
}

template <class Element>
Status gradient(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadGradient& g, void* workspace,
                cudaStream_t stream) {
  using Real = cuda::Sum<Element>;
  HeadGradientParams<Element> params{};
  params.batch = batch_of(p, rows);
  params.logits = static_cast<Element*>(rows.logits);
  params.stride = rows.stride;
  params.first_row = rows.first;
  params.first = g.labels.first;
  params.next = g.labels.next;
  params.log_sums = g.log_sums;
  params.log_sums_of_others = g.log_sums_of_others;
  params.posteriors = static_cast<const Real*>(g.posteriors);
  params.loss = static_cast<const Real*>(g.loss);
  params.grad_loss = static_cast<const Real*>(g.grad_loss);
  params.grad_loss_stride = g.grad_loss_stride;
  const std::size_t bytes = bytes_of_values(p);
  const bool is_shared = bytes <= kSharedValues;
  if (!is_shared) params.values = static_cast<Real*>(workspace);
  const int blocks = static_cast<int>(rows.count);
  return cuda::launch(kHeadGradient<Element>, {blocks, kHeadThreads, is_shared ? bytes : 0, stream}, params);
}

}  // namespace

Status head_labels_cuda(const CtcProblem& p, const CtcHeadLabels& to, const Execution& execution) {
  begin_plan("ctc_head_labels", execution);
  return launch_equal_labels(batch_of(p, {}), p.labels, to.first, to.next,
                             static_cast<cudaStream_t>(execution.stream));
}

Status head_emissions_cuda(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadEmissions& to,
                           const Execution& execution) {
  begin_plan("ctc_head_emissions", execution);
  return visit_dtype(p.dtype, [&](auto type) {
    return emissions<typename decltype(type)::Type>(p, rows, to, static_cast<cudaStream_t>(execution.stream));
  });
}

std::size_t head_gradient_workspace_bytes_cuda(const CtcProblem& p, const CtcHeadRows& rows,
                                               const Execution& /*execution*/) {
  const std::size_t bytes = bytes_of_values(p);
  return bytes <= kSharedValues ? 0 : bytes * static_cast<std::size_t>(rows.count);
}

Status head_gradient_cuda(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadGradient& g,
                          Workspace workspace, const Execution& execution) {
  begin_plan("ctc_head_gradient", execution);
  return visit_dtype(p.dtype, [&](auto type) {
    return gradient<typename decltype(type)::Type>(p, rows, g, workspace.data,
                                                   static_cast<cudaStream_t>(execution.stream));
  });
}

}  // namespace warpalign::detail::ctc
