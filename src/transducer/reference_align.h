// Float64 best paths, a direct implementation of the equations in warpalign/transducer_align.h, over the
// reference's arcs. Posteriors are in TransducerResult. Not part of the library.
#pragma once

#include <vector>

#include "transducer/reference.h"

namespace warpalign::detail::transducer::reference {

struct BestPath {
  double score;                // -inf: there is no path; NaN
  std::vector<int> frames;     // (U,), -1 without a path
  std::vector<int> durations;  // (U,)
  std::vector<int> blanks;     // (T,)
};

// result: that of transducer() for the same problem.
BestPath best_path(const Transducer& problem, const TransducerResult& result);

}  // namespace warpalign::detail::transducer::reference
