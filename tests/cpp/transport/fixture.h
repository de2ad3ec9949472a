// Runs sinkhorn() on the path of the test that runs.
#pragma once

#include <gtest/gtest.h>

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

template <class Real>
Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, double tolerance = 0) {
  return on_path([&]<class Buffer>(const Execution& execution) {
    return solve_on<Real, Buffer>(cost, a, b, options, tolerance, execution);
  });
}

}  // namespace warpalign::test
