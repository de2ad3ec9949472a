// sinkhorn() on a GPU: what an iteration and everything around it take, after a check against the float64 CPU
// path.
//
// A solve is one kernel. Two solves in CUDA graphs, of few and of many iterations, give the time of an
// iteration by their difference; what is left is the start (largest logits, first sums) and the results. Each
// is a median of replays, between events. Costs are squares of N(0,1) values.
//
// Last, whole calls with annealing and a gradient by points. Rows of points ask for `error`, too: so all of
// them take the one kernel.
//
//   cuda_passes [--check] [--quick] [--points]    the check alone; three shapes; rows of points alone
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "harness/cuda_timing.h"
#include "warpalign/sinkhorn.h"

namespace {

using namespace warpalign;             // NOLINT: a program
using namespace warpalign::benchmark;  // NOLINT: what all of them share

struct Shape {
  const char* kind;  // "balanced", "unbalanced", "partial"
  DType dtype;
  int batch, n, m;
  int dim = 0;  // 0: costs are given
  SinkhornUpdates updates = SinkhornUpdates::kAlternating;
  Precision precision = Precision::kHighest;

  [[nodiscard]] std::size_t elements() const { return static_cast<std::size_t>(batch) * n * m; }
  [[nodiscard]] std::size_t points(int count) const { return static_cast<std::size_t>(batch) * count * dim; }
};

template <class Real>
std::vector<Real> values(std::size_t count, unsigned seed, bool squared) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  // Repeated, a prime number of values at a time.
  std::vector<Real> v(count);
  const std::size_t own = std::min<std::size_t>(count, 4'194'301);
  for (std::size_t k = 0; k < own; ++k) {
    const float x = normal(random);
    v[k] = static_cast<Real>(squared ? x * x : x);
  }
  for (std::size_t k = own; k < count; ++k) v[k] = v[k - own];
  return v;
}

// Pointers are those of the execution's device.
SinkhornProblem problem_of(const Shape& shape, const void* first, const void* second, int iterations) {
  SinkhornProblem p;
  p.dtype = shape.dtype;
  p.batch = shape.batch;
  p.n = shape.n;
  p.m = shape.m;
  p.dim = shape.dim;
  if (shape.dim == 0) {
    p.cost = StridedTensor::contiguous(first, {shape.batch, shape.n, shape.m});
  } else {
    p.x = StridedTensor::contiguous(first, {shape.batch, shape.n, shape.dim});
    p.y = StridedTensor::contiguous(second, {shape.batch, shape.m, shape.dim});
  }
  p.epsilon = shape.dim == 0 ? 0.1 : 0.1 * shape.dim;
  if (std::strcmp(shape.kind, "unbalanced") == 0) p.a.strength = p.b.strength = 1;
  if (std::strcmp(shape.kind, "partial") == 0) p.mass = 0.5;
  p.updates = shape.updates;
  p.max_iterations = iterations;
  p.tolerance = 0;
  return p;
}

template <class Real>
bool check_as(const Shape& shape, double limit) {
  constexpr int kIterations = 7;
  const bool dense = shape.dim == 0;
  const std::vector<Real> first = values<Real>(dense ? shape.elements() : shape.points(shape.n), 1, dense);
  const std::vector<Real> second = values<Real>(dense ? 0 : shape.points(shape.m), 2, false);
  const std::vector<double> wide(first.begin(), first.end()), wide_second(second.begin(), second.end());
  std::vector<double> expected(shape.batch);
  Shape of_cpu = shape;
  of_cpu.dtype = DType::kFloat64;
  SinkhornOutputs out;
  out.value = expected.data();
  const Execution host = Execution::host();
  const SinkhornProblem on_host = problem_of(of_cpu, wide.data(), wide_second.data(), kIterations);
  const std::size_t host_bytes = sinkhorn_workspace_bytes(on_host, out, host);
  std::vector<double> memory(host_bytes / sizeof(double) + 64);
  std::size_t room = memory.size() * sizeof(double);
  void* aligned = memory.data();
  if (!std::align(workspace_alignment(Device::kHost), host_bytes, aligned, room)) return false;
  expect(sinkhorn(on_host, out, {aligned, host_bytes}, host), "sinkhorn on the CPU");
  const Memory first_data(first), second_data(second), value(shape.batch * sizeof(Real)),
      error_data(shape.batch * sizeof(Real));
  const SinkhornProblem p = problem_of(shape, first_data.as(), second_data.as(), kIterations);
  out.value = value.as();
  out.error = error_data.as();
  const Execution cuda = Execution::cuda(0, nullptr, shape.precision);
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, cuda);
  const Memory workspace(bytes);
  expect(sinkhorn(p, out, {workspace.as(), bytes}, cuda), "sinkhorn");
  std::vector<Real> got(shape.batch);
  expect(cudaMemcpy(got.data(), value.as(), got.size() * sizeof(Real), cudaMemcpyDeviceToHost), "read");
  double worst = 0;
  for (int b = 0; b < shape.batch; ++b) {
    const double error = std::abs(static_cast<double>(got[b]) - expected[b]) / (1e-3 + std::abs(expected[b]));
    worst = error > worst || std::isnan(error) ? error : worst;
  }
  const bool right = worst <= limit;
  std::printf("%-10s %s %d x %d x %d, D %d: value off by %.1e, %s\n", shape.kind, name_of(shape.dtype),
              shape.batch, shape.n, shape.m, shape.dim, worst, right ? "ok" : "WRONG");
  return right;
}

