// Runs the transducer on the path of the test that runs.
#pragma once

#include <gtest/gtest.h>

#include "paths.h"
#include "testing.h"

namespace warpalign::test {

class TransducerPath : public OnEveryPath {};

inline TransducerRun run(const TransducerBatch& batch, bool want_gradient = true,
                         ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (TransducerPath::GetParam().cuda) {
    return run_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_gradient);
  }
#endif
  return run_on<HostBuffer>(batch, Execution::host(parallel_for), want_gradient);
}

}  // namespace warpalign::test
