// The kernels of the lattice pass, and the choice among them.
#include <iterator>

#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/launch.h"
#include "transducer/cuda/lattice/few_arcs_sweep.cuh"
#include "transducer/cuda/lattice/lattice.cuh"
#include "transducer/cuda/lattice/many_arcs_sweep.cuh"
#include "transducer/cuda/lattice/plain_sweep.cuh"

namespace warpalign::detail::transducer {
namespace {

template <class Sweep>
constexpr const char* kName = "";
template <class Real>
constexpr const char* kName<PlainSweep<Real>> = "lattice, plain";
template <class Real, int kArcs>
constexpr const char* kName<FewArcsSweep<Real, kArcs>> =
    kArcs == 5 ? "lattice, up to 5 arcs" : "lattice, up to 10 arcs";
template <class Real>
constexpr const char* kName<ManyArcsSweep<Real>> = "lattice, any arcs";

template <class Sweep>
const cuda::Kernel kLattice{kKernels, kName<Sweep>, cuda::type_name<typename Sweep::Real>(),
                            lattice_kernel<Sweep>};

template <class Sweep>
constexpr LatticeKernel entry(int most_arcs) {
  using Params = LatticeParams<typename Sweep::Real>;
  return {most_arcs, lattice_shared_bytes<Sweep>,
          [](const void* params, int blocks, int shared_bytes, cudaStream_t stream) {
            const auto& p = *static_cast<const Params*>(params);
            const std::size_t bytes = static_cast<std::size_t>(shared_bytes);
            return cuda::launch(kLattice<Sweep>, {blocks, 32 * p.batch.panel_strips, bytes, stream}, p);
          }};
}

// The kernels, in order of rising numbers of arcs.
template <class Real>
constexpr LatticeKernel kEntries[] = {
    entry<PlainSweep<Real>>(0),
    entry<FewArcsSweep<Real, 5>>(5),
    entry<FewArcsSweep<Real, 10>>(10),
    entry<ManyArcsSweep<Real>>(kMostArcs),
};

}  // namespace

template <class Real>
const LatticeKernel& lattice_kernel_for(const Batch& batch) {
  const LatticeKernel* kernel = kEntries<Real>;
  if (!batch.lattice.tdt && batch.lattice.durations == 0) return *kernel;
  do {
    ++kernel;
  } while (kernel->most_arcs < batch.slots);
  return *kernel;
}

template <class Real>
const LatticeKernel& any_arcs_kernel() {
  return std::end(kEntries<Real>)[-1];
}

template const LatticeKernel& any_arcs_kernel<float>();
template const LatticeKernel& any_arcs_kernel<double>();
template const LatticeKernel& lattice_kernel_for<float>(const Batch&);
template const LatticeKernel& lattice_kernel_for<double>(const Batch&);

}  // namespace warpalign::detail::transducer
