// Times, memory and errors of CTC's CUDA path without Python: losses and gradients inside a CUDA graph.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -Iinclude -Isrc benchmarks/ctc/cuda_times.cu src/ctc/cuda/*.cu
//     src/ctc/cuda/*/*.cu src/core/status.cpp -o cuda_times && ./cuda_times
//
// The error is the largest difference to the float64 path's gradient, which the tests compare with the
// reference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/half.h"
#include "ctc/problem.h"

namespace {

using namespace warpalign;  // NOLINT: one file
namespace ctc = warpalign::detail::ctc;
using detail::BFloat16;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}
void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", status.argument, status.message);
  std::exit(1);
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) { check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1))); }
  template <class T>
  explicit Memory(const std::vector<T>& from) : Memory(from.size() * sizeof(T)) {
    check(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

struct Row {
  int batch, frames, classes, labels;
};

template <class Element>
struct Call {
  CtcProblem p;
  CtcOutputs out;
  CtcGradient g;
  Execution execution;
  std::size_t saved_bytes, loss_bytes, gradient_bytes, value_bytes;
  Memory logits, targets, loss, saved, workspace, grad;

  static CtcProblem problem(const Row& r, DType dtype) {
    CtcProblem p;
    p.dtype = dtype;
    p.batch = r.batch;
    p.frames = r.frames;
    p.classes = r.classes;
    p.labels = r.labels;
    const std::int64_t c = r.classes, t = r.frames;
    p.logits.stride[0] = c * t;
    p.logits.stride[1] = c;
    p.logits.stride[2] = 1;
    return p;
  }
  Call(const Row& r, DType dtype, const std::vector<Element>& x, const std::vector<std::int32_t>& y,
       cudaStream_t stream)
      : p(problem(r, dtype)),
        execution(Execution::cuda(0, stream)),
        saved_bytes(ctc::saved_bytes_cuda(p, execution)),
        loss_bytes(ctc::loss_workspace_bytes_cuda(p, CtcOutputs{nullptr, this}, execution)),
        gradient_bytes(ctc::gradient_workspace_bytes_cuda(p, {}, execution)),
        logits(x),
        targets(y),
        loss(r.batch * sizeof(double)),
        saved(saved_bytes),
        value_bytes(ctc::loss_workspace_bytes_cuda(p, CtcOutputs{this, nullptr}, execution)),
        workspace(std::max({loss_bytes, gradient_bytes, value_bytes})),
        grad(x.size() * sizeof(Element)) {
    p.logits.data = logits.get();
    p.targets = static_cast<const std::int32_t*>(targets.get());
    out = {loss.get(), saved.get()};
    g.saved = saved.get();
    g.logits = grad.get();
    std::copy(p.logits.stride, p.logits.stride + 3, g.logits_stride);
  }
  void forward() { check(ctc::loss_cuda(p, out, {workspace.get(), loss_bytes}, execution)); }
  void value() { check(ctc::loss_cuda(p, {loss.get(), nullptr}, {workspace.get(), value_bytes}, execution)); }
  void backward() { check(ctc::gradient_cuda(p, g, {workspace.get(), gradient_bytes}, execution)); }
  std::vector<Element> gradient() const {
    std::vector<Element> to(static_cast<std::size_t>(p.batch) * p.frames * p.classes);
    check(cudaMemcpy(to.data(), grad.get(), to.size() * sizeof(Element), cudaMemcpyDeviceToHost));
    return to;
  }
};

// The median time of a graph of `function`, in microseconds.
template <class Function>
double time_of(cudaStream_t stream, const Function& function) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  function();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int k = 0; k < 30; ++k) {
    check(cudaEventRecord(begin, stream));
    constexpr int kReplays = 5;
    for (int r = 0; r < kReplays; ++r) check(cudaGraphLaunch(ready, stream));
    check(cudaEventRecord(end, stream));
    check(cudaStreamSynchronize(stream));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (k >= 5) times.push_back(ms * 1000 / kReplays);
  }
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void measure(const Row& r, cudaStream_t stream) {
  const std::size_t size = static_cast<std::size_t>(r.batch) * r.frames * r.classes;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(size);
  for (float& v : x) v = normal(generator);
  std::vector<std::int32_t> y(static_cast<std::size_t>(r.batch) * r.labels);
  for (auto& k : y) k = 1 + static_cast<int>(generator() % static_cast<unsigned>(r.classes - 1));
  std::vector<float> gradient;
  {
    Call<float> call(r, DType::kFloat32, x, y, stream);
    const double value = time_of(stream, [&] { call.value(); });
    const double forward = time_of(stream, [&] { call.forward(); });
    const double backward = time_of(stream, [&] { call.backward(); });
    const double both = time_of(stream, [&] { call.forward(), call.backward(); });
    gradient = call.gradient();
    call.forward(), call.backward();
    check(cudaStreamSynchronize(stream));
    const bool same = gradient == call.gradient();
    std::printf(
        "%4d x %5d x %5d x %5d float32 step %8.1f us = forward %8.1f + backward %8.1f (value %8.1f); "
        "logits %.2f MiB, saved %.2f, workspace %.2f and %.2f%s\n",
        r.batch, r.frames, r.classes, r.labels, both, forward, backward, value, size * 4.0 / (1 << 20),
        call.saved_bytes / 1048576.0, call.loss_bytes / 1048576.0, call.gradient_bytes / 1048576.0,
        same ? "" : "; NOT DETERMINISTIC");
  }
  {
    std::vector<BFloat16> half(size);
    for (std::size_t k = 0; k < size; ++k) half[k] = BFloat16::rounded(x[k]);
    Call<BFloat16> call(r, DType::kBFloat16, half, y, stream);
    std::printf("     bfloat16 step %8.1f us\n", time_of(stream, [&] { call.forward(), call.backward(); }));
  }
  const std::vector<double> wide(x.begin(), x.end());
  Call<double> call(r, DType::kFloat64, wide, y, stream);
  call.forward(), call.backward();
  check(cudaStreamSynchronize(stream));
  const std::vector<double> expected = call.gradient();
  double worst = 0;
  for (std::size_t k = 0; k < size; ++k) worst = std::max(worst, std::fabs(gradient[k] - expected[k]));
  std::printf("     gradient error %.2e\n", worst);
}

}  // namespace

int main() {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  const Row rows[] = {{32, 400, 1024, 100}, {8, 1500, 32, 300}, {64, 200, 5000, 40},
                      {16, 1000, 128, 200}, {256, 128, 64, 30}, {2, 12000, 32, 3000}};
  for (const Row& r : rows) measure(r, stream);
  return 0;
}
