// The joint network on the CPU: hidden rows, products, and the derivative of the activation. Included once
// per instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA (the name in cpu::Isa) defined.
#include "core/constants.h"
#include "cpu/simd.h"
#include "transducer/cpu_joint_kernel.h"
#include "transducer/cpu_kernel.h"

// clang-format off: needs what is above
#include "cpu/rows.inl"
// clang-format on

namespace WARPALIGN_SIMD_NAMESPACE {

// tanh(x) = x + x z p(z), z = x^2 < 0.39: interpolation of p in Chebyshev nodes. The relative error before
// rounding is 6e-10 (float32) and 4e-17 (float64).
WARPALIGN_INLINE F32 tanh_of_small(F32 x) {
  const F32 z = x * x;
  F32 p = splat(2.29430486e-3f);
  p = p * z - 8.34532114e-3f;
  p = p * z + 2.17693383e-2f;
  p = p * z - 5.39593111e-2f;
  p = p * z + 1.33333038e-1f;
  p = p * z - 3.33333332e-1f;
  return x + x * z * p;
}
WARPALIGN_INLINE F64 tanh_of_small(F64 x) {
  const F64 z = x * x;
  F64 p = splat(-1.72663927456545047e-5);
  p = p * z + 7.96395289002852187e-5;
  p = p * z - 2.30807638316490894e-4;
  p = p * z + 5.87450969270514288e-4;
  p = p * z - 1.45531288083998226e-3;
  p = p * z + 3.59205955618341058e-3;
  p = p * z - 8.86322988759546282e-3;
  p = p * z + 2.18694882637319534e-2;
  p = p * z - 5.39682539614853093e-2;
  p = p * z + 1.33333333333267556e-1;
  p = p * z - 3.33333333333333227e-1;
  return x + x * z * p;
}
// tanh with a relative error of a few roundings. From |x| = 20 on it is +-1 in every type. NaN stays NaN.
template <class Real, class V>
WARPALIGN_INLINE V tanh_of(V x) {
  const V bounded = max(splat(Real(-20)), min(splat(Real(20)), x));
  const V large = Real(1) - Real(2) / (exp_of(bounded + bounded) + Real(1));
  return x * x < Real(0.39) ? tanh_of_small(x) : large;
}

// NaN stays NaN.
template <class Real, class V>
WARPALIGN_INLINE V activated(V x, bool is_tanh) {
  return is_tanh ? tanh_of<Real>(x) : max(V{}, x);
}

// Vectors of a panel's row, and rows of the innermost product: as many sums as registers allow.
constexpr int kPanelVectors = 2;
constexpr int kProductRows = WARPALIGN_SIMD_BYTES == 64 ? 12 : WARPALIGN_SIMD_BYTES == 32 ? 6 : 4;
template <class Real>
constexpr int kPanelWidth = kPanelVectors* WARPALIGN_SIMD_BYTES / static_cast<int>(sizeof(Real));

template <int kRows>
struct Rows {
  static constexpr int kCount = kRows;
};

template <class Storage>
void joint_hidden(const void* encoder, const void* predictor, __INT32_TYPE__ count, bool is_tanh,
                  typename Storage::Real* h) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  using Element = typename Storage::Element;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const e = static_cast<const Element*>(encoder);
  const auto* const g = static_cast<const Element*>(predictor);
  __INT32_TYPE__ k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    store(h + k, activated<Real>(Storage::read(e + k) + Storage::read(g + k), is_tanh));
  }
  if (k == count) return;
  Element last_e[kLanes] = {}, last_g[kLanes] = {};
  for (int lane = 0; k + lane < count; ++lane) {
    last_e[lane] = e[k + lane];
    last_g[lane] = g[k + lane];
  }
  Real last[kLanes];
  store(last, activated<Real>(Storage::read(last_e) + Storage::read(last_g), is_tanh));
  for (int lane = 0; k + lane < count; ++lane) h[k + lane] = last[lane];
}

// sum += a b.
template <class V>
WARPALIGN_INLINE void add_product(V& sum, decltype(V{}[0] + 0) a, V b) {
  sum += a * b;
}
#if WARPALIGN_SIMD_BYTES == 64
// The same for pairs of bfloat16 numbers: sum += a.first b.first + a.second b.second. In assembly, because
// this file is compiled without AVX512_BF16.
WARPALIGN_INLINE void add_product(F32& sum, __INT32_TYPE__ a, I32 b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(splat(a)), "v"(b));
}
#endif

// The product of kRows rows with one panel, over one block of the depth.
template <int kRows, class Real, class Factor>
WARPALIGN_INLINE void product_tile(const Factor* a, Index a_row, Index a_step, const Factor* b, Index b_step,
                                   Index depth, const Real* start, Index start_row, Real* c, Index c_row) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kLanes = kLanesOf<V>;
  V sum[kRows][kPanelVectors] = {};
  for (Index k = 0; k < depth; ++k) {
    const auto b0 = load(b + k * b_step), b1 = load(b + k * b_step + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Factor factor = a[r * a_row + k * a_step];
      add_product(sum[r][0], factor, b0);
      add_product(sum[r][1], factor, b1);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kPanelVectors; ++v) {
      store(c + r * c_row + v * kLanes, load(start + r * start_row + v * kLanes) + sum[r][v]);
    }
  }
}

