// sinkhorn_normalize() on the CPU: vectors run over the matrices of a batch, and threads share these groups.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "cpu/dispatch.h"
#include "cpu/workers.h"
#include "transport/cpu_kernel.h"
#include "transport/normalize.h"

namespace warpalign::detail::transport {
namespace {

const CpuKernels& kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// Exponentials that are worth a thread: some 30 microseconds.
constexpr std::int64_t kPowersOfWorker = 1 << 14;

// The type of sums.
template <class Element>
using RealOf = std::conditional_t<std::is_same_v<Element, double>, double, float>;

// The memory of a worker: a group of matrices, one in each lane.
template <class Real>
NormalizeLanes<Real> group_of(const RowsFirst& of, int iterations, bool gradient, int lanes, Arena& arena) {
  const std::size_t lines = std::max(of.n, of.m);
  const std::size_t elements = static_cast<std::size_t>(of.n) * of.m * lanes;
  NormalizeLanes<Real> group{of.n, of.m, iterations, arena.take<Real>(elements), nullptr, nullptr, nullptr};
  if (gradient) {
    group.gradient = arena.take<Real>(elements);
    group.history = arena.take<Real>(2 * lines * iterations * lanes);
    group.sums = arena.take<Real>(2 * lines * lanes);
  }
  return group;
}

// Calls body(i, j, lane) for all elements of `count` matrices.
template <class Body>
void for_elements(const RowsFirst& of, int count, const Body& body) {
  for (int lane = 0; lane < count; ++lane) {
    for (int i = 0; i < of.n; ++i) {
      for (int j = 0; j < of.m; ++j) body(i, j, lane);
    }
  }
}

template <class Element>
class Run {
 public:
  using Real = RealOf<Element>;

  Run(const NormalizeProblem& p, const StridedTensor& grad_plan, bool gradient)
      : p_(p), of_(p, grad_plan), gradient_(gradient), kernels_(kernels_of<Real>(kernels())) {}

  [[nodiscard]] int workers(const Execution& execution) const {
    const std::int64_t powers = std::int64_t{2} * p_.batch * p_.n * p_.m * p_.iterations;
    const auto worth = static_cast<int>(std::clamp<std::int64_t>(powers / kPowersOfWorker, 1, groups()));
    return std::clamp(cpu::threads_of(execution), 1, worth);
  }
  [[nodiscard]] std::size_t worker_bytes() const {
    Arena arena;
    static_cast<void>(group_of<Real>(of_, p_.iterations, gradient_, kernels_.lanes, arena));
    return arena.used();
  }

  void operator()(void* result, Workspace workspace, const Execution& execution) const {
    const std::size_t bytes = worker_bytes();
    std::atomic<int> next{0};
    cpu::run_workers(execution, workers(execution), [&](int worker) {
      Arena arena(static_cast<std::byte*>(workspace.data) + worker * bytes);
      const auto group = group_of<Real>(of_, p_.iterations, gradient_, kernels_.lanes, arena);
      for (int k = next++; k < groups(); k = next++) solve(group, k, static_cast<Element*>(result));
    });
  }

 private:
  [[nodiscard]] int groups() const { return (p_.batch - 1) / kernels_.lanes + 1; }

  void solve(const NormalizeLanes<Real>& group, int number, Element* result) const {
    const int lanes = kernels_.lanes, first = number * lanes, count = std::min(lanes, p_.batch - first);
    read(of_.logits, first, count, group.elements);
    if (gradient_) {
      read(of_.grad_plan, first, count, group.gradient);
      kernels_.normalize_gradient(group);
    } else {
      kernels_.normalize(group);
    }
    const Real* const from = gradient_ ? group.gradient : group.elements;
    const std::int64_t* const stride = of_.result_stride;
    for_elements(of_, count, [&](int i, int j, int lane) {
      const Real v = from[(static_cast<std::int64_t>(i) * of_.m + j) * lanes + lane];
      Element& to = result[(first + lane) * stride[0] + i * stride[1] + j * stride[2]];
      if constexpr (std::is_same_v<Element, double>) {
        to = v;
      } else {
        to = rounded_to<Element>(v);
      }
    });
  }

  // Lanes without a matrix are 0.
  void read(const StridedTensor& from, int first, int count, Real* to) const {
    const int lanes = kernels_.lanes;
    std::fill_n(to, static_cast<std::int64_t>(of_.n) * of_.m * lanes, Real{});
    const auto* const data = static_cast<const Element*>(from.data);
    for_elements(of_, count, [&](int i, int j, int lane) {
      to[(static_cast<std::int64_t>(i) * of_.m + j) * lanes + lane] =
          static_cast<Real>(data[(first + lane) * from.stride[0] + i * from.stride[1] + j * from.stride[2]]);
    });
  }

  const NormalizeProblem& p_;
  const RowsFirst of_;
  const bool gradient_;
  const CpuKernelsOf<Real>& kernels_;
};

Status run(const NormalizeProblem& p, const StridedTensor& grad_plan, bool gradient, void* result,
           Workspace workspace, const Execution& execution) {
  visit_dtype(p.dtype, [&](auto type) {
    Run<typename decltype(type)::Type>(p, grad_plan, gradient)(result, workspace, execution);
  });
  return {};
}

}  // namespace

std::size_t normalize_cpu_workspace_bytes(const NormalizeProblem& p, bool gradient,
                                          const Execution& execution) {
  return visit_dtype(p.dtype, [&](auto type) {
    const Run<typename decltype(type)::Type> all(p, {}, gradient);
    return all.worker_bytes() * static_cast<std::size_t>(all.workers(execution));
  });
}

Status normalize_cpu(const NormalizeProblem& p, void* plan, Workspace workspace, const Execution& execution) {
  return run(p, {}, false, plan, workspace, execution);
}

Status normalize_gradient_cpu(const NormalizeProblem& p, const StridedTensor& grad_plan, void* grad_logits,
                              Workspace workspace, const Execution& execution) {
  return run(p, grad_plan, true, grad_logits, workspace, execution);
}

}  // namespace warpalign::detail::transport
