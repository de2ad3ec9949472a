// Layer norm of a row by the threads of a block.
#pragma once

#include "cuda/threads/warp.cuh"
#include "recurrent/cuda/cell/params.cuh"

namespace warpalign::detail::recurrent {

constexpr int kNormThreads = 256;

// The sum over all threads, for each of them, in one order.
template <class Real>
__device__ __forceinline__ Real block_sum(Real v) {
  constexpr int kWarps = kNormThreads / cuda::kWarpSize;
  __shared__ Real parts[kWarps];
  v = cuda::reduce_sum(v);
  __syncthreads();  // the sum before has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  Real sum = 0;
  unroll<kWarps>([&](int k) { sum += parts[k]; });
  return sum;
}

// v -> (v - mean) / sqrt(variance + eps).
template <class Real>
struct NormalForm {
  Real mean, scale;
  __device__ __forceinline__ Real operator()(Real v) const { return (v - mean) * scale; }
};

// The row is value(0) ... value(count - 1).
template <class Real, class Value>
__device__ __forceinline__ NormalForm<Real> normal_form(int count, Real eps, const Value& value) {
  Real sum = 0;
  for (int k = static_cast<int>(threadIdx.x); k < count; k += kNormThreads) sum += value(k);
  const Real mean = block_sum(sum) / static_cast<Real>(count);
  Real squares = 0;
  for (int k = static_cast<int>(threadIdx.x); k < count; k += kNormThreads) {
    squares += (value(k) - mean) * (value(k) - mean);
  }
  const Real variance = block_sum(squares) / static_cast<Real>(count);
  return {mean, 1 / sqrt(variance + eps)};
}

// dv of a row v, from dn of its normal form n: dv = scale (dn - mean(dn) - n mean(dn n)).
template <class Real>
struct NormalFormGradient {
  Real mean, along, scale;
  __device__ __forceinline__ Real operator()(Real dn, Real n) const {
    return scale * (dn - mean - n * along);
  }
};
template <class Real, class Gradient, class Normal>
__device__ __forceinline__ NormalFormGradient<Real> normal_form_gradient(int count, Real scale,
                                                                         const Gradient& dn,
                                                                         const Normal& normal) {
  Real sum = 0, product = 0;
  for (int k = static_cast<int>(threadIdx.x); k < count; k += kNormThreads) {
    sum += dn(k), product += dn(k) * normal(k);
  }
  const Real mean = block_sum(sum) / static_cast<Real>(count);
  return {mean, block_sum(product) / static_cast<Real>(count), scale};
}
// The same of a row that gamma scales after its norm: `to` from the gradient `by` of what it becomes.
template <class T>
__device__ __forceinline__ void normalise_back(int count, Sum<T> scale, const T* by, const T* gamma,
                                               const T* normal, T* to) {
  const int first = static_cast<int>(threadIdx.x);
  const auto dn = [&](int k) { return cuda::widen(gamma[k]) * cuda::widen(by[k]); };
  const auto n = [&](int k) { return cuda::widen(normal[k]); };
  constexpr int kHeld = 8;  // entries of a thread that are read once
  if (count > kHeld * kNormThreads) {
    const auto gradient = normal_form_gradient(count, scale, dn, n);
    for (int k = first; k < count; k += kNormThreads) to[k] = cuda::narrow<T>(gradient(dn(k), n(k)));
    return;
  }
  Sum<T> held_dn[kHeld], held_n[kHeld], sum = 0, product = 0;
  unroll<kHeld>([&](int j) {
    const int k = first + j * kNormThreads;
    held_dn[j] = k < count ? dn(k) : Sum<T>(0), held_n[j] = k < count ? n(k) : Sum<T>(0);
  });
  unroll<kHeld>([&](int j) { sum += held_dn[j], product += held_dn[j] * held_n[j]; });
  const Sum<T> mean = block_sum(sum) / static_cast<Sum<T>>(count);
  const NormalFormGradient<Sum<T>> gradient{mean, block_sum(product) / static_cast<Sum<T>>(count), scale};
  unroll<kHeld>([&](int j) {
    const int k = first + j * kNormThreads;
    if (k < count) to[k] = cuda::narrow<T>(gradient(held_dn[j], held_n[j]));
  });
}

}  // namespace warpalign::detail::recurrent
