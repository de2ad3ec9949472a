// Products of matrices for the joint network. A block owns a tile of the result. 16-bit types multiply on the
// matrix units and add in float32. float32 and float64 are multiplied and added in their own type; float32 is
// multiplied as TF32 if the call's precision allows it.
//
//   c[r,n] = sum over k of a[r,k] b[n,k]
//
// Every sum is in the order of k, so that it does not depend on the other rows and columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "cuda/memory/streaming.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/tf32.cuh"
#include "cuda/products/mma.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transducer {

// A factor in memory, row-major. Plain: rows are r (or n), columns k; transposed: rows are k, columns r (or
// n). Rows are aligned to 16 bytes, and `columns` is a multiple of 8. Elements past the end are read as 0.
template <class Storage>
struct Factor {
  const Storage* data;
  std::int64_t stride;
  std::int32_t rows;
  std::int32_t columns;
};

// The shape of a block's tile, for factors of type Storage.
template <class Storage_>
struct ProductShape {
  using Storage = Storage_;
  static constexpr bool kHalf = sizeof(Storage) == 2;
  static constexpr int kThreads = kHalf ? 128 : 256;
  static constexpr int kBlocks = kHalf ? 2 : 3;   // resident blocks per multiprocessor
  static constexpr int kTile = kHalf ? 128 : 64;  // rows, and columns
  static constexpr int kDepth = kHalf ? 32 : 16;  // terms of a stage
  static constexpr int kStages = kHalf ? 4 : 3;   // one is multiplied, the others are being copied
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Storage));
  static constexpr int kTransposedGap = kVector;  // elements between rows of a transposed stage
};

// float32 factors that multiply as TF32 (sm_80 and later).
struct Tf32Shape {
  using Storage = float;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr int kTile = 128;
  static constexpr int kDepth = 16;
  static constexpr int kStages = 4;
  static constexpr int kVector = 4;
  // Lanes read eight numbers of each of four rows of a transposed stage, from 32 different banks.
  static constexpr int kTransposedGap = 8;
};

// A stage of one factor: kTile x kDepth elements in shared memory, in the order of global memory.
template <class Shape, bool kTransposed>
class Stage {
  using Storage = typename Shape::Storage;
  using Vector = cuda::Bits128;
  static constexpr int kOuter = kTransposed ? Shape::kDepth : Shape::kTile;
  static constexpr int kInner = kTransposed ? Shape::kTile : Shape::kDepth;
  // Keeps neighbouring rows in different banks.
  static constexpr int kStride = kInner + (kTransposed ? Shape::kTransposedGap : Shape::kVector);
  static constexpr int kVectors = kOuter * kInner / Shape::kVector / Shape::kThreads;
  static_assert(kVectors * Shape::kThreads * Shape::kVector == kOuter * kInner);

 public:
  // Starts this thread's copies: r (or n) from `first` on, and k from `depth` on.
  __device__ static __forceinline__ void ask(const Factor<Storage>& from, int first, int depth,
                                             Storage* shared) {
    constexpr int kVectorsOfRow = kInner / Shape::kVector;
    const int outer = kTransposed ? depth : first, inner = kTransposed ? first : depth;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * Shape::kThreads + static_cast<int>(threadIdx.x);
      const int row = at / kVectorsOfRow, column = at % kVectorsOfRow * Shape::kVector;
      const bool exists = outer + row < from.rows && inner + column < from.columns;
      const Storage* const source =
          from.data + (exists ? (outer + row) * from.stride + inner + column : std::int64_t{0});
      cuda::copy_async_l2_or_zero(reinterpret_cast<Vector*>(shared + row * kStride + column),
                                  reinterpret_cast<const Vector*>(source), exists);
    }
  }

  static constexpr int kElements = kOuter * kStride;
  // The index of element (r, k).
  __device__ static __forceinline__ int place(int r, int k) {
    return kTransposed ? k * kStride + r : r * kStride + k;
  }
  // The operand a of mma_half(): rows `row` to row + 15, terms k to k + 15.
  __device__ static __forceinline__ void load_a(std::uint32_t (&to)[4], const Storage* shared, int row,
                                                int k) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const int r = row + (kTransposed ? lane / 8 % 2 * 8 : lane % 16);
    const int d = k + (kTransposed ? lane / 16 * 8 + lane % 8 : lane / 16 * 8);
    cuda::load_matrices<kTransposed>(to, shared + place(r, d));
  }
  // The operands b of mma_half() for columns n to n + 7, then for n + 8 to n + 15.
  __device__ static __forceinline__ void load_b(std::uint32_t (&to)[4], const Storage* shared, int n, int k) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const int c = n + (kTransposed ? lane / 16 * 8 : lane / 16 * 8 + lane % 8);
    const int d = k + (kTransposed ? lane / 8 % 2 * 8 + lane % 8 : lane / 8 % 2 * 8);
    cuda::load_matrices<kTransposed>(to, shared + place(c, d));
  }
};

