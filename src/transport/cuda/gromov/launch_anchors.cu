// Host side of anchors on CUDA.
#include "cuda/launch/launch.cuh"
#include "transport/cuda/gromov/anchors.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

const cuda::Kernel kColumns{kKernels, "anchors, columns", nullptr, anchor_columns_kernel};
const cuda::Kernel kJoin{kKernels, "anchors, joined columns", nullptr, anchor_join_kernel};

using CoordinatesKernel = cuda::Kernel<AnchorCoordinates>;
const CoordinatesKernel kCoordinates[] = {
    {kKernels, "anchors, largest differences", nullptr,
     anchor_coordinates_kernel<AnchorDistance::kLargestDifference>},
    {kKernels, "anchors, Euclidean", nullptr, anchor_coordinates_kernel<AnchorDistance::kEuclidean>},
    {kKernels, "anchors, squared Euclidean", nullptr,
     anchor_coordinates_kernel<AnchorDistance::kSquaredEuclidean>},
};

}  // namespace

Status anchor_columns_cuda(const AnchorColumns& p, Workspace workspace, void* stream) {
  const int parts = anchor_parts(p.m);
  const AnchorColumnsParams params{p.n,
                                   p.m,
                                   p.dim,
                                   p.count,
                                   parts,
                                   static_cast<const float*>(p.x),
                                   static_cast<const float*>(p.y),
                                   static_cast<const float*>(p.g),
                                   static_cast<const float*>(p.b),
                                   p.rows,
                                   static_cast<float>(p.cost_scale / p.epsilon),
                                   static_cast<float>(1 / p.epsilon),
                                   p.seed,
                                   static_cast<unsigned long long*>(workspace.data),
                                   p.columns};
  auto* const to = static_cast<cudaStream_t>(stream);
  if (Status s = cuda::launch(kColumns, {p.count * parts, kAnchorThreads, 0, to}, params); !s.ok()) return s;
  return cuda::launch(kJoin, {cuda::div_up(p.count, kAnchorThreads), kAnchorThreads, 0, to}, params);
}

Status anchor_coordinates_cuda(const AnchorCoordinates& p, void* stream) {
  const int blocks = cuda::div_up(p.n, kAnchorTile) * cuda::div_up(p.count, kAnchorTile);
  return cuda::launch(kCoordinates[static_cast<int>(p.distance)],
                      {blocks, kAnchorThreads, 0, static_cast<cudaStream_t>(stream)}, p);
}

}  // namespace warpalign::detail::transport
