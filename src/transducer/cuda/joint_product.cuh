// Products of matrices for the joint network, a tile of the result by each block. 16-bit types multiply on
// the matrix units and add in float32; float32 and float64 multiply and add in their own type.
//
//   c[r,n] = sum over k of a[r,k] b[n,k]
//
// Every sum goes in the order of k, so that its bits do not depend on the rows and columns beside it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/half.cuh"
#include "cuda/mma.cuh"
#include "cuda/streaming.cuh"
#include "cuda/warp.cuh"

namespace warpalign::detail::transducer {

constexpr int kProductThreads = 256;

// A factor in memory, row-major. Plain: rows are r (or n), columns k; transposed: rows are k, columns r (or
// n). Rows are aligned to 16 bytes, and `columns` is a multiple of 8. What lies beyond counts as 0.
template <class Storage>
struct Factor {
  const Storage* data;
  std::int64_t stride;
  std::int32_t rows;
  std::int32_t columns;
};

template <class Storage>
inline constexpr bool kOnMatrixUnits = sizeof(Storage) == 2;

// The sizes of a block's tile.
template <class Storage>
struct ProductShape {
  static constexpr int kTile = kOnMatrixUnits<Storage> ? 128 : 64;  // rows, and columns
  static constexpr int kDepth = kOnMatrixUnits<Storage> ? 32 : 16;  // of a stage
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Storage));
};

// A stage of one factor: kTile x kDepth elements, in shared memory as they lie in global memory.
template <class Storage, bool kTransposed>
class Stage {
  using Shape = ProductShape<Storage>;
  using Vector = cuda::Bits128;
  static constexpr int kOuter = kTransposed ? Shape::kDepth : Shape::kTile;
  static constexpr int kInner = kTransposed ? Shape::kTile : Shape::kDepth;
  static constexpr int kStride = kInner + Shape::kVector;  // keeps neighbouring rows in different banks
  static constexpr int kVectors = kOuter * kInner / Shape::kVector / kProductThreads;
  static_assert(kVectors * kProductThreads * Shape::kVector == kOuter * kInner);

 public:
  // Reads what this thread brings: rows (or columns) `first` on of r (or n), and k from `depth` on.
  __device__ __forceinline__ void read(const Factor<Storage>& from, int first, int depth) {
    const int outer = kTransposed ? depth : first, inner = kTransposed ? first : depth;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * kProductThreads + static_cast<int>(threadIdx.x);
      const int row = outer + at / (kInner / Shape::kVector);
      const int column = inner + at % (kInner / Shape::kVector) * Shape::kVector;
      vectors_[v] = Vector{};
      if (row < from.rows && column < from.columns) {
        vectors_[v] = *reinterpret_cast<const Vector*>(from.data + row * from.stride + column);
      }
    }
  }
  __device__ __forceinline__ void write(Storage* shared) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * kProductThreads + static_cast<int>(threadIdx.x);
      const int row = at / (kInner / Shape::kVector);
      const int column = at % (kInner / Shape::kVector) * Shape::kVector;
      *reinterpret_cast<Vector*>(shared + row * kStride + column) = vectors_[v];
    }
  }

  static constexpr int kElements = kOuter * kStride;
  // Element (r, k).
  __device__ static __forceinline__ int place(int r, int k) {
    return kTransposed ? k * kStride + r : r * kStride + k;
  }
  // mma_half()'s a: rows `row` to row + 15, k to k + 15.
  __device__ static __forceinline__ void load_a(std::uint32_t (&to)[4], const Storage* shared, int row,
                                                int k) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const int r = row + (kTransposed ? lane / 8 % 2 * 8 : lane % 16);
    const int d = k + (kTransposed ? lane / 16 * 8 + lane % 8 : lane / 16 * 8);
    cuda::load_matrices<kTransposed>(to, shared + place(r, d));
  }
  // mma_half()'s b for columns n to n + 7, and behind them for n + 8 to n + 15.
  __device__ static __forceinline__ void load_b(std::uint32_t (&to)[4], const Storage* shared, int n, int k) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const int c = n + (kTransposed ? lane / 16 * 8 : lane / 16 * 8 + lane % 8);
    const int d = k + (kTransposed ? lane / 8 % 2 * 8 + lane % 8 : lane / 8 % 2 * 8);
    cuda::load_matrices<kTransposed>(to, shared + place(c, d));
  }

 private:
  Vector vectors_[kVectors];
};

