// The contract of warpalign/transducer_band.h: every violation is refused by its argument's name.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <functional>
#include <vector>

#include "host_buffer.h"
#include "warpalign/transducer_band.h"

namespace warpalign::test {
namespace {

struct Call {
  std::vector<float> gradients = std::vector<float>(2 * 4 * 3 * 2);
  std::vector<std::int32_t> lengths{4, 2};
  HostBuffer first{2 * 4 * 4};
  TransducerBandProblem p;
  Execution execution = Execution::host();

  Call() {
    p.batch = 2;
    p.frames = 4;
    p.states = 3;
    p.gradients = gradients.data();
    p.logit_lengths = lengths.data();
    p.band_states = 2;
    p.first = static_cast<std::int32_t*>(first.data());
  }
  Status run() { return transducer_band(p, {}, execution); }
};

TEST(TransducerBandApi, RefusesWhatTheContractForbids) {
  const struct {
    const char* argument;
    std::function<void(Call&)> spoil;
  } cases[] = {
      {"batch", [](Call& c) { c.p.batch = -1; }},
      {"frames", [](Call& c) { c.p.frames = -1; }},
      {"frames", [](Call& c) { c.p.frames = c.p.states = 1 << 16; }},
      {"states", [](Call& c) { c.p.states = 0; }},
      {"band_states", [](Call& c) { c.p.band_states = 0; }},
      {"band_states", [](Call& c) { c.p.band_states = 4; }},
      {"gradients", [](Call& c) { c.p.gradients = nullptr; }},
      {"gradients",
       [](Call& c) {
         c.p.gradients = reinterpret_cast<const float*>(reinterpret_cast<const char*>(c.p.gradients) + 1);
       }},
      {"first", [](Call& c) { c.p.first = nullptr; }},
      {"execution", [](Call& c) { c.execution.device = static_cast<Device>(7); }},
      {"way", [](Call& c) { c.execution.way = "blocks"; }},
  };
  for (const auto& [argument, spoil] : cases) {
    Call call;
    spoil(call);
    const Status status = call.run();
    EXPECT_FALSE(status.ok()) << argument;
    EXPECT_STREQ(status.argument, argument);
    EXPECT_TRUE(call.first.untouched());
  }
  Call call;
  EXPECT_TRUE(call.run().ok());
}

TEST(TransducerBandApi, TakesAnEmptyBatch) {
  for (auto empty : {&TransducerBandProblem::batch, &TransducerBandProblem::frames}) {
    Call call;
    call.p.*empty = 0;
    call.p.gradients = nullptr;
    call.p.first = nullptr;
    EXPECT_TRUE(call.run().ok());
  }
}

TEST(TransducerBandApi, LengthsBeyondTheBatchCountAsTheNearest) {
  Call call;
  call.lengths = {INT_MAX, -5};
  EXPECT_TRUE(call.run().ok());
  const auto first = call.first.read<std::int32_t>(8);
  for (const std::int32_t one : first) EXPECT_TRUE(one == 0 || one == 1);
}

TEST(TransducerBandApi, SaysThatItHasNoCudaPath) {
  Call call;
  call.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(transducer_band_workspace_bytes(call.p, call.execution), 0u);
  EXPECT_EQ(call.run().code, StatusCode::kUnsupported);
}

}  // namespace
}  // namespace warpalign::test