// A thread's elements of a tile on matrix units: a warp owns 16 kBlocks rows and 64 columns.
template <int kBlocks>
class UnitSums {
 public:
  // Calls function(row, column, value of column, value of column + 1) for this thread's sums; column is even.
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
          function(first_row() + 16 * i + lane / 4 + k / 2 * 8, first_column() + 8 * j + lane % 4 * 2,
                   sum_[i][j][k], sum_[i][j][k + 1]);
        }
      }
    }
  }

 protected:
  __device__ static __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / cuda::kWarpSize; }
  __device__ static __forceinline__ int first_row() { return warp() / 2 * 16 * kBlocks; }
  __device__ static __forceinline__ int first_column() { return warp() % 2 * 64; }

  float sum_[kBlocks][8][4] = {};
};

// Products of half types, by four warps.
template <class Shape, bool kATransposed, bool kBTransposed>
class HalfSums : public UnitSums<4> {
  using Half = typename Shape::Storage;

 public:
  __device__ __forceinline__ void add(const Half* a, const Half* b, bool /*three_terms*/) {
#pragma unroll
    for (int k = 0; k < Shape::kDepth; k += 16) {
      std::uint32_t rows[4][4], columns[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Stage<Shape, kATransposed>::load_a(rows[i], a, first_row() + 16 * i, k);
        Stage<Shape, kBTransposed>::load_b(columns[i], b, first_column() + 16 * i, k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const std::uint32_t factor[2] = {columns[j / 2][j % 2 * 2], columns[j / 2][j % 2 * 2 + 1]};
          cuda::mma_half<Half>(sum_[i][j], rows[i], factor);
        }
      }
    }
  }
};

// Products of float32 as TF32, by eight warps: one product, or three products of the parts of a float32.
template <class Shape, bool kATransposed, bool kBTransposed>
class Tf32Sums : public UnitSums<2> {
  static constexpr int kSteps = Shape::kDepth / 8;

 public:
  __device__ __forceinline__ void add(const float* a, const float* b, bool three_terms) {
    if (three_terms) {
      add_terms<true>(a, b);
    } else {
      add_terms<false>(a, b);
    }
  }

 private:
  using StageA = Stage<Shape, kATransposed>;
  using StageB = Stage<Shape, kBTransposed>;

  // A lane's numbers of a factor.
  template <int kCount>
  struct Parts {
    float hi[kCount], lo[kCount];  // lo is used with three terms
  };
  template <bool kThreeTerms, int kCount>
  __device__ static __forceinline__ Parts<kCount> parts_of(const float* numbers) {
    Parts<kCount> parts{};
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if constexpr (kThreeTerms) {
        const cuda::Tf32Parts of_one = cuda::split_tf32(numbers[n]);
        parts.hi[n] = of_one.hi, parts.lo[n] = of_one.lo;
      } else {
        parts.hi[n] = cuda::rounded_tf32(numbers[n]);
      }
    }
    return parts;
  }

  // The operand a of mma_tf32(): rows `row` to row + 15, terms k to k + 7.
  __device__ static __forceinline__ void load_a(float (&to)[4], const float* shared, int row, int k) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    if constexpr (kATransposed) {
#pragma unroll
      for (int n = 0; n < 4; ++n)
        to[n] = shared[StageA::place(row + lane / 4 + n % 2 * 8, k + lane % 4 + n / 2 * 4)];
    } else {
      load_rows(to, shared + StageA::place(row + lane % 16, k + lane / 16 * 4));
    }
  }
  // The operands b of mma_tf32() for columns n to n + 7: terms k to k + 7, then k + 8 to k + 15.
  __device__ static __forceinline__ void load_b(float (&to)[4], const float* shared, int n, int k) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    if constexpr (kBTransposed) {
#pragma unroll
      for (int m = 0; m < 4; ++m) to[m] = shared[StageB::place(n + lane / 4, k + lane % 4 + m * 4)];
    } else {
      load_rows(to, shared + StageB::place(n + lane % 8, k + lane / 8 * 4));
    }
  }
  // Four matrices of 8 rows and 4 numbers each: pairs of 16-bit elements.
  __device__ static __forceinline__ void load_rows(float (&to)[4], const float* row) {
    std::uint32_t bits[4];
    cuda::load_matrices(bits, row);
#pragma unroll
    for (int n = 0; n < 4; ++n) to[n] = __int_as_float(static_cast<int>(bits[n]));
  }

  template <bool kThreeTerms>
  __device__ __forceinline__ void add_terms(const float* a, const float* b) {
    Parts<4> rows[2][kSteps];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        float numbers[4];
        load_a(numbers, a, this->first_row() + 16 * i, 8 * k);
        rows[i][k] = parts_of<kThreeTerms, 4>(numbers);
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      static_assert(kSteps == 2);
      float numbers[4];
      load_b(numbers, b, this->first_column() + 8 * j, 0);
      Parts<2> columns[kSteps];
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        columns[k] = parts_of<kThreeTerms, 2>(numbers + 2 * k);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float(&sum)[4] = sum_[i][j];
        if constexpr (kThreeTerms) {
          // The additions of the units truncate. So the units sum only a stage, and additions that round sum
          // the stages.
          float part[4] = {};
#pragma unroll
          for (int k = 0; k < kSteps; ++k) {
            cuda::mma_tf32(part, rows[i][k].lo, columns[k].hi);
            cuda::mma_tf32(part, rows[i][k].hi, columns[k].lo);
          }
#pragma unroll
          for (int k = 0; k < kSteps; ++k) cuda::mma_tf32(part, rows[i][k].hi, columns[k].hi);
#pragma unroll
          for (int n = 0; n < 4; ++n) sum[n] += part[n];
        } else {
#pragma unroll
          for (int k = 0; k < kSteps; ++k) cuda::mma_tf32(sum, rows[i][k].hi, columns[k].hi);
        }
      }
    }
  }
};

