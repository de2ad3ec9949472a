// The contract of warpalign::soft_dtw: every bad argument is named, and then nothing has been written. Linked
// with the library that has no CUDA path.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "api_call.h"
#include "host_buffer.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::test::soft_dtw {
namespace {

struct BadArgument {
  const char* test;
  const char* argument;
  std::function<void(Call&)> spoil;
  int batch_index = -1;
};

void PrintTo(const BadArgument& bad, std::ostream* out) { *out << bad.test; }

class SoftDtwApiRejects : public ::testing::TestWithParam<BadArgument> {};

TEST_P(SoftDtwApiRejects, NamingTheArgument) {
  Call call;
  GetParam().spoil(call);
  const Status status = call.run();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.argument, GetParam().argument);
  EXPECT_STRNE(status.message, "");
  EXPECT_EQ(status.batch_index, GetParam().batch_index);
  EXPECT_TRUE(call.untouched());
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

const BadArgument kBadArguments[] = {
    {"NegativeBatch", "batch", [](Call& c) { c.problem.batch = -1; }},
    {"NoRows", "n", [](Call& c) { c.problem.n = 0; }},
    {"NegativeRows", "n", [](Call& c) { c.problem.n = -4; }},
    {"NoColumns", "m", [](Call& c) { c.problem.m = 0; }},
    {"NegativeColumns", "m", [](Call& c) { c.problem.m = -1; }},
    {"NegativeGamma", "gamma", [](Call& c) { c.problem.gamma = -1; }},
    {"InfiniteGamma", "gamma", [](Call& c) { c.problem.gamma = kInf; }},
    {"NanGamma", "gamma", [](Call& c) { c.problem.gamma = kNan; }},
    {"NoValue", "value", [](Call& c) { c.out.value = nullptr; }},
    {"NoX", "x", [](Call& c) { c.problem.x.data = nullptr; }},
    {"NoY", "y", [](Call& c) { c.problem.y.data = nullptr; }},
    {"NoInputAtAll", "x", [](Call& c) { c.problem.x = c.problem.y = {}; }},
    {"NoFeatures", "dim", [](Call& c) { c.problem.dim = 0; }},
    {"NegativeFeatures", "dim", [](Call& c) { c.problem.dim = -2; }},
    {"CostAndSeries", "cost", [](Call& c) { c.problem.cost.data = c.cost.data(); }},
    {"CostAndX", "cost",
     [](Call& c) {
       c.use_cost();
       c.problem.x.data = c.x.data();
     }},
    {"CostAndY", "cost",
     [](Call& c) {
       c.use_cost();
       c.problem.y.data = c.y.data();
     }},
    {"CostWithGradX", "grad_x",
     [](Call& c) {
       c.use_cost();
       c.out.grad_x = c.grad_x.data();
     }},
    {"CostWithGradY", "grad_y",
     [](Call& c) {
       c.use_cost();
       c.out.grad_y = c.grad_y.data();
     }},
    {"XLengthZero", "x_lengths", [](Call& c) { c.x_lengths[1] = 0; }, 1},
    {"XLengthTooLarge", "x_lengths", [](Call& c) { c.x_lengths[2] = kN + 1; }, 2},
    {"XLengthNegative", "x_lengths", [](Call& c) { c.x_lengths[0] = -7; }, 0},
    {"YLengthZero", "y_lengths", [](Call& c) { c.y_lengths[0] = 0; }, 0},
    {"YLengthTooLarge", "y_lengths", [](Call& c) { c.y_lengths[2] = kM + 1; }, 2},
    {"YLengthNegative", "y_lengths", [](Call& c) { c.y_lengths[1] = -1; }, 1},
    {"NegativePenalty", "step_penalty", [](Call& c) { c.problem.step_penalty = -0.1; }},
    {"InfinitePenalty", "step_penalty", [](Call& c) { c.problem.step_penalty = kInf; }},
    {"NoSuchCost", "cost_kind", [](Call& c) { c.problem.cost_kind = static_cast<CostKind>(5); }},
    {"GammaZeroOfAPair", "gammas",
     [](Call& c) {
       static const float kGammas[kBatch] = {1, 2, 0};
       c.problem.gammas = kGammas;
     },
     2},
    {"CostWithXMask", "x_mask",
     [](Call& c) {
       static const std::uint8_t kMask[kBatch * kN] = {};
       c.use_cost();
       c.problem.x_mask = kMask;
     }},
    {"SubsequenceWithBand", "band",
     [](Call& c) {
       c.problem.subsequence = true;
       c.problem.band = {BandKind::kSakoeChiba, 9, 2.0};
     }},
    {"EndValuesWithoutSubsequence", "end_values", [](Call& c) { c.out.end_values = c.value.data(); }},
    {"SubsequenceWithGradGamma", "grad_gamma",
     [](Call& c) {
       c.problem.subsequence = true;
       c.out.grad_gamma = c.value.data();
     }},
    {"NegativeRadius", "band",
     [](Call& c) {
       c.problem.band = {BandKind::kSakoeChiba, -1, 2.0};
     }},
    {"SlopeBelowOne", "band",
     [](Call& c) {
       c.problem.band = {BandKind::kItakura, 0, 0.5};
     }},
    {"NanSlope", "band",
     [](Call& c) {
       c.problem.band = {BandKind::kItakura, 0, kNan};
     }},
    {"NoSuchBand", "band", [](Call& c) { c.problem.band.kind = static_cast<BandKind>(9); }},
    // Lengths 4 and 1, 1 and 5, 2 and 3.
    {"BandWithoutPath", "band",
     [](Call& c) {
       c.problem.band = {BandKind::kAbsolute, 3, 2.0};
     },
     1},
    {"UnknownDtype", "dtype", [](Call& c) { c.problem.dtype = static_cast<DType>(4); }},
    {"UnknownDevice", "execution", [](Call& c) { c.execution.device = static_cast<Device>(7); }},
    {"CostWithFeatures", "dim",
     [](Call& c) {
       c.use_cost();
       c.problem.dim = kDim;
     }},
    // What would overflow the workspace's size, or int32 on the way over anti-diagonals. Strides of 0 make
    // such sizes possible in little memory.
    {"TooManyRows", "n", [](Call& c) { c.problem.n = kMost; }},
    {"TooManyColumns", "m", [](Call& c) { c.problem.m = (1 << 29) + 1; }},
    {"TooManyFeatures", "dim", [](Call& c) { c.problem.dim = kMost; }},
    {"TooManyCells", "m",
     [](Call& c) {
       c.problem.n = c.problem.m = 1 << 24;
       c.problem.x_lengths = c.problem.y_lengths = nullptr;
     }},
    {"TooManyElementsOfX", "dim",
     [](Call& c) {
       c.problem.n = 1 << 20;
       c.problem.dim = 1 << 29;
     }},
    {"TooManyElementsOfY", "dim",
     [](Call& c) {
       c.problem.m = 1 << 20;
       c.problem.dim = 1 << 29;
     }},
    {"TooManyPairs", "m",
     [](Call& c) {
       c.problem.batch = kMost;
       c.problem.n = c.problem.m = 1 << 10;
     }},
    {"MisalignedX", "x", [](Call& c) { c.problem.x.data = shifted(c.x.data(), 2); }},
    {"MisalignedY", "y", [](Call& c) { c.problem.y.data = shifted(c.y.data(), 1); }},
    {"MisalignedForDouble", "y",
     [](Call& c) {
       c.problem.dtype = DType::kFloat64;
       c.problem.y.data = shifted(c.y.data(), 4);
     }},
    {"MisalignedCost", "cost",
     [](Call& c) {
       c.use_cost();
       c.problem.cost.data = shifted(c.cost.data(), 3);
     }},
    {"MisalignedValue", "value", [](Call& c) { c.out.value = shifted(c.value.data(), 1); }},
    {"MisalignedGradient", "grad_y", [](Call& c) { c.out.grad_y = shifted(c.grad_y.data(), 2); }},
    {"MisalignedWorkspace", "workspace", [](Call& c) { c.workspace.data = shifted(c.scratch.data(), 32); }},
    {"OneGradientForBoth", "grad_y", [](Call& c) { c.out.grad_y = c.out.grad_x; }},
    {"ValueWithinTheAlignment", "alignment", [](Call& c) { c.out.value = shifted(c.alignment.data(), 8); }},
    {"GradientInTheWorkspace", "workspace", [](Call& c) { c.out.grad_x = shifted(c.scratch.data(), 4096); }},
    {"NoWorkspace", "workspace", [](Call& c) { c.workspace = {}; }},
    {"WorkspaceTooSmall", "workspace",
     [](Call& c) { c.workspace.bytes = soft_dtw_workspace_bytes(c.problem, c.out, c.execution) - 1; }},
    {"WorkspaceWithoutData", "workspace", [](Call& c) { c.workspace.data = nullptr; }},
};

INSTANTIATE_TEST_SUITE_P(Api, SoftDtwApiRejects, ::testing::ValuesIn(kBadArguments),
                         [](const auto& param_info) { return std::string(param_info.param.test); });

TEST(SoftDtwApi, TheUnspoiledCallsAreRight) {
  Call series;
  EXPECT_TRUE(series.run().ok());
  EXPECT_FALSE(series.value.untouched());
  Call cost;
  cost.use_cost();
  EXPECT_TRUE(cost.run().ok());
}

// Of x and y on CUDA alone.
TEST(SoftDtwApi, HalfTypesAreUnsupportedOnAHost) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Call call;
    call.problem.dtype = dtype;
    const Status status = call.run();
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_STREQ(status.argument, "dtype");
    EXPECT_TRUE(call.value.untouched());
  }
}

