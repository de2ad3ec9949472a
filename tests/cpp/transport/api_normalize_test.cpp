// Every violation of sinkhorn_normalize.h's contract is refused with the argument's name.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_buffer.h"
#include "warpalign/sinkhorn_normalize.h"

namespace warpalign::test {
namespace {

void expect_refused(const Status& status, const char* argument) {
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.argument, argument);
}

class NormalizeContract : public testing::Test {
 protected:
  NormalizeContract() : logits(12), plan(12), grad_logits(12) {
    p.batch = 1;
    p.n = 3;
    p.m = 4;
    p.logits = StridedTensor::contiguous(logits.data(), {1, 3, 4});
    grad_plan = p.logits;
  }
  Status call(const Execution& execution = Execution::host()) {
    const std::size_t bytes = sinkhorn_normalize_workspace_bytes(p, execution);
    const HostBuffer workspace(bytes);
    return sinkhorn_normalize(p, result, {workspace.data(), bytes}, execution);
  }
  Status gradient(const Execution& execution = Execution::host()) {
    const std::size_t bytes = sinkhorn_normalize_gradient_workspace_bytes(p, execution);
    const HostBuffer workspace(bytes);
    return sinkhorn_normalize_gradient(p, grad_plan, result_of_gradient, {workspace.data(), bytes},
                                       execution);
  }
  void expect_both_refused(const char* argument) {
    expect_refused(call(), argument);
    expect_refused(gradient(), argument);
  }

  std::vector<float> logits, plan, grad_logits;
  NormalizeProblem p;
  StridedTensor grad_plan;
  void* result = plan.data();
  void* result_of_gradient = grad_logits.data();
};

TEST_F(NormalizeContract, GoodCalls) {
  EXPECT_TRUE(call().ok());
  EXPECT_FLOAT_EQ(plan[0], 1.0f / 3);
  EXPECT_TRUE(gradient().ok());
}
TEST_F(NormalizeContract, AnEmptyBatchNeedsNothing) {
  p.batch = 0;
  p.logits = grad_plan = {};
  result = result_of_gradient = nullptr;
  EXPECT_TRUE(call().ok());
  EXPECT_TRUE(gradient().ok());
}
TEST_F(NormalizeContract, Extents) {
  p.batch = -1;
  expect_both_refused("batch");
  p.batch = 1;
  for (const int lines : {0, 65}) {
    p.n = lines;
    expect_both_refused("n");
    p.n = 3;
    p.m = lines;
    expect_both_refused("m");
    p.m = 4;
  }
}
TEST_F(NormalizeContract, Values) {
  for (const int iterations : {0, (1 << 20) + 1}) {
    p.iterations = iterations;
    expect_both_refused("iterations");
  }
  p.iterations = 20;
  p.dtype = static_cast<DType>(9);
  expect_both_refused("dtype");
  p.dtype = DType::kFloat32;
  p.order = static_cast<NormalizeOrder>(2);
  expect_both_refused("order");
}
TEST_F(NormalizeContract, Pointers) {
  result = result_of_gradient = nullptr;
  expect_refused(call(), "plan");
  expect_refused(gradient(), "grad_logits");
  result = reinterpret_cast<std::byte*>(plan.data()) + 1;
  result_of_gradient = reinterpret_cast<std::byte*>(grad_logits.data()) + 1;
  expect_refused(call(), "plan");
  expect_refused(gradient(), "grad_logits");
  result = plan.data();
  result_of_gradient = grad_logits.data();
  grad_plan.data = nullptr;
  expect_refused(gradient(), "grad_plan");
  grad_plan = {logits.data(), {12, 4, kUnsetStride}};
  expect_refused(gradient(), "grad_plan");
  p.logits = {logits.data(), {12, kUnsetStride, 1}};
  expect_both_refused("logits");
  p.logits.data = nullptr;
  expect_both_refused("logits");
}
TEST_F(NormalizeContract, Workspace) {
  const Execution host = Execution::host();
  expect_refused(sinkhorn_normalize(p, result, {}, host), "workspace");
  expect_refused(sinkhorn_normalize_gradient(p, grad_plan, result_of_gradient, {}, host), "workspace");
}
TEST_F(NormalizeContract, CudaIsNotInThisBuild) {
  for (const Status& status : {call(Execution::cuda(0, nullptr)), gradient(Execution::cuda(0, nullptr))}) {
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_STREQ(status.argument, "execution");
  }
}

}  // namespace
}  // namespace warpalign::test
