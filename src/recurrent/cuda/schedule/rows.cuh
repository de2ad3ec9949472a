// Kernels before and after the sweeps: a thread per element, grids of any size.
#pragma once

#include "recurrent/cuda/cell/kernel_list.cuh"
#include "recurrent/cuda/steps/norm.cuh"

namespace warpalign::detail::recurrent {

constexpr int kRowThreads = 256;

// body(index) for every index < count, shared out among the grid's threads.
template <class Body>
__device__ __forceinline__ void for_elements(Offset count, const Body& body) {
  const Offset all = static_cast<Offset>(gridDim.x) * kRowThreads;
  for (Offset n = static_cast<Offset>(blockIdx.x) * kRowThreads + threadIdx.x; n < count; n += all) body(n);
}

// body(row, t, b) for `rows` rows from row `first` on, a warp for each.
template <class Body>
__device__ __forceinline__ void for_rows(const StepRows& at, Offset first, Offset rows, const Body& body) {
  constexpr int kWarps = kRowThreads / cuda::kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const Offset all = static_cast<Offset>(gridDim.x) * kWarps;
  for (Offset n = static_cast<Offset>(blockIdx.x) * kWarps + warp; n < rows; n += all) {
    const int t = at.step_of(first + n);
    body(first + n, t, static_cast<int>(first + n - at.first(t)));
  }
}
// to[column] = value(column) by the lanes of a warp, each of which has some reads under way at once.
template <class T, class Value>
__device__ __forceinline__ void for_columns(T* to, int columns, const Value& value) {
  constexpr int kAtOnce = 4;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  for (int column = lane; column < columns; column += kAtOnce * cuda::kWarpSize) {
    T values[kAtOnce];
    unroll<kAtOnce>([&](int k) {
      const int next = column + k * cuda::kWarpSize;
      if (next < columns) values[k] = value(next);
    });
    unroll<kAtOnce>([&](int k) {
      const int next = column + k * cuda::kWarpSize;
      if (next < columns) to[next] = values[k];
    });
  }
}

// A matrix as products of a step read it: rows of `stride` elements, 0 after the columns.
template <class T>
struct PackParams {
  const T* from;  // (rows, columns), or with `across` (columns, rows)
  T* to;
  int rows, columns, stride;
  bool across;
  // Dropout of weights, of entry (row, column) of what is read; factor 0: none.
  MaskWords masks;
  std::uint64_t threshold;
  Sum<T> factor;

