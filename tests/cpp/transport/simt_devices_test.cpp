// The CUDA path on devices of other sizes than the one at hand; on the CPU alone, where they can be had.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "device_buffer.h"
#include "simt.h"
#include "testing.h"
#include "warpalign/gromov_anchors.h"
#include "warpalign/kernel_launches.h"

namespace warpalign::test {
namespace {

class Devices : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }

  static void check() {
    constexpr int kN = 120, kM = 1700;
    std::vector<double> cost = normal(kN * kM, 1);
    for (double& c : cost) c = c * c;
    const std::vector<double> a = weights(kN, 2), b = weights(kM, 3);
    const SinkhornOptions options{.epsilon = 0.3, .iterations = 3};
    expect_close<float>(solve_on<float, DeviceBuffer>(cost, a, b, options, 0, Execution::cuda(0, nullptr)),
                        detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
  }
};

// A team has as many blocks as are resident, and no more: nobody waits for a block that cannot begin.
TEST_F(Devices, FewAndManyMultiprocessors) {
  for (const int multiprocessors : {1, 2, 5}) {
    simt::device.multiprocessors = multiprocessors;
    simt::device.resident = 1;
    check();
  }
}

TEST_F(Devices, TooLittleSharedMemory) {
  simt::device.shared_bytes = 16 * 1024;
  const DeviceBuffer cost(std::vector<float>(2000, 1.0F)), value(sizeof(float));
  SinkhornProblem p;
  p.batch = 1;
  p.n = 1;
  p.m = 2000;
  p.cost = {cost.data(), {2000, 2000, 1}};
  SinkhornOutputs out;
  out.value = value.data();
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const DeviceBuffer workspace(bytes);
  const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
  EXPECT_EQ(status.code, StatusCode::kUnsupported) << status.message;
}

TEST(Registry, ListsEveryKernel) {
  // A program has the kernels of the functions that it calls.
  EXPECT_FALSE(anchor_columns({}, {}, Execution::cuda(0, nullptr)).ok());
  std::set<std::string> names;
  KernelLaunches kernel;
  int count = 0;
  for (; transport_kernel_launches(count, &kernel); ++count) names.insert(kernel.kernel);
  EXPECT_EQ(count, 31);
  EXPECT_EQ(names.size(), 31);
  EXPECT_EQ(names.count("derivatives float64"), 1);
  EXPECT_FALSE(transport_kernel_launches(-1, &kernel));
}

}  // namespace
}  // namespace warpalign::test
