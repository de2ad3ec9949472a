// Products of tiles in shared memory by the 128 threads of a warpgroup (wgmma, sm_90a alone; elsewhere the
// functions trap). Factors are binary16 or bfloat16, sums float32.
//
// A tile lies in 8 x 8 elements of 128 bytes, row behind row. Plain: a row of such a piece is a row (column)
// of the product, and its elements follow the depth. Transposed: a row is a step of the depth.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/half.h"

namespace warpalign::cuda {

// Where a factor's tile lies in shared memory, and how far in bytes the next piece of 8 is: along the depth,
// and along the rows (columns).
struct SharedTile {
  const void* data;
  int depth_step;
  int across_step;
};

// Registers of instructions whose product is 216 or 256 columns wide.
// clang-format off
#define WARPALIGN_WGMMA_REGISTERS_216 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
  "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
  "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, " \
  "%104, %105, %106, %107"
#define WARPALIGN_WGMMA_OUTPUTS_216 \
  "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), \
  "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), \
  "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), \
  "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), \
  "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), \
  "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]), "+f"(sum[36]), \
  "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), \
  "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), \
  "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), \
  "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), \
  "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]), "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), \
  "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]), "+f"(sum[71]), "+f"(sum[72]), \
  "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]), "+f"(sum[78]), \
  "+f"(sum[79]), "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]), "+f"(sum[84]), \
  "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]), \
  "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95]), "+f"(sum[96]), \
  "+f"(sum[97]), "+f"(sum[98]), "+f"(sum[99]), "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), \
  "+f"(sum[103]), "+f"(sum[104]), "+f"(sum[105]), "+f"(sum[106]), "+f"(sum[107])
#define WARPALIGN_WGMMA_REGISTERS_256 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
  "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
  "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, " \
  "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WARPALIGN_WGMMA_OUTPUTS_256 \
  "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), \
  "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), \
  "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), \
  "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), \
  "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), \
  "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]), "+f"(sum[36]), \
  "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), \
  "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), \
  "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), \
  "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), \
  "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]), "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), \
  "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]), "+f"(sum[71]), "+f"(sum[72]), \
  "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]), "+f"(sum[78]), \
  "+f"(sum[79]), "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]), "+f"(sum[84]), \
  "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]), \
  "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95]), "+f"(sum[96]), \
  "+f"(sum[97]), "+f"(sum[98]), "+f"(sum[99]), "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), \
  "+f"(sum[103]), "+f"(sum[104]), "+f"(sum[105]), "+f"(sum[106]), "+f"(sum[107]), "+f"(sum[108]), \
  "+f"(sum[109]), "+f"(sum[110]), "+f"(sum[111]), "+f"(sum[112]), "+f"(sum[113]), "+f"(sum[114]), \
  "+f"(sum[115]), "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]), "+f"(sum[119]), "+f"(sum[120]), \
  "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123]), "+f"(sum[124]), "+f"(sum[125]), "+f"(sum[126]), \
  "+f"(sum[127])
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

// Before the first product, and where registers of `sum` have been touched since the last.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all but the last kLeft groups have ended.
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sum (+)= a b, asynchronously. a is 64 x 16, b is 16 x kColumns. With warp w of the group, g = lane / 4 and
// t = lane % 4, a thread has sum[4 j + 2 i + k] = element (16 w + g + 8 i, 8 j + 2 t + k).
template <class Half, int kColumns, bool kATransposed, bool kBTransposed>
__device__ __forceinline__ void wgmma(float (&sum)[kColumns / 2], const SharedTile& a_tile,
                                      const SharedTile& b_tile, bool adds) {
  static_assert(kColumns == 216 || kColumns == 256);
  static_assert(std::is_same_v<Half, detail::BFloat16> || std::is_same_v<Half, detail::Float16>);
  if constexpr (kColumns == 256 && std::is_same_v<Half, detail::BFloat16>) {
    WARPALIGN_WGMMA(256, "bf16.bf16", 128, 129, 130, 131, 132);
  } else if constexpr (kColumns == 256) {
    WARPALIGN_WGMMA(256, "f16.f16", 128, 129, 130, 131, 132);
  } else if constexpr (std::is_same_v<Half, detail::BFloat16>) {
    WARPALIGN_WGMMA(216, "bf16.bf16", 108, 109, 110, 111, 112);
  } else {
    WARPALIGN_WGMMA(216, "f16.f16", 108, 109, 110, 111, 112);
  }
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

#endif

}  // namespace warpalign::cuda
