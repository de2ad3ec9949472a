// The kernels of the lattice pass, and the choice among them.
#include "cuda/launch.cuh"
#include "transducer/cuda/arcs_sweep.cuh"
#include "transducer/cuda/lattice.cuh"
#include "transducer/cuda/launch.h"
#include "transducer/cuda/plain_sweep.cuh"

namespace warpalign::detail::transducer {
namespace {

template <class Sweep>
constexpr LatticeKernel entry(const char* name, int most_arcs) {
  using Params = LatticeParams<typename Sweep::Real>;
  return {name, most_arcs, lattice_shared_bytes<Sweep>,
          [](const void* params, int blocks, int shared_bytes, cudaStream_t stream) {
            const auto& p = *static_cast<const Params*>(params);
            const std::size_t bytes = static_cast<std::size_t>(shared_bytes);
            return cuda::launch(lattice_kernel<Sweep>, {blocks, 32 * p.batch.panel_strips, bytes, stream}, p);
          }};
}

// By rising number of arcs.
template <class Real>
constexpr LatticeKernel kKernels[] = {
    entry<PlainSweep<Real>>("plain", 0),
    entry<ArcsSweep<Real, 5>>("up to 5 arcs", 5),
    entry<ArcsSweep<Real, 10>>("up to 10 arcs", 10),
    entry<ArcsSweep<Real, kMostArcs>>("any arcs", kMostArcs),
};

}  // namespace

template <class Real>
const LatticeKernel& lattice_kernel_for(const Batch& batch) {
  const LatticeKernel* kernel = kKernels<Real>;
  if (!batch.lattice.tdt && batch.lattice.durations == 0) return *kernel;
  do {
    ++kernel;
  } while (kernel->most_arcs < batch.slots);
  return *kernel;
}

template const LatticeKernel& lattice_kernel_for<float>(const Batch&);
template const LatticeKernel& lattice_kernel_for<double>(const Batch&);

}  // namespace warpalign::detail::transducer
