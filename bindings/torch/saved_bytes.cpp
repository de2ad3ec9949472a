// Sizes of saved tensors, for tensors without data, through ctypes: python/warpalign/_core/saved_bytes.py.
#include "warpalign/saved_bytes.h"

#include <algorithm>
#include <cstdint>

#include "export.h"

WARPALIGN_EXPORT const char* warpalign_transducer_saved_formula(bool packed) {
  return warpalign::transducer_saved_formula(packed);
}

// durations: TDT's, or those of big blanks.
WARPALIGN_EXPORT int warpalign_transducer_arcs(bool tdt, const std::int32_t* durations, int count) {
  warpalign::TransducerLattice lattice;
  lattice.tdt = tdt;
  lattice.durations = std::min(count, int{warpalign::kTransducerDurations});
  std::copy_n(durations, lattice.durations, lattice.duration);
  return warpalign::transducer_arcs(lattice);
}

WARPALIGN_EXPORT const char* warpalign_ctc_saved_formula() { return warpalign::ctc_saved_formula(); }