bool check(bool points_alone) {
  bool right = true;
  for (const char* const kind : {"balanced", "unbalanced", "partial"}) {
    for (const auto& [batch, n, m, dim] : {std::array{5, 60, 70, 0},
                                           {2, 700, 900, 0},
                                           {1, 1500, 5000, 0},
                                           {1, 40, 13000, 0},
                                           {2, 300, 500, 17}}) {
      if (points_alone && dim == 0) continue;
      const Shape shape{kind, DType::kFloat32, batch, n, m, dim};
      right &= check_as<float>(shape, 1e-5);
      Shape wide = shape;
      wide.dtype = DType::kFloat64;
      right &= check_as<double>(wide, 1e-11);
      if (dim == 0) continue;
      Shape on_units = shape;
      on_units.precision = Precision::kHigh;
      right &= check_as<float>(on_units, 1e-5);
      on_units.precision = Precision::kMedium;
      right &= check_as<float>(on_units, 1e-3);
    }
  }
  return right;
}

const char* precision_name(Precision precision) {
  return precision == Precision::kMedium ? "medium" : precision == Precision::kHigh ? "high" : "highest";
}

// A whole call: symmetric steps from an epsilon of D, halved down to 0.09 D (a blur of 0.3 for a feature),
// and the gradient by x.
void measure_schedule(int points, int dim, Precision precision, cudaStream_t stream) {
  const Shape shape{"balanced", DType::kFloat32, 1, points, points, dim, SinkhornUpdates::kSymmetric,
                    precision};
  const Memory first(values<float>(shape.points(points), 1, false)),
      second(values<float>(shape.points(points), 2, false));
  const Memory value(sizeof(float)), grad(shape.points(points) * sizeof(float));
  SinkhornProblem p = problem_of(shape, first.as(), second.as(), 1);
  p.epsilon = 0.09 * dim;
  p.epsilon_start = dim;
  SinkhornOutputs out;
  out.value = value.as();
  out.grad_x = grad.as();
  const Execution cuda = Execution::cuda(0, stream, precision);
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, cuda);
  const Memory workspace(bytes);
  const cudaGraph_t graph = capture(stream, [&] {
    expect(sinkhorn(p, out, {workspace.as(), bytes}, cuda), "sinkhorn");
  });
  const double ms = median_ms(graph, stream, points > 20000 ? 3 : 9);
  cudaGraphDestroy(graph);
  std::printf("schedule and gradient, %5d^2, D %3d, %-7s: %9.4f ms | workspace %7.2f MiB\n", points, dim,
              precision_name(precision), ms, static_cast<double>(bytes) / (1 << 20));
  std::fflush(stdout);
}

