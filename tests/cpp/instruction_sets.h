// A fixture that runs a CPU test once per instruction set that this machine can run.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "testing.h"

namespace warpalign::cpu {
inline void PrintTo(Isa isa, std::ostream* out) { *out << isa_name(isa); }  // where GoogleTest looks for it
}  // namespace warpalign::cpu

namespace warpalign::test {

inline std::vector<cpu::Isa> instruction_sets() {
  std::vector<cpu::Isa> all;
  for (int isa = 0; isa <= static_cast<int>(cpu::best_isa()); ++isa)
    all.push_back(static_cast<cpu::Isa>(isa));
  return all;
}

class SoftDtwCpu : public ::testing::TestWithParam<cpu::Isa> {
 protected:
  void SetUp() override { cpu::override_isa(GetParam()); }
  void TearDown() override { cpu::clear_isa_override(); }
};

template <typename T>
Outputs<T> run(const Batch<T>& batch, Wanted wanted, ParallelFor parallel_for = {}) {
  return run_on<HostBuffer>(batch, wanted, Execution::host(parallel_for));
}

// Runs and holds the result to the rule.
template <typename T>
void check(const Batch<T>& batch, Wanted wanted = kEverything) {
  expect_close(batch, run(batch, wanted));
}

}  // namespace warpalign::test

#define WARPALIGN_FOR_EVERY_INSTRUCTION_SET()                                    \
  INSTANTIATE_TEST_SUITE_P(                                                      \
      Isa, SoftDtwCpu, ::testing::ValuesIn(warpalign::test::instruction_sets()), \
      [](const auto& param_info) { return std::string(warpalign::cpu::isa_name(param_info.param)); })