  // Entry (i, j) of `from`, which has so many columns.
  __device__ __forceinline__ T kept(int i, int j, int width) const {
    const T v = from[static_cast<Offset>(i) * width + j];
    if (factor == 0) return v;
    const bool drops = masks.below(threshold, MaskKind::kWeight, i, 0, j);
    return cuda::narrow<T>(drops ? Sum<T>(0) : cuda::widen(v) * factor);
  }
};
// A block packs 32 by 32 entries. A transposed matrix goes by way of shared memory, so that both sides are
// read and written along rows. Dropout in place, of a gradient, is a matrix packed onto itself.
constexpr int kPackTile = 32;
template <class T>
__global__ void __launch_bounds__(kRowThreads) pack_kernel(PackParams<T> p) {
  constexpr int kPass = kRowThreads / kPackTile;
  __shared__ T tile[kPackTile][kPackTile + 1];
  const int along = static_cast<int>(threadIdx.x) % kPackTile;
  const int first = static_cast<int>(threadIdx.x) / kPackTile;
  const int tiles = (p.rows + kPackTile - 1) / kPackTile, block = static_cast<int>(blockIdx.x);
  const int first_row = block % tiles * kPackTile, first_column = block / tiles * kPackTile;
  if (p.across) {
#pragma unroll
    for (int n = first; n < kPackTile; n += kPass) {
      const int row = first_row + along, column = first_column + n;
      const bool is_there = row < p.rows && column < p.columns;
      tile[n][along] = is_there ? p.kept(column, row, p.rows) : cuda::narrow<T>(0);
    }
    __syncthreads();
  }
#pragma unroll
  for (int n = first; n < kPackTile; n += kPass) {
    const int row = first_row + n, column = first_column + along;
    if (row >= p.rows || column >= p.stride) continue;
    T v = cuda::narrow<T>(0);
    if (p.across) {
      v = tile[along][n];
    } else if (column < p.columns) {
      v = p.kept(row, column, p.columns);
    }
    p.to[static_cast<Offset>(row) * p.stride + column] = v;
  }
}
template <class T>
inline const cuda::Kernel kPack{kKernels, "pack", cuda::type_name<T>(), pack_kernel<T>};

// The input of a layer, side by side and 0 beyond lengths: x, or what the directions of the layer below put
// out, with its dropout.
template <class T>
struct InputParams {
  StepRows at;
  const T* x;
  Offset stride[3];
  const T* below[2];  // null: x is read
  int parts, width;   // of a row: directions, and the entries of each
  MaskWords masks[2];
  OutputDropout<Sum<T>> dropout;
  Offset first_row, rows;  // what is put together
  T* to;                   // (rows, parts width)
};
template <class T>
__global__ void __launch_bounds__(kRowThreads) input_kernel(InputParams<T> p) {
  for_rows(p.at, p.first_row, p.rows, [&](Offset row, int t, int b) {
    const bool holds = p.at.holds(t, b);
    const Offset x = p.at.starts ? row * p.stride[1] : t * p.stride[0] + b * p.stride[1];
    for_columns(p.to + (row - p.first_row) * p.parts * p.width, p.parts * p.width, [&](int column) {
      if (!holds) return cuda::narrow<T>(0);
      if (!p.below[0]) return p.x[x + column * p.stride[2]];
      const int part = column < p.width ? 0 : 1, unit = column - part * p.width;
      const T v = p.below[part][row * p.width + unit];
      if (p.dropout.factor == 0) return v;
      return cuda::narrow<T>(cuda::widen(v) * p.dropout.of(p.masks[part], t, b, unit));
    });
  });
}
template <class T>
inline const cuda::Kernel kInput{kKernels, "input", cuda::type_name<T>(), input_kernel<T>};

// What the sweeps start from; null: 0.
template <class T>
struct StateParams {
  CudaCell<T> cell;
  const T* h;     // (B, P): h0, or the gradient with respect to h_n
  const void* c;  // (B, H): c0, or the gradient with respect to c_n
  // The state after the chunk of steps before is the first one of the next chunk; h and c are not read.
  bool goes_on = false;
  Sum<T>* kept = nullptr;  // (B, H): a copy of its c
  // Gradients: dh and dc of a backward sweep, with c before the first step.
  bool backward = false;
  const void* c0 = nullptr;  // (B, H)
};
template <class T>
__global__ void __launch_bounds__(kRowThreads) first_state_kernel(StateParams<T> p) {
  const CudaCell<T>& cell = p.cell;
  if (p.backward) {
    for_elements(static_cast<Offset>(cell.at.batch) * cell.output, [&](Offset n) {
      cell.dh[n] = p.h ? cuda::widen(p.h[n]) : Sum<T>(0);
      cell.dh0[n] = 0;
    });
    for_elements(static_cast<Offset>(cell.at.batch) * cell.hidden, [&](Offset n) {
      cell.dc[n] = p.c ? cell.read_cell(p.c, n) : Sum<T>(0);
      cell.dc0[n] = 0;
      const_cast<Sum<T>*>(cell.c0)[n] = p.c0 ? cell.read_cell(p.c0, n) : Sum<T>(0);
    });
    return;
  }
  for_elements(static_cast<Offset>(cell.at.batch) * cell.output_stride, [&](Offset n) {
    const Offset b = n / cell.output_stride, unit = n % cell.output_stride;
    // Converted and back, so that a NaN is not all ones: words of h0 are waited for.
    const bool is_given = p.h && unit < cell.output;
    T v = cuda::narrow<T>(is_given ? cuda::widen(p.h[b * cell.output + unit]) : Sum<T>(0));
    if (p.goes_on) v = h_behind(cell)[n];
    cell.h[0][n] = v;
    cell.h[1][n] = v;
    const_cast<T*>(cell.h0)[n] = v;
  });
  for_elements(static_cast<Offset>(cell.at.batch) * cell.hidden, [&](Offset n) {
    const Sum<T> v = p.goes_on ? cell.c[n] : p.c ? cell.read_cell(p.c, n) : Sum<T>(0);
    cell.c[n] = v;
    const_cast<Sum<T>*>(cell.c0)[n] = v;
    if (p.kept) p.kept[n] = v;
  });
}
template <class T>
inline const cuda::Kernel kFirstState{kKernels, "first state", cuda::type_name<T>(), first_state_kernel<T>};
// The states after a sweep, or with `backward` the gradients with respect to those before it; null: not
// wanted.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    last_state_kernel(CudaCell<T> cell, T* h, void* c, bool backward) {
  if (h) {
    for_elements(static_cast<Offset>(cell.at.batch) * cell.output, [&](Offset n) {
      h[n] = backward ? cuda::narrow<T>(cell.dh0[n] + cell.dh[n])
                      : h_behind(cell)[n / cell.output * cell.output_stride + n % cell.output];
    });
  }
  if (!c) return;
  for_elements(static_cast<Offset>(cell.at.batch) * cell.hidden,
               [&](Offset n) { cell.write_cell(c, n, backward ? cell.dc0[n] + cell.dc[n] : cell.c[n]); });
}
template <class T>
inline const cuda::Kernel kLastState{kKernels, "last state", cuda::type_name<T>(), last_state_kernel<T>};

