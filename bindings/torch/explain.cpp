// Plans of calls by their sizes, through ctypes: python/warpalign/_core/explain.py.
#include "explain.h"

#include <cstdio>
#include <cstring>

#include "export.h"
#include "warpalign/plan.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::binding {

// B, N, M, D; D = 0: a cost matrix.
Status explain_soft_dtw(const ExplainRequest& request) {
  Places places;
  SoftDtwProblem p;
  p.dtype = request.dtype;
  p.batch = request.size(0);
  p.n = request.size(1);
  p.m = request.size(2);
  p.dim = request.size(3);
  SoftDtwOutputs out;
  out.value = places.next();
  if (p.dim > 0) {
    p.x = places.tensor<3>({p.batch, p.n, p.dim});
    p.y = places.tensor<3>({p.batch, p.m, p.dim});
    if (request.gradient) out.grad_x = places.next();
    if (request.gradient) out.grad_y = places.next();
  } else {
    p.cost = places.tensor<3>({p.batch, p.n, p.m});
    if (request.gradient) out.alignment = places.next();
  }
  const std::size_t bytes = soft_dtw_workspace_bytes(p, out, request.execution);
  return soft_dtw(p, out, places.workspace(bytes), request.execution);
}

// B, N, M, D; D = 0: a cost matrix.
Status explain_sinkhorn(const ExplainRequest& request) {
  Places places;
  SinkhornProblem p;
  p.dtype = request.dtype;
  p.batch = request.size(0);
  p.n = request.size(1);
  p.m = request.size(2);
  p.dim = request.size(3);
  SinkhornOutputs out;
  out.f = places.next();
  out.g = places.next();
  out.value = places.next();
  if (p.dim > 0) {
    p.x = places.tensor<3>({p.batch, p.n, p.dim});
    p.y = places.tensor<3>({p.batch, p.m, p.dim});
    if (request.gradient) out.grad_x = places.next();
    if (request.gradient) out.grad_y = places.next();
  } else {
    p.cost = places.tensor<3>({p.batch, p.n, p.m});
    if (request.gradient) out.grad_cost = places.next();
  }
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, request.execution);
  return sinkhorn(p, out, places.workspace(bytes), request.execution);
}

namespace {

struct Explained {
  const char* name;
  Status (*explain)(const ExplainRequest& request);
};
constexpr Explained kOperators[] = {
    {"soft_dtw", explain_soft_dtw},
    {"sinkhorn", explain_sinkhorn},
    {"transducer", explain_transducer},
    {"transducer_joint", explain_transducer_joint},
    {"ctc", explain_ctc},
    {"lstm", explain_lstm},
};

Status explain(const char* name, const ExplainRequest& request) {
  for (const Explained& one : kOperators) {
    if (std::strcmp(one.name, name) == 0) return one.explain(request);
  }
  return Status::unsupported("operator", "expected the name of an operator that has plans");
}

}  // namespace
}  // namespace warpalign::binding

// Writes the description of an operator's plan, or what is wrong with the request, into `text`, cut off after
// `text_bytes`. Returns whether it is the description. device_class: null for CUDA device 0, unless on_cpu;
// threads: of a CPU.
WARPALIGN_EXPORT bool warpalign_explain(const char* operator_name, const std::int64_t* sizes, int count,
                                        int dtype, int precision, bool gradient, bool batch_invariant,
                                        const char* way, bool on_cuda, const char* device_class, int threads,
                                        char* text, std::size_t text_bytes) {
  using namespace warpalign;
  using namespace warpalign::binding;
  Execution execution = on_cuda ? Execution::cuda(0, nullptr) : Execution::host();
  execution.precision = static_cast<Precision>(precision);
  execution.batch_invariant = batch_invariant;
  execution.way = way;
  const auto run = [](void*, int, ParallelFor::Task, void*) {};
  if (!on_cuda && threads > 1) execution.parallel_for = {run, nullptr, threads};
  const PlanDescription description(on_cuda ? device_class : nullptr);
  Status status = description.status();
  if (status.ok()) {
    status =
        explain(operator_name,
                {{sizes, static_cast<std::size_t>(count)}, static_cast<DType>(dtype), gradient, execution});
  }
  std::snprintf(text, text_bytes, "%s", (status.ok() ? description.text() : to_string(status)).c_str());
  return status.ok();
}
