// Ways by name, and descriptions of plans, of the transducer's CUDA path; on the CPU alone.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "device_buffer.h"
#include "families.h"
#include "joint_testing.h"
#include "simt.h"
#include "testing.h"
#include "warpalign/plan.h"

namespace warpalign::test {
namespace {

class WaysCuda : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }
};

Execution by(const char* way, Precision precision = Precision::kHighest) {
  Execution execution = Execution::cuda(0, nullptr, precision);
  execution.way = way;
  return execution;
}

TEST_F(WaysCuda, OfTheLatticeAreRightWhereTheyServe) {
  const struct {
    int family_number;
    std::set<std::string> serve;
  } cases[] = {{0, {"plain"}}, {1, {"five_arcs", "ten_arcs", "any_arcs", "any_arcs_unstaged"}}};
  for (const auto& [number, serve] : cases) {
    std::mt19937 random(5);
    TransducerBatch batch;
    batch.add(family(number, 12, 40, 13, random), random);
    for (int k = 0; const char* const way = transducer_way(Device::kCuda, k); ++k) {
      SCOPED_TRACE(std::string(way) + " of family " + std::to_string(number));
      if (serve.contains(way)) expect_close(batch, run_on<DeviceBuffer>(batch, by(way)));
    }
  }
}

TEST_F(WaysCuda, OfTheJointAreRightWhereTheyServe) {
  const struct {
    DType dtype;
    Precision precision;
    std::set<std::string> serve;
  } cases[] = {{DType::kFloat64, Precision::kHighest, {"blocks"}},
               {DType::kFloat32, Precision::kHighest, {"blocks", "warpgroups"}},
               {DType::kFloat32, Precision::kHigh, {"blocks", "tf32", "warpgroups"}},
               {DType::kFloat16, Precision::kHighest, {"blocks", "warpgroups"}}};
  for (const auto& [dtype, precision, serve] : cases) {
    std::mt19937 random(7);
    JointBatch batch;
    batch.dtype = dtype;
    batch.network.hidden = 8;
    batch.add(family(0, 3, 2, 13, random), random);  // so few labels that the plan does not take warpgroups
    for (int k = 0; const char* const way = transducer_joint_way(Device::kCuda, k); ++k) {
      SCOPED_TRACE(way);
      if (!serve.contains(way)) continue;
      expect_close(batch, run_joint_on<DeviceBuffer>(batch, by(way, precision), true),
                   dtype == DType::kFloat16        ? 0x1p-10
                   : precision == Precision::kHigh ? 0x1p-16
                                                   : 0);
    }
  }
}

// A joint of 2 utterances of 5 frames and 4 labels, at addresses that nobody touches.
Status joint_status(const Execution& execution, std::string* text = nullptr, DType dtype = DType::kFloat32) {
  const PlanDescription description;
  const auto place = [](int k) {
    return reinterpret_cast<void*>(std::uintptr_t{1} << 44 | std::uintptr_t(k) << 36);
  };
  TransducerJointProblem p;
  p.dtype = dtype;
  p.lattice.batch = 2;
  p.lattice.frames = 5;
  p.lattice.states = 5;
  p.lattice.targets = static_cast<const std::int32_t*>(place(1));
  p.labels = 30;
  p.hidden = 8;
  p.encoder = StridedTensor::contiguous(place(2), {2, 5, 8});
  p.predictor = StridedTensor::contiguous(place(3), {2, 5, 8});
  p.weight = place(4);
  TransducerOutputs out;
  out.loss = place(5);
  const std::size_t bytes = transducer_joint_workspace_bytes(p, out, execution);
  const Status status = transducer_joint(p, out, {place(6), bytes}, execution);
  if (text) *text = description.text();
  return status;
}

TEST_F(WaysCuda, AnErrorSaysWhyAndWhichWaysCan) {
  EXPECT_EQ(to_string(joint_status(by("tf32"))),
            "way: tf32 cannot serve this call: precision is kHighest, which TF32 is not; these ways can: "
            "blocks, warpgroups");
  EXPECT_EQ(to_string(joint_status(by("warpgroups"), nullptr, DType::kFloat64)),
            "way: warpgroups cannot serve this call: warpgroups multiply half types, and parts of float32; "
            "these ways can: blocks");
  EXPECT_EQ(to_string(joint_status(by("plain"))),
            "way: transducer_joint() on CUDA has no way \"plain\"; its ways are blocks, tf32, warpgroups");
}

TEST_F(WaysCuda, ADescriptionOfABandSaysThatItIsSweptAlone) {
  std::mt19937 random(5);
  JointBatch batch;
  batch.add(family(0, 7, 4, 12, random), random);
  for (const int width : {2, 5}) {
    batch.problems[0].band.assign(7, 0);
    batch.problems[0].band.back() = 5 - width;
    batch.problems[0].band_states = width;
    const PlanDescription description;
    EXPECT_TRUE(run_joint_on<DeviceBuffer>(batch, by(nullptr), false).status.ok());
    EXPECT_NE(description.text().find("band: RNN-T with few states of a frame"), std::string::npos);
    EXPECT_EQ(description.text().find("plain:"), std::string::npos) << description.text();
  }
}

TEST_F(WaysCuda, ADescriptionSaysWhichWayAndWhy) {
  std::string text;
  EXPECT_TRUE(joint_status(by(nullptr), &text).ok());
  for (const char* part :
       {"transducer_joint on CUDA 9.0", "warpgroups: many labels, on a device with wgmma",
        "plain: the kernel of the fewest arcs that suffices", "joint wide logits float32: grid"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

}  // namespace
}  // namespace warpalign::test
