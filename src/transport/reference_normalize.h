// Float64 scalar normalisation of logits, a direct implementation of the iterations and of their gradient,
// which keeps every matrix. Tests compare with it. It allocates, and is not part of the library.
#pragma once

#include <vector>

#include "warpalign/sinkhorn_normalize.h"

namespace warpalign::detail::transport::reference {

struct NormalizeAnswer {
  std::vector<double> plan;         // (n, m)
  std::vector<double> grad_logits;  // (n, m)
};

// One matrix: logits and grad_plan (n, m), row-major.
NormalizeAnswer sinkhorn_normalize(const std::vector<double>& logits, const std::vector<double>& grad_plan,
                                   int n, int m, int iterations, NormalizeOrder order);

}  // namespace warpalign::detail::transport::reference
