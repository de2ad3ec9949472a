// How often this process has launched each CUDA kernel of an operator. Tests and benchmarks that have to
// reach every kernel look here.
#pragma once

namespace warpalign {

struct KernelLaunches {
  char kernel[96];              // its name, which ends with a null character
  unsigned long long launches;  // by all threads; a launch into a CUDA graph counts once, its replays do not
};

// Writes kernel number `index` of soft_dtw() and soft_dtw_jvp(). Numbers begin with 0; their order means
// nothing. Returns false, and writes nothing, where there is no such kernel; a library without CUDA has none.
// The kernel that sorts a ragged batch, which operators share, is not listed.
bool soft_dtw_kernel_launches(int index, KernelLaunches* out);
// The same of the transducer's functions: losses, joint network, alignments and decoding.
bool transducer_kernel_launches(int index, KernelLaunches* out);
// The same of CTC's functions and of monotonic alignment search.
bool ctc_kernel_launches(int index, KernelLaunches* out);
// The same of the LSTM. Products are not listed.
bool recurrent_kernel_launches(int index, KernelLaunches* out);
// The same of transport's functions: sinkhorn(), its derivatives, what is read off a plan, anchors and
// graphs.
bool transport_kernel_launches(int index, KernelLaunches* out);

}  // namespace warpalign
