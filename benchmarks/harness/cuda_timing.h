// What the C++ programs that time CUDA passes share: memory, graphs and medians. An error ends the program.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

// The median time in milliseconds of `repeats` replays of a graph, measured between events.
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

// A part of a captured graph that can be replayed alone.
struct GraphPart {
  cudaGraph_t graph;
  int kernels;  // how many launches the part holds
};

// The launches of `graph` whose kernel's mangled name holds `name`, one after another. With `with_memsets`,
// all of the graph's memsets come before them.
inline GraphPart part_of(cudaGraph_t graph, const char* name, bool with_memsets) {
  std::size_t count = 0;
  expect(cudaGraphGetNodes(graph, nullptr, &count), "nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  expect(cudaGraphGetNodes(graph, nodes.data(), &count), "nodes");
  GraphPart part = {nullptr, 0};
  expect(cudaGraphCreate(&part.graph, 0), "graph");
  std::vector<cudaGraphNode_t> before;
  for (const bool kernels : {false, true}) {
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type;
      expect(cudaGraphNodeGetType(node, &type), "type");
      cudaGraphNode_t copy;
      if (!kernels && with_memsets && type == cudaGraphNodeTypeMemset) {
        cudaMemsetParams params;
        expect(cudaGraphMemsetNodeGetParams(node, &params), "memset");
        expect(cudaGraphAddMemsetNode(&copy, part.graph, before.data(), before.size(), &params), "memset");
        before.assign(1, copy);
      }
      if (kernels && type == cudaGraphNodeTypeKernel) {
        cudaKernelNodeParams params;
        expect(cudaGraphKernelNodeGetParams(node, &params), "kernel");
        const char* kernel = nullptr;
        expect(cudaFuncGetName(&kernel, params.func), "name");
        if (!std::strstr(kernel, name)) continue;
        expect(cudaGraphAddKernelNode(&copy, part.graph, before.data(), before.size(), &params), "kernel");
        before.assign(1, copy);
        ++part.kernels;
      }
    }
  }
  return part;
}

// Bytes that a copy on the device reads and writes each second. The copy is measured outside a graph:
// replayed from a graph it measured 2.7e12 B/s on an H200 on which device-to-device copies reach 4.3e12.
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
