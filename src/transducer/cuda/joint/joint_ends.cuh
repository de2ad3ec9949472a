// Common to both ways to multiply: live nodes are listed before the chunks, and sums are rounded after them.
#pragma once

#include "transducer/cuda/joint/joint_rows.cuh"
#include "transducer/cuda/joint/live_rows.cuh"

namespace warpalign::detail::transducer {

// A block owns the kLiveRows nodes from kLiveRows k on. Without a list it writes the number of live ones to
// counts[k], and clears the frames of states; otherwise it lists their rows from counts[k] on, and writes
// their places and the frames of their states. states: B (U+1).
template <class Real>
__global__ void __launch_bounds__(kJointThreads)
    joint_live_kernel(const __grid_constant__ LiveRows<Real> p, std::int32_t* counts, std::int32_t* list,
                      const __grid_constant__ LivePlaces places, int states) {
  LiveFrames* const frames = places.frames;
  __shared__ int of_warp[kJointWarps];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  if (!list && frames) {
    const int step = static_cast<int>(gridDim.x) * kJointThreads;
    for (int n = static_cast<int>(blockIdx.x) * kJointThreads + static_cast<int>(threadIdx.x); n < states;
         n += step) {
      frames[n] = {0, 0};
    }
  }
  int before = list ? counts[blockIdx.x] : 0;
  for (int part = 0; part < kLiveRows; part += kJointThreads) {
    const std::int64_t node =
        static_cast<std::int64_t>(blockIdx.x) * kLiveRows + part + static_cast<int>(threadIdx.x);
    const bool exists = node < p.count();
    const RowCursor at(p.batch, exists ? p.row(node) : 0);
    const bool live = exists && p.is_live(at);
    const unsigned mask = __ballot_sync(cuda::kFullWarp, live);
    if (lane == 0) of_warp[warp] = __popc(mask);
    __syncthreads();
    int place = before;
    for (int w = 0; w < kJointWarps; ++w) {
      if (w < warp) place += of_warp[w];
      before += of_warp[w];
    }
    if (list && exists) {
      if (lane == 0) places.words[node / cuda::kWarpSize] = {mask, place};
      if (live) {
        list[place + __popc(mask & ((1u << lane) - 1u))] = static_cast<std::int32_t>(at.row);
        if (frames) {
          LiveFrames& of_state = frames[at.b * p.batch.lattice.states + at.u];
          atomicMax(&of_state.before, p.batch.lattice.frames - at.t);
          atomicMax(&of_state.end, at.t + 1);
        }
      }
    }
    __syncthreads();
  }
  if (!list && threadIdx.x == 0) counts[blockIdx.x] = before;
}

// Replaces counts by their exclusive prefix sums, and writes the total to *total. One block.
static __global__ void __launch_bounds__(kJointThreads)
    joint_scan_kernel(std::int32_t* counts, int blocks, std::int32_t* total) {
  __shared__ int sums[kJointThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int share = (blocks + kJointThreads - 1) / kJointThreads;
  const int begin = min(thread * share, blocks), end = min(begin + share, blocks);
  int own = 0;
  for (int k = begin; k < end; ++k) own += counts[k];
  sums[thread] = own;
  __syncthreads();
  int before = 0;
  for (int k = 0; k < thread; ++k) before += sums[k];
  if (thread == kJointThreads - 1) *total = before + own;
  for (int k = begin; k < end; ++k) {
    const int count = counts[k];
    counts[k] = before;
    before += count;
  }
}

// to[r, j] = sum over parts of from[part, r, j], rounded once. from has rows `stride` apart; its column j ==
// columns goes to `last`, which may be null.
template <class Storage>
__global__ void __launch_bounds__(kJointThreads)
    joint_round_kernel(const cuda::Sum<Storage>* from, int parts, std::int64_t part_stride,
                       std::int64_t stride, std::int64_t rows, int columns, Storage* to, Storage* last) {
  const std::int64_t all = rows * (columns + 1);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kJointThreads;
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kJointThreads + threadIdx.x; n < all;
       n += step) {
    const std::int64_t row = n / (columns + 1);
    const int j = static_cast<int>(n - row * (columns + 1));
    Storage* const out =
        j < columns ? (to ? to + row * columns + j : nullptr) : (last ? last + row : nullptr);
    if (!out) continue;
    cuda::Sum<Storage> sum = 0;
    for (int part = 0; part < parts; ++part) sum += from[part * part_stride + row * stride + j];
    *out = cuda::narrow<Storage>(sum);
  }
}

}  // namespace warpalign::detail::transducer