// h before every step of rows first ... first + rows - 1: (rows, P).
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    h_before_kernel(CudaCell<T> cell, const T* h0, Offset first, Offset rows, T* to) {
  for_rows(cell.at, first, rows, [&](Offset row, int t, int b) {
    const int last = cell.reverse ? t + 1 : t - 1;
    const T* h = nullptr;  // 0
    if (cell.at.holds(t, b)) {
      const bool goes_on = !cell.at.resets_at(t, b) && cell.at.holds(last, b);
      if (goes_on) {
        h = cell.h_rows + (cell.at.first(last) + b) * cell.h_stride;
      } else if (h0) {
        h = h0 + static_cast<Offset>(b) * cell.output;
      }
    }
    for_columns(to + (row - first) * cell.output, cell.output,
                [&](int column) { return h ? h[column] : cuda::narrow<T>(0); });
  });
}
template <class T>
inline const cuda::Kernel kHBefore{kKernels, "h before steps", cuda::type_name<T>(), h_before_kernel<T>};

// Rows are normalised in their places, or the gradients with respect to them are made from those with respect
// to what they become; a block per row.
template <class T>
struct NormaliseParams {
  T* data;  // (rows, columns); backward normalised
  Offset rows;
  int columns;
  Sum<T> eps;
  Sum<T>* scales;  // of row n at 3 n
  // Backward, of rows of all steps. Those without a step have no scale.
  const T* by = nullptr;  // null: forward
  const T* gamma = nullptr;
  T* to = nullptr;
  Offset stride = 0;  // from row to row of `by` and `to`
  StepRows at{};
};
template <class T>
__global__ void __launch_bounds__(kNormThreads) normalise_kernel(NormaliseParams<T> p) {
  for (Offset row = blockIdx.x; row < p.rows; row += gridDim.x) {
    T* const v = p.data + row * p.columns;
    if (p.by) {
      const int t = p.at.step_of(row), b = static_cast<int>(row - p.at.first(t));
      const Sum<T> scale = p.at.holds(t, b) ? p.scales[row * 3] : Sum<T>(0);
      normalise_back(p.columns, scale, p.by + row * p.stride, p.gamma, v, p.to + row * p.stride);
      continue;
    }
    const auto normal = normal_form(p.columns, p.eps, [&](int k) { return cuda::widen(v[k]); });
    for (int k = static_cast<int>(threadIdx.x); k < p.columns; k += kNormThreads) {
      v[k] = cuda::narrow<T>(normal(cuda::widen(v[k])));
    }
    if (threadIdx.x == 0) p.scales[row * 3] = normal.scale;
  }
}
template <class T>
inline const cuda::Kernel kNormalise{kKernels, "normalise", cuda::type_name<T>(), normalise_kernel<T>};

// Sums over all rows of a, or of a times b, by column. Parts of the rows first, then the parts: one order.
template <class T>
struct ColumnSumParams {
  const T* a;
  Offset a_stride;
  const T* b;  // null: none
  Offset b_stride;
  Offset rows;
  int columns;
  Sum<T>* parts;  // (kSumParts, columns)
  T* to;          // (columns,)
  bool adds;      // to what is there
};
constexpr int kSumParts = 64;
template <class T>
__global__ void __launch_bounds__(kRowThreads) part_sums_kernel(ColumnSumParams<T> p) {
  for_elements(static_cast<Offset>(kSumParts) * p.columns, [&](Offset n) {
    const Offset part = n / p.columns, column = n % p.columns;
    Sum<T> sum = 0;
#pragma unroll 8
    for (Offset row = p.rows * part / kSumParts; row < p.rows * (part + 1) / kSumParts; ++row) {
      const Sum<T> v = cuda::widen(p.a[row * p.a_stride + column]);
      sum += p.b ? v * cuda::widen(p.b[row * p.b_stride + column]) : v;
    }
    p.parts[n] = sum;
  });
}
template <class T>
inline const cuda::Kernel kPartSums{kKernels, "sums of parts", cuda::type_name<T>(), part_sums_kernel<T>};
template <class T>
__global__ void __launch_bounds__(kRowThreads) column_sums_kernel(ColumnSumParams<T> p) {
  for_elements(p.columns, [&](Offset column) {
    Sum<T> sum = p.adds ? cuda::widen(p.to[column]) : Sum<T>(0);
    for (int part = 0; part < kSumParts; ++part)
      sum += p.parts[static_cast<Offset>(part) * p.columns + column];
    p.to[column] = cuda::narrow<T>(sum);
  });
}
template <class T>
inline const cuda::Kernel kColumnSums{kKernels, "sums of columns", cuda::type_name<T>(),
                                      column_sums_kernel<T>};

// Kernels that know no element type (kernels_untyped.cu): what a step of a row may do.

// The bits of zoneout: which units of h a step keeps, and above them which of c; a byte for four units.
struct KeptParams {
  StepRows at;
  MaskWords masks;
  std::uint64_t hidden_threshold, cell_threshold;  // 0: nothing is kept
  int words;                                       // of a row
  Offset first_row, rows;                          // whose bits are drawn
  std::uint8_t* to;                                // (rows of all steps, words)
};
extern const cuda::Kernel<KeptParams> kKept;

// to[b]: the steps of row b from step `begin` on, of lengths[b] in all.
struct ChunkLengthsParams {
  const std::int32_t* lengths;
  int batch, begin;
  std::int32_t* to;
};
extern const cuda::Kernel<ChunkLengthsParams> kChunkLengths;

}  // namespace warpalign::detail::recurrent
