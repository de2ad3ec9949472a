// Float64 scalar soft-DTW, a direct implementation of the definition. Tests compare with it. It allocates,
// and is not part of the library.
#pragma once

#include <cstdint>
#include <vector>

#include "warpalign/soft_dtw.h"

namespace warpalign::detail::soft_dtw::reference {

struct Result {
  double value;
  std::vector<double> alignment;  // (n, m): E
  std::vector<double> grad_x;     // (n, dim)
  std::vector<double> grad_y;     // (m, dim)
  // Initialised here for g++, which otherwise asks every initialiser list for it.
  std::vector<double> end_values = {};  // (m), of a subsequence; NOLINT(readability-redundant-member-init)
  double grad_gamma = 0;  // (value - <E, C> - penalty * expected steps that are not diagonal) / gamma
};

// The parts of the definition beyond costs and gamma.
struct Options {
  Band band;
  double step_penalty = 0;
  CostKind cost_kind = CostKind::kSquaredEuclidean;
  bool subsequence = false;
  std::vector<std::uint8_t> x_mask, y_mask;  // empty: nothing is missing
};

// Whether a path may use cell (i, j) of n x m, by the definitions in the public header.
bool in_band(const Band& band, int i, int j, int n, int m);

// cost (n, m), row-major. gamma = 0 is hard DTW, with the ties of the public header.
Result soft_dtw_from_cost(const std::vector<double>& cost, int n, int m, double gamma,
                          const Options& options = {});

// x (n, dim), y (m, dim), row-major.
Result soft_dtw(const std::vector<double>& x, const std::vector<double>& y, int n, int m, int dim,
                double gamma, const Options& options = {});

// Hard DTW (the limit gamma -> 0): value of the cheapest path.
double dtw(const std::vector<double>& cost, int n, int m);

}  // namespace warpalign::detail::soft_dtw::reference
