// The kernels of sinkhorn()'s CUDA path, and how one is launched.
#pragma once

#include "transport/cuda/solve/params.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::transport {

template <class Real>
struct SinkhornKernel {
  RowShape shape;  // for given costs
  // The number of blocks of this layout that the current device holds at the same time.
  Status (*resident_blocks)(const SolveLayout& layout, int* blocks);
  Status (*launch)(const SolveParams<Real>& params, cudaStream_t stream);
  std::size_t (*shared_bytes)(const SolveLayout& layout);  // dynamic shared memory of a block
  int cluster = 1;                                         // blocks that share a row
  int own_points = kPointsTile;  // points that a block owns at a time, for costs from points
};

// The threads that own a row of given costs. kAny: those that its length suggests.
enum class RowThreads { kAny, kWarp, kBlock, kCluster };

// The kernel for given costs. columns: those of the kernel's rows. streams: whether the device has bulk
// copies and clusters. Null if `threads` have no kernel for such rows.
template <class Real>
const SinkhornKernel<Real>* dense_kernel_for(int columns, bool streams, RowThreads threads);

// The same for costs of binary16.
const SinkhornKernel<float>* half_dense_kernel_for(int columns, RowThreads threads);

// The kernel for problems whose exponentials stay in shared memory, of given costs or points, and those for
// longer rows, which are also kernels for given costs.
template <class Real>
const SinkhornKernel<Real>& kept_rows_kernel();
template <class Real>
const SinkhornKernel<Real>& long_rows_kernel();
const SinkhornKernel<float>& half_long_rows_kernel();

// The kernel for costs from points.
template <class Real>
const SinkhornKernel<Real>& points_kernel();

// The same with matrix units, for squared distances: one binary16 number per coordinate, or two or three.
const SinkhornKernel<float>& medium_points_kernel();
const SinkhornKernel<float>& split_points_kernel();

// The kernel that reads a plan (plan_kernel.cuh), for given costs or points.
template <class Real>
const SinkhornKernel<Real>& plan_kernel_entry();

// The kernel for derivatives of solutions, for given costs or points.
template <class Real>
const SinkhornKernel<Real>& jvp_kernel_entry();

}  // namespace warpalign::detail::transport
