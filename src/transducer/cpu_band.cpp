// The band of a pruned loss on the CPU. One thread: a frame takes as many additions as it has states.
#include <algorithm>
#include <cstdint>

#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

// The states that a frame prefers. g: its gradients (U+1, 2).
std::int32_t preferred(const float* g, std::int32_t states, std::int32_t width) {
  std::int32_t best = 0;
  float most = 0;
  for (std::int32_t k = 0; k + width <= states; ++k) {
    float sum = 0;
    for (std::int32_t u = k; u < k + width; ++u) sum -= g[2 * u];
    if (k > 0) sum += g[2 * k - 1];
    if (k == 0 || sum > most) {
      best = k;
      most = sum;
    }
  }
  return best;
}

}  // namespace

void band_cpu(const TransducerBandProblem& p) {
  const std::int32_t steepest = p.band_states - 1;
  for (std::int32_t b = 0; b < p.batch; ++b) {
    const std::int32_t frames = p.logit_lengths ? std::clamp(p.logit_lengths[b], 0, p.frames) : p.frames;
    const std::int32_t labels =
        p.target_lengths ? std::clamp(p.target_lengths[b], 0, p.states - 1) : p.states - 1;
    const std::int32_t last = std::max(labels - steepest, 0);
    std::int32_t* const first = p.first + std::int64_t{b} * p.frames;
    std::int32_t least = last, least_above = steepest * (p.frames - 1) - last;
    for (std::int32_t t = p.frames - 1; t >= 0; --t) {
      const float* const g = p.gradients + (std::int64_t{b} * p.frames + t) * p.states * 2;
      least = std::min(least, t < frames - 1 ? preferred(g, p.states, p.band_states) : last);
      least_above = std::min(least_above, steepest * t - least);
      first[t] = steepest * t - std::max(least_above, 0);
    }
  }
}

}  // namespace warpalign::detail::transducer
