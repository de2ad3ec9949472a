// The kernel that prepares a pruned joint's first call.
#include <algorithm>
#include <cstdint>

#include "cuda/launch/launch.cuh"
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/pruned/band.cuh"
#include "transducer/cuda/pruned/launch_band.h"

namespace warpalign::detail::transducer {
namespace {

template <class Real>
const cuda::Kernel kBand{kKernels, "joint band", cuda::type_name<Real>(), band_kernel<Real>};

}  // namespace

template <class Real>
Status launch_band(const Band& band, const BandList& to, std::int64_t nodes, Real* slots,
                   std::int64_t slot_count, cudaStream_t stream) {
  constexpr std::int64_t kEnough = 1024;  // blocks that fill a device several times over
  const std::int64_t elements = std::max(nodes, slot_count);
  const std::int64_t blocks =
      std::clamp(cuda::div_up(elements, std::int64_t{kBandThreads}), std::int64_t{1}, kEnough);
  return cuda::launch(kBand<Real>, {static_cast<int>(blocks), kBandThreads, 0, stream}, band, to, nodes,
                      slots, slot_count);
}
template Status launch_band(const Band&, const BandList&, std::int64_t, float*, std::int64_t, cudaStream_t);
template Status launch_band(const Band&, const BandList&, std::int64_t, double*, std::int64_t, cudaStream_t);

}  // namespace warpalign::detail::transducer
