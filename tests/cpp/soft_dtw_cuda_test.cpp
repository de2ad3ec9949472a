// The CUDA path against the float64 reference, through the public API. Every test skips, visibly, without a
// GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "soft_dtw/reference.h"
#include "warpalign/soft_dtw.h"

namespace warpalign {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class SoftDtwCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  }
};

// Device memory with a guard behind it: poisoned before, checked after.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes + kGuard), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xff, bytes + kGuard),
              cudaSuccess);  // NaN in every float type, -1 in every int
  }
  ~DeviceBuffer() {
    std::vector<unsigned char> guard(kGuard);
    EXPECT_EQ(cudaMemcpy(guard.data(), static_cast<char*>(data_) + bytes_, kGuard, cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (unsigned char c : guard) EXPECT_EQ(c, 0xff) << "written behind the end";
    cudaFree(data_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  template <typename T>
  void write(const std::vector<T>& from) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read(std::size_t count) const {
    std::vector<T> to(count);
    EXPECT_EQ(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return to;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  std::size_t bytes_;
  void* data_ = nullptr;
};

struct Shape {
  int batch, n, m, dim;
};

template <typename T>
struct Outputs {
  std::vector<T> value, grad_x, grad_y, alignment;
};

template <typename T>
struct Batch {
  Shape shape;
  double gamma;
  std::vector<T> x, y;
  std::vector<int> x_lengths, y_lengths;  // empty: full

  Batch(Shape s, double g, unsigned seed, double scale = 1.0, double offset = 0.0) : shape(s), gamma(g) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    for (int k = 0; k < s.batch * s.n * s.dim; ++k)
      x.push_back(static_cast<T>(offset + scale * normal(generator)));
    for (int k = 0; k < s.batch * s.m * s.dim; ++k)
      y.push_back(static_cast<T>(offset + scale * normal(generator)));
  }
  [[nodiscard]] int n(int b) const { return x_lengths.empty() ? shape.n : x_lengths[b]; }
  [[nodiscard]] int m(int b) const { return y_lengths.empty() ? shape.m : y_lengths[b]; }

  [[nodiscard]] reference::Result expected(int b) const {
    const auto rows = [&](const std::vector<T>& all, int padded, int length) {
      const T* first = all.data() + static_cast<std::size_t>(b) * padded * shape.dim;
      return std::vector<double>(first, first + static_cast<std::size_t>(length) * shape.dim);
    };
    return reference::soft_dtw(rows(x, shape.n, n(b)), rows(y, shape.m, m(b)), n(b), m(b), shape.dim, gamma);
  }
};

enum Wanted { kValue, kGradients, kEverything };

template <typename T>
Outputs<T> run(const Batch<T>& batch, Wanted wanted) {
  const auto [b, n, m, d] = batch.shape;
  const std::size_t xs = batch.x.size(), ys = batch.y.size(), table = static_cast<std::size_t>(b) * n * m;
  DeviceBuffer x(xs * sizeof(T)), y(ys * sizeof(T)), xl(b * sizeof(int)), yl(b * sizeof(int));
  DeviceBuffer value(b * sizeof(T)), gx(xs * sizeof(T)), gy(ys * sizeof(T)), e(table * sizeof(T));
  x.write(batch.x);
  y.write(batch.y);
  SoftDtwProblem problem{.dtype = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64,
                         .batch = b,
                         .n = n,
                         .m = m,
                         .dim = d,
                         .x = {x.data(), {static_cast<std::int64_t>(n) * d, d, 1}},
                         .y = {y.data(), {static_cast<std::int64_t>(m) * d, d, 1}},
                         .cost = {},
                         .x_lengths = nullptr,
                         .y_lengths = nullptr,
                         .gamma = batch.gamma};
  if (!batch.x_lengths.empty()) {
    xl.write(batch.x_lengths);
    problem.x_lengths = static_cast<const int*>(xl.data());
  }
  if (!batch.y_lengths.empty()) {
    yl.write(batch.y_lengths);
    problem.y_lengths = static_cast<const int*>(yl.data());
  }
  SoftDtwOutputs out{value.data(), nullptr, nullptr, nullptr};
  if (wanted != kValue) out.grad_x = gx.data(), out.grad_y = gy.data();
  if (wanted == kEverything) out.alignment = e.data();
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, execution);
  DeviceBuffer workspace(bytes);
  const Status status = soft_dtw(problem, out, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return {value.read<T>(b), gx.read<T>(xs), gy.read<T>(ys), e.read<T>(table)};
}

// Relative L2 error over the true part; the padding must be exactly 0.
template <typename T>
double error(const T* got, const std::vector<double>& expected, int rows, int columns, int full_rows,
             int full_columns) {
  double difference = 0, norm = 0;
  for (int i = 0; i < full_rows; ++i) {
    for (int j = 0; j < full_columns; ++j) {
      const double v = got[static_cast<std::size_t>(i) * full_columns + j];
      if (i >= rows || j >= columns) {
        EXPECT_EQ(v, 0.0) << "padding at " << i << ", " << j;
        continue;
      }
      const double e = expected[static_cast<std::size_t>(i) * columns + j];
      difference += (v - e) * (v - e);
      norm += e * e;
    }
  }
  return std::sqrt(difference / std::max(norm, 1e-60));
}

// Values: relative, plus a floor of so much of gamma per cell of the longest path (docs/numerics.md).
struct Tolerance {
  double value, gradient;
};

template <typename T>
double value_floor(double gamma, int n, int m) {
  return gamma * (n + m) * (sizeof(T) == 4 ? 1.2e-7 : 2.2e-16);
}

template <typename T>
void compare(const Batch<T>& batch, Tolerance tolerance, Wanted wanted = kEverything) {
  const auto [b, n, m, d] = batch.shape;
  const Outputs<T> got = run(batch, wanted);
  for (int k = 0; k < b; ++k) {
    SCOPED_TRACE(::testing::Message()
                 << "pair " << k << " of B=" << b << " N=" << batch.n(k) << "/" << n << " M=" << batch.m(k)
                 << "/" << m << " D=" << d << " gamma=" << batch.gamma);
    const reference::Result expected = batch.expected(k);
    EXPECT_LE(
        std::abs(got.value[k] - expected.value),
        tolerance.value * std::abs(expected.value) + value_floor<T>(batch.gamma, batch.n(k), batch.m(k)));
    if (wanted == kValue) continue;
    const auto offset = [&](int rows, int columns) { return static_cast<std::size_t>(k) * rows * columns; };
    EXPECT_LE(error(got.grad_x.data() + offset(n, d), expected.grad_x, batch.n(k), d, n, d),
              tolerance.gradient);
    EXPECT_LE(error(got.grad_y.data() + offset(m, d), expected.grad_y, batch.m(k), d, m, d),
              tolerance.gradient);
    if (wanted != kEverything) continue;
    EXPECT_LE(error(got.alignment.data() + offset(n, m), expected.alignment, batch.n(k), batch.m(k), n, m),
              tolerance.gradient);
  }
}

template <typename T>
Tolerance tolerance_at(double gamma) {
  if (sizeof(T) == 8) return {1e-13, gamma < 0.05 ? 1e-8 : 1e-9};
  return {5e-7, gamma < 0.05 ? 1e-4 : 1e-5};
}

template <typename T>
void grid(double gamma) {
  unsigned seed = 1;
  const int lengths[] = {1, 2, 31, 32, 33, 97, 255, 257};
  const int dims[] = {1, 2, 3, 8, 64};
  for (int n : lengths) {
    for (int m : lengths) {
      const int d = dims[seed % 5];
      compare(Batch<T>({1 + static_cast<int>(seed % 3), n, m, d}, gamma, seed), tolerance_at<T>(gamma),
              static_cast<Wanted>(seed % 3));
      ++seed;
    }
  }
}

TEST_F(SoftDtwCuda, GridFloat32) {
  for (double gamma : {1e-3, 0.1, 1.0, 10.0, 1e3}) grid<float>(gamma);
}

TEST_F(SoftDtwCuda, GridFloat64) {
  for (double gamma : {1e-3, 1.0, 1e3}) grid<double>(gamma);
}

TEST_F(SoftDtwCuda, LongSeriesGoThroughSeveralRoundsOfStrips) {
  compare(Batch<float>({2, 130, 1500, 3}, 1.0, 7), {5e-7, 1e-5}, kGradients);
  compare(Batch<float>({2, 1500, 130, 3}, 1.0, 8), {5e-7, 1e-5}, kGradients);
  compare(Batch<float>({1, 70, 2100, 2}, 0.1, 9), {5e-7, 1e-5}, kEverything);
  compare(Batch<float>({1, 70, 2100, 2}, 0.1, 9), {5e-7, 1e-5}, kValue);
  compare(Batch<double>({1, 130, 1100, 2}, 0.1, 10), {1e-13, 1e-9}, kEverything);
  compare(Batch<double>({1, 130, 1100, 2}, 0.1, 10), {1e-13, 1e-9}, kValue);
}

TEST_F(SoftDtwCuda, GradientDigitsAtLength512) {
  compare(Batch<float>({2, 512, 512, 64}, 1.0, 11), {1e-6, 1e-5}, kGradients);
  compare(Batch<float>({2, 512, 512, 64}, 0.01, 12), {1e-6, 1e-4}, kGradients);
  compare(Batch<float>({2, 512, 512, 1}, 1.0, 13), {1e-6, 1e-5}, kGradients);
  compare(Batch<float>({2, 512, 512, 1}, 0.01, 14), {1e-6, 1e-4}, kGradients);
}

TEST_F(SoftDtwCuda, RaggedLengthsIgnorePadding) {
  Batch<float> batch({5, 90, 140, 3}, 0.5, 21);
  batch.x_lengths = {1, 90, 33, 32, 64};
  batch.y_lengths = {140, 1, 65, 64, 33};
  for (int b = 0; b < 5; ++b) {
    for (int k = batch.x_lengths[b] * 3; k < 90 * 3; ++k) batch.x[b * 90 * 3 + k] = kNan;
    for (int k = batch.y_lengths[b] * 3; k < 140 * 3; ++k) batch.y[b * 140 * 3 + k] = kNan;
  }
  compare(batch, tolerance_at<float>(0.5));
  compare(batch, tolerance_at<float>(0.5), kGradients);
}

TEST_F(SoftDtwCuda, LengthsOutOfRangeAreClamped) {
  Batch<float> batch({2, 20, 30, 1}, 1.0, 22);
  const Outputs<float> full = run(batch, kGradients);
  batch.x_lengths = {1000, 20};
  batch.y_lengths = {30, 99};
  const Outputs<float> clamped = run(batch, kGradients);
  EXPECT_EQ(full.value, clamped.value);
  EXPECT_EQ(full.grad_x, clamped.grad_x);
}

TEST_F(SoftDtwCuda, LargeMagnitudesAreRerunInFloat64) {
  compare(Batch<float>({3, 50, 70, 2}, 1e-3, 31, 1e3), {1e-6, 1e-4});
  compare(Batch<float>({3, 50, 70, 2}, 1e-3, 32, 1e6), {1e-6, 1e-4});
  Batch<float> mixed({4, 50, 70, 2}, 1.0, 33);
  mixed.x[1 * 100 + 5] = 1e5f;  // one pair with an outlier
  compare(mixed, {1e-6, 1e-5});
}

TEST_F(SoftDtwCuda, NanStaysInItsPair) {
  Batch<float> batch({3, 40, 50, 2}, 1.0, 41);
  const Outputs<float> clean = run(batch, kEverything);
  batch.x[1 * 80 + 7] = kNan;
  const Outputs<float> got = run(batch, kEverything);
  EXPECT_EQ(got.value[0], clean.value[0]);
  EXPECT_EQ(got.value[2], clean.value[2]);
  EXPECT_TRUE(std::isnan(got.value[1]));
  for (int k = 0; k < 80; ++k) {
    EXPECT_EQ(got.grad_x[k], clean.grad_x[k]);
    EXPECT_TRUE(std::isnan(got.grad_x[80 + k]));
    EXPECT_EQ(got.grad_x[160 + k], clean.grad_x[160 + k]);
  }
}

TEST_F(SoftDtwCuda, InfiniteSeriesGiveInfAndNoGradient) {
  Batch<float> batch({2, 40, 50, 2}, 1.0, 42);
  batch.x[20] = static_cast<float>(kInf);
  const Outputs<float> got = run(batch, kGradients);
  EXPECT_EQ(got.value[0], kInf);
  EXPECT_TRUE(std::isfinite(got.value[1]));
  for (int k = 0; k < 80; ++k) EXPECT_EQ(got.grad_x[k], 0.0f);
}

TEST_F(SoftDtwCuda, CornersOfTheAlignmentAreOne) {
  for (double gamma : {1.0, 0.1, 0.01}) {
    const Batch<float> batch({1, 1024, 1024, 64}, gamma, 51);
    const Outputs<float> got = run(batch, kEverything);
    EXPECT_NEAR(got.alignment.front(), 1.0, 1e-5) << gamma;
    EXPECT_EQ(got.alignment.back(), 1.0f) << gamma;
  }
}

TEST_F(SoftDtwCuda, RepeatedRunsAreBitwiseEqual) {
  const Batch<float> batch({9, 300, 270, 5}, 0.3, 61);
  const Outputs<float> first = run(batch, kEverything);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Outputs<float> again = run(batch, kEverything);
    ASSERT_EQ(std::memcmp(first.value.data(), again.value.data(), first.value.size() * 4), 0);
    ASSERT_EQ(std::memcmp(first.grad_x.data(), again.grad_x.data(), first.grad_x.size() * 4), 0);
    ASSERT_EQ(std::memcmp(first.grad_y.data(), again.grad_y.data(), first.grad_y.size() * 4), 0);
    ASSERT_EQ(std::memcmp(first.alignment.data(), again.alignment.data(), first.alignment.size() * 4), 0);
  }
}

TEST_F(SoftDtwCuda, ManyTinyPairsAndManyPairs) {
  compare(Batch<float>({4097, 3, 5, 1}, 1.0, 71), tolerance_at<float>(1.0));
  compare(Batch<float>({1500, 33, 17, 2}, 1.0, 72), tolerance_at<float>(1.0), kGradients);
}

TEST_F(SoftDtwCuda, CostMatrixWithNegativeAndForbiddenCells) {
  const int b = 3, n = 45, m = 70;
  std::mt19937 generator(81);
  std::normal_distribution<double> normal;
  std::vector<float> cost(b * n * m);
  for (float& c : cost) c = static_cast<float>(normal(generator));
  for (int k = 5; k < 40; ++k) cost[n * m + k * m + k] = static_cast<float>(kInf);      // pair 1
  for (int k = 0; k < m; ++k) cost[2 * n * m + 20 * m + k] = static_cast<float>(kInf);  // pair 2: no path
  DeviceBuffer c(cost.size() * 4), value(b * 4), e(cost.size() * 4);
  c.write(cost);
  const SoftDtwProblem problem{
      .batch = b, .n = n, .m = m, .x = {}, .y = {}, .cost = {c.data(), {n * m, m, 1}}, .gamma = 0.7};
  const SoftDtwOutputs out{value.data(), nullptr, nullptr, e.data()};
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, execution);
  DeviceBuffer workspace(bytes);
  ASSERT_TRUE(soft_dtw(problem, out, {workspace.data(), bytes}, execution).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<float> values = value.read<float>(b), alignments = e.read<float>(cost.size());
  for (int k = 0; k < b; ++k) {
    const std::vector<double> own(cost.begin() + k * n * m, cost.begin() + (k + 1) * n * m);
    const reference::Result expected = reference::soft_dtw_from_cost(own, n, m, 0.7);
    if (std::isinf(expected.value)) {
      EXPECT_EQ(values[k], kInf);
    } else {
      EXPECT_NEAR(values[k], expected.value, 1e-5 * std::abs(expected.value));
    }
    EXPECT_LE(error(alignments.data() + k * n * m, expected.alignment, n, m, n, m), 1e-5);
  }
}

}  // namespace
}  // namespace warpalign
