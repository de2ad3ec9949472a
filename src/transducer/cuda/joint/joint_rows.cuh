// The rows of a joint network's nodes, a chunk at a time: hidden rows before the products, arc weights and
// gradients of logits after them.
#pragma once

#include <cmath>
#include <cstdint>

#include "transducer/cuda/joint/live_rows.cuh"
#include "transducer/cuda/rows/row_gradient.cuh"
#include "transducer/cuda/rows/rows.cuh"
#include "transducer/joint_dropout.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::detail::transducer {

constexpr int kJointThreads = 256;
constexpr int kJointWarps = kJointThreads / cuda::kWarpSize;

// The nodes of a chunk: list[first ..], with *count entries in the whole list; if list is null, all rows from
// `first` on.
struct JointChunk {
  const std::int32_t* list;
  const std::int32_t* count;
  std::int32_t all;  // number of rows, used without a list
  std::int32_t first;
  std::int32_t most;  // the most nodes of a chunk

  [[nodiscard]] __device__ __forceinline__ int rows() const {
    const int behind = (list ? *count : all) - first;
    return max(min(behind, most), 0);
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t row(int index) const {
    return list ? list[first + index] : first + index;
  }
};

// A node of a chunk: row (b T + t) (U + 1) + u of all rows, and its `index` in the chunk.
struct ChunkCursor : RowCursor {
  std::int64_t index;

  __device__ __forceinline__ ChunkCursor(const Batch& batch, const JointChunk& chunk, int at, bool exists)
      : RowCursor(batch, exists ? chunk.row(at) : 0), index(at) {}
  [[nodiscard]] __device__ __forceinline__ std::int64_t offset(const Batch&,
                                                               const std::int64_t (&stride)[3]) const {
    return index * stride[2];
  }
};

template <class Storage>
struct JointRows {
  const Storage* encoder;
  std::int64_t encoder_stride[2];
  const Storage* predictor;
  std::int64_t predictor_stride[2];
  std::int32_t hidden;  // H
  bool is_tanh;
  HiddenDropout<cuda::Sum<Storage>> dropout;
  Storage* h;                 // (chunk, h_stride); 1 in column H, 0 after it
  std::int64_t h_stride;      // a multiple of 8, larger than H
  Storage* logits;            // (chunk, logit_stride)
  std::int64_t logit_stride;  // a multiple of 8
};

template <class Real>
__device__ __forceinline__ Real joint_activation(Real v, bool is_tanh) {
  if (is_tanh) return std::tanh(v);
  return v > Real(0) || v != v ? v : Real(0);  // NaN stays NaN
}

// Computes the hidden rows of a chunk. A warp owns a row. Rows of padding are 0; their inputs are not read.
template <class Storage>
__global__ void __launch_bounds__(kJointThreads)
    joint_hidden_kernel(const __grid_constant__ Batch batch, const __grid_constant__ JointRows<Storage> p,
                        const __grid_constant__ JointChunk chunk) {
  using Real = cuda::Sum<Storage>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp =
      static_cast<int>(blockIdx.x) * kJointWarps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int rows = chunk.rows(), stride = static_cast<int>(gridDim.x) * kJointWarps;
  for (int index = warp; index < rows; index += stride) {
    const RowCursor at(batch, chunk.row(index));
    const bool active = at.t < frames_of(batch.lattice, at.b) && at.u <= labels_of(batch.lattice, at.b);
    const Storage* const e = p.encoder + at.b * p.encoder_stride[0] + at.t * p.encoder_stride[1];
    const Storage* const g = p.predictor + at.b * p.predictor_stride[0] + at.u * p.predictor_stride[1];
    Storage* const to = p.h + index * p.h_stride;
    for (int j = lane; j < p.h_stride; j += cuda::kWarpSize) {
      Real v = j == p.hidden ? Real(1) : Real(0);
      if (active && j < p.hidden) {
        v = joint_activation(static_cast<Real>(cuda::widen(e[j])) + static_cast<Real>(cuda::widen(g[j])),
                             p.is_tanh);
        if (p.dropout.drops()) {
          v = p.dropout.masked(v, p.dropout.words(at.b, at.t, at.u, j / 4).word[j % 4]);
        }
      }
      to[j] = cuda::narrow<Storage>(v);
    }
  }
}

// Copies the weights to rows of h_stride, with the bias in column H.
template <class Storage>
__global__ void __launch_bounds__(kJointThreads)
    joint_pack_kernel(const Storage* weight, const Storage* bias, int columns, int hidden, Storage* to,
                      std::int64_t stride) {
  const std::int64_t all = columns * stride;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kJointThreads;
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kJointThreads + threadIdx.x; n < all;
       n += step) {
    const std::int64_t k = n / stride, j = n - k * stride;
    Storage v = cuda::narrow<Storage>(cuda::Sum<Storage>(0));
    if (j < hidden) v = weight[k * hidden + j];
    if (j == hidden && bias) v = bias[k];
    to[n] = v;
  }
}

