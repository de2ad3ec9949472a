// The library lists its kernels and counts their launches: one problem for each kernel, in one process, on
// the CPU.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "aligning.h"
#include "decode.h"
#include "device_buffer.h"
#include "families.h"
#include "joint_testing.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/transducer_band.h"

namespace warpalign::test {
namespace {

const Execution kCuda = Execution::cuda(0, nullptr);

std::vector<KernelLaunches> listed() {
  std::vector<KernelLaunches> all;
  KernelLaunches one{};
  while (transducer_kernel_launches(static_cast<int>(all.size()), &one)) all.push_back(one);
  return all;
}
unsigned long long launches_of(const std::string& kernel) {
  for (const KernelLaunches& one : listed()) {
    if (one.kernel == kernel) return one.launches;
  }
  ADD_FAILURE() << "no kernel is called " << kernel;
  return 0;
}

TransducerBatch losses(DType dtype, int number) {
  std::mt19937 random(number);
  TransducerBatch batch;
  batch.dtype = dtype;
  batch.packed = number == 0;
  batch.add(family(number, 9, 3, 20, random), random);
  return batch;
}

template <class Real>
void decode() {
  const DecodeCase<Real> c(2, 1, 5, 4, 6, 1);
  const std::vector<Real> table(7 * 4, Real(0.5));
  run_scores<DeviceBuffer, Real>(c, {0, 1}, 1, kCuda);
  run_greedy<DeviceBuffer, Real>(c, decoding(0, 6), table, 2, false, kCuda);
}

TEST(Registry, EveryKernelIsCounted) {
  for (const KernelLaunches& one : listed()) EXPECT_EQ(one.launches, 0u) << one.kernel;
  EXPECT_TRUE(run_on<DeviceBuffer>(losses(DType::kFloat32, 0), kCuda).status.ok());
  for (const char* kernel : {"places", "rows float32", "lattice, plain float32", "gradient float32"}) {
    EXPECT_EQ(launches_of(kernel), 1u) << kernel;
  }
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const int number : {0, 1, 2, 5}) {
      EXPECT_TRUE(run_on<DeviceBuffer>(losses(dtype, number), kCuda).status.ok());
    }
    EXPECT_TRUE(align_on<DeviceBuffer>(losses(dtype, 1), kCuda).status.ok());
    // Many labels: warpgroups multiply all types but float64, by tiles of 216 and of 256 columns.
    const bool by_warpgroups = dtype != DType::kFloat64;
    for (const auto& [labels, hidden] : {std::pair{7, 5}, {140, 5}, {140, 240}}) {
      if (labels > 7 && !by_warpgroups) continue;
      std::mt19937 random(1);
      JointBatch joint;
      joint.dtype = dtype;
      joint.network.hidden = hidden;
      joint.add(family(0, 7, 2, labels, random), random);
      EXPECT_TRUE(run_joint_on<DeviceBuffer>(joint, kCuda, true).status.ok());
      if (labels > 7) continue;
      joint.problems[0].band.assign(7, 0);
      joint.problems[0].band.back() = 1;
      joint.problems[0].band_states = 2;
      EXPECT_TRUE(run_joint_on<DeviceBuffer>(joint, kCuda, true).status.ok());
    }
  }
  std::mt19937 random(1);
  JointBatch joint;
  joint.network.hidden = 5;
  joint.add(family(0, 7, 2, 7, random), random);
  const Execution units = Execution::cuda(0, nullptr, Precision::kMedium);
  EXPECT_TRUE(run_joint_on<DeviceBuffer>(joint, units, true).status.ok());
  const DeviceBuffer gradients(std::vector<float>(2 * 3 * 2)), first(2 * 4), ended(256);
  TransducerBandProblem band;
  band.batch = 1;
  band.frames = 2;
  band.states = 3;
  band.gradients = static_cast<const float*>(gradients.data());
  band.first = static_cast<std::int32_t*>(first.data());
  EXPECT_TRUE(transducer_band(band, {ended.data(), 256}, kCuda).ok());
  decode<float>();
  decode<double>();
  const std::vector<KernelLaunches> all = listed();
  for (const KernelLaunches& one : all) {
    const std::string name = one.kernel;
    // beam_test.cpp has searches with a beam.
    if (name.rfind("beam ", 0) != 0) {
      EXPECT_GT(one.launches, 0u) << name;
    }
    int named = 0;
    for (const KernelLaunches& other : all) named += name == other.kernel;
    EXPECT_EQ(named, 1) << name;
  }
  // A kernel costs seconds of every build.
  EXPECT_LE(all.size(), 99u);
  KernelLaunches none{};
  EXPECT_FALSE(transducer_kernel_launches(-1, &none));
}

}  // namespace
}  // namespace warpalign::test
