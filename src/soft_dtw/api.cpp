// warpalign::soft_dtw: checks the contract of the public header, then hands over to the device's path.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/team.h"
#include "soft_dtw/band.h"
#include "soft_dtw/problem.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/plan.h"
#if WARPALIGN_HAS_CUDA
#include "soft_dtw/cuda/call/cuda_call.h"
#endif

namespace warpalign {
namespace {

// The largest length: the sum of two lengths, plus the elements that vectors and tiles read past them, fits
// into int32.
constexpr std::int32_t kLongest = 1 << 29;
Status check_extents(const SoftDtwProblem& p) {
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (p.n < 1) return Status::invalid("n", "at least 1 time step in x", p.n);
  if (p.m < 1) return Status::invalid("m", "at least 1 time step in y", p.m);
  if (p.n > kLongest) return Status::invalid("n", "at most 2^29 time steps in x", p.n);
  if (p.m > kLongest) return Status::invalid("m", "at most 2^29 time steps in y", p.m);
  if (!detail::few_enough({p.batch, p.n, p.m})) return Status::invalid("m", "at most 2^48 cells, B N M", p.m);
  if (p.cost.data) return {};
  if (p.batch > 0 && p.dim < 1) return Status::invalid("dim", "at least 1 feature", p.dim);
  if (p.dim > kLongest) return Status::invalid("dim", "at most 2^29 features", p.dim);
  if (!detail::few_enough({p.batch, p.n, p.dim}) || !detail::few_enough({p.batch, p.m, p.dim})) {
    return Status::invalid("dim", "at most 2^48 elements of x, B N D, and of y, B M D", p.dim);
  }
  return {};
}

Status check_gammas(const SoftDtwProblem& p) {
  for (int b = 0; p.gammas && b < p.batch; ++b) {
    const double gamma = detail::soft_dtw::gamma_of(p, b);
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

// An error if no path exists. Checked if the lengths are known on the host.
Status check_path(const SoftDtwProblem& p, Device device) {
  if (p.band.kind == BandKind::kNone || (device == Device::kCuda && (p.x_lengths || p.y_lengths))) return {};
  const bool ragged = p.x_lengths || p.y_lengths;
  for (int b = 0; b < (ragged ? p.batch : 1); ++b) {
    const int n = p.x_lengths ? p.x_lengths[b] : p.n;
    const int m = p.y_lengths ? p.y_lengths[b] : p.m;
    if (detail::soft_dtw::band_holds_path(p.band, n, m)) continue;
    const bool slope = p.band.kind == BandKind::kItakura;
    return Status::invalid("band",
                           slope ? "a max_slope that leaves a path between the pair's ends"
                                 : "a radius that leaves a path between the pair's ends",
                           slope ? p.band.max_slope : p.band.radius, ragged ? b : -1);
  }
  return {};
}

// Bytes of an element of an output, and of gammas: those of float32 if the series have a half type.
std::size_t result_size(const SoftDtwProblem& p) {
  return std::max(size_of(p.dtype), size_of(DType::kFloat32));
}

// Checks every input's strides and alignment; a null pointer has neither.
Status check_inputs(const SoftDtwProblem& p, const SoftDtwTangents& tangents) {
  const struct {
    const char* name;
    const StridedTensor& tensor;
  } tensors[] = {{"x", p.x},
                 {"y", p.y},
                 {"cost", p.cost},
                 {"tangents.x", tangents.x},
                 {"tangents.y", tangents.y},
                 {"tangents.cost", tangents.cost}};
  for (const auto& [name, tensor] : tensors) {
    if (Status s = detail::check_strides(name, tensor); !s.ok()) return s;
  }
  const struct {
    const char* name;
    const void* data;
    std::size_t alignment;
  } inputs[] = {
      {"x", p.x.data, size_of(p.dtype)},
      {"y", p.y.data, size_of(p.dtype)},
      {"cost", p.cost.data, size_of(p.dtype)},
      {"gammas", p.gammas, result_size(p)},
      {"x_lengths", p.x_lengths, sizeof(int)},
      {"y_lengths", p.y_lengths, sizeof(int)},
      {"tangents", tangents.x.data, size_of(p.dtype)},
      {"tangents", tangents.y.data, size_of(p.dtype)},
      {"tangents", tangents.cost.data, size_of(p.dtype)},
  };
  for (const auto& input : inputs) {
    if (Status s = detail::check_aligned(input.name, input.data, input.alignment); !s.ok()) return s;
  }
  return {};
}

Status check_outputs(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
                     std::size_t workspace_bytes) {
  const std::size_t b = p.batch, n = p.n, m = p.m, d = p.dim, size = result_size(p);
  const detail::WrittenMemory written[] = {
      {"value", out.value, b * size, size},
      {"grad_x", out.grad_x, b * n * d * size, size},
      {"grad_y", out.grad_y, b * m * d * size, size},
      {"alignment", out.alignment, b * n * m * size, size},
      {"grad_gamma", out.grad_gamma, b * size, size},
      {"end_values", out.end_values, b * m * size, size},
      {"workspace", workspace_bytes > 0 ? workspace.data : nullptr, workspace_bytes, size},
  };
  return detail::check_written(written);
}

Status check(const SoftDtwProblem& p, const SoftDtwOutputs& out, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  const bool is_half = p.dtype == DType::kFloat16 || p.dtype == DType::kBFloat16;
  if (is_half && (execution.device != Device::kCuda || p.cost.data)) {
    return Status::unsupported("dtype",
                               "half types are taken for x and y on CUDA; convert others to float32 first");
  }
  if (!is_half && p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
    return Status::invalid("dtype", "one of the types of DType", static_cast<double>(p.dtype));
  }
  if (Status s = check_extents(p); !s.ok()) return s;
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
    if (p.dim != 0) return Status::invalid("dim", "0 with a cost matrix, which has no features", p.dim);
    if (out.grad_x) return Status::invalid("grad_x", "null with a cost matrix, which has no x", 1);
    if (out.grad_y) return Status::invalid("grad_y", "null with a cost matrix, which has no y", 1);
    if (p.x_mask) return Status::invalid("x_mask", "null with a cost matrix, which has no x", 1);
    if (p.y_mask) return Status::invalid("y_mask", "null with a cost matrix, which has no y", 1);
  } else {
    if (Status s = detail::check_not_null("x", p.x.data); !s.ok()) return s;
    if (Status s = detail::check_not_null("y", p.y.data); !s.ok()) return s;
  }
  if (execution.device ==
      Device::kHost) {  // lengths in device memory are not read here: the kernel clamps them
    if (Status s = detail::check_lengths(p.x_lengths, "x_lengths", "between 1 and N", p.batch, 1, p.n);
        !s.ok())
      return s;
    if (Status s = detail::check_lengths(p.y_lengths, "y_lengths", "between 1 and M", p.batch, 1, p.m);
        !s.ok())
      return s;
    if (Status s = check_gammas(p); !s.ok()) return s;
  }
  return check_path(p, execution.device);
}

// The checks that second order adds.
Status check_tangents(const SoftDtwProblem& p, const SoftDtwTangents& tangents, const SoftDtwOutputs& out) {
  if (result_size(p) > size_of(p.dtype)) {
    return Status::unsupported("dtype",
                               "second derivatives take float32 and float64; convert half types first");
  }
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

Status check_memory(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
                    std::size_t needed, Device device) {
  if (Status s = detail::check_workspace(workspace, needed, device); !s.ok()) return s;
  return check_outputs(p, out, workspace, needed);
}

// tangents: null for first order.
std::size_t workspace_bytes_on_gpu([[maybe_unused]] const SoftDtwProblem& problem,
                                   [[maybe_unused]] const SoftDtwTangents* tangents,
                                   [[maybe_unused]] const SoftDtwOutputs& outputs,
                                   [[maybe_unused]] const Execution& execution) {
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw::workspace_bytes_cuda(problem, tangents, outputs, execution);
#else
  return 0;
#endif
}
Status run_on_gpu([[maybe_unused]] const SoftDtwProblem& problem,
                  [[maybe_unused]] const SoftDtwTangents* tangents,
                  [[maybe_unused]] const SoftDtwOutputs& outputs, [[maybe_unused]] Workspace workspace,
                  [[maybe_unused]] const Execution& execution) {
#if WARPALIGN_HAS_CUDA
  const detail::soft_dtw::CudaCall call(problem, tangents, outputs, execution);
  if (Status s = call.check(); !s.ok()) return s;
  if (Status s = check_memory(problem, outputs, workspace, call.workspace_bytes(), execution.device);
      !s.ok()) {
    return s;
  }
  return call.run(workspace.data);
#else
  return detail::kNoCudaPath;
#endif
}

}  // namespace

std::size_t soft_dtw_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs,
                                     const Execution& execution) {
  if (problem.batch == 0 || !check_extents(problem).ok()) return 0;
  if (execution.device == Device::kCuda) return workspace_bytes_on_gpu(problem, nullptr, outputs, execution);
  return detail::soft_dtw::workspace_bytes_cpu(problem, outputs, execution);
}

Status soft_dtw(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, Workspace workspace,
                const Execution& execution) {
  if (Status s = check(problem, outputs, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
  if (Status s = check_inputs(problem, {}); !s.ok()) return s;
  if (execution.device == Device::kCuda) return run_on_gpu(problem, nullptr, outputs, workspace, execution);
  if (Status s = detail::soft_dtw::check_way_cpu(problem, false, execution); !s.ok()) return s;
  const std::size_t needed = soft_dtw_workspace_bytes(problem, outputs, execution);
  if (Status s = check_memory(problem, outputs, workspace, needed, execution.device); !s.ok()) return s;
  return detail::soft_dtw::run_cpu(problem, outputs, workspace, execution);
}

std::size_t soft_dtw_jvp_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                                         const SoftDtwOutputs& outputs, const Execution& execution) {
  if (problem.batch == 0 || !check_extents(problem).ok()) return 0;
  if (execution.device == Device::kCuda) {
    return workspace_bytes_on_gpu(problem, &tangents, outputs, execution);
  }
  return detail::soft_dtw::jvp_workspace_bytes_cpu(problem, tangents, outputs, execution);
}

Status soft_dtw_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                    const SoftDtwOutputs& outputs, Workspace workspace, const Execution& execution) {
  if (Status s = check(problem, outputs, execution); !s.ok()) return s;
  if (Status s = check_tangents(problem, tangents, outputs); !s.ok()) return s;
  if (problem.batch == 0) return {};
  if (Status s = check_inputs(problem, tangents); !s.ok()) return s;
  if (execution.device == Device::kCuda) return run_on_gpu(problem, &tangents, outputs, workspace, execution);
  if (Status s = detail::soft_dtw::check_way_cpu(problem, true, execution); !s.ok()) return s;
  const std::size_t needed = soft_dtw_jvp_workspace_bytes(problem, tangents, outputs, execution);
  if (Status s = check_memory(problem, outputs, workspace, needed, execution.device); !s.ok()) return s;
  return detail::soft_dtw::jvp_cpu(problem, tangents, outputs, workspace, execution);
}

const char* soft_dtw_way(Device device, int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::soft_dtw::way_cuda(index);
#endif
  return device == Device::kHost ? detail::way_at(cpu::kThreadWays, index) : nullptr;
}

bool soft_dtw_kernel_launches([[maybe_unused]] int index, [[maybe_unused]] KernelLaunches* out) {
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw::kernel_launches_cuda(index, *out);
#else
  return false;
#endif
}

}  // namespace warpalign
