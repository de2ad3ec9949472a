// Stands in for the CUDA runtime's header where the kernels are compiled as C++, for tests on machines
// without a GPU: the sources of src/soft_dtw/cuda, unchanged, on simt.h's threads. Device memory is the
// host's, and every call has ended when it returns. Only what warpalign uses.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "simt.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local  // a block is a thread of the operating system

// The built-in variables. Members of structs may have the same names, so that they are no macros.
template <simt::Index (*kGet)(), unsigned simt::Index::*kAxis>
struct SimtCoordinate {
  operator unsigned() const { return kGet().*kAxis; }  // NOLINT: reads as a number
};
template <simt::Index (*kGet)()>
struct SimtIndex {
  SimtCoordinate<kGet, &simt::Index::x> x;
  SimtCoordinate<kGet, &simt::Index::y> y;
  SimtCoordinate<kGet, &simt::Index::z> z;
};
inline constexpr SimtIndex<simt::thread_index> threadIdx{};
inline constexpr SimtIndex<simt::block_index> blockIdx{};
inline constexpr SimtIndex<simt::block_size> blockDim{};
inline constexpr SimtIndex<simt::grid_size> gridDim{};

struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

using std::abs;
using std::ceil;
using std::exp2;
using std::fma;
using std::fmax;
using std::fmin;
using std::frexp;
using std::isinf;
using std::isnan;
using std::ldexp;
using std::log2;
using std::rint;
using std::sqrt;

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

inline int __float_as_int(float v) { return simt::bits_as<int>(v); }
inline float __int_as_float(int v) { return simt::bits_as<float>(v); }
inline int __double2hiint(double v) { return static_cast<int>(simt::bits_as<std::uint64_t>(v) >> 32); }
inline int __double2loint(double v) { return static_cast<int>(simt::bits_as<std::uint64_t>(v)); }
inline double __hiloint2double(int high, int low) {
  return simt::bits_as<double>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 |
                               static_cast<std::uint32_t>(low));
}
inline long long __double_as_longlong(double v) { return simt::bits_as<long long>(v); }
inline double __longlong_as_double(long long v) { return simt::bits_as<double>(v); }
inline float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1.0f) : 0.0f; }  // NaN: 0
inline int __viaddmax_s32(int a, int b, int c) {
  return max(static_cast<int>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b)), c);
}
inline int __vimax3_s32(int a, int b, int c) { return max(max(a, b), c); }
inline int __ffs(unsigned v) { return __builtin_ffs(static_cast<int>(v)); }
inline float __double2float_rd(double v) {
  const float nearest = static_cast<float>(v);
  return nearest > v ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}