TEST(SoftDtwApi, SaysWhatCame) {
  Call call;
  call.problem.gamma = -2.5;
  EXPECT_EQ(call.run().value, -2.5);
  Call lengths;
  lengths.x_lengths[2] = 99;
  EXPECT_EQ(lengths.run().value, 99.0);
}

TEST(SoftDtwApi, ExactlyTheWorkspaceAskedForIsEnough) {
  Call call;
  const std::size_t bytes = soft_dtw_workspace_bytes(call.problem, call.out, call.execution);
  HostBuffer exact(bytes);
  call.workspace = {exact.data(), bytes};
  EXPECT_TRUE(call.run().ok());
}

TEST(SoftDtwApi, WorkspaceIsPerThreadAndNeverMoreForLess) {
  Call call;
  const auto run = [](void*, int, ParallelFor::Task, void*) {};
  const std::size_t one = soft_dtw_workspace_bytes(call.problem, call.out, Execution::host());
  const std::size_t many =
      soft_dtw_workspace_bytes(call.problem, call.out, Execution::host({run, nullptr, 2}));
  EXPECT_GE(many, one);
  const SoftDtwOutputs value_only{call.value.data(), nullptr, nullptr, nullptr};
  EXPECT_LE(soft_dtw_workspace_bytes(call.problem, value_only, Execution::host()), one);
}

