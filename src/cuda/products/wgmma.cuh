// Products of tiles in shared memory by the 128 threads of a warpgroup (wgmma, sm_90a alone; on other devices
// the functions trap). Factors are binary16 or bfloat16, sums float32.
//
// A tile in shared memory consists of pieces of 8 x 8 elements: 128 contiguous bytes, row after row. In a
// plain tile a piece's row is one row (column) of the product, along the depth. In a transposed tile it is
// one step of the depth, along the product's rows (columns).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/half.h"

namespace warpalign::cuda {

// The position of a factor's tile in shared memory.
struct SharedTile {
  const void* data;
  int depth_step;   // bytes from a piece to the next one along the depth
  int across_step;  // bytes from a piece to the next one along the product's rows (columns)
};

// The sums' registers in the instruction, and as operands: 64, 108 or 128 for products of 128, 216 or
// 256 columns.
// clang-format off
#define WARPALIGN_WGMMA_REGISTERS_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, " \
  "%57, %58, %59, %60, %61, %62, %63"
#define WARPALIGN_WGMMA_REGISTERS_216 \
  WARPALIGN_WGMMA_REGISTERS_128 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
  "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
  "%102, %103, %104, %105, %106, %107"
#define WARPALIGN_WGMMA_REGISTERS_256 \
  WARPALIGN_WGMMA_REGISTERS_216 ", %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WARPALIGN_WGMMA_4_OUTPUTS(i) "+f"(sum[i]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3])
#define WARPALIGN_WGMMA_20_OUTPUTS(i) \
  WARPALIGN_WGMMA_4_OUTPUTS(i), WARPALIGN_WGMMA_4_OUTPUTS((i) + 4), WARPALIGN_WGMMA_4_OUTPUTS((i) + 8), \
  WARPALIGN_WGMMA_4_OUTPUTS((i) + 12), WARPALIGN_WGMMA_4_OUTPUTS((i) + 16)
#define WARPALIGN_WGMMA_OUTPUTS_128 \
  WARPALIGN_WGMMA_20_OUTPUTS(0), WARPALIGN_WGMMA_20_OUTPUTS(20), WARPALIGN_WGMMA_20_OUTPUTS(40), \
  WARPALIGN_WGMMA_4_OUTPUTS(60)
#define WARPALIGN_WGMMA_OUTPUTS_216 \
  WARPALIGN_WGMMA_OUTPUTS_128, WARPALIGN_WGMMA_20_OUTPUTS(64), WARPALIGN_WGMMA_20_OUTPUTS(84), \
  WARPALIGN_WGMMA_4_OUTPUTS(104)
#define WARPALIGN_WGMMA_OUTPUTS_256 WARPALIGN_WGMMA_OUTPUTS_216, WARPALIGN_WGMMA_20_OUTPUTS(108)
#define WARPALIGN_WGMMA(width, types, a, b, p, at, bt)                                                  \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #p ", 0; wgmma.mma_async.sync.aligned.m64n" #width \
               "k16.f32." types " {" WARPALIGN_WGMMA_REGISTERS_##width "}, %" #a ", %" #b             \
               ", p, 1, 1, %" #at ", %" #bt "; }"                                                     \
               : WARPALIGN_WGMMA_OUTPUTS_##width                                                      \
               : "l"(wgmma_descriptor(a_tile)), "l"(wgmma_descriptor(b_tile)),                        \
                 "r"(static_cast<int>(adds)), "n"(kATransposed), "n"(kBTransposed))
// clang-format on

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ std::uint64_t wgmma_descriptor(const SharedTile& tile) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(tile.data));
  return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) |
         static_cast<std::uint64_t>(tile.depth_step >> 4) << 16 |
         static_cast<std::uint64_t>(tile.across_step >> 4) << 32;
}

// Orders earlier accesses to the registers of `sum` before products. Called before the first product, and
// before a product if other code has read or written `sum` since the last one.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all groups of products but the last kLeft have ended.
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sum (+)= a b, asynchronously. a is 64 x 16, b is 16 x kColumns. With warp w of the group, g = lane / 4 and
// t = lane % 4, a thread has sum[4 j + 2 i + k] = element (16 w + g + 8 i, 8 j + 2 t + k).
template <class Half, int kColumns, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void wgmma(float (&sum)[kColumns / 2], const SharedTile& a_tile,
                                      const SharedTile& b_tile, bool adds) {
  static_assert(kColumns == 128 || kColumns == 216 || kColumns == 256);
  static_assert(std::is_same_v<Half, detail::BFloat16> || std::is_same_v<Half, detail::Float16>);
  if constexpr (kColumns == 256 && std::is_same_v<Half, detail::BFloat16>) {
    WARPALIGN_WGMMA(256, "bf16.bf16", 128, 129, 130, 131, 132);
  } else if constexpr (kColumns == 256) {
    WARPALIGN_WGMMA(256, "f16.f16", 128, 129, 130, 131, 132);
  } else if constexpr (kColumns == 128) {
    static_assert(std::is_same_v<Half, detail::BFloat16>);
    WARPALIGN_WGMMA(128, "bf16.bf16", 64, 65, 66, 67, 68);
  } else if constexpr (std::is_same_v<Half, detail::BFloat16>) {
    WARPALIGN_WGMMA(216, "bf16.bf16", 108, 109, 110, 111, 112);
  } else {
    WARPALIGN_WGMMA(216, "f16.f16", 108, 109, 110, 111, 112);
  }
}

// sum += a b, asynchronously, with a in registers: each warp holds 16 x 16 elements in the layout of
// mma_half(). b is 16 x 64.
template <class Half>
__device__ __forceinline__ void wgmma_64(float (&sum)[32], const std::uint32_t (&a)[4],
                                         const SharedTile& b_tile) {
  static_assert(std::is_same_v<Half, detail::Float16>);
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : WARPALIGN_WGMMA_20_OUTPUTS(0), WARPALIGN_WGMMA_4_OUTPUTS(20), WARPALIGN_WGMMA_4_OUTPUTS(24),
        WARPALIGN_WGMMA_4_OUTPUTS(28)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_descriptor(b_tile)));
}
// The compiler moves no access to `sum` across this call.
__device__ __forceinline__ void wgmma_pin(float (&sum)[32]) {
  asm volatile(""
               : WARPALIGN_WGMMA_20_OUTPUTS(0), WARPALIGN_WGMMA_4_OUTPUTS(20), WARPALIGN_WGMMA_4_OUTPUTS(24),
                 WARPALIGN_WGMMA_4_OUTPUTS(28)::"memory");
}

#else

__device__ __forceinline__ void wgmma_fence() { __trap(); }
__device__ __forceinline__ void wgmma_commit() { __trap(); }
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  __trap();
}
template <class Half, int kColumns, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void wgmma(float (&)[kColumns / 2], const SharedTile&, const SharedTile&, bool) {
  __trap();
}
template <class Half>
__device__ __forceinline__ void wgmma_64(float (&)[32], const std::uint32_t (&)[4], const SharedTile&) {
  __trap();
}
__device__ __forceinline__ void wgmma_pin(float (&)[32]) { __trap(); }

#endif

}  // namespace warpalign::cuda
