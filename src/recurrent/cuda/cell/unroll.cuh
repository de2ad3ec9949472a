// Loops of the kernels over numbers that are known when they are compiled.
#pragma once

namespace warpalign::detail::recurrent {

// body(0), body(1), ..., body(kCount - 1), one after the other: no index is left at run time, so that arrays
// stay in registers.
template <int kCount, class Body>
__device__ __forceinline__ void unroll(const Body& body) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) body(k);
}

}  // namespace warpalign::detail::recurrent