// Computes the arc weights of a chunk of all rows, as rows_kernel does for logits in memory.
template <class Storage>
__global__ void __launch_bounds__(kRowThreads)
    joint_weights_kernel(const __grid_constant__ RowsParams<Storage> p,
                         const __grid_constant__ JointChunk chunk) {
  using Real = cuda::Sum<Storage>;
  const Batch& batch = p.batch;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warps = kRowThreads / cuda::kWarpSize;
  const int warp = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int rows = chunk.rows();
  for (int first = warp * p.tile; first < rows; first += static_cast<int>(gridDim.x) * warps * p.tile) {
    const bool exists = lane < p.tile && first + lane < rows;
    const ChunkCursor at(batch, chunk, first + lane, exists);
    bool active = exists;
    if (active) {
      const Utterance utterance = utterance_at(batch, at.b);
      active = utterance.fits && at.t < utterance.frames && at.u <= utterance.labels;
    }
    const Storage* const row = active ? p.logits + at.offset(batch, p.logits_stride) : nullptr;
    const RowSum<Real> sum = sum_tile(row, batch.labels, p.tile, p.lanes, lane);
    if (!active) continue;
    if (p.sums) p.sums[sum_place(batch, at)] = sum;
    const Utterance utterance = utterance_at(batch, at.b);
    const bool has_durations = batch.lattice.tdt && !utterance.without_durations;
    const Storage* const duration_row = has_durations ? row + batch.labels : nullptr;
    RowSum<Real> durations{};
    if (has_durations) durations = sum_durations(duration_row, batch.lattice.durations);
    NodeWeights<Storage>{p,   utterance, table_of(batch, utterance), at.t, at.u, row, duration_row,
                         sum, durations}
        .write();
  }
}

// Overwrites the logits of a chunk with their gradients.
template <class Storage>
__global__ void __launch_bounds__(kGradientThreads)
    joint_gradient_kernel(const __grid_constant__ GradientParams<Storage> p,
                          const __grid_constant__ JointChunk chunk) {
  using Real = cuda::Sum<Storage>;
  __shared__ RowTask<Storage> tasks[kGradientWarps][cuda::kWarpSize];
  __shared__ Mended<Real> mended[kGradientWarps];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp_of_block = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int warp = static_cast<int>(blockIdx.x) * kGradientWarps + warp_of_block;
  const int rows = chunk.rows();
  RowTask<Storage>* const own = tasks[warp_of_block];
  for (int first = warp * p.tile; first < rows;
       first += static_cast<int>(gridDim.x) * kGradientWarps * p.tile) {
    const bool exists = lane < p.tile && first + lane < rows;
    const ChunkCursor at(p.batch, chunk, first + lane, exists);
    const NodeGradient<Storage, ChunkCursor> node(p, at, exists, mended[warp_of_block]);
    own[lane] = node.task();
    __syncwarp();
    for (int r = lane / p.lanes; r < p.tile; r += cuda::kWarpSize / p.lanes) {
      write(p, own[r], mended[warp_of_block], r, lane % p.lanes);
    }
    node.finish();
    __syncwarp();
  }
}

