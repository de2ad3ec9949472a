// What the kernels of a layer's sweep work on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/philox.h"
#include "cuda/rows/ragged.h"
#include "recurrent/cuda/cell/activation.cuh"
#include "recurrent/problem.h"

namespace warpalign::detail::recurrent {

using Offset = std::int64_t;

// Which rows belong to which step. Row first(t) + b is that of (t, b). No kernel writes what is read here,
// and
// __ldg() says so: a sweep then reads a length once, though other memory changes meanwhile.
struct StepRows {
  int steps, batch;
  Offset rows;  // in memory
  const std::int32_t *lengths, *starts;
  const std::uint8_t* resets;

  __device__ __forceinline__ Offset first(int t) const {
    return starts ? __ldg(starts + t) : static_cast<Offset>(t) * batch;
  }
  __device__ __forceinline__ int count(int t) const {
    return starts ? __ldg(starts + t + 1) - __ldg(starts + t) : batch;
  }
  __device__ __forceinline__ bool has_row(int t, int b) const {
    return t >= 0 && t < steps && b < batch && b < count(t);
  }
  // Whether (t, b) is within the row's length.
  __device__ __forceinline__ bool holds(int t, int b) const {
    return has_row(t, b) && (!lengths || t < __ldg(lengths + b));
  }
  // Whether the state before an existing (t, b) is (h0, c0) again.
  __device__ __forceinline__ bool resets_at(int t, int b) const {
    return resets && __ldg(resets + first(t) + b);
  }
  // The t of row `row`, which exists. Its b is row - first(t).
  __device__ __forceinline__ int step_of(Offset row) const {
    if (!starts) return static_cast<int>(row / batch);
    int low = 0, high = steps - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (starts[middle] <= row) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

// Rows where each has every step: no lengths, no packed rows, no resets.
struct PlainRows {
  int steps, batch;

  __device__ __forceinline__ Offset first(int t) const { return static_cast<Offset>(t) * batch; }
  __device__ __forceinline__ bool has_row(int t, int b) const { return t >= 0 && t < steps && b < batch; }
  __device__ __forceinline__ bool holds(int t, int b) const { return has_row(t, b); }
  __device__ __forceinline__ bool resets_at(int, int) const { return false; }
};
template <bool kPlain>
__device__ __forceinline__ auto rows_of(const StepRows& rows) {
  if constexpr (kPlain) {
    return PlainRows{rows.steps, rows.batch};
  } else {
    return rows;
  }
}

// The random words of a layer and direction.
struct MaskWords {
  const std::uint64_t* seed;
  std::uint32_t code;
  std::uint32_t first_step = 0;  // the number of step 0

  __device__ __forceinline__ bool below(std::uint64_t threshold, MaskKind kind, int t, int b,
                                        int unit) const {
    const PhiloxWords words =
        philox({{first_step + static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(b),
                 static_cast<std::uint32_t>(unit / 4), code + static_cast<std::uint32_t>(kind)}},
               *seed);
    const int word = unit % 4;  // no index at run time: the words stay in registers
    const std::uint32_t drawn = word == 0   ? words.word[0]
                                : word == 1 ? words.word[1]
                                : word == 2 ? words.word[2]
                                            : words.word[3];
    return drawn < threshold;
  }
  // Bit k is that of unit `unit` + k; `unit` is a multiple of 4.
  __device__ __forceinline__ unsigned below_of_four(std::uint64_t threshold, MaskKind kind, int t, int b,
                                                    int unit) const {
    const PhiloxWords words =
        philox({{first_step + static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(b),
                 static_cast<std::uint32_t>(unit / 4), code + static_cast<std::uint32_t>(kind)}},
               __ldg(seed));
    unsigned bits = 0;
    unroll<4>([&](int k) { bits |= (words.word[k] < threshold ? 1u : 0u) << k; });
    return bits;
  }
};

// The share of the state before that a unit keeps.
template <class Real>
struct Zoneout {
  Real probability;
  std::uint64_t threshold;
  bool training;

  __device__ __forceinline__ Real share(const MaskWords& masks, MaskKind kind, int t, int b, int unit) const {
    if (probability == 0 || !training) return probability;
    return masks.below(threshold, kind, t, b, unit) ? Real(1) : Real(0);
  }
};

// Dropout of a layer's output.
template <class Real>
struct OutputDropout {
  std::uint64_t threshold;
  Real factor;  // 1 / (1 - p); 0: no dropout

  __device__ __forceinline__ Real of(const MaskWords& masks, int t, int b, int unit) const {
    if (factor == 0) return 1;
    return masks.below(threshold, MaskKind::kDropout, t, b, unit) ? Real(0) : factor;
  }
};

// A layer in a direction. Matrices are row-major. A stride says how many elements lie from row to row; where
// none is named rows follow each other.
template <class T>
struct CudaCell {
  using Real = Sum<T>;

  StepRows at;
  int hidden, output;
  bool reverse, layer_norm, projects;
  Activation<T> activation;
  MaskWords masks;
  Zoneout<Real> zoneout_hidden, zoneout_cell;
  const std::uint8_t* kept;     // (rows, H/4): zoneout's bits of h, then of c; null: none are drawn ahead
  OutputDropout<Real> dropout;  // of this layer's output; backward only
  Real eps;

  // Weights. Those that products read are packed: rows are padded with zeros to whole vectors.
  int output_stride, hidden_stride, gates_stride;  // of P, H and 4H elements
  const T* hh;                                     // (4H, output_stride)
  const T* hr;                                     // (P, hidden_stride)
  const T* hh_across;                              // (P, gates_stride): transposed; backward
  const T* hr_across;                              // (H, output_stride): transposed; backward
  const T *bias_ih, *bias_hh, *ln_ih, *ln_hh, *ln_cell, *ln_cell_bias;

  // States of rows b. h: (B, output_stride), padded with zeros. c: (B, H).
  T* h[2];  // before steps of even and of odd place in the sweep
  const T* h0;
  Real* c;
  const Real* c0;
  Real* raw;    // (B, 4H): R h. Layer norm
  Real* cells;  // (B, H): c~. Layer norm
  T* m;         // (B, hidden_stride): o u(c~). Projection

  // Rows of all steps.
  T* gates;                     // (rows, 4H): W x, then i, f, g, o
  T* tape_c;                    // (rows, H): c[t]; null: not wanted
  T *norm_x, *norm_h, *norm_c;  // (rows, 4H), (rows, 4H), (rows, H): normalised. Layer norm
  Real* scales;                 // (rows, 3): 1 / sqrt(var + eps) of each. Layer norm

  // h[t], rows of h_stride elements: a layer's own, or this direction's part of y. Null: not wanted.
  T* h_rows;
  Offset h_stride;
  Real* kept_c;  // (chunks - 1, B, H): c before each chunk but the first. Recompute

  // More results of the forward pass; null: not wanted.
  T* h_all;     // (rows, P)
  void* c_all;  // (rows, H)
  bool wide_cells;

  // Backward. Gradients that come in; null: 0.
  const T* dy;  // by this layer's output, rows of dy_stride elements
  Offset dy_stride;
  const T* dh_all;
  const void* dc_all;
  // The sweep's own.
  Real *dh, *dh0;  // (B, P)
  Real *dc, *dc0;  // (B, H)
  Real* dm;        // (B, H)
  T* dz;           // (rows, gates_stride): with respect to z
  T* dz_ring;      // (slots, B, gates_stride): of the last steps. Sweep of the whole grid, as the next one
  int* ring_arrivals;  // of each group
  T *dz_x, *dz_h;      // the same, with respect to W x and to R h: dz without layer norm
  T* carried;          // (B, H): R^T dz of the step swept before. Steps by products
  T* dh_new;           // (rows, output_stride): with respect to h~. Projection
  T* dv;               // (rows, H): with respect to LN(c~). Layer norm
  const T* across;     // (rows, H): R^T of R h normalised. Sweeps on clusters with layer norm
  T* m_rows;           // (rows, H): o u(c~). Projection

  // Entries of states that have the cell's dtype.
  __device__ __forceinline__ Real read_cell(const void* from, Offset index) const {
    if constexpr (sizeof(T) == 2) {
      if (wide_cells) return static_cast<const Real*>(from)[index];
    }
    return cuda::widen(static_cast<const T*>(from)[index]);
  }
  __device__ __forceinline__ void write_cell(void* to, Offset index, Real v) const {
    if constexpr (sizeof(T) == 2) {
      if (wide_cells) {
        static_cast<Real*>(to)[index] = v;
        return;
      }
    }
    static_cast<T*>(to)[index] = cuda::narrow<T>(v);
  }

  // The t of step `place` of the forward sweep; any number but a step for places that are none.
  __device__ __forceinline__ int step_at(int place) const { return reverse ? at.steps - 1 - place : place; }
  // The t of step `place` of the backward sweep.
  __device__ __forceinline__ int step_back_at(int place) const { return step_at(at.steps - 1 - place); }
};

// The cell of a direction, for kernels that use it again and again: each field is then picked once, among two
// constants, where an index made at run time costs a slow read at each use.
template <class T>
__device__ __forceinline__ CudaCell<T> cell_of(const CudaCell<T> (&cells)[2], int direction) {
  CudaCell<T> cell = cells[0];
  if (direction == 1) cell = cells[1];
#ifdef __CUDA_ARCH__
  // The compiler no longer sees that these pointers are global memory. Without this its accesses are generic,
  // which is slower.
  const void* const arrays[] = {
      cell.hh,     cell.hh_across, cell.hr,    cell.hr_across, cell.bias_ih, cell.bias_hh, cell.h[0],
      cell.h[1],   cell.h0,        cell.c,     cell.c0,        cell.raw,     cell.m,       cell.gates,
      cell.tape_c, cell.h_rows,    cell.h_all, cell.c_all,     cell.dy,      cell.dh_all,  cell.dc_all,
      cell.dh,     cell.dh0,       cell.dc,    cell.dc0,       cell.dm,      cell.dz,      cell.dz_x,
      cell.dz_h,   cell.dh_new,    cell.dv,    cell.m_rows,    cell.dz_ring, cell.norm_x,  cell.norm_h,
      cell.norm_c, cell.scales,    cell.across};
#pragma unroll
  for (const void* array : arrays) __builtin_assume(__isGlobal(array));
#endif
  return cell;
}
// The same again, for what comes after a loop: its pointers take no registers meanwhile.
template <class T>
__device__ __forceinline__ CudaCell<T> cell_again(const CudaCell<T> (&cells)[2], int direction) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(direction));  // the compiler no longer knows that the cell is the one it has
#endif
  return cell_of(cells, direction);
}
// The memory of h before step `place` of the forward sweep, and after the last one. No index at run time:
// the cell stays in registers.
template <class T>
__device__ __forceinline__ T* h_before(const CudaCell<T>& cell, int place) {
  return place % 2 ? cell.h[1] : cell.h[0];
}
template <class T>
__device__ __forceinline__ T* h_behind(const CudaCell<T>& cell) {
  return h_before(cell, cell.at.steps);
}

// Steps of a sweep by their places, from `begin`, which is even, to the one before `end`.
struct Places {
  int begin, end;
};

// What a kernel of one step gets: the directions of a layer run in one launch.
template <class T>
struct StepParams {
  CudaCell<T> cell[2];
  int place;                // of the step in its sweep
  int blocks_of_direction;  // of the grid
};

}  // namespace warpalign::detail::recurrent