// A thread's share of a tile on the matrix units: each of eight warps has 64 rows and 32 columns.
template <class Storage, bool kATransposed, bool kBTransposed>
class HalfSums {
 public:
  __device__ __forceinline__ void add(const Storage* a, const Storage* b) {
#pragma unroll
    for (int k = 0; k < ProductShape<Storage>::kDepth; k += 16) {
      std::uint32_t rows[4][4], columns[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) Stage<Storage, kATransposed>::load_a(rows[i], a, first_row() + 16 * i, k);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        Stage<Storage, kBTransposed>::load_b(columns[j], b, first_column() + 16 * j, k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::uint32_t factor[2] = {columns[j / 2][j % 2 * 2], columns[j / 2][j % 2 * 2 + 1]};
          cuda::mma_half<Storage>(sum_[i][j], rows[i], factor);
        }
      }
    }
  }
  // function(row, column, value) for the sums of this thread.
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          function(first_row() + 16 * i + lane / 4 + k / 2 * 8, first_column() + 8 * j + lane % 4 * 2 + k % 2,
                   sum_[i][j][k]);
        }
      }
    }
  }

 private:
  __device__ static __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / cuda::kWarpSize; }
  __device__ static __forceinline__ int first_row() { return warp() / 4 * 64; }
  __device__ static __forceinline__ int first_column() { return warp() % 4 * 32; }

  float sum_[4][4][4] = {};
};

// The same by multiplications and additions: each thread has 4 rows and 4 columns, 16 apart.
template <class Storage, bool kATransposed, bool kBTransposed>
class PlainSums {
 public:
  __device__ __forceinline__ void add(const Storage* a, const Storage* b) {
#pragma unroll 4
    for (int k = 0; k < ProductShape<Storage>::kDepth; ++k) {
      Storage rows[4], columns[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[i] = a[Stage<Storage, kATransposed>::place(first_row() + 16 * i, k)];
        columns[i] = b[Stage<Storage, kBTransposed>::place(first_column() + 16 * i, k)];
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
      for (int j = 0; j < 4; ++j) function(first_row() + 16 * i, first_column() + 16 * j, sum_[i][j]);
    }
  }

 private:
  __device__ static __forceinline__ int first_row() { return static_cast<int>(threadIdx.x) / 16; }
  __device__ static __forceinline__ int first_column() { return static_cast<int>(threadIdx.x) % 16; }

  Storage sum_[4][4] = {};
};

// The sums of rows `row` on and columns `column` on, over k from `begin` to `end`; then
// function(row, column, sum) for each of them, by some thread of the block. All threads of the block call.
template <class Storage, bool kATransposed, bool kBTransposed, class Function>
__device__ __forceinline__ void multiply(const Factor<Storage>& a, const Factor<Storage>& b, int row,
                                         int column, int begin, int end, const Function& function) {
  using Shape = ProductShape<Storage>;
  using StageA = Stage<Storage, kATransposed>;
  using StageB = Stage<Storage, kBTransposed>;
  __shared__ __align__(16) unsigned char shared_a[StageA::kElements * sizeof(Storage)];
  __shared__ __align__(16) unsigned char shared_b[StageB::kElements * sizeof(Storage)];
  auto* const stage_a = reinterpret_cast<Storage*>(shared_a);
  auto* const stage_b = reinterpret_cast<Storage*>(shared_b);
  std::conditional_t<kOnMatrixUnits<Storage>, HalfSums<Storage, kATransposed, kBTransposed>,
                     PlainSums<Storage, kATransposed, kBTransposed>>
      sums;
  StageA next_a;
  StageB next_b;
  if (begin < end) {
    next_a.read(a, row, begin);
    next_b.read(b, column, begin);
  }
  for (int k = begin; k < end; k += Shape::kDepth) {
    __syncthreads();
    next_a.write(stage_a);
    next_b.write(stage_b);
    __syncthreads();
    if (k + Shape::kDepth < end) {  // on its way while this stage is multiplied
      next_a.read(a, row, k + Shape::kDepth);
      next_b.read(b, column, k + Shape::kDepth);
    }
    sums.add(stage_a, stage_b);
  }
  sums.each([&](int r, int n, auto sum) { function(row + r, column + n, sum); });
}

}  // namespace warpalign::detail::transducer
