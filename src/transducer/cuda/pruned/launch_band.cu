// The kernel that prepares a pruned joint's first call, and the lattice pass of bands of few states.
#include <algorithm>
#include <cstdint>

#include "cuda/launch/launch.cuh"
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/pruned/band.cuh"
#include "transducer/cuda/pruned/band_sweep.cuh"
#include "transducer/cuda/pruned/launch_band.h"

namespace warpalign::detail::transducer {
namespace {

const cuda::Kernel kBand{kKernels, "joint band", nullptr, band_kernel};
const cuda::Kernel kSweep{kKernels, "lattice, band", cuda::type_name<float>(), band_sweep_kernel<float>};

// -inf: of float64 once, of float32 twice.
template <class Real>
constexpr unsigned long long kNothingBits = sizeof(Real) == 8 ? 0xfff0000000000000ull : 0xff800000ff800000ull;

}  // namespace

template <class Real>
Status launch_band(const Band& band, const BandList& to, std::int64_t nodes, Real* slots,
                   std::int64_t slot_count, cudaStream_t stream) {
  constexpr std::int64_t kEnough = 1024;  // blocks that fill a device several times over
  const std::int64_t words = slot_count * static_cast<std::int64_t>(sizeof(Real)) / 8;
  const std::int64_t blocks =
      std::clamp(cuda::div_up(std::max(nodes, words), std::int64_t{kBandThreads}), std::int64_t{1}, kEnough);
  return cuda::launch(kBand, {static_cast<int>(blocks), kBandThreads, 0, stream}, band, to, nodes,
                      kNothingBits<Real>, reinterpret_cast<unsigned long long*>(slots), words);
}
template Status launch_band(const Band&, const BandList&, std::int64_t, float*, std::int64_t, cudaStream_t);
template Status launch_band(const Band&, const BandList&, std::int64_t, double*, std::int64_t, cudaStream_t);

Status launch_band_sweep(const LatticeParams<float>& lattice, cudaStream_t stream) {
  return cuda::launch(kSweep, {lattice.batch.lattice.batch, kBandSweepThreads, 0, stream}, lattice);
}

}  // namespace warpalign::detail::transducer
