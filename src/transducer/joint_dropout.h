// Dropout of a joint network's hidden numbers: the same mask on the CPU, in CUDA kernels and in the
// reference.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/anywhere.h"
#include "core/philox.h"

namespace warpalign::detail::transducer {

// A dropped hidden number is stored as -0, which identifies it in the backward pass. Other numbers are never
// -0.
template <class Real>
struct HiddenDropout {
  const std::uint64_t* seed = nullptr;
  std::uint64_t threshold = 0;  // random words below it drop the number; 0: no dropout
  Real scale = 1;               // factor of numbers that are not dropped

  HiddenDropout() = default;
  HiddenDropout(double probability, const std::uint64_t* from)
      : seed(from),
        threshold(philox_threshold(probability)),
        scale(static_cast<Real>(1 / (1 - probability))) {}

  [[nodiscard]] WARPALIGN_ANYWHERE bool drops() const { return threshold > 0; }

  // The random words of hidden numbers 4 quad to 4 quad + 3 of a node.
  [[nodiscard]] WARPALIGN_ANYWHERE PhiloxWords words(int b, int t, int u, int quad) const {
    return philox({{static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(b),
                    static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(u)}},
                  *seed);
  }
  // The hidden number: the activated number times `scale`, or -0.
  [[nodiscard]] WARPALIGN_ANYWHERE Real masked(Real activated, std::uint32_t word) const {
    return word < threshold ? -Real(0) : activated * scale + Real(0);
  }
  // The derivative of a hidden number with respect to e + g, from the number itself.
  [[nodiscard]] WARPALIGN_ANYWHERE Real slope(Real h, bool is_tanh) const {
    if (!is_tanh) return h > Real(0) ? scale : Real(0);
    if (!drops()) return Real(1) - h * h;
    const Real activated = h / scale;
    return h == Real(0) && std::signbit(h) ? Real(0) : (Real(1) - activated * activated) * scale;
  }
};

}  // namespace warpalign::detail::transducer
