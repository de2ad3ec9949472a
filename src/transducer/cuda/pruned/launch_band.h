// Launches the kernels of a pruned joint's first call that other joints do not have.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "transducer/band.h"
#include "transducer/cuda/lattice/lattice_params.cuh"
#include "warpalign/status.h"

namespace warpalign::detail::transducer {

// The nodes of a band: rows (b T + t) (U + 1) + u, ascending. Null pointers: there is no band.
struct BandList {
  std::int32_t* count = nullptr;  // number of nodes
  std::int32_t* list = nullptr;

  BandList() = default;
  BandList(Arena& arena, std::int64_t nodes) {
    count = arena.take<std::int32_t>(1, "band: count");
    list = arena.take<std::int32_t>(static_cast<std::size_t>(nodes), "band: nodes");
  }
};

// Lists the band's nodes, of which there are `nodes`, and sets all `slots`, an even number of them, to -inf:
// the weight of arcs that no path takes. The weights of the band's arcs are written later.
template <class Real>
Status launch_band(const Band& band, const BandList& to, std::int64_t nodes, Real* slots,
                   std::int64_t slot_count, cudaStream_t stream);

// The lattice pass over lattice.batch.band, which is not empty: losses and, unless lattice.outcome is null,
// posteriors in place of weights.
Status launch_band_sweep(const LatticeParams<float>& lattice, cudaStream_t stream);

}  // namespace warpalign::detail::transducer
