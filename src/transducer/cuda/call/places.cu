// The offsets of packed utterances: sums over the earlier utterances, by one block.
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/launch.h"

namespace warpalign::detail::transducer {
namespace {

constexpr int kThreads = 512;  // also the number of utterances at a time

// The inclusive prefix sum of v over the block's threads.
__device__ std::int64_t sum_up_to(std::int64_t v) {
  __shared__ std::int64_t sums[kThreads];
  const int k = static_cast<int>(threadIdx.x);
  sums[k] = v;
  __syncthreads();
  for (int reach = 1; reach < kThreads; reach *= 2) {
    const std::int64_t before = k >= reach ? sums[k - reach] : 0;
    __syncthreads();
    sums[k] += before;
    __syncthreads();
  }
  v = sums[k];
  __syncthreads();
  return v;
}

__global__ void __launch_bounds__(kThreads)
    places_kernel(const __grid_constant__ Batch batch, Place* places) {
  const TransducerLattice& lattice = batch.lattice;
  __shared__ Place next;
  if (threadIdx.x == 0) next = {0, 0, 0, 0};
  __syncthreads();
  for (int first = 0; first < lattice.batch; first += kThreads) {
    const int b = first + static_cast<int>(threadIdx.x);
    const bool inside = b < lattice.batch;
    const std::int64_t frames = inside ? frames_of(lattice, b) : 0;
    const int labels = inside ? labels_of(lattice, b) : 0;
    const std::int64_t rows = frames * (labels + 1);
    const Place begin = next;
    Place end;
    end.row = begin.row + sum_up_to(rows);
    end.label = begin.label + sum_up_to(labels);
    const bool has_slots = batch.packed && rows > 0 && end.row <= batch.rows;
    const std::int64_t slots =
        has_slots ? SlotLayout{static_cast<int>(frames), labels + 1, batch.slots}.count() : 0;
    const std::int64_t borders = has_slots ? frames * (batch.panels_of(labels + 1) - 1) : 0;
    end.slot = begin.slot + sum_up_to(slots);
    end.border = begin.border + sum_up_to(borders);
    if (inside) {
      places[b] = {end.row - rows, end.slot - slots, end.border - borders, end.label - labels};
      if (b == lattice.batch - 1) places[lattice.batch] = end;
    }
    if (threadIdx.x == kThreads - 1) next = end;
    __syncthreads();
  }
}

const cuda::Kernel kPlaces{kKernels, "places", nullptr, places_kernel};

}  // namespace

Status launch_places(const Batch& batch, Place* places, cudaStream_t stream) {
  return cuda::launch(kPlaces, {1, kThreads, 0, stream}, batch, places);
}

}  // namespace warpalign::detail::transducer
