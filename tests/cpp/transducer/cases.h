// Cases with known results, for tests of every path of the transducer.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "transducer/reference.h"

namespace warpalign::test {

namespace reference = detail::transducer::reference;

// One utterance's logits; TDT's duration logits stand in the last columns of the same rows.
struct TransducerCase {
  std::string name;
  reference::Transducer problem;
  std::vector<double> rows;  // (T, U+1, V + D)

  [[nodiscard]] int width() const {
    return problem.labels + (problem.tdt ? static_cast<int>(problem.durations.size()) : 0);
  }
  [[nodiscard]] std::vector<double> columns(int begin, int end) const {
    std::vector<double> part;
    for (std::size_t row = 0; row + width() <= rows.size(); row += width()) {
      part.insert(part.end(), rows.begin() + static_cast<std::ptrdiff_t>(row) + begin,
                  rows.begin() + static_cast<std::ptrdiff_t>(row) + end);
    }
    return part;
  }
  [[nodiscard]] std::vector<double> logits() const { return columns(0, problem.labels); }
  [[nodiscard]] std::vector<double> duration_logits() const { return columns(problem.labels, width()); }
};

// x.flat[n] = ((7919 n) mod 101) / 50 - 1.
inline std::vector<double> pattern(int count) {
  std::vector<double> x(count);
  for (int n = 0; n < count; ++n) x[n] = (7919LL * n % 101) / 50.0 - 1;
  return x;
}

// The case of a problem whose logits are the pattern.
inline TransducerCase pattern_case(const std::string& name, const reference::Transducer& problem) {
  TransducerCase result{name, problem, {}};
  result.rows = pattern(problem.frames * problem.states() * result.width());
  return result;
}

}  // namespace warpalign::test
