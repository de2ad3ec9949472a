// The transducer's passes on a GPU, each timed alone, after a check against the float64 CPU path.
//
// A training step is captured into a CUDA graph. The graph's kernels are then replayed one by one, which
// gives each pass's time without a profiler. Medians of replays, between events. Logits are N(0,1) and much
// larger than the L2 cache.
//
//   cuda_passes [--check] [--quick]    --check: the check alone; --quick: three shapes
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/half.h"
#include "harness/cuda_timing.h"
#include "warpalign/transducer.h"

namespace {

using namespace warpalign;             // NOLINT: a program
using namespace warpalign::benchmark;  // NOLINT: what all of them share
using warpalign::detail::BFloat16;
using warpalign::detail::Float16;

struct Shape {
  const char* family;
  DType dtype;
  int batch, frames, states, labels;
  std::vector<int> durations = {};  // of big blanks, or TDT's
  bool tdt = false;

  [[nodiscard]] std::int64_t rows() const { return std::int64_t{batch} * frames * states; }
  [[nodiscard]] int columns() const { return labels + (tdt ? static_cast<int>(durations.size()) : 0); }
  [[nodiscard]] std::size_t bytes() const { return rows() * columns() * size_of(dtype); }
};

std::vector<int> labels_of(const Shape& shape, std::mt19937& random) {
  const int blanks = 1 + (shape.tdt ? 0 : static_cast<int>(shape.durations.size()));
  std::vector<int> labels;
  for (int n = 0; n < shape.batch * (shape.states - 1); ++n) {
    labels.push_back(static_cast<int>(random() % (shape.labels - blanks)));
  }
  return labels;
}

// Pointers are those of the execution's device.
TransducerProblem problem_of(const Shape& shape, DType dtype, const void* rows, const int* targets) {
  TransducerProblem p;
  p.dtype = dtype;
  p.labels = shape.labels;
  const std::int64_t width = shape.columns();
  const auto strided = [&](std::int64_t column) {
    const auto* const data =
        static_cast<const char*>(rows) + column * static_cast<std::int64_t>(size_of(dtype));
    return StridedTensorOf<4>{data, {width * shape.states * shape.frames, width * shape.states, width, 1}};
  };
  p.logits = strided(0);
  if (shape.tdt) p.duration_logits = strided(shape.labels);
  TransducerLattice& l = p.lattice;
  l.batch = shape.batch;
  l.frames = shape.frames;
  l.states = shape.states;
  l.targets = targets;
  l.target_stride = shape.states - 1;
  l.tdt = shape.tdt;
  l.blank = shape.labels - 1;
  l.durations = static_cast<int>(shape.durations.size());
  for (int i = 0; i < l.durations; ++i) {
    l.duration[i] = shape.durations[i];
    l.big_blank_column[i] = shape.labels - 2 - i;
  }
  if (!shape.durations.empty()) l.sigma = 0.05;
  return p;
}

TransducerGradient gradient_of(const TransducerProblem& p, const void* saved, const void* grad_loss,
                               void* to) {
  TransducerGradient g;
  g.saved = saved;
  g.grad_loss = grad_loss;
  g.grad_loss_stride = 0;
  g.logits = to;
  g.duration_logits = static_cast<char*>(to) + p.labels * static_cast<std::int64_t>(size_of(p.dtype));
  for (int axis = 0; axis < 3; ++axis) {
    g.logits_stride[axis] = p.logits.stride[axis];
    g.duration_logits_stride[axis] = p.logits.stride[axis];
  }
  return g;
}

// ---- Check

template <class T>
double relative_error(const std::vector<T>& got, const std::vector<double>& wanted) {
  double error = 0, norm = 0;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    double value = 0;
    if constexpr (std::is_same_v<T, double>) {
      value = got[n];
    } else {
      value = static_cast<double>(static_cast<float>(got[n]));
    }
    const double difference = value - wanted[n];
    error += difference * difference;
    norm += wanted[n] * wanted[n];
  }
  return std::sqrt(error / norm);
}

