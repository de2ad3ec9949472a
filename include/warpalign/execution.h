// Execution: where a call runs. The caller owns every resource that an Execution names.
#pragma once

#include <cstddef>

#include "warpalign/matrix_product.h"

namespace warpalign {

// Threads that the caller lends. run(context, tasks, task, state) calls task(state, 0) ... task(state, tasks
// - 1), possibly at the same time, and returns when all have ended. A front end lends its own thread pool
// this way; a program without one can use warpalign/thread_pool.h.
struct ParallelFor {
  using Task = void (*)(void* state, int index);
  using Run = void (*)(void* context, int tasks, Task task, void* state);

  Run run = nullptr;  // null: the calling thread does everything
  void* context = nullptr;
  // The number of tasks that can run at the same time. A call asks for at most this many tasks. A number
  // below 1 is taken as 1. A call must get the number that its workspace's size was computed with.
  int threads = 1;
};

enum class Device { kHost, kCuda };

// How an operator may multiply float32 numbers on a GPU's matrix units: a class of errors. Products that are
// not listed are the same with every precision. So are float64 and every host execution.
//
//   operator                                          kHigh                       kMedium
//   soft_dtw(), squared distances of 17 features on   three products of TF32      one product of TF32
//   sinkhorn(), squared distances of 5 features on    two binary16 numbers of a   one binary16 number of a
//                                                     coordinate: three products  coordinate
//   transducer_joint() and its gradient, products     three products of TF32      one product of TF32
//   the same on compute capability 9.0, many labels   three products of two       as kHigh
//                                                     bfloat16 numbers
//   lstm(), steps on matrix units                     as kHighest                 one product of TF32
//
// TF32 has float32's exponents and 11 bits of mantissa, as binary16 has. sinkhorn() scales points first. A
// product that is lent (matrix_product) follows its lender's settings alone.
enum class Precision {
  kHighest,  // in float32; lstm()'s steps and soft_dtw()'s gradients may be as with kHigh; transducer_joint()
             // and, from 9 features on, sinkhorn() have six products of three 16-bit parts, 24 bits or more
  kHigh,     // by three products of halves of a number: rounding errors of float32's class
  kMedium,   // by one product of 11 bits of mantissa: three digits
};

struct Execution {
  Device device = Device::kHost;
  ParallelFor parallel_for;  // host only
  int cuda_device = 0;       // CUDA only: ordinal; must be the current device of the calling thread
  void* stream = nullptr;    // CUDA only: a cudaStream_t; all work is enqueued there and never waited for
  Precision precision = Precision::kHighest;
  // CUDA only: an item's result has the same bits whatever else is in the batch. If false, soft_dtw() sweeps
  // the pairs of a small batch from both ends at the same time: that takes less than half the time, and adds
  // in another order than a large batch does.
  bool batch_invariant = false;
  // CUDA only: who makes lstm()'s products over all steps. Not with batch_invariant: then the library's own
  // kernel does, as a row's sums depend on no other row there.
  MatrixProduct matrix_product = {};
  // The name of the way to run the call, one of warpalign/plan.h; null or empty: the plan chooses. A way that
  // cannot serve the call is an error, which says why, and which ways can. For tests and measurements.
  const char* way = nullptr;

  static Execution host(ParallelFor parallel_for = {}) {
    Execution execution;
    execution.parallel_for = parallel_for;
    return execution;
  }
  static Execution cuda(int device, void* stream, Precision precision = Precision::kHighest) {
    return {Device::kCuda, {}, device, stream, precision, false, {}, nullptr};
  }
};

// A workspace's address must be a multiple of so many bytes. Every address from cudaMalloc() is.
constexpr std::size_t workspace_alignment(Device device) { return device == Device::kHost ? 64 : 256; }

// Scratch memory on the execution's device, owned by the caller. The contents need not be initialised and
// mean nothing after the call (on CUDA: after the stream has passed the call's work). Two calls that may run
// at the same time must not share a workspace.
struct Workspace {
  void* data = nullptr;
  unsigned long long bytes = 0;
};

}  // namespace warpalign
