// What the C++ programs that time CUDA passes share: memory, graphs and medians. An error ends the program.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "warpalign/dtype.h"
#include "warpalign/status.h"

namespace warpalign::benchmark {

inline void expect(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
inline void expect(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, status.argument, status.message);
  std::exit(1);
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    expect(cudaMalloc(&data_, std::max<std::size_t>(bytes, 256)), "cudaMalloc");
  }
  template <class T>
  explicit Memory(const std::vector<T>& from) : Memory(from.size() * sizeof(T)) {
    expect(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <class T = void>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

inline const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "f64";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    default:
      return "f32";
  }
}

// Of replays of a graph, between events.
inline double median_ms(cudaGraph_t graph, cudaStream_t stream, int repeats) {
  cudaGraphExec_t run;
  expect(cudaGraphInstantiate(&run, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  expect(cudaEventCreate(&begin), "event");
  expect(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int k = -3; k < repeats; ++k) {
    expect(cudaEventRecord(begin, stream), "record");
    expect(cudaGraphLaunch(run, stream), "launch");
    expect(cudaEventRecord(end, stream), "record");
    expect(cudaEventSynchronize(end), "replay");
    float ms = 0;
    expect(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (k >= 0) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(run);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

template <class Work>
cudaGraph_t capture(cudaStream_t stream, const Work& work) {
  cudaGraph_t graph;
  expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  work();
  expect(cudaStreamEndCapture(stream, &graph), "capture");
  return graph;
}

// Bytes read and written each second. Outside a graph: replayed from one, this copy measured 2.7e12 B/s on an
// H200 on which device-to-device copies reach 4.3e12.
inline double copy_rate(cudaStream_t stream) {
  const std::size_t bytes = std::size_t{4} << 30;
  const Memory from(bytes), to(bytes);
  cudaEvent_t begin, end;
  expect(cudaEventCreate(&begin), "event");
  expect(cudaEventCreate(&end), "event");
  float least = 0;
  for (int k = 0; k < 9; ++k) {
    expect(cudaEventRecord(begin, stream), "record");
    expect(cudaMemcpyAsync(to.as(), from.as(), bytes, cudaMemcpyDeviceToDevice, stream), "copy");
    expect(cudaEventRecord(end, stream), "record");
    expect(cudaEventSynchronize(end), "copy");
    float ms = 0;
    expect(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (k == 0 || ms < least) least = ms;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 2 * static_cast<double>(bytes) / (least * 1e-3);
}

}  // namespace warpalign::benchmark
