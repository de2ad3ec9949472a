// warpalign::soft_dtw_sample: checks the contract of the public header, then hands over to the device's path.
#include "core/contract.h"
#include "soft_dtw/contract.h"
#include "soft_dtw/problem.h"
#if WARPALIGN_HAS_CUDA
#include "soft_dtw/cuda/sample/sample_call.h"
#endif

namespace warpalign {
namespace {

Status check(const SoftDtwProblem& p, const SoftDtwSamples& samples, const Execution& execution) {
  if (Status s = detail::soft_dtw::check_settings(p, execution); !s.ok()) return s;
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
    return Status::unsupported("dtype", "sampling takes float32 and float64; convert half types first");
  }
  if (p.gamma == 0 && !p.gammas) {
    return Status::invalid("gamma", "> 0, as hard DTW (gamma = 0) has one path", p.gamma);
  }
  if (p.subsequence) return Status::unsupported("subsequence", "paths of a subsequence are not sampled");
  if (samples.paths_per_pair < 0) {
    return Status::invalid("paths_per_pair", "at least 0", samples.paths_per_pair);
  }
  if (!detail::few_enough({p.batch, samples.paths_per_pair, std::int64_t{p.n} + p.m, 2})) {
    return Status::invalid("paths_per_pair", "at most 2^48 numbers in all paths", samples.paths_per_pair);
  }
  if (p.batch == 0) return {};
  if (p.x_offsets || p.y_offsets) {
    return Status::unsupported(p.x_offsets ? "x_offsets" : "y_offsets",
                               "paths are drawn for padded series; pad these");
  }
  return detail::soft_dtw::check_data(p, execution);
}

Status check_memory(const SoftDtwProblem& p, const SoftDtwSamples& samples, Workspace workspace,
                    std::size_t needed, Device device) {
  if (Status s = detail::check_not_null("paths", samples.paths); !s.ok()) return s;
  if (Status s = detail::check_not_null("lengths", samples.lengths); !s.ok()) return s;
  if (Status s = detail::check_workspace(workspace, needed, device); !s.ok()) return s;
  constexpr std::size_t kSize = sizeof(std::int64_t);
  const std::size_t paths = static_cast<std::size_t>(p.batch) * samples.paths_per_pair;
  const std::size_t cells = static_cast<std::size_t>(p.n) + p.m - 1;
  const detail::WrittenMemory written[] = {
      {"paths", samples.paths, paths * cells * 2 * kSize, kSize},
      {"lengths", samples.lengths, paths * kSize, kSize},
      {"workspace", needed > 0 ? workspace.data : nullptr, needed, kSize},
  };
  return detail::check_written(written);
}

bool is_empty(const SoftDtwProblem& p, const SoftDtwSamples& samples) {
  return p.batch == 0 || samples.paths_per_pair == 0;
}

}  // namespace

std::size_t soft_dtw_sample_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwSamples& samples,
                                            const Execution& execution) {
  if (!detail::soft_dtw::check_extents(problem).ok() || is_empty(problem, samples)) return 0;
  if (execution.device == Device::kHost) {
    return detail::soft_dtw::sample_workspace_bytes_cpu(problem, samples, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw::sample_workspace_bytes_cuda(problem, samples, execution);
#else
  return 0;
#endif
}

Status soft_dtw_sample(const SoftDtwProblem& problem, const SoftDtwSamples& samples, Workspace workspace,
                       const Execution& execution) {
  if (Status s = check(problem, samples, execution); !s.ok()) return s;
  if (is_empty(problem, samples)) return {};
  if (Status s = detail::soft_dtw::check_inputs(problem, {}); !s.ok()) return s;
  const std::size_t needed = soft_dtw_sample_workspace_bytes(problem, samples, execution);
  if (Status s = check_memory(problem, samples, workspace, needed, execution.device); !s.ok()) return s;
  if (execution.device == Device::kHost) {
    return detail::soft_dtw::sample_cpu(problem, samples, workspace, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw::sample_cuda(problem, samples, workspace, execution);
#else
  return detail::kNoCudaPath;
#endif
}

}  // namespace warpalign