// The same by multiply-adds: a thread owns 4 rows, 16 apart, and 2 pairs of columns, 32 apart.
template <class Shape, bool kATransposed, bool kBTransposed>
class PlainSums {
  using Storage = typename Shape::Storage;

 public:
  __device__ __forceinline__ void add(const Storage* a, const Storage* b, bool /*three_terms*/) {
#pragma unroll 4
    for (int k = 0; k < Shape::kDepth; ++k) {
      Storage rows[4], columns[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[i] = a[Stage<Shape, kATransposed>::place(first_row() + 16 * i, k)];
        columns[i] = b[Stage<Shape, kBTransposed>::place(column(i), k)];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum_[i][j] = fma(rows[i], columns[j], sum_[i][j]);
      }
    }
  }
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; j += 2) function(first_row() + 16 * i, column(j), sum_[i][j], sum_[i][j + 1]);
    }
  }

 private:
  __device__ static __forceinline__ int first_row() { return static_cast<int>(threadIdx.x) / 16; }
  __device__ static __forceinline__ int column(int j) {
    return static_cast<int>(threadIdx.x) % 16 * 2 + j % 2 + j / 2 * 32;
  }

  Storage sum_[4][4] = {};
};

template <class Shape, bool kATransposed, bool kBTransposed>
using ProductSums = std::conditional_t<
    std::is_same_v<Shape, Tf32Shape>, Tf32Sums<Shape, kATransposed, kBTransposed>,
    std::conditional_t<sizeof(typename Shape::Storage) == 2, HalfSums<Shape, kATransposed, kBTransposed>,
                       PlainSums<Shape, kATransposed, kBTransposed>>>;

template <class Shape, bool kATransposed, bool kBTransposed>
constexpr int kStageElements = Stage<Shape, kATransposed>::kElements + Stage<Shape, kBTransposed>::kElements;

// Bytes of dynamic shared memory of a block that multiplies.
template <class Shape, bool kATransposed, bool kBTransposed>
constexpr std::size_t kProductBytes = Shape::kStages* kStageElements<Shape, kATransposed, kBTransposed> *
                                      sizeof(typename Shape::Storage);

// Computes the tile of rows from `row` on and columns from `column` on, over k from `begin` to `end`; then
// calls function(row, column, sum, sum of column + 1) for each pair of sums, in the thread that owns it.
// Called by all threads of the block. three_terms is used only with TF32.
template <class Shape, bool kATransposed, bool kBTransposed, class Function>
__device__ __forceinline__ void multiply(const Factor<typename Shape::Storage>& a,
                                         const Factor<typename Shape::Storage>& b, int row, int column,
                                         int begin, int end, bool three_terms, const Function& function) {
  using Storage = typename Shape::Storage;
  using StageA = Stage<Shape, kATransposed>;
  using StageB = Stage<Shape, kBTransposed>;
  constexpr int kElements = kStageElements<Shape, kATransposed, kBTransposed>;
  auto* const shared = reinterpret_cast<Storage*>(cuda::dynamic_shared());
  ProductSums<Shape, kATransposed, kBTransposed> sums;
  const auto ask = [&](int stage) {
    const int k = begin + stage * Shape::kDepth;
    if (k < end) {
      Storage* const to = shared + stage % Shape::kStages * kElements;
      StageA::ask(a, row, k, to);
      StageB::ask(b, column, k, to + StageA::kElements);
    }
    cuda::end_copy_group();  // also an empty group, because groups count stages
  };
  for (int stage = 0; stage < Shape::kStages - 1; ++stage) ask(stage);
  const int stages = (end - begin + Shape::kDepth - 1) / Shape::kDepth;
  for (int stage = 0; stage < stages; ++stage) {
    cuda::await_copy_groups<Shape::kStages - 2>();
    __syncthreads();  // the stage has arrived, and no thread reads the previous one any more
    ask(stage + Shape::kStages - 1);
    const Storage* const now = shared + stage % Shape::kStages * kElements;
    sums.add(now, now + StageA::kElements, three_terms);
  }
  sums.each([&](int r, int n, auto first, auto second) { function(row + r, column + n, first, second); });
}

}  // namespace warpalign::detail::transducer