// Adds a chunk's dh (chunk, dh_stride) to the sums of frames (B T, H) and of states (B (U+1), H). A warp owns
// 32 columns of a frame, or of a state of an utterance, and adds its nodes in order: results do not depend on
// the size of chunks.
template <class Real>
struct HiddenSums {
  Batch batch;
  JointChunk chunk;
  LivePlaces places;
  const Real* dh;
  std::int64_t dh_stride;
  int hidden;
  Real* frames;  // may be null
  Real* states;
  Band band;

  // to[column] += sum of dh over those of `count` nodes that are in the chunk. node(i): number i of them; -1:
  // there is none.
  template <class Node>
  __device__ __forceinline__ void add(Real* to, int column, int count, const Node& node) const {
    constexpr int kAtOnce = 8;  // loads in flight
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize, rows = chunk.rows();
    const bool exists = column < hidden;
    bool any = false;
    Real sum = exists ? to[column] : Real(0);
    for (int part = 0; part < count; part += cuda::kWarpSize) {
      const std::int64_t at = part + lane < count ? node(part + lane) : -1;
      const int place = at < 0 ? -1 : places[at] - chunk.first;
      unsigned mask = __ballot_sync(cuda::kFullWarp, place >= 0 && place < rows);
      any |= mask != 0;
      while (mask != 0) {
        Real terms[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const bool is_term = mask != 0;
          const int from = cuda::shuffle(place, is_term ? __ffs(static_cast<int>(mask)) - 1 : 0);
          terms[k] = is_term && exists ? dh[from * dh_stride + column] : Real(0);
          mask &= mask - 1;
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) sum += terms[k];
      }
    }
    if (any && exists) to[column] = sum;
  }
};
template <class Real>
__global__ void __launch_bounds__(kJointThreads)
    joint_add_kernel(const __grid_constant__ HiddenSums<Real> p) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp =
      static_cast<int>(blockIdx.x) * kJointWarps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int warps = static_cast<int>(gridDim.x) * kJointWarps;
  const int rows = p.chunk.rows(), states = p.batch.lattice.states, all_frames = p.batch.lattice.frames;
  if (rows == 0) return;
  const int slices = (p.hidden + cuda::kWarpSize - 1) / cuda::kWarpSize;
  const int first = p.chunk.row(0) / states,
            last = p.chunk.row(rows - 1) / states;  // the chunk's first and last frame, as b T + t
  const int first_b = first / all_frames, last_b = last / all_frames;
  const int of_frames = p.frames ? (last - first + 1) * slices : 0;
  const int of_states = p.states ? (last_b - first_b + 1) * states * slices : 0;
  for (int task = warp; task < of_frames + of_states; task += warps) {
    const bool is_frame = task < of_frames;
    const int number = is_frame ? task : task - of_frames;
    const int item = number / slices, column = number % slices * cuda::kWarpSize + lane;
    if (is_frame) {
      const int of_frame = p.band ? p.band.width : states;
      const std::int64_t frame = first + item;
      p.add(p.frames + frame * p.hidden, column, of_frame, [&](int k) { return frame * of_frame + k; });
      continue;
    }
    const int b = first_b + item / states, u = item % states;
    int begin = max(first, b * all_frames), end = min(last, (b + 1) * all_frames - 1) + 1;
    Real* const to = p.states + (static_cast<std::int64_t>(b) * states + u) * p.hidden;
    if (!p.band) {
      p.add(to, column, end - begin,
            [&](int k) { return static_cast<std::int64_t>(begin + k) * states + u; });
      continue;
    }
    const LiveFrames live = p.places.frames[b * states + u];
    begin = max(begin, (b + 1) * all_frames - live.before);
    end = min(end, b * all_frames + live.end);
    p.add(to, column, max(end - begin, 0), [&](int k) {
      const int t = begin + k - b * all_frames;
      if (!p.band.has(b, t, u)) return std::int64_t{-1};
      return p.band.node(b, t, u);
    });
  }
}

}  // namespace warpalign::detail::transducer