TEST(SoftDtwApi, TheLeastAlignmentOfAWorkspaceIsEnough) {
  static_assert(workspace_alignment(Device::kHost) < workspace_alignment(Device::kCuda));
  Call call;
  call.workspace = {shifted(call.scratch.data(), workspace_alignment(Device::kHost)), (1 << 20) - 64};
  EXPECT_TRUE(call.run().ok());
}

// The far end of one output is the beginning of the next.
TEST(SoftDtwApi, OutputsMayTouch) {
  const Call separate;
  ASSERT_TRUE(separate.run().ok());
  Call call;
  HostBuffer all((kBatch + kBatch * kN * kDim + kBatch * kM * kDim) * sizeof(float));
  call.out.value = all.data();
  call.out.grad_x = shifted(all.data(), kBatch * sizeof(float));
  call.out.grad_y = shifted(call.out.grad_x, kBatch * kN * kDim * sizeof(float));
  ASSERT_TRUE(call.run().ok());
  const std::vector<float> got = all.read<float>(kBatch + kBatch * kN * kDim + kBatch * kM * kDim);
  std::vector<float> expected = separate.value.read<float>(kBatch);
  for (const HostBuffer* part : {&separate.grad_x, &separate.grad_y}) {
    const std::vector<float> numbers =
        part->read<float>(kBatch * (part == &separate.grad_x ? kN : kM) * kDim);
    expected.insert(expected.end(), numbers.begin(), numbers.end());
  }
  EXPECT_EQ(got, expected);
}