template <class T>
bool check_as(const Shape& shape, double limit) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const std::size_t count = static_cast<std::size_t>(shape.rows()) * shape.columns();
  std::vector<T> logits(count);
  std::vector<double> wide(count);
  for (std::size_t n = 0; n < count; ++n) {
    logits[n] = warpalign::detail::rounded_to<T>(normal(random));
    wide[n] = static_cast<double>(static_cast<float>(logits[n]));  // exact: T holds a float
  }
  const std::vector<int> labels = labels_of(shape, random);

  std::vector<double> wanted(count), wanted_loss(shape.batch);
  {
    const TransducerProblem p = problem_of(shape, DType::kFloat64, wide.data(), labels.data());
    const Execution host = Execution::host();
    const auto aligned = [](std::vector<double>& memory) {
      return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256);
    };
    std::vector<double> saved(transducer_saved_bytes(p, host) / 8 + 64);
    const TransducerOutputs out{wanted_loss.data(), aligned(saved)};
    std::size_t bytes = transducer_workspace_bytes(p, out, host);
    std::vector<double> workspace(bytes / 8 + 64);
    expect(transducer(p, out, {aligned(workspace), bytes}, host), "host");
    const double one = 1;
    const TransducerGradient g = gradient_of(p, out.saved, &one, wanted.data());
    bytes = transducer_gradient_workspace_bytes(p, g, host);
    workspace.resize(bytes / 8 + 64);
    expect(transducer_gradient(p, g, {aligned(workspace), bytes}, host), "host gradient");
  }

  const Execution cuda = Execution::cuda(0, nullptr);
  const Memory device_logits(logits), device_labels(labels), grad(count * sizeof(T)), loss(shape.batch * 8);
  expect(cudaMemset(grad.as(), 0xff, count * sizeof(T)), "poison");
  const TransducerProblem p = problem_of(shape, shape.dtype, device_logits.as(), device_labels.as<int>());
  const Memory saved(transducer_saved_bytes(p, cuda));
  const TransducerOutputs out{loss.as(), saved.as()};
  const std::size_t bytes = transducer_workspace_bytes(p, out, cuda);
  const Memory workspace(bytes);
  expect(transducer(p, out, {workspace.as(), bytes}, cuda), "cuda");
  const Memory one =
      shape.dtype == DType::kFloat64 ? Memory(std::vector<double>{1}) : Memory(std::vector<float>{1});
  expect(transducer_gradient(p, gradient_of(p, saved.as(), one.as(), grad.as()), {}, cuda), "cuda gradient");
  expect(cudaDeviceSynchronize(), "check");
  std::vector<T> got(count);
  expect(cudaMemcpy(got.data(), grad.as(), count * sizeof(T), cudaMemcpyDeviceToHost), "copy");
  double loss_error = 0;
  for (int b = 0; b < shape.batch; ++b) {
    float narrow = 0;
    double value = 0;
    const void* const from = loss.as<char>() + b * (shape.dtype == DType::kFloat64 ? 8 : 4);
    if (shape.dtype == DType::kFloat64) {
      expect(cudaMemcpy(&value, from, 8, cudaMemcpyDeviceToHost), "copy");
    } else {
      expect(cudaMemcpy(&narrow, from, 4, cudaMemcpyDeviceToHost), "copy");
      value = narrow;
    }
    loss_error = std::max(loss_error, std::abs(value - wanted_loss[b]) / wanted_loss[b]);
  }
  const double error = relative_error(got, wanted);
  const bool good = error <= limit && loss_error <= 1e-6;
  std::printf("%-6s %-12s %4d x %4d x %4d x %5d   loss %.1e   gradient %.1e   %s\n", name_of(shape.dtype),
              shape.family, shape.batch, shape.frames, shape.states, shape.labels, loss_error, error,
              good ? "ok" : "WRONG");
  return good;
}

bool check() {
  bool good = true;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Shape& shape : {Shape{"plain", dtype, 3, 50, 17, 29}, Shape{"plain", dtype, 2, 97, 33, 1025},
                               Shape{"plain", dtype, 2, 300, 257, 64}, Shape{"plain", dtype, 2, 33, 97, 512},
                               Shape{"multi-blank", dtype, 2, 97, 140, 40, {2, 4, 8}},
                               Shape{"tdt", dtype, 2, 97, 140, 40, {0, 1, 2, 3, 4}, true}}) {
      switch (dtype) {
        case DType::kFloat64:
          good &= check_as<double>(shape, 1e-10);
          break;
        case DType::kFloat16:
          good &= check_as<Float16>(shape, 6e-4);
          break;
        case DType::kBFloat16:
          good &= check_as<BFloat16>(shape, 5e-3);
          break;
        default:
          good &= check_as<float>(shape, 1e-5);
      }
    }
  }
  return good;
}

// ---- Times

// N(0,1) values, repeated every 64 MiB (a few rows more or less, so that no row repeats in step).
void fill(void* data, std::size_t bytes, DType dtype) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const std::size_t size = size_of(dtype);
  const std::size_t pattern = std::min<std::size_t>(bytes, 16'777'259 * size);
  std::vector<unsigned char> host(pattern);
  for (std::size_t n = 0; n + size <= pattern; n += size) {
    const float v = normal(random);
    const auto put = [&](auto element) { std::memcpy(&host[n], &element, sizeof(element)); };
    if (dtype == DType::kFloat32) put(v);
    if (dtype == DType::kFloat64) put(static_cast<double>(v));
    if (dtype == DType::kFloat16) put(Float16::rounded(v));
    if (dtype == DType::kBFloat16) put(BFloat16::rounded(v));
  }
  expect(cudaMemcpy(data, host.data(), pattern, cudaMemcpyHostToDevice), "fill");
  for (std::size_t done = pattern; done < bytes; done += std::min(done, bytes - done)) {
    expect(cudaMemcpy(static_cast<char*>(data) + done, data, std::min(done, bytes - done),
                      cudaMemcpyDeviceToDevice),
           "fill");
  }
}

