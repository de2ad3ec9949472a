// A fixture that runs a test once per path: every instruction set of the CPU path that this machine can run,
// and, in programs with WARPALIGN_TEST_CUDA, CUDA, which skips, visibly, without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "cpu/isa.h"
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

class OnEveryPath : public ::testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (!GetParam().cuda) return cpu::override_isa(GetParam().isa);
#if WARPALIGN_TEST_CUDA
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
#endif
  }
  void TearDown() override { cpu::clear_isa_override(); }
};

}  // namespace warpalign::test

// Instantiates a suite that derives from OnEveryPath for all_paths or instruction_sets.
#define WARPALIGN_FOR_EVERY(suite, paths)                                              \
  INSTANTIATE_TEST_SUITE_P(Path, suite, ::testing::ValuesIn(warpalign::test::paths()), \
                           [](const auto& param_info) { return param_info.param.name(); })
