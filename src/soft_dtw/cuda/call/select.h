// Which kernel a problem gets, and how it is laid out on the device: every rule of choice is in select.cu.
#pragma once

#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/call/registry.h"

namespace warpalign::detail::soft_dtw {

// What the choice looks at. n and m are padded lengths of rows and columns, exchanged where that is better.
struct Need {
  Arithmetic arithmetic;
  Options options;
  bool gradient;
  int batch;
  int n;
  int m;
  int dim;
  bool holds_cells;      // there is a cost matrix, or the alignment is wanted: costs have to come in tiles
  bool batch_invariant;  // a pair's bits must not depend on the rest of the batch
  bool in_panel;         // costs are in a panel
};

struct Selection {
  const SweepKernel* kernel;  // null: none
  Layout layout;

  // Whether the device has enough shared memory.
  [[nodiscard]] bool fits() const { return kernel && layout.warps > 0; }
};

// The most bytes that a panel and what its sweeps keep may take, if inputs are small. Tests make it less, to
// reach the kernels of pairs that find no room.
inline std::size_t most_panel_bytes = std::size_t{256} << 20;

Selection select(const Need& need, DeviceTraits device);

// The float64 kernel behind a float32 one, for the pairs that were not certified. There are few, if any: it
// makes do with scratch_limit bytes, or with one pair's.
Selection select_rerun(const Need& need, std::size_t scratch_limit, DeviceTraits device);

}  // namespace warpalign::detail::soft_dtw
