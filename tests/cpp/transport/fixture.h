// Runs sinkhorn() on the path of the test that runs.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>

#include "paths.h"
#include "testing.h"

namespace warpalign::test {

class SinkhornPath : public OnEveryPath {};

// f(buffer, execution) with the memory and the execution of the path.
template <class Function>
auto on_path(const Function& f) {
#if WARPALIGN_TEST_CUDA
  if (SinkhornPath::GetParam().cuda) {
    return f.template operator()<DeviceBuffer>(Execution::cuda(0, nullptr));
  }
#endif
  return f.template operator()<HostBuffer>(Execution::host());
}

// The same for the plan's choice of a way on CUDA and for each of these ways.
template <class Function>
void on_path_and_by([[maybe_unused]] std::initializer_list<const char*> ways, const Function& f) {
  on_path(f);
#if WARPALIGN_TEST_CUDA
  if (!SinkhornPath::GetParam().cuda) return;
  for (const char* const way : ways) {
    SCOPED_TRACE(way);
    Execution execution = Execution::cuda(0, nullptr);
    execution.way = way;
    f.template operator()<DeviceBuffer>(execution);
  }
#endif
}

template <class Real>
Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, double tolerance = 0) {
  return on_path([&]<class Buffer>(const Execution& execution) {
    return solve_on<Real, Buffer>(cost, a, b, options, tolerance, execution);
  });
}

}  // namespace warpalign::test
