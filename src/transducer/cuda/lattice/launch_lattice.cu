// The kernels of the lattice pass, and the choice among them.
#include <algorithm>

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

// The kernels, by ascending number of arcs.
template <class Real>
constexpr LatticeKernel kEntries[] = {
    entry<PlainSweep<Real>>(0),
    entry<FewArcsSweep<Real, 5>>(5),
    entry<FewArcsSweep<Real, 10>>(10),
    entry<ManyArcsSweep<Real>>(kMostArcs),
};

}  // namespace

bool has_arcs(LatticeWay way, const Batch& batch) {
  const bool plain = !batch.lattice.tdt && batch.lattice.durations == 0;
  // Two slots of a node lie side by side, which the plain kernel alone reads.
  if (plain || way == LatticeWay::kPlain) return plain && way == LatticeWay::kPlain;
  if (way >= LatticeWay::kAnyArcs) return true;
  return kEntries<float>[static_cast<int>(way)].most_arcs >= batch.slots;
}

LatticeWay lattice_way_for(const Batch& batch) {
  int way = 0;
  while (!has_arcs(LatticeWay(way), batch)) ++way;
  return LatticeWay(way);
}

template <class Real>
const LatticeKernel& lattice_kernel(LatticeWay way) {
  return kEntries<Real>[static_cast<int>(std::min(way, LatticeWay::kAnyArcs))];
}

template const LatticeKernel& lattice_kernel<float>(LatticeWay);
template const LatticeKernel& lattice_kernel<double>(LatticeWay);

}  // namespace warpalign::detail::transducer
