// Ways by name, and descriptions of plans, of CTC's CUDA path; on the CPU alone.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "device_buffer.h"
#include "testing.h"
#include "warpalign/plan.h"

namespace warpalign::test {
namespace {

Execution by(const char* way) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = way;
  return execution;
}

CtcBatch random_batch(int classes) {
  std::mt19937 random(classes);
  CtcBatch batch;
  for (const auto& [frames, labels] : {std::pair{40, 8}, {25, 3}, {9, 0}}) {
    Ctc one{frames, classes};
    one.targets = random_targets(one, labels, random);
    batch.add(one, random, 2);
  }
  return batch;
}

// Few classes and many: the plan would take one way for each.
TEST(WaysCuda, BothAreRight) {
  for (const int classes : {12, 150}) {
    const CtcBatch batch = random_batch(classes);
    int ways = 0;
    for (; const char* const way = ctc_way(Device::kCuda, ways); ++ways) {
      SCOPED_TRACE(std::string(way) + " of " + std::to_string(classes) + " classes");
      expect_close(batch, run_loss<DeviceBuffer>(batch, by(way), true));
    }
    EXPECT_EQ(ways, 2);
  }
}

TEST(WaysCuda, AnUnknownWayIsAnError) {
  EXPECT_EQ(to_string(run_loss<DeviceBuffer>(random_batch(12), by("fast"), true).status),
            "way: ctc_loss() on CUDA has no way \"fast\"; its ways are logits, table");
}

TEST(WaysCuda, ADescriptionSaysWhichWayAndWhy) {
  for (const auto& [classes, way] :
       {std::pair{12, "logits: labels are an eighth of the classes or more"},
        {150, "table: labels are fewer than an eighth of the classes: a table is small beside the logits"}}) {
    const PlanDescription description("9.0");
    EXPECT_TRUE(run_loss<DeviceBuffer>(random_batch(classes), by(nullptr), true).status.ok());
    const std::string text = description.text();
    for (const char* part : {"ctc_loss on CUDA 9.0", way, "ctc_gradient on CUDA 9.0", ": grid "}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    }
  }
}

}  // namespace
}  // namespace warpalign::test
