// Execution: where a call runs. The caller owns every resource that is named here.
#pragma once

#include <cstddef>

namespace warpalign {

// Runs task(state, 0) ... task(state, tasks - 1), possibly at once, and returns when all have ended. A front
// end lends its own thread pool this way; warpalign/thread_pool.h has one for programs without.
struct ParallelFor {
  using Task = void (*)(void* state, int index);
  using Run = void (*)(void* context, int tasks, Task task, void* state);

  Run run = nullptr;  // null: the calling thread does everything
  void* context = nullptr;
  // How many tasks can really run at once; at most this many are ever asked for. Below 1 counts as 1. What a
  // call is told must be what its workspace's size was computed with.
  int threads = 1;
};

enum class Device { kHost, kCuda };

// How an operator may multiply float32 numbers where it can leave that to a GPU's matrix units. Whatever it
// has no such form of stays as it is with kHighest, as do float64 and every host execution.
enum class Precision {
  kHighest,  // in float32
  kHigh,     // as three products of TF32 (10 bits of mantissa): rounding errors of float32's class
  kMedium,   // as one of TF32: three digits
};

struct Execution {
  Device device = Device::kHost;
  ParallelFor parallel_for;  // host only
  int cuda_device = 0;       // CUDA only: ordinal; must be the current device of the calling thread
  void* stream = nullptr;    // CUDA only: a cudaStream_t; all work is enqueued there and never waited for
  Precision precision = Precision::kHighest;
  // CUDA only: what a pair gets has the same bits whatever else is in the batch. Else few pairs of soft_dtw()
  // are swept from both ends at once, which takes less than half the time and sums up in another order.
  bool batch_invariant = false;

  static Execution host(ParallelFor parallel_for = {}) {
    Execution execution;
    execution.parallel_for = parallel_for;
    return execution;
  }
  static Execution cuda(int device, void* stream, Precision precision = Precision::kHighest) {
    return {Device::kCuda, {}, device, stream, precision, false};
  }
};

// Bytes that a workspace's address is a multiple of. cudaMalloc() gives no less.
constexpr std::size_t workspace_alignment(Device device) { return device == Device::kHost ? 64 : 256; }

// Scratch memory on the execution's device, owned by the caller. Contents need not be initialised and mean
// nothing after the call (on CUDA: after the stream has passed the call's work). No two calls that may run at
// once can share one.
struct Workspace {
  void* data = nullptr;
  unsigned long long bytes = 0;
};

}  // namespace warpalign