TEST(SoftDtwApi, ThreadsBelowOneAreOne) {
  for (int threads : {0, -5, std::numeric_limits<int>::min()}) {
    Call call;
    const auto run = [](void*, int, ParallelFor::Task, void*) { FAIL() << "one worker needs no thread"; };
    call.execution = Execution::host({run, nullptr, threads});
    EXPECT_TRUE(call.run().ok());
  }
}

// The largest sizes there may be: no product wraps around, and no worker's part is lost.
TEST(SoftDtwApi, WorkspaceOfTheLargestSizes) {
  const auto run = [](void*, int, ParallelFor::Task, void*) {};
  const Execution everybody = Execution::host({run, nullptr, kMost});
  for (CostKind kind : {CostKind::kSquaredEuclidean, CostKind::kCosine}) {
    for (const auto& [batch, n, m, dim] : {std::array{1, 1 << 29, 1, 1 << 19},
                                           {1, 1, 1 << 29, 1 << 19},
                                           {1, 1 << 24, 1 << 24, 1},
                                           {kMost, 1, 1, 1 << 17},
                                           {1 << 19, 1, 1, 1 << 29}}) {
      Call call;
      call.problem.cost_kind = kind;
      call.problem.batch = batch;
      call.problem.n = n;
      call.problem.m = m;
      call.problem.dim = dim;
      const double elements = static_cast<double>(batch) * (n + static_cast<double>(m)) * dim;
      for (const std::size_t bytes : {soft_dtw_workspace_bytes(call.problem, call.out, everybody),
                                      soft_dtw_jvp_workspace_bytes(call.problem, {}, call.out, everybody)}) {
        EXPECT_GT(static_cast<double>(bytes), 4 * elements);
        EXPECT_LT(bytes, std::size_t{1} << 63);
      }
    }
  }
}

TEST(SoftDtwApi, WorkspaceOfNonsenseIsNothing) {
  Call call;
  call.problem.n = 0;
  EXPECT_EQ(soft_dtw_workspace_bytes(call.problem, call.out, call.execution), 0u);
  call.problem.n = kN;
  call.problem.batch = -1;
  EXPECT_EQ(soft_dtw_workspace_bytes(call.problem, call.out, call.execution), 0u);
  for (const auto& [n, m, dim] : {std::array{kN, kM, -1},
                                  {kN, kM, 0},
                                  {kMost, kM, 1},
                                  {kN, kMost, 1},
                                  {kN, kM, kMost},
                                  {1 << 29, 1 << 29, 1 << 29}}) {
    const Call spoiled;
    SoftDtwProblem problem = spoiled.problem;
    problem.n = n;
    problem.m = m;
    problem.dim = dim;
    EXPECT_EQ(soft_dtw_workspace_bytes(problem, spoiled.out, Execution::host()), 0u) << n << m << dim;
    EXPECT_EQ(soft_dtw_jvp_workspace_bytes(problem, {}, spoiled.out, Execution::host()), 0u);
  }
}

TEST(SoftDtwApi, AnEmptyBatchNeedsNoPointers) {
  SoftDtwProblem problem;
  problem.n = kN;
  problem.m = kM;
  problem.dim = kDim;
  EXPECT_EQ(soft_dtw_workspace_bytes(problem, {}, Execution::host()), 0u);
  EXPECT_TRUE(warpalign::soft_dtw(problem, {}, {}, Execution::host()).ok());
}

TEST(SoftDtwApi, CudaWithoutACudaPathIsUnsupported) {
  Call call;
  call.execution = Execution::cuda(0, nullptr);
  EXPECT_EQ(soft_dtw_workspace_bytes(call.problem, call.out, call.execution), 0u);
  const Status status = call.run();
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_STREQ(status.argument, "execution");
  EXPECT_TRUE(call.untouched());
  call.problem.gamma = -1;  // a bad argument is blamed first
  EXPECT_STREQ(call.run().argument, "gamma");
}

TEST(SoftDtwApi, WithoutACudaPathThereIsNoKernel) {
  KernelLaunches kernel{};
  for (int index : {-1, 0, 1}) EXPECT_FALSE(soft_dtw_kernel_launches(index, &kernel));
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
