// Float64 scalar Sinkhorn, a direct implementation of the definition. Tests compare with it. It allocates,
// and is not part of the library.
#pragma once

#include <limits>
#include <vector>

#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport::reference {

struct SinkhornOptions {
  double epsilon = 1.0;
  double rho_a = std::numeric_limits<double>::infinity();
  double rho_b = std::numeric_limits<double>::infinity();
  double mass = 0.0;  // 0: not partial
  TransportReference reference = TransportReference::kProduct;
  SinkhornUpdates updates = SinkhornUpdates::kAlternating;
  double epsilon_start = 0.0;
  double epsilon_factor = 0.5;
  int iterations = 1000;  // all of them, at the final epsilon
};

struct SinkhornAnswer {
  std::vector<double> f, g;  // with mass, f contains lambda
  std::vector<double> plan;  // (n, m)
  double primal;             // the objective of the plan, without the indicator of a hard side
  double dual;               // the objective's dual at f, g
  double linear;             // <C, P>
  double grad_epsilon;       // KL(P | R)
  std::vector<double> grad_a, grad_b;
  double error;  // the largest change of a potential by a further update, over epsilon
};

// cost (n, m), row-major, scaled already.
SinkhornAnswer sinkhorn(const std::vector<double>& cost, const std::vector<double>& a,
                        const std::vector<double>& b, const SinkhornOptions& options);

}  // namespace warpalign::detail::transport::reference
