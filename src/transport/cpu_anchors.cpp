// The CPU path of largest_differences(): y is transposed once, and blocks of rows go to the threads.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "transport/anchors.h"
#include "transport/cpu_parallel.h"
#include "transport/cpu_problem.h"

namespace warpalign::detail::transport {
namespace {

int threads_of(const LargestDifferences& p, const Execution& execution) {
  const int given = execution.parallel_for.run ? std::max(execution.parallel_for.threads, 1) : 1;
  const std::int64_t elements = static_cast<std::int64_t>(p.n) * p.m;
  const bool large = elements >= cpu_tuning(cpu::selected_isa()).thread_elements;
  return large ? std::min(given, blocks_of(p.n)) : 1;
}

template <class Real>
struct DifferencesMemory {
  Real* y_t;   // (dim, padded m)
  Real* rows;  // (threads, kCpuRows, padded m)

  DifferencesMemory(Arena& arena, const LargestDifferences& p, int threads)
      : y_t(arena.take<Real>(static_cast<std::size_t>(p.dim) * padded(p.m))),
        rows(arena.take<Real>(static_cast<std::size_t>(threads) * kCpuRows * padded(p.m))) {}
};

template <class Real>
void run(const LargestDifferences& p, Workspace workspace, const Execution& execution) {
  Arena arena(static_cast<std::byte*>(workspace.data));
  const int threads = threads_of(p, execution), stride = padded(p.m);
  const DifferencesMemory<Real> memory(arena, p, threads);
  const Real* const x = static_cast<const Real*>(p.x);
  const Real* const y = static_cast<const Real*>(p.y);
  Real* const distances = static_cast<Real*>(p.distances);
  for (int d = 0; d < p.dim; ++d) {
    Real* const to = memory.y_t + static_cast<std::ptrdiff_t>(d) * stride;
    for (int j = 0; j < p.m; ++j) to[j] = y[static_cast<std::ptrdiff_t>(j) * p.dim + d];
    std::fill(to + p.m, to + stride, Real(0));
  }
  const CpuKernelsOf<Real>& kernels = kernels_of<Real>(selected_kernels());
  const int blocks = blocks_of(p.n);
  BlockTeam(execution.parallel_for, threads).run(blocks, [&](int block, int worker) {
    Real* const made = memory.rows + static_cast<std::ptrdiff_t>(worker) * kCpuRows * stride;
    const int end = first_row(block + 1, blocks, p.n);
    for (int i = first_row(block, blocks, p.n); i < end; i += kCpuRows) {
      const int count = std::min(kCpuRows, end - i);
      const Real* const points = x + static_cast<std::ptrdiff_t>(i) * p.dim;
      kernels.largest_differences({CostKind::kL1, points, memory.y_t, stride, p.dim, p.m}, count, made,
                                  stride);
      for (int k = 0; k < count; ++k) {
        std::copy_n(made + static_cast<std::ptrdiff_t>(k) * stride, p.m,
                    distances + static_cast<std::ptrdiff_t>(i + k) * p.m);
      }
    }
  });
}

}  // namespace

std::size_t largest_differences_cpu_workspace_bytes(const LargestDifferences& p, const Execution& execution) {
  Arena arena;
  const int threads = threads_of(p, execution);
  if (p.dtype == DType::kFloat64) {
    const DifferencesMemory<double> memory(arena, p, threads);
  } else {
    const DifferencesMemory<float> memory(arena, p, threads);
  }
  return arena.used();
}

Status largest_differences_cpu(const LargestDifferences& p, Workspace workspace, const Execution& execution) {
  if (p.dtype == DType::kFloat64) {
    run<double>(p, workspace, execution);
  } else {
    run<float>(p, workspace, execution);
  }
  return {};
}

}  // namespace warpalign::detail::transport
