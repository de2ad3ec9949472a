// Numbers in global memory whose type is known at compile time, or only at run time.
//
// Most kernels are compiled for float. The kernels that float32 and float64 share are compiled once, for
// AnyReal. They read and write through AnyAddress, which branches on the type for every access, or once for a
// loop in with_pointer().
#pragma once

#include <cstdint>

namespace warpalign::detail::soft_dtw {

// Stands for float or double in a kernel's template arguments; Params::is_float64 decides at run time.
struct AnyReal;

// The address of floats or doubles. Offsets count elements. It is as large as a pointer: numbers are aligned
// to 4 bytes, and the lowest bit is set for doubles.
class AnyAddress {
 public:
  AnyAddress() = default;
  __device__ __forceinline__ AnyAddress(const void* at, bool is_float64)
      : at_(at ? reinterpret_cast<std::uintptr_t>(at) + is_float64 : 0) {}

  __device__ __forceinline__ explicit operator bool() const { return at_ != 0; }
  __device__ __forceinline__ AnyAddress operator+(std::int64_t elements) const {
    AnyAddress sum;
    sum.at_ = at_ + (static_cast<std::uintptr_t>(elements) << (2 + (at_ & 1)));
    return sum;
  }
  __device__ __forceinline__ AnyAddress& operator+=(std::int64_t elements) {
    return *this = *this + elements;
  }

  // visit(p): p is the address as a float* or a double*.
  template <class Visit>
  __device__ __forceinline__ auto as_pointer(const Visit& visit) const {
    if (at_ & 1) return visit(as<double>());
    return visit(as<float>());
  }

  // The address as a T*. T must be the type of its numbers.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T* as() const {
    return reinterpret_cast<T*>(at_ & ~std::uintptr_t{1});
  }

 private:
  std::uintptr_t at_ = 0;
};

// A kernel's access to the caller's memory, for numbers of type In. Value: the type of a loaded number.
template <class In>
struct Storage {
  using Value = In;
  using Input = const In*;
  using Output = In*;
  static __device__ __forceinline__ Input input(const void* at, bool) { return static_cast<Input>(at); }
  static __device__ __forceinline__ Output output(void* at, bool) { return static_cast<Output>(at); }
};
template <>
struct Storage<AnyReal> {
  using Value = double;
  using Input = AnyAddress;
  using Output = AnyAddress;
  static __device__ __forceinline__ Input input(const void* at, bool is_float64) { return {at, is_float64}; }
  static __device__ __forceinline__ Output output(void* at, bool is_float64) { return {at, is_float64}; }
};

// visit(p): p is the address as a pointer to the numbers' own type, float or double.
template <class In, class Visit>
__device__ __forceinline__ void with_pointer(In* at, const Visit& visit) {
  visit(at);
}
template <class Visit>
__device__ __forceinline__ void with_pointer(AnyAddress at, const Visit& visit) {
  at.as_pointer(visit);
}

// Another address of the same call, whose numbers have the type of a given pointer.
template <class T>
__device__ __forceinline__ const T* pointer_as(const T*, const T* at) {
  return at;
}
template <class T>
__device__ __forceinline__ const T* pointer_as(const T*, AnyAddress at) {
  return at.template as<T>();
}

// Reads an input, which is constant while the kernel runs.
template <class In>
__device__ __forceinline__ In load_input(const In* at) {
  return __ldg(at);
}
__device__ __forceinline__ double load_input(AnyAddress at) {
  return at.as_pointer([](const auto* p) { return static_cast<double>(__ldg(p)); });
}

// Reads data that another block may have written, bypassing the multiprocessor's cache.
template <class In>
__device__ __forceinline__ In load_result_from_l2(const In* at) {
  return __ldcg(at);
}
__device__ __forceinline__ double load_result_from_l2(AnyAddress at) {
  return at.as_pointer([](const auto* p) { return static_cast<double>(__ldcg(p)); });
}

template <class In, class Value>
__device__ __forceinline__ void store_result(In* at, Value value) {
  *at = static_cast<In>(value);
}
template <class Value>
__device__ __forceinline__ void store_result(AnyAddress at, Value value) {
  at.as_pointer([&](auto* p) { store_result(p, value); });
}

// Writes data that another block will read.
template <class In, class Value>
__device__ __forceinline__ void store_result_in_l2(In* at, Value value) {
  __stcg(at, static_cast<In>(value));
}
template <class Value>
__device__ __forceinline__ void store_result_in_l2(AnyAddress at, Value value) {
  at.as_pointer([&](auto* p) { store_result_in_l2(p, value); });
}

}  // namespace warpalign::detail::soft_dtw
