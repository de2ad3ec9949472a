// The choice of a problem's kernel and layout. All rules are in select.cu.
#pragma once

#include <optional>

#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/call/registry.h"

namespace warpalign::detail::soft_dtw {

// The ways of a call: where costs come from, and whether pairs are swept from both ends at once.
enum class Way {
  kFewFeatures,
  kFewFeaturesBothEnds,
  kTiles,
  kTilesBothEnds,
  kPanel,
  kPanelBothEnds,
};
inline constexpr const char* kWays[] = {
    "few_features", "few_features_both_ends", "tiles", "tiles_both_ends", "panel", "panel_both_ends",
};
constexpr bool from_both_ends(Way way) { return static_cast<int>(way) % 2 == 1; }
constexpr CostSource source_of(Way way) {
  constexpr CostSource kSources[] = {CostSource::kFewFeatures, CostSource::kTiles, CostSource::kPanel};
  return kSources[static_cast<int>(way) / 2];
}

// The properties that decide the choice. n and m are the padded lengths of rows and columns, possibly
// exchanged (exchanges_series()).
struct Need {
  Arithmetic arithmetic;
  Options options;
  bool gradient;
  int batch;
  int n;
  int m;
  int dim;
  int rows_in_band;        // of a column, on average; n without a band
  bool holds_cells;        // there is a cost matrix, or an alignment is requested: costs must come in tiles
  bool batch_invariant;    // a pair's results must not depend on the rest of the batch
  bool in_panel;           // costs are in a panel
  std::optional<Way> way;  // named by the caller

  [[nodiscard]] bool may_sweep_from_both_ends() const { return !way || from_both_ends(*way); }
  friend bool operator==(const Need&, const Need&) = default;
};

struct Selection {
  const SweepKernel* kernel;  // null: none
  Layout layout;

  // Whether the device has enough shared memory.
  [[nodiscard]] bool fits() const { return kernel && layout.warps > 0; }
};

Selection select(const Need& need, DeviceTraits device);

// The float64 kernel that follows a float32 one, for the pairs that were not certified. There are few, if
// any, so its scratch is limited to scratch_limit bytes, or to one pair's.
Selection select_rerun(const Need& need, std::size_t scratch_limit, DeviceTraits device);

}  // namespace warpalign::detail::soft_dtw
