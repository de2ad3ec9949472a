// A fixture that runs a test once per path: every instruction set of the CPU path that this machine can run,
// and CUDA, which skips, visibly, without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/isa.h"
#include "testing.h"
#if WARPALIGN_TEST_CUDA && __has_include("transducer/cuda/layout.h")  // the CUDA path may not be there yet
#include "device_buffer.h"
#define WARPALIGN_TRANSDUCER_TEST_CUDA 1
#else
#define WARPALIGN_TRANSDUCER_TEST_CUDA 0
#endif

namespace warpalign::test {

// Of a large grid every so manieth case, where one takes long: CUDA kernels on a CPU.
#if WARPALIGN_SIMT
constexpr int kThinning = 7;
#else
constexpr int kThinning = 1;
#endif

inline const char* kCuda = "cuda";

inline std::vector<std::string> transducer_paths() {
  std::vector<std::string> all;
  for (int isa = 0; isa <= static_cast<int>(cpu::best_isa()); ++isa) {
    all.emplace_back(cpu::isa_name(static_cast<cpu::Isa>(isa)));
  }
#if WARPALIGN_TRANSDUCER_TEST_CUDA
  all.emplace_back(kCuda);
#endif
  return all;
}

class TransducerPath : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (int isa = 0; isa <= static_cast<int>(cpu::best_isa()); ++isa) {
      if (GetParam() == cpu::isa_name(static_cast<cpu::Isa>(isa)))
        cpu::override_isa(static_cast<cpu::Isa>(isa));
    }
#if WARPALIGN_TRANSDUCER_TEST_CUDA
    if (GetParam() == kCuda && !has_gpu()) GTEST_SKIP() << "no GPU";
#endif
  }
  void TearDown() override { cpu::clear_isa_override(); }
};

// On the path of the test that runs.
inline TransducerRun run(const TransducerBatch& batch, bool want_gradient = true,
                         ParallelFor parallel_for = {}) {
#if WARPALIGN_TRANSDUCER_TEST_CUDA
  if (TransducerPath::GetParam() == kCuda) {
    return run_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_gradient);
  }
#endif
  return run_on<HostBuffer>(batch, Execution::host(parallel_for), want_gradient);
}

}  // namespace warpalign::test

#define WARPALIGN_TRANSDUCER_PATHS                                                                         \
  INSTANTIATE_TEST_SUITE_P(Path, TransducerPath, ::testing::ValuesIn(warpalign::test::transducer_paths()), \
                           [](const auto& param_info) { return param_info.param; })
