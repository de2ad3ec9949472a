// The contract of soft_dtw_sample(): what it refuses, and that it then writes nothing.
#include <gtest/gtest.h>

#include <cstring>

#include "api_call.h"
#include "warpalign/soft_dtw_sample.h"

namespace warpalign::test::soft_dtw {
namespace {

constexpr int kPaths = 2;
constexpr std::size_t kNumbers = kBatch * kPaths;

struct SampleCall : Call {
  HostBuffer paths{kNumbers * (kN + kM - 1) * 2 * sizeof(std::int64_t)};
  HostBuffer lengths{kNumbers * sizeof(std::int64_t)};
  SoftDtwSamples samples{kPaths, 1, static_cast<std::int64_t*>(paths.data()),
                         static_cast<std::int64_t*>(lengths.data())};

  [[nodiscard]] Status draw() const { return soft_dtw_sample(problem, samples, workspace, execution); }
};

template <typename Spoil>
void expect_refused(const char* argument, StatusCode code, const Spoil& spoil) {
  SampleCall call;
  spoil(call);
  const Status status = call.draw();
  EXPECT_EQ(status.code, code) << argument;
  EXPECT_STREQ(status.argument, argument);
  EXPECT_TRUE(call.paths.untouched() && call.lengths.untouched() && call.scratch.untouched()) << argument;
}

TEST(SampleApi, AGoodCall) {
  const SampleCall call;
  EXPECT_TRUE(call.draw().ok());
  EXPECT_FALSE(call.paths.untouched());
}

TEST(SampleApi, WhatItRefuses) {
  const auto invalid = [](const char* argument, const auto& spoil) {
    expect_refused(argument, StatusCode::kInvalidArgument, spoil);
  };
  const auto unsupported = [](const char* argument, const auto& spoil) {
    expect_refused(argument, StatusCode::kUnsupported, spoil);
  };
  invalid("gamma", [](SampleCall& call) { call.problem.gamma = 0; });
  unsupported("subsequence", [](SampleCall& call) { call.problem.subsequence = true; });
  unsupported("dtype", [](SampleCall& call) { call.problem.dtype = DType::kFloat16; });
  invalid("paths_per_pair", [](SampleCall& call) { call.samples.paths_per_pair = -1; });
  invalid("x_lengths", [](SampleCall& call) { call.x_lengths[1] = kN + 1; });
  invalid("x", [](SampleCall& call) { call.problem.x = {}; });
  invalid("dim", [](SampleCall& call) { call.problem.dim = 0; });
  invalid("paths", [](SampleCall& call) { call.samples.paths = nullptr; });
  invalid("lengths", [](SampleCall& call) { call.samples.lengths = nullptr; });
  invalid("lengths", [](SampleCall& call) { call.samples.lengths = call.samples.paths; });
  invalid("workspace", [](SampleCall& call) {
    call.workspace.bytes = soft_dtw_sample_workspace_bytes(call.problem, call.samples, call.execution) - 1;
  });
  unsupported("execution", [](SampleCall& call) {
    call.problem.x_lengths = call.problem.y_lengths = nullptr;
    call.execution = Execution::cuda(0, nullptr);
  });
}

TEST(SampleApi, NothingToDraw) {
  SampleCall call;
  call.samples = {};
  EXPECT_TRUE(call.draw().ok());
  EXPECT_EQ(soft_dtw_sample_workspace_bytes(call.problem, call.samples, call.execution), 0u);
  call.samples.paths_per_pair = 5;
  call.problem.batch = 0;
  EXPECT_TRUE(call.draw().ok());
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
