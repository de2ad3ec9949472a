// warpalign::soft_dtw: checks the contract of the public header, then hands over to the device's path.
#include <cmath>

#include "soft_dtw/band.h"
#include "soft_dtw/problem.h"

namespace warpalign {
namespace {

#if !WARPALIGN_HAS_CUDA
constexpr Status kNoCuda = Status::unsupported("execution", "this build of warpalign has no CUDA path");
#endif

Status check_series(const StridedTensor& tensor, const char* name) {
  if (!tensor.data) return Status::invalid(name, "a pointer to its data, because the batch is not empty", 0);
  return {};
}

Status check_lengths(const std::int32_t* lengths, const char* name, const char* expected, int batch,
                     int limit) {
  for (int b = 0; lengths && b < batch; ++b) {
    if (lengths[b] < 1 || lengths[b] > limit) return Status::invalid(name, expected, lengths[b], b);
  }
  return {};
}

Status check_gammas(const SoftDtwProblem& p) {
  for (int b = 0; p.gammas && b < p.batch; ++b) {
    const double gamma = detail::gamma_of(p, b);
    if (!(gamma > 0.0) || !std::isfinite(gamma)) return Status::invalid("gammas", "finite and > 0", gamma, b);
  }
  return {};
}

Status check_band(const Band& band) {
  if (band.kind < BandKind::kNone || band.kind > BandKind::kItakura) {
    return Status::invalid("band", "one of the kinds of BandKind", static_cast<double>(band.kind));
  }
  if (band.radius < 0) return Status::invalid("band", "a radius of at least 0", band.radius);
  if (!(band.max_slope >= 1.0) || !std::isfinite(band.max_slope)) {
    return Status::invalid("band", "a finite max_slope of at least 1", band.max_slope);
  }
  return {};
}

// Where the lengths are known on the host.
Status check_path(const SoftDtwProblem& p, Device device) {
  if (p.band.kind == BandKind::kNone || (device == Device::kCuda && (p.x_lengths || p.y_lengths))) return {};
  const bool ragged = p.x_lengths || p.y_lengths;
  for (int b = 0; b < (ragged ? p.batch : 1); ++b) {
    const int n = p.x_lengths ? p.x_lengths[b] : p.n;
    const int m = p.y_lengths ? p.y_lengths[b] : p.m;
    if (detail::band_holds_path(p.band, n, m)) continue;
    const bool slope = p.band.kind == BandKind::kItakura;
    return Status::invalid("band",
                           slope ? "a max_slope that leaves a path between the pair's ends"
                                 : "a radius that leaves a path between the pair's ends",
                           slope ? p.band.max_slope : p.band.radius, ragged ? b : -1);
  }
  return {};
}

Status check(const SoftDtwProblem& p, const SoftDtwOutputs& out, Device device) {
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (p.n < 1) return Status::invalid("n", "at least 1 time step in x", p.n);
  if (p.m < 1) return Status::invalid("m", "at least 1 time step in y", p.m);
  if (!(p.gamma >= 0.0) || !std::isfinite(p.gamma))
    return Status::invalid("gamma", "finite and >= 0", p.gamma);
  if (!(p.step_penalty >= 0.0) || !std::isfinite(p.step_penalty)) {
    return Status::invalid("step_penalty", "finite and >= 0", p.step_penalty);
  }
  if (p.cost_kind < CostKind::kSquaredEuclidean || p.cost_kind > CostKind::kHuber) {
    return Status::invalid("cost_kind", "one of the kinds of CostKind", static_cast<double>(p.cost_kind));
  }
  if (Status s = check_band(p.band); !s.ok()) return s;
  if (p.subsequence && p.band.kind != BandKind::kNone) {
    return Status::invalid("band", "none with subsequence", static_cast<double>(p.band.kind));
  }
  if (p.subsequence && out.grad_gamma) return Status::invalid("grad_gamma", "null with subsequence", 1);
  if (!p.subsequence && out.end_values) return Status::invalid("end_values", "null without subsequence", 1);
  if (p.batch == 0) return {};
  if (!out.value) return Status::invalid("value", "an output pointer", 0);
  if (p.cost.data) {
    if (p.x.data || p.y.data) return Status::invalid("cost", "either cost, or x and y, but not both", 1);
    if (out.grad_x) return Status::invalid("grad_x", "null with a cost matrix, which has no x", 1);
    if (out.grad_y) return Status::invalid("grad_y", "null with a cost matrix, which has no y", 1);
    if (p.x_mask) return Status::invalid("x_mask", "null with a cost matrix, which has no x", 1);
    if (p.y_mask) return Status::invalid("y_mask", "null with a cost matrix, which has no y", 1);
  } else {
    if (Status s = check_series(p.x, "x"); !s.ok()) return s;
    if (Status s = check_series(p.y, "y"); !s.ok()) return s;
    if (p.dim < 1) return Status::invalid("dim", "at least 1 feature", p.dim);
  }
  if (device == Device::kHost) {  // on a device they stay there: the kernel clamps them
    if (Status s = check_lengths(p.x_lengths, "x_lengths", "between 1 and N", p.batch, p.n); !s.ok())
      return s;
    if (Status s = check_lengths(p.y_lengths, "y_lengths", "between 1 and M", p.batch, p.m); !s.ok())
      return s;
    if (Status s = check_gammas(p); !s.ok()) return s;
  }
  return check_path(p, device);
}

// What only second order demands.
Status check_tangents(const SoftDtwProblem& p, const SoftDtwTangents& tangents, const SoftDtwOutputs& out) {
  if (p.subsequence) return Status::unsupported("subsequence", "a subsequence has no second derivatives yet");
  if (p.gamma == 0 && !p.gammas) {
    return Status::unsupported("gamma", "hard DTW (gamma = 0) has no second derivatives");
  }
  if (out.grad_gamma) return Status::invalid("grad_gamma", "null: gamma has no tangent", 1);
  if (p.cost.data && (tangents.x.data || tangents.y.data)) {
    return Status::invalid("tangents", "that of cost alone, because the problem has no x and y", 1);
  }
  if (!p.cost.data && tangents.cost.data) {
    return Status::invalid("tangents", "those of x and y alone, because the problem has no cost", 1);
  }
  return {};
}

Status check_workspace(Workspace workspace, std::size_t needed) {
  if (needed == 0 || (workspace.data && workspace.bytes >= needed)) return {};
  return Status::invalid("workspace", "as many bytes as its workspace function says",
                         static_cast<double>(workspace.bytes));
}

}  // namespace

std::size_t soft_dtw_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs,
                                     const Execution& execution) {
  if (problem.batch <= 0 || problem.n < 1 || problem.m < 1) return 0;
  if (execution.device == Device::kHost) {
    return detail::soft_dtw_cpu_workspace_bytes(problem, outputs, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw_cuda_workspace_bytes(problem, outputs, execution);
#else
  return 0;
#endif
}

Status soft_dtw(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, Workspace workspace,
                const Execution& execution) {
  if (Status s = check(problem, outputs, execution.device); !s.ok()) return s;
  if (problem.batch == 0) return {};
  if (Status s = check_workspace(workspace, soft_dtw_workspace_bytes(problem, outputs, execution)); !s.ok())
    return s;
  if (execution.device == Device::kHost) return detail::soft_dtw_cpu(problem, outputs, workspace, execution);
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw_cuda(problem, outputs, workspace, execution);
#else
  return kNoCuda;
#endif
}

std::size_t soft_dtw_jvp_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                                         const SoftDtwOutputs& outputs, const Execution& execution) {
  if (problem.batch <= 0 || problem.n < 1 || problem.m < 1) return 0;
  if (execution.device == Device::kHost) {
    return detail::soft_dtw_jvp_cpu_workspace_bytes(problem, tangents, outputs, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw_jvp_cuda_workspace_bytes(problem, tangents, outputs, execution);
#else
  return 0;
#endif
}

Status soft_dtw_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                    const SoftDtwOutputs& outputs, Workspace workspace, const Execution& execution) {
  if (Status s = check(problem, outputs, execution.device); !s.ok()) return s;
  if (Status s = check_tangents(problem, tangents, outputs); !s.ok()) return s;
  if (problem.batch == 0) return {};
  const std::size_t needed = soft_dtw_jvp_workspace_bytes(problem, tangents, outputs, execution);
  if (Status s = check_workspace(workspace, needed); !s.ok()) return s;
  if (execution.device == Device::kHost) {
    return detail::soft_dtw_jvp_cpu(problem, tangents, outputs, workspace, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw_jvp_cuda(problem, tangents, outputs, workspace, execution);
#else
  return kNoCuda;
#endif
}

}  // namespace warpalign
