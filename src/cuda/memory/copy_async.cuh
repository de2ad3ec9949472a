// Asynchronous copies from global to shared memory, which need no registers.
#pragma once

namespace warpalign::cuda {

// Copies one element. The copy is synchronous if the types differ, and before sm_80.
template <class To, class From>
__device__ __forceinline__ void copy_async(To* shared, const From* global) {
  *shared = static_cast<To>(*global);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global), "n"(sizeof(T))
               : "memory");
}
#endif

// Copies 16 bytes, bypassing the first-level cache, which does not see other blocks' writes.
template <class T>
__device__ __forceinline__ void copy_async_l2(T* shared, const T* global) {
  static_assert(sizeof(T) == 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#elif defined(__CUDA_ARCH__)
  *reinterpret_cast<uint4*>(shared) = __ldcg(reinterpret_cast<const uint4*>(global));
#else
  *shared = *global;
#endif
}

// Copies 16 bytes, or writes 16 bytes of 0 if not `exists`; `global` must be a valid address in either case.
template <class T>
__device__ __forceinline__ void copy_async_l2_or_zero(T* shared, const T* global, bool exists) {
  static_assert(sizeof(T) == 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(exists ? 16 : 0)
               : "memory");
#else
  if (exists) {
    copy_async_l2(shared, global);
  } else {
    *shared = T{};
  }
#endif
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void end_copy_group() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the last kLeft groups of this thread's copies have arrived.
template <int kLeft>
__device__ __forceinline__ void await_copy_groups() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

// Waits until this thread's copies have arrived.
__device__ __forceinline__ void await_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace warpalign::cuda
