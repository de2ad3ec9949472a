#include "transducer/reference_joint.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/philox.h"

namespace warpalign::detail::transducer::reference {

JointResult transducer_joint(const Transducer& p, const JointNetwork& network,
                             const std::vector<double>& encoder, const std::vector<double>& predictor,
                             int number) {
  const int size = network.hidden, states = p.states();
  const int durations = p.tdt ? static_cast<int>(p.durations.size()) : 0, columns = p.labels + durations;
  // The dropout factor of a hidden number: 0, or 1 / (1 - p).
  const auto factor = [&](int t, int u, int j) {
    if (network.dropout == 0) return 1.0;
    const PhiloxWords words = philox({{static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(number),
                                       static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(u)}},
                                     network.seed);
    return words.word[j % 4] < philox_threshold(network.dropout) ? 0 : 1 / (1 - network.dropout);
  };
  const auto activated = [&](int t, int u, int j) {
    const double v = encoder[t * size + j] + predictor[u * size + j];
    return network.tanh ? std::tanh(v) : v > 0 || std::isnan(v) ? v : 0;
  };
  // The hidden row h of a node.
  const auto hidden_row = [&](int t, int u) {
    std::vector<double> h(size);
    for (int j = 0; j < size; ++j) h[j] = activated(t, u, j) * factor(t, u, j);
    return h;
  };
  std::vector<double> logits, duration_logits;
  for (int t = 0; t < p.frames; ++t) {
    for (int u = 0; u < states; ++u) {
      const std::vector<double> h = hidden_row(t, u);
      for (int k = 0; k < columns; ++k) {
        double x = network.bias[k];
        for (int j = 0; j < size; ++j) x += h[j] * network.weight[k * size + j];
        (k < p.labels ? logits : duration_logits).push_back(x);
      }
    }
  }
  const TransducerResult of_logits = transducer(p, logits, duration_logits);
  const auto count = [size](int rows) { return static_cast<std::size_t>(rows) * size; };
  JointResult result{of_logits.loss, std::vector<double>(count(p.frames)), std::vector<double>(count(states)),
                     std::vector<double>(count(columns)), std::vector<double>(columns)};
  for (int t = 0; t < p.frames; ++t) {
    for (int u = 0; u < states; ++u) {
      const int node = t * states + u;
      const std::vector<double> h = hidden_row(t, u);
      for (int k = 0; k < columns; ++k) {
        const double g = k < p.labels ? of_logits.grad_logits[node * p.labels + k]
                                      : of_logits.grad_durations[node * durations + k - p.labels];
        result.grad_bias[k] += g;
        for (int j = 0; j < size; ++j) {
          result.grad_weight[k * size + j] += g * h[j];
          const double v = activated(t, u, j), slope = network.tanh ? 1 - v * v : v > 0 ? 1 : 0;
          const double back = g * network.weight[k * size + j] * slope * factor(t, u, j);
          result.grad_encoder[t * size + j] += back;
          result.grad_predictor[u * size + j] += back;
        }
      }
    }
  }
  return result;
}

}  // namespace warpalign::detail::transducer::reference
