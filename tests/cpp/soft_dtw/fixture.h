// A fixture that runs a test once per path: every instruction set of the CPU path that this machine can run,
// and, where a test asks for it, CUDA, which skips, visibly, without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "testing.h"
#if WARPALIGN_TEST_CUDA
#include "device_buffer.h"
#endif

namespace warpalign::test {

struct Path {
  bool cuda = false;
  cpu::Isa isa = cpu::Isa::kBaseline;

  [[nodiscard]] std::string name() const { return cuda ? "cuda" : cpu::isa_name(isa); }
};
inline void PrintTo(const Path& path, std::ostream* out) { *out << path.name(); }  // for GoogleTest

inline std::vector<Path> instruction_sets() {
  std::vector<Path> all;
  for (int isa = 0; isa <= static_cast<int>(cpu::best_isa()); ++isa)
    all.push_back({false, static_cast<cpu::Isa>(isa)});
  return all;
}

inline std::vector<Path> all_paths() {
  std::vector<Path> all = instruction_sets();
#if WARPALIGN_TEST_CUDA
  all.push_back({true});
#endif
  return all;
}

class SoftDtw : public ::testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (!GetParam().cuda) return cpu::override_isa(GetParam().isa);
#if WARPALIGN_TEST_CUDA
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
#endif
  }
  void TearDown() override { cpu::clear_isa_override(); }
};

// On the path of the test that runs.
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

}  // namespace warpalign::test

#define WARPALIGN_FOR_EVERY(paths)                                                       \
  INSTANTIATE_TEST_SUITE_P(Path, SoftDtw, ::testing::ValuesIn(warpalign::test::paths()), \
                           [](const auto& param_info) { return param_info.param.name(); })