template <class Real>
void measure_as(const Shape& shape, double rate, cudaStream_t stream) {
  const bool dense = shape.dim == 0;
  const Memory first(values<Real>(dense ? shape.elements() : shape.points(shape.n), 1, dense));
  const Memory second(values<Real>(dense ? 0 : shape.points(shape.m), 2, false));
  const Memory value(shape.batch * sizeof(Real)), f(sizeof(Real) * shape.batch * shape.n),
      error(shape.batch * sizeof(Real));
  SinkhornOutputs out;
  out.value = value.as();
  out.f = f.as();
  out.error = shape.dim > 0 ? error.as() : nullptr;
  const Execution cuda = Execution::cuda(0, stream, shape.precision);
  std::size_t bytes = 0;
  // A row takes a second or so: some 1e-10 s for an element and a product of features.
  const int features = shape.precision == Precision::kHighest ? shape.dim : 0;
  const double work = static_cast<double>(shape.elements()) * (1 + features / 16);
  const bool large = work > 1e9;
  const int few_iterations = large ? 2 : 5, many_iterations = work > 1e10 ? 3 : large ? 8 : 25;
  const auto time_of = [&](int iterations) {
    const SinkhornProblem p = problem_of(shape, first.as(), second.as(), iterations);
    bytes = sinkhorn_workspace_bytes(p, out, cuda);
    const Memory workspace(bytes);
    const cudaGraph_t graph = capture(stream, [&] {
      expect(sinkhorn(p, out, {workspace.as(), bytes}, cuda), "sinkhorn");
    });
    const double ms = median_ms(graph, stream, large ? 3 : 9);
    cudaGraphDestroy(graph);
    return ms;
  };
  const double few = time_of(few_iterations), many = time_of(many_iterations);
  const double one = (many - few) / (many_iterations - few_iterations);
  const double read = dense ? static_cast<double>(shape.elements() * sizeof(Real)) / rate * 1e3 : 0;
  std::printf(
      "%-10s %-3s %-4s %-7s %4d x %5d x %5d D %3d | iteration %9.4f ms, %6.3f ns x 1000 an element | around "
      "%9.3f",
      shape.kind, shape.updates == SinkhornUpdates::kSymmetric ? "sym" : "alt", name_of(shape.dtype),
      precision_name(shape.precision), shape.batch, shape.n, shape.m, shape.dim, one,
      one * 1e9 / static_cast<double>(shape.elements()), few - few_iterations * one);
  if (dense) std::printf(" | one read %8.4f, %3.0f %%", read, 100 * read / one);
  std::printf(" | workspace %7.2f MiB\n", static_cast<double>(bytes) / (1 << 20));
  std::fflush(stdout);
}

void measure(const Shape& shape, double rate, cudaStream_t stream) {
  if (shape.dtype == DType::kFloat64) return measure_as<double>(shape, rate, stream);
  measure_as<float>(shape, rate, stream);
}

}  // namespace

int main(int argc, char** argv) {
  const auto has = [&](const char* flag) {
    return std::any_of(argv + 1, argv + argc, [&](const char* a) { return std::strcmp(a, flag) == 0; });
  };
  if (!check(has("--points"))) return 1;
  if (has("--check")) return 0;
  cudaStream_t stream;
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const double rate = copy_rate(stream);
  std::printf(
      "\ncopy %.3g B/s. \"around\": start and results. \"one read\": of the costs, at the copy's rate\n",
      rate);
  constexpr DType f32 = DType::kFloat32, f64 = DType::kFloat64;
  std::vector<Shape> shapes = {
      {"balanced", f32, 1, 10001, 12001}, {"balanced", f32, 1, 5001, 6001},
      {"balanced", f32, 256, 64, 64},     {"balanced", f64, 1, 10001, 12001},
      {"balanced", f64, 1, 5001, 6001},   {"unbalanced", f32, 1, 10001, 12001},
      {"partial", f32, 1, 10001, 12001},  {"balanced", f32, 1, 10001, 12001, 0, SinkhornUpdates::kSymmetric},
      {"balanced", f32, 1, 20000, 25000}, {"balanced", f32, 64, 500, 500},
      {"balanced", f32, 1, 2000, 1000},
  };
  if (has("--points")) shapes.clear();
  if (has("--quick")) shapes.resize(3);
  if (!has("--quick")) {
    constexpr auto kAlternating = SinkhornUpdates::kAlternating, kSymmetric = SinkhornUpdates::kSymmetric;
    shapes.insert(shapes.end(), {
                                    {"balanced", f32, 1, 10000, 10000, 3},
                                    {"balanced", f64, 1, 10000, 10000, 3},
                                    {"balanced", f32, 1, 10000, 10000, 64},
                                });
    for (const Precision precision : {Precision::kMedium, Precision::kHigh}) {
      for (const int dim : {17, 64, 256}) {
        shapes.push_back({"balanced", f32, 1, 10000, 10000, dim, kAlternating, precision});
      }
      shapes.push_back({"balanced", f32, 1, 10000, 10000, 64, kSymmetric, precision});
      shapes.push_back({"balanced", f32, 1, 50000, 50000, 64, kAlternating, precision});
    }
  }
  for (const Shape& shape : shapes) measure(shape, rate, stream);
  for (const int points : {5000, 10000, 50000}) {
    if (has("--quick")) break;
    measure_schedule(points, 64, Precision::kMedium, stream);
    measure_schedule(points, 64, Precision::kHigh, stream);
  }
  return 0;
}
