// One step without a tape on the matrix units. What it takes is reading the weights: so many of them are
// always on the way.
//
// A block has tiles of 16 rows of weights, the gates of four units each, and up to 64 rows of the batch. Its
// warps share the depth by chunks, first that of R h0 and then that of W x. A warp has a ring in shared
// memory of its own. A place of it has a chunk of the block's rows of weights and of the batch. The warp asks
// for its chunks itself (cp.async), some ahead, and waits for nobody but for the preceding launch.
//
// Sums over chunks and over warps have one order. It depends on the number of warps, and on nothing else of a
// block: a row has the same bits in all batches whose kernels have as many warps.
#pragma once

#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_line.cuh"
#include "recurrent/cuda/cell/operands.cuh"
#include "recurrent/cuda/stream/single_step.cuh"

namespace warpalign::detail::recurrent {

// A chunk of a row: so many pieces of 16 bytes. The four lanes of a row in a product read two of them.
constexpr int kChunkPieces = 4;
// Where piece `piece` of row `row` of a ring's place lies. Eight rows' pieces of one number lie in different
// banks.
__device__ __forceinline__ int place_of(int row, int piece) {
  return row * kChunkPieces + (piece ^ (row / 2 % kChunkPieces));
}

// kProducts: of TF32, for one of float32. kRowTiles: of 16 rows of weights, of a block. kTiles: of 8 rows of
// the batch.
template <class T, int kProducts, int kRowTiles, int kTiles>
struct SingleRing {
  static constexpr int kWeightRows = 16 * kRowTiles, kUnits = 4 * kRowTiles, kUnitRows = 8 * kTiles;
  // A place of the ring has a chunk of so many rows, and so many pieces.
  static constexpr int kRows = kWeightRows + kUnitRows, kPlace = kRows * kChunkPieces;
  // Two blocks find place on a multiprocessor, one of them of the next layer; one where it has 100 KiB.
  static constexpr int kMostBytes = 96 * 1024, kFewestStages = 3, kMostStages = 8;
  static constexpr int kPlaces = kMostBytes / (kPlace * 16);  // of all warps
  static constexpr int kWarps = kRowTiles <= 2 && kPlaces >= 8 * kFewestStages ? 8 : 4;
  static constexpr int kThreads = kWarps * cuda::kWarpSize;
  static constexpr int kStages = kPlaces / kWarps < kMostStages ? kPlaces / kWarps : kMostStages;
  // Sums of the warps, which lie where the rings were. The distance keeps banks apart.
  static constexpr int kSumStride = kWeightRows + 4;
  static constexpr int kSumBytes = kWarps * kUnitRows * kSumStride * 4;
  static constexpr int kRingBytes = kWarps * kStages * kPlace * 16;
  static constexpr int kBiases = kRingBytes > kSumBytes ? kRingBytes : kSumBytes;  // where they lie
  static constexpr int kSharedBytes = kBiases + kWeightRows * 4;
  static_assert(kStages >= kFewestStages);

  struct Part {
    const T* weights;  // of this lane: its first row
    const T* rows;     // of the batch, likewise
    Offset stride;     // from row to row of the batch
    int depth, chunks;
  };
  Part of_h, of_x;
  Piece<T>* places;  // of this warp
  int lane, warp, units, count;
  int items_of_h, items;  // chunks of this warp

