// The kernels of sinkhorn()'s CUDA path: which there are, and how one is launched.
#pragma once

#include "transport/cuda/solve/params.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::transport {

template <class Real>
struct SinkhornKernel {
  RowShape shape;  // of costs that are given
  // Blocks of this layout that the current device holds at the same time.
  Status (*resident_blocks)(const SolveLayout& layout, int* blocks);
  Status (*launch)(const SolveParams<Real>& params, cudaStream_t stream);
  int terms = 0;                 // numbers of a coordinate on the matrix units; 0: they are not used
  int cluster = 1;               // blocks that share a row
  int own_points = kPointsTile;  // of a block at a time, of points
};

// Which threads have a row of given costs: as its length suggests, or as the caller has named.
enum class RowThreads { kAny, kWarp, kBlock, kCluster };

// For costs that are given. columns: of the kernel's rows. streams: whether the device has bulk
// copies and clusters. Null where `threads` have no kernel for such rows.
template <class Real>
const SinkhornKernel<Real>* dense_kernel_for(int columns, bool streams, RowThreads threads);

// The same for costs of binary16.
const SinkhornKernel<float>* half_dense_kernel_for(int columns, RowThreads threads);

// For costs made from points.
template <class Real>
const SinkhornKernel<Real>& points_kernel();

// The same on the matrix units, of squared distances: one number of binary16 for a coordinate, or two.
const SinkhornKernel<float>& medium_points_kernel();
const SinkhornKernel<float>& high_points_kernel();

// Writes what is read off a plan (plan_kernel.cuh), of given costs or of points.
template <class Real>
const SinkhornKernel<Real>& plan_kernel_entry();

// How solutions move, of given costs or of points.
template <class Real>
const SinkhornKernel<Real>& jvp_kernel_entry();

}  // namespace warpalign::detail::transport
