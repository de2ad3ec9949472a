// Runs soft-DTW on the path of the test that runs.
#pragma once

#include <gtest/gtest.h>

#include "batch.h"
#include "paths.h"
#include "tolerance.h"

namespace warpalign::test::soft_dtw {

class SoftDtw : public OnEveryPath {};

template <typename T>
Outputs<T> run(const Batch<T>& batch, Wanted wanted, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (SoftDtw::GetParam().cuda) return run_on<DeviceBuffer>(batch, wanted, Execution::cuda(0, nullptr));
#endif
  return run_on<HostBuffer>(batch, wanted, Execution::host(parallel_for));
}

// Runs and holds the result to the rule.
template <typename T>
void check(const Batch<T>& batch, Wanted wanted = kEverything) {
  expect_close(batch, run(batch, wanted));
}

}  // namespace warpalign::test::soft_dtw