template <class Real, class Factor = Real>
void joint_product(const CpuProduct<Real, Factor>& p) {
  constexpr Index kWidth = kPanelWidth<Real>;
  for (Index k = 0; k < p.depth; k += kJointDepth) {
    const Index depth = p.depth - k < kJointDepth ? p.depth - k : kJointDepth;
    const bool starts = k == 0 && p.start;
    const Real* const start = starts ? p.start : p.c;
    const Index start_row = starts ? p.start_row : p.c_row;
    for (Index n = 0; n < p.columns; n += kWidth) {
      const Factor* const b = p.b + n / kWidth * p.b_panel + k * p.b_step;
      Index r = 0;
      const auto take = [&](auto rows) {
        constexpr int kRows = decltype(rows)::kCount;
        for (; r + kRows <= p.rows; r += kRows) {
          product_tile<kRows>(p.a + r * p.a_row + k * p.a_step, p.a_row, p.a_step, b, p.b_step, depth,
                              start + r * start_row + n, start_row, p.c + r * p.c_row + n, p.c_row);
        }
      };
      take(Rows<kProductRows>{});
      take(Rows<2>{});
      take(Rows<1>{});
    }
  }
}

template <class Real>
void joint_pull_back(const Real* h, Real* to, __INT32_TYPE__ count, bool is_tanh) {
  if (is_tanh) {
    for (__INT32_TYPE__ k = 0; k < count; ++k) to[k] *= Real(1) - h[k] * h[k];
  } else {
    for (__INT32_TYPE__ k = 0; k < count; ++k) to[k] *= h[k] > Real(0) ? Real(1) : Real(0);
  }
}

template <class Real>
void joint_add(const Real* from, Real* to, __INT32_TYPE__ count) {
  for (__INT32_TYPE__ k = 0; k < count; ++k) to[k] += from[k];
}

template <class Real>
constexpr warpalign::detail::transducer::CpuJointKernels<Real> kJointKernels = {
    kPanelWidth<Real>, kProductRows, joint_product<Real>, joint_pull_back<Real>, joint_add<Real>};

using warpalign::detail::transducer::CpuPairs;

inline void joint_pack_row(const float* from, __INT32_TYPE__* to, __INT32_TYPE__ count) {
  constexpr int kLanes = kLanesOf<F32>;
  auto* const out = reinterpret_cast<__UINT16_TYPE__*>(to);
  __INT32_TYPE__ k = 0;
  for (; k + kLanes <= count; k += kLanes) BFloat16Storage::write(out + k, load(from + k));
  if (k == count) return;
  float last[kLanes] = {};
  for (int lane = 0; k + lane < count; ++lane) last[lane] = from[k + lane];
  __UINT16_TYPE__ packed[kLanes];
  BFloat16Storage::write(packed, load(last));
  for (int lane = 0; k + lane < (count + 1) / 2 * 2; ++lane) out[k + lane] = packed[lane];
}

inline void joint_pack_rows(const float* first, const float* second, __INT32_TYPE__* to,
                            __INT32_TYPE__ count) {
  constexpr int kLanes = kLanesOf<F32>;
  const auto pack = [](F32 a, F32 b, __INT32_TYPE__* out) {
    BFloat16Storage::write_pair(reinterpret_cast<__UINT16_TYPE__*>(out), {a, b});
  };
  __INT32_TYPE__ k = 0;
  for (; k + kLanes <= count; k += kLanes) pack(load(first + k), second ? load(second + k) : F32{}, to + k);
  if (k == count) return;
  float last[2][kLanes] = {};
  for (int lane = 0; k + lane < count; ++lane) {
    last[0][lane] = first[k + lane];
    if (second) last[1][lane] = second[k + lane];
  }
  __INT32_TYPE__ packed[kLanes];
  pack(load(last[0]), load(last[1]), packed);
  for (int lane = 0; k + lane < count; ++lane) to[k + lane] = packed[lane];
}

#if WARPALIGN_SIMD_BYTES == 64
constexpr CpuPairs kPairs = {joint_product<float, __INT32_TYPE__>, joint_pack_row, joint_pack_rows};
#else
constexpr CpuPairs kPairs = {nullptr, joint_pack_row, joint_pack_rows};
#endif

}  // namespace WARPALIGN_SIMD_NAMESPACE

namespace warpalign::detail::transducer {

const CpuJoint& joint_kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuJoint kKernels{isa::kJointKernels<float>,
                                     isa::kJointKernels<double>,
                                     isa::joint_hidden<isa::WideStorage<float>>,
                                     isa::joint_hidden<isa::WideStorage<double>>,
                                     isa::joint_hidden<isa::Half16Storage>,
                                     isa::joint_hidden<isa::BFloat16Storage>,
                                     isa::kPairs};
  return kKernels;
}

}  // namespace warpalign::detail::transducer
