// Ways by name, and descriptions of plans, of the LSTM's CUDA path; on the CPU alone.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cuda_fixture.h"
#include "simt.h"
#include "warpalign/plan.h"

namespace warpalign::test {
namespace {

using reference::Lstm;

class Ways : public ::testing::Test {
 protected:
  void SetUp() override { simt::device.multiprocessors = 40; }
  void TearDown() override { simt::device = {}; }
};

Execution by(const char* way) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = way;
  return execution;
}

// A layer that all sweeps in one launch serve: the plan takes single blocks.
TEST_F(Ways, EachGivesTheResult) {
  Lstm p = plain(5, 3, 8, 64);
  p.bidirectional = true;
  const LstmCase given(p, DType::kFloat16, 3, .5);
  std::set<std::string> served;
  for (int index = 0; const char* const way = lstm_way(Device::kCuda, index); ++index) {
    SCOPED_TRACE(way);
    const LstmRun run = CudaRunner(given, by(way)).run();
    if (run.status.code == StatusCode::kUnsupported) continue;
    expect_close(given, run, 0x1p-8);
    served.insert(way);
  }
  EXPECT_EQ(served, (std::set<std::string>{"blocks", "clusters", "grid", "steps"}));
}

TEST_F(Ways, AWayThatCannotServeSaysWhyAndWhichCan) {
  const LstmCase given(plain(5, 3, 8, 132), DType::kFloat16, 3, .5);
  EXPECT_EQ(to_string(CudaRunner(given, by("blocks")).run().status),
            "way: blocks cannot serve this call: R has more units than a block's registers hold; "
            "these ways can: clusters, steps");
  EXPECT_EQ(to_string(CudaRunner(given, by("fast")).run().status),
            "way: lstm() on CUDA has no way \"fast\"; its ways are stream, blocks, clusters, grid, products, "
            "steps");
  EXPECT_EQ(lstm_way(Device::kCuda, 6), nullptr);
  EXPECT_EQ(lstm_way(Device::kHost, 0), nullptr);
}

// One step in one launch, whose x lies as it has to; the runner's x has gaps.
TEST_F(Ways, ANamedWayIsNotLeft) {
  LstmCase given(plain(1, 2, 8, 24), DType::kFloat16, 4, .5);
  CudaRunner runner(given, by("stream"));
  const auto before = launches_of("single step");
  const LstmRun run = runner.run(false);
  ASSERT_TRUE(run.status.ok()) << to_string(run.status);
  EXPECT_LE(relative_error(run.out.y, reference::forward(given.problem, given.inputs).y), 0x1p-8);
  EXPECT_EQ(launches_of("single step"), before + 1);
  runner.shift_weights();
  EXPECT_EQ(to_string(runner.run(false).status),
            "way: the device refuses the launch, or an array begins within a word");
  simt::device.refuses_clusters = true;
  const LstmCase wide(plain(5, 3, 8, 132), DType::kFloat16, 3, .5);
  EXPECT_EQ(CudaRunner(wide, by("clusters")).run().status.code, StatusCode::kUnsupported);
}

TEST_F(Ways, ADescriptionSaysWhichWayAndWhy) {
  const LstmCase given(plain(9, 2, 8, 512), DType::kBFloat16, 5, .5);
  const PlanDescription description("9.0");
  CudaRunner runner(given);
  EXPECT_TRUE(runner.run(false).status.ok());
  const std::string text = description.text();
  for (const char* part : {"lstm on CUDA 9.0", "clusters: R fits the registers of a cluster", "of 16 blocks",
                           "workspace", "clusters of up to 16 bfloat16"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

}  // namespace
}  // namespace warpalign::test