// Whoever polls with one of these lets the others go on.
inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  simt::yield();
}
inline void __threadfence() { __threadfence_block(); }
inline int atomicAdd(int* p, int v) {
  simt::yield();
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
inline float atomicAdd(float* p, float v) {
  simt::yield();
  auto* const bits = reinterpret_cast<int*>(p);
  int old = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(bits, &old, __float_as_int(__int_as_float(old) + v), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return __int_as_float(old);
}
inline unsigned atomicOr(unsigned* p, unsigned v) {
  simt::yield();
  return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
inline int atomicExch(int* p, int v) {
  simt::yield();
  return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
inline int atomicCAS(int* p, int expected, int v) {
  simt::yield();
  __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <class T>
T atomicMin(T* p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
inline int atomicMax(int* p, int v) {
  int old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

inline void __syncthreads() { simt::sync_block(0); }
inline int __syncthreads_or(int v) { return simt::sync_block(v != 0); }
inline void __syncwarp(unsigned mask = ~0u) { simt::meet(simt::Meeting::kSync, mask, 0); }
inline unsigned __ballot_sync(unsigned mask, int v) {
  const std::uint64_t* const all = simt::meet(simt::Meeting::kBallot, mask, v != 0);
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned>(all[lane]) << lane;
  return ballot;
}
inline int __any_sync(unsigned mask, int v) { return __ballot_sync(mask, v) != 0; }
inline unsigned __match_any_sync(unsigned mask, int v) {
  const std::uint64_t* const all = simt::meet(simt::Meeting::kBallot, mask, static_cast<std::uint32_t>(v));
  unsigned equal = 0;
  for (int lane = 0; lane < 32; ++lane) {
    equal |= static_cast<unsigned>(all[lane] == static_cast<std::uint32_t>(v)) << lane;
  }
  return equal;
}
template <class T>
T __shfl_sync(unsigned mask, T v, int from) {
  return simt::shuffle(mask, v, from & 31);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, int delta) {
  return simt::shuffle(mask, v, max(simt::lane() - delta, 0) + (simt::lane() < delta ? simt::lane() : 0));
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, int delta) {
  return simt::shuffle(mask, v, simt::lane() + delta < 32 ? simt::lane() + delta : simt::lane());
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits) {
  return simt::shuffle(mask, v, simt::lane() ^ bits);
}

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidConfiguration,
  cudaErrorInvalidDevice,
  cudaErrorNotSupported,
  cudaErrorCooperativeLaunchTooLarge,
  cudaErrorInvalidClusterSize
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributeNonPortableClusterSizeAllowed
};
using cudaStream_t = void*;

inline const char* cudaGetErrorString(cudaError_t error) {
  constexpr const char* kNames[] = {"no error",
                                    "invalid argument",
                                    "out of memory",
                                    "invalid configuration argument",
                                    "invalid device ordinal",
                                    "operation not supported",
                                    "too many blocks in cooperative launch",
                                    "invalid cluster size"};
  return kNames[error];
}

// The error of the thread's last call that had one, until somebody takes it.
inline thread_local cudaError_t simt_last_error = cudaSuccess;
inline cudaError_t simt_return(cudaError_t error) {
  if (error != cudaSuccess) simt_last_error = error;
  return error;
}
inline cudaError_t cudaPeekAtLastError() { return simt_last_error; }
inline cudaError_t cudaGetLastError() { return std::exchange(simt_last_error, cudaSuccess); }

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = simt::device.count;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  const simt::Device& d = simt::device;
  if (device < 0 || device >= d.count) return simt_return(cudaErrorInvalidDevice);
  *value = which == cudaDevAttrMultiProcessorCount            ? d.multiprocessors
           : which == cudaDevAttrMaxSharedMemoryPerBlockOptin ? d.shared_bytes
           : which == cudaDevAttrComputeCapabilityMajor       ? d.compute_capability_major
                                                              : d.compute_capability_minor;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return simt_return(*data ? cudaSuccess : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  simt::enqueue(stream, [=] { cudaMemset(to, value, bytes); });
  return cudaSuccess;
}

// Events.
using cudaEvent_t = simt::Point*;
constexpr unsigned cudaEventDisableTiming = 2;
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new simt::Point;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = simt::end_of(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  simt::enqueue(stream, [point = *event] { simt::catch_up(point); });
  return cudaSuccess;
}

// Launches.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension,
  cudaLaunchAttributeCooperative,
  cudaLaunchAttributeProgrammaticStreamSerialization
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    dim3 clusterDim;
    int cooperative, programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute which, int value) {
  simt::Limits& limits = simt::limits_of(reinterpret_cast<const void*>(kernel));
  if (which == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    limits.large_clusters = value != 0;
  } else {
    if (value < 0 || value > simt::device.shared_bytes) return simt_return(cudaErrorInvalidValue);
    limits.shared_bytes = value;
  }
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int,
                                                          std::size_t shared_bytes) {
  *blocks = simt::blocks_of_multiprocessor(shared_bytes);
  return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Kernel* kernel, const cudaLaunchConfig_t* config) {
  int size = 1;
  for (unsigned k = 0; k < config->numAttrs; ++k) {
    const cudaLaunchAttribute& attribute = config->attrs[k];
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      size = static_cast<int>(attribute.val.clusterDim.x);
  }
  const bool large = simt::limits_of(reinterpret_cast<const void*>(kernel)).large_clusters;
  const int most = large ? simt::device.largest_cluster : 8;
  if (size > most) return simt_return(cudaErrorInvalidClusterSize);
  *clusters = simt::blocks_of_multiprocessor(config->dynamicSmemBytes) * simt::device.multiprocessors / size;
  return cudaSuccess;
}

inline cudaError_t simt_check(const simt::Launch& launch) {
  const simt::Limits& limits = simt::limits_of(launch.kernel);
  if (launch.blocks < 1 || launch.threads < 1 || launch.threads > 1024) return cudaErrorInvalidConfiguration;
  if (launch.shared_bytes > static_cast<std::size_t>(limits.shared_bytes)) return cudaErrorInvalidValue;
  if (launch.cluster > 1) {
    if (simt::device.compute_capability_major < 9 || simt::device.refuses_clusters) {
      return cudaErrorNotSupported;
    }
    if (launch.cluster > (limits.large_clusters ? 16 : 8)) return cudaErrorInvalidClusterSize;
    if (launch.blocks % launch.cluster != 0) return cudaErrorInvalidConfiguration;
  }
  const int resident = simt::blocks_of_multiprocessor(launch.shared_bytes) * simt::device.multiprocessors;
  return launch.cooperative && launch.blocks > resident ? cudaErrorCooperativeLaunchTooLarge : cudaSuccess;
}
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  simt::Launch launch{reinterpret_cast<const void*>(kernel), static_cast<int>(config->gridDim.x),
                      static_cast<int>(config->blockDim.x), config->dynamicSmemBytes};
  for (unsigned k = 0; k < config->numAttrs; ++k) {
    const cudaLaunchAttribute& attribute = config->attrs[k];
    if (attribute.id == cudaLaunchAttributeCooperative) {
      launch.cooperative = attribute.val.cooperative != 0;
    } else if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      if (simt::device.compute_capability_major < 9) return simt_return(cudaErrorNotSupported);
    } else {
      launch.cluster = static_cast<int>(attribute.val.clusterDim.x);
    }
  }
  if (const cudaError_t error = simt_check(launch); error != cudaSuccess) return simt_return(error);
  simt::enqueue(config->stream, [kernel, launch, ... given = static_cast<Parameters>(arguments)] {
    simt::run_grid(launch, [&] { kernel(given...); });
  });
  return cudaSuccess;
}
