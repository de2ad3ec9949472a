// Runs CTC on the path of the test that runs.
#pragma once

#include <gtest/gtest.h>

#include "testing.h"

namespace warpalign::test {

class CtcPath : public OnEveryPath {};

inline bool on_cuda() { return CtcPath::GetParam().cuda; }

inline CtcRun run(const CtcBatch& batch, bool want_gradient = true, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (on_cuda()) return run_loss<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_gradient);
#endif
  return run_loss<HostBuffer>(batch, Execution::host(parallel_for), want_gradient);
}

inline std::vector<double> posteriors(const CtcBatch& batch, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (on_cuda()) return run_posteriors<DeviceBuffer>(batch, Execution::cuda(0, nullptr));
#endif
  return run_posteriors<HostBuffer>(batch, Execution::host(parallel_for));
}

inline CtcAlignRun align(const CtcBatch& batch, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (on_cuda()) return run_align<DeviceBuffer>(batch, Execution::cuda(0, nullptr));
#endif
  return run_align<HostBuffer>(batch, Execution::host(parallel_for));
}

}  // namespace warpalign::test