  __device__ __forceinline__ SingleRing(const SingleStepParams<T>& p, int first_unit, int first_row,
                                        unsigned char* shared)
      : lane(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        warp(static_cast<int>(threadIdx.x) / cuda::kWarpSize) {
    places = reinterpret_cast<Piece<T>*>(shared) + warp * kStages * kPlace;
    // Of this lane's first row on: rows 8 further are units 2 further.
    units = p.cell.hidden - first_unit - lane / kChunkPieces / 4;
    count = p.cell.at.batch - first_row - lane / kChunkPieces;
    const int hidden = p.cell.hidden;
    of_h = part_of(p.hh, p.h0 ? p.h0 + static_cast<Offset>(first_row) * hidden : nullptr, hidden, hidden,
                   first_unit, hidden);
    of_x = part_of(p.ih, p.x + first_row * p.x_stride, p.x_stride, p.input, first_unit, hidden);
    items_of_h = p.h0 ? own_chunks(of_h.chunks) : 0;
    items = items_of_h + own_chunks(of_x.chunks);
  }
  [[nodiscard]] __device__ __forceinline__ int own_chunks(int chunks) const {
    return (chunks - warp + kWarps - 1) / kWarps;
  }
  __device__ __forceinline__ Part part_of(const T* weights, const T* rows, Offset stride, int depth,
                                          int first_unit, int hidden) const {
    const int row = lane / kChunkPieces;
    const Offset first = static_cast<Offset>(row % 4) * hidden + first_unit + row / 4;
    return {weights + (units > 0 ? first * depth : 0), rows + (count > 0 ? row * stride : 0), stride, depth,
            (depth / Piece<T>::kSize + kChunkPieces - 1) / kChunkPieces};
  }

  // Asks for an item's weights, and for its rows of the batch.
  __device__ __forceinline__ void ask(int item, bool weights, bool rows) {
    if (item >= items) return;
    const bool is_h = item < items_of_h;
    const T* const from_weights = is_h ? of_h.weights : of_x.weights;
    const T* const from_rows = is_h ? of_h.rows : of_x.rows;
    const Offset stride = is_h ? of_h.stride : of_x.stride;
    const int depth = is_h ? of_h.depth : of_x.depth;
    const int chunk = warp + kWarps * (is_h ? item : item - items_of_h);
    const int piece = lane % kChunkPieces, row = lane / kChunkPieces;
    const int column = (chunk * kChunkPieces + piece) * Piece<T>::kSize;
    const bool exists = column < depth;
    Piece<T>* const to = places + item % kStages * kPlace + place_of(row, piece);
    if (weights) {
      unroll<kWeightRows / 8>([&](int k) {
        const bool is_there = exists && 2 * k < units;
        const T* const from = from_weights + (is_there ? static_cast<Offset>(2 * k) * depth + column : 0);
        cuda::copy_async_line_or_zero(to + k * 8 * kChunkPieces, reinterpret_cast<const Piece<T>*>(from),
                                      is_there);
      });
    }
    if (rows) {
      unroll<kTiles>([&](int k) {
        const bool is_there = exists && 8 * k < count;
        const T* const from = from_rows + (is_there ? 8 * k * stride + column : 0);
        cuda::copy_async_line_or_zero(to + (kWeightRows + k * 8) * kChunkPieces,
                                      reinterpret_cast<const Piece<T>*>(from), is_there);
      });
    }
  }

  __device__ __forceinline__ void add(int item, float (&sums)[kTiles][kRowTiles][4]) const {
    const Piece<T>* const place = places + item % kStages * kPlace;
    std::uint32_t rows[kTiles][4];  // two words of each of the chunk's products
    unroll<kTiles>([&](int n) {
      cuda::load_matrices(rows[n], place + place_of(kWeightRows + 8 * n + lane % 8, lane / 8));
    });
    unroll<kChunkPieces / 2>([&](int k) {
      UnitOperand<T, kProducts, 4> weights[kRowTiles];
      unroll<kRowTiles>([&](int i) {
        std::uint32_t words[4];
        cuda::load_matrices(words, place + place_of(16 * i + lane % 16, 2 * k + lane / 16));
        unroll<4>([&](int w) { weights[i].set(w, words[w]); });
      });
      unroll<kTiles>([&](int n) {
        UnitOperand<T, kProducts, 2> of_row;
        of_row.set(0, rows[n][2 * k]), of_row.set(1, rows[n][2 * k + 1]);
        multiply<T, kProducts>(weights, of_row, sums[n]);
      });
    });
  }
};

// What does not depend on the layer below is done while that one still runs: R h0, and reading W, the biases
// and c0. groups: of a batch's rows.
template <class T, int kProducts, int kRowTiles, int kTiles>
__global__ void __launch_bounds__(SingleRing<T, kProducts, kRowTiles, kTiles>::kThreads, 2)
    single_ring_kernel(SingleStepParams<T> p, int groups) {
  using Ring = SingleRing<T, kProducts, kRowTiles, kTiles>;
  constexpr int kWarps = Ring::kWarps, kThreads = Ring::kThreads, kStages = Ring::kStages;
  constexpr int kUnits = Ring::kUnits, kUnitRows = Ring::kUnitRows;
  constexpr int kEach = (kUnits * kUnitRows + kThreads - 1) / kThreads;  // items of a thread
  unsigned char* const shared = cuda::dynamic_shared();
  float* const biases = reinterpret_cast<float*>(shared + Ring::kBiases);
  const CudaCell<T>& cell = p.cell;
  cuda::let_next_launch_begin();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int first_unit = block / groups * kUnits, first_row = block % groups * kUnitRows;
  Ring ring(p, first_unit, first_row, shared);
  unroll<kStages - 1>([&](int n) {
    ring.ask(n, true, n < ring.items_of_h);
    cuda::end_copy_group();
  });
  if (thread < Ring::kWeightRows) {
    const int unit = first_unit + thread / 4;
    biases[thread] = unit < cell.hidden ? bias_of(cell, thread % 4 * cell.hidden + unit) : 0.0f;
  }
  float befores[kEach];
  unroll<kEach>([&](int each) {
    const int own = thread + each * kThreads;
    const int unit = first_unit + own % kUnits, b = first_row + own / kUnits;
    befores[each] = 0;
    if (p.c0 && own < kUnits * kUnitRows && unit < cell.hidden && b < cell.at.batch) {
      befores[each] = cell.read_cell(p.c0, static_cast<Offset>(b) * cell.hidden + unit);
    }
  });

  float sums[kTiles][kRowTiles][4] = {};
#pragma unroll 1
  for (int n = 0; n < ring.items; ++n) {
    if (n == ring.items_of_h) {
      cuda::wait_for_launch_before();
      unroll<kStages - 1>([&](int next) {
        ring.ask(n + next, false, true);
        cuda::end_copy_group();
      });
    }
    cuda::await_copy_groups<kStages - 2>();  // item n is there
    __syncwarp();                            // and all lanes are done with the item before
    const int next = n + kStages - 1;
    ring.ask(next, true, next < ring.items_of_h || n >= ring.items_of_h);
    cuda::end_copy_group();
    ring.add(n, sums);
  }
  cuda::wait_for_launch_before();  // also where a warp has no part of W x

  __syncthreads();
  float* const parts = reinterpret_cast<float*>(shared);
  const auto part_of = [&](int warp, int b) { return parts + (warp * kUnitRows + b) * Ring::kSumStride; };
  const int lane = ring.lane;
  unroll<kRowTiles>([&](int i) {
    unroll<kTiles>([&](int n) {
      unroll<4>([&](int k) {
        part_of(ring.warp, n * 8 + lane % 4 * 2 + k % 2)[16 * i + lane / 4 + k / 2 * 8] = sums[n][i][k];
      });
    });
  });
  __syncthreads();
#pragma unroll
  for (int each = 0; each < kEach; ++each) {
    const int own = thread + each * kThreads;
    const int item = own % kUnits, unit = first_unit + item, b = own / kUnits;
    if (b >= min(cell.at.batch - first_row, kUnitRows) || unit >= cell.hidden) continue;
    float z[4];
    unroll<4>([&](int gate) { z[gate] = biases[4 * item + gate]; });
    unroll<kWarps>([&](int from) {
      const float4 part = *reinterpret_cast<const float4*>(part_of(from, b) + 4 * item);
      z[0] += part.x, z[1] += part.y, z[2] += part.z, z[3] += part.w;
    });
    finish_single_step(p, z, befores[each], first_row + b, unit);
  }
}

template <class T, int kProducts>
constexpr const char* ring_name(bool is_wide, int rows) {
  constexpr bool kTf32 = sizeof(T) == 4 && kProducts == 1;
  if (is_wide && rows > 32)
    return kTf32 ? "single step on wide units, 64 rows, TF32" : "single step on wide units, 64 rows";
  if (is_wide) return "single step on wide units, 32 rows";
  if (rows == 8) return kTf32 ? "single step on units, 8 rows, TF32" : "single step on units, 8 rows";
  if (rows == 16) return kTf32 ? "single step on units, 16 rows, TF32" : "single step on units, 16 rows";
  return kTf32 ? "single step on units, 32 rows, TF32" : "single step on units, 32 rows";
}
template <class T, int kProducts, int kRowTiles, int kTiles>
inline const cuda::Kernel kSingleRing{kKernels, ring_name<T, kProducts>(kRowTiles == 4, 8 * kTiles),
                                      cuda::type_name<T>(),
                                      single_ring_kernel<T, kProducts, kRowTiles, kTiles>};

// Enqueues a layer's step; false: a block of the device has too little shared memory.
template <int kProducts, int kRowTiles, int kTiles, class T>
bool launch_ring(Queue& queue, const SingleStepParams<T>& step, cuda::LaunchConfig config) {
  using Ring = SingleRing<T, kProducts, kRowTiles, kTiles>;
  if (Ring::kSharedBytes > queue.device().shared_bytes_per_block) return false;
  const int groups = cuda::div_up(step.cell.at.batch, Ring::kUnitRows);
  config.blocks = cuda::div_up(step.cell.hidden, Ring::kUnits) * groups;
  config.threads = Ring::kThreads;
  config.shared_bytes = Ring::kSharedBytes;
  queue.launch(kSingleRing<T, kProducts, kRowTiles, kTiles>, config, step, groups);
  return true;
}

// The same; false also where the device has no such matrix units.
template <int kProducts, class T>
bool launch_single_units(Queue& queue, const CudaTuning& tuning, const SingleStepParams<T>& step,
                         const cuda::LaunchConfig& config) {
  if (!queue.device().has_matrix_units) return false;
  const int batch = step.cell.at.batch;
  // Rows that are not there are multiplied, too. In float32 8 of them take 9 % of a step and more.
  if constexpr (sizeof(T) == 4) {
    if (batch <= 8) return launch_ring<kProducts, 2, 1>(queue, step, config);
  }
  if (batch <= 16) return launch_ring<kProducts, 2, 2>(queue, step, config);
  if (batch <= 32) return launch_ring<kProducts, 2, 4>(queue, step, config);
  const int units = step.cell.hidden / queue.device().multiprocessors;
  if constexpr (kProducts == 1) {
    if (units >= tuning.wide_row_units) return launch_ring<kProducts, 4, 8>(queue, step, config);
  }
  if constexpr (sizeof(T) == 2 || kProducts == 3) {
    if (units >= (sizeof(T) == 2 ? tuning.wide_group_units : tuning.wide_float_group_units))
      return launch_ring<kProducts, 4, 4>(queue, step, config);
  }
  return launch_ring<kProducts, 2, 4>(queue, step, config);
}

}  // namespace warpalign::detail::recurrent