void measure(const Shape& shape, double rate, cudaStream_t stream) {
  std::mt19937 random(5);
  const Execution cuda = Execution::cuda(0, stream);
  const Memory logits(shape.bytes()), grad(shape.bytes()), loss(shape.batch * std::size_t{8});
  const Memory labels(labels_of(shape, random));
  fill(logits.as(), shape.bytes(), shape.dtype);
  const TransducerProblem p = problem_of(shape, shape.dtype, logits.as(), labels.as<int>());
  const std::size_t saved_bytes = transducer_saved_bytes(p, cuda);
  const Memory saved(saved_bytes);
  const TransducerOutputs out{loss.as(), saved.as()};
  const std::size_t bytes = transducer_workspace_bytes(p, out, cuda);
  const Memory workspace(bytes);
  const Memory one =
      shape.dtype == DType::kFloat64 ? Memory(std::vector<double>{1}) : Memory(std::vector<float>{1});
  const TransducerGradient g = gradient_of(p, saved.as(), one.as(), grad.as());
  const cudaGraph_t step = capture(stream, [&] {
    expect(transducer(p, out, {workspace.as(), bytes}, cuda), "transducer");
    expect(transducer_gradient(p, g, {}, cuda), "gradient");
  });
  const int repeats = shape.bytes() > (std::size_t{4} << 30) ? 9 : 21;
  const double all = median_ms(step, stream, repeats);
  const double gradient = median_ms(part_of(step, "row_gradient_kernel", false).graph, stream, repeats);
  const double rows = median_ms(part_of(step, "11rows_kernel", false).graph, stream, repeats);
  const double lattice = median_ms(part_of(step, "lattice_kernel", true).graph, stream, repeats);
  // Rows that were not dead: an entry that is not 0.
  const std::size_t size = size_of(shape.dtype);
  std::vector<unsigned char> column(shape.rows() * size);
  expect(cudaMemcpy2D(column.data(), size, grad.as(), size * shape.columns(), size, shape.rows(),
                      cudaMemcpyDeviceToHost),
         "column");
  std::int64_t live = 0;
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    live +=
        std::any_of(&column[row * size], &column[row * size] + size, [](unsigned char c) { return c != 0; });
  }
  const double alive = static_cast<double>(live) / static_cast<double>(shape.rows());
  const double once = static_cast<double>(shape.bytes()) / rate * 1e3;
  std::printf(
      "%-12s %-4s %3d x %4d x %4d x %5d | %7.3f = %7.3f + %7.3f + %7.3f | rows %3.0f %%, gradient %3.0f %% "
      "of copy "
      "| live %.2f | bound %7.3f, %3.0f %% | kept %6.2f + %5.2f MiB\n",
      shape.family, name_of(shape.dtype), shape.batch, shape.frames, shape.states, shape.labels, all, rows,
      lattice, gradient, 100 * once / rows, 100 * once * (1 + alive) / gradient, alive, once * (2 + alive),
      100 * once * (2 + alive) / all, static_cast<double>(saved_bytes) / (1 << 20),
      static_cast<double>(bytes) / (1 << 20));
  std::fflush(stdout);
  cudaGraphDestroy(step);
}

}  // namespace

int main(int argc, char** argv) {
  const auto has = [&](const char* flag) {
    return std::any_of(argv + 1, argv + argc, [&](const char* a) { return std::strcmp(a, flag) == 0; });
  };
  if (!check()) return 1;
  if (has("--check")) return 0;
  cudaStream_t stream;
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const double rate = copy_rate(stream);
  std::printf("\ncopy %.3g B/s. ms of a step in a graph = rows + lattice + gradient, each replayed alone\n",
              rate);
  constexpr DType f32 = DType::kFloat32, f16 = DType::kFloat16, bf16 = DType::kBFloat16,
                  f64 = DType::kFloat64;
  std::vector<Shape> shapes = {
      {"plain", f32, 16, 400, 101, 1024},
      {"plain", f16, 16, 400, 101, 1024},
      {"plain", f32, 16, 400, 101, 29},
      {"plain", f32, 16, 200, 51, 512},
      {"plain", f32, 8, 1500, 301, 512},
      {"plain", f16, 8, 1500, 301, 1024},
      {"plain", f32, 64, 150, 41, 5000},
      {"plain", f32, 16, 400, 101, 128},
      {"plain", f32, 16, 400, 101, 1025},
      {"plain", f16, 16, 400, 101, 1025},
      {"plain", bf16, 8, 200, 51, 16385},
      {"plain", f32, 16, 400, 101, 4096},
      {"plain", f32, 2, 3000, 1501, 64},
      {"plain", f32, 1, 3000, 601, 2},
      {"plain", f64, 8, 200, 101, 512},
      {"multi-blank", f32, 16, 400, 101, 1024, {2, 4, 8}},
      {"tdt", f32, 16, 400, 101, 1024, {0, 1, 2, 3, 4}, true},
  };
  if (has("--quick")) shapes.resize(3);
  for (const Shape& shape : shapes) measure(shape, rate, stream);
  return 0;
}
