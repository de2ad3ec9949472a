// A problem of the reference, and how it comes to the library: elements of a dtype, and what packing leaves
// out.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "core/visit_dtype.h"
#include "golden.h"
#include "values.h"
#include "warpalign/recurrent.h"

namespace warpalign::test {

inline bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// `values` as elements of dtype, and back.
inline std::vector<unsigned char> bytes_of(DType dtype, const std::vector<double>& values) {
  std::vector<unsigned char> bytes(values.size() * size_of(dtype));
  detail::visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    for (std::size_t n = 0; n < values.size(); ++n) {
      T element{};
      if constexpr (std::is_same_v<T, double>) {
        element = values[n];
      } else {
        element = detail::rounded_to<T>(static_cast<float>(values[n]));
      }
      std::memcpy(bytes.data() + n * sizeof(T), &element, sizeof(T));
    }
  });
  return bytes;
}
inline std::vector<double> values_of(DType dtype, const std::vector<unsigned char>& bytes) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  detail::visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    for (std::size_t n = 0; n < values.size(); ++n) {
      T element{};
      std::memcpy(&element, bytes.data() + n * sizeof(T), sizeof(T));
      if constexpr (std::is_floating_point_v<T>) {
        values[n] = element;
      } else {
        values[n] = static_cast<double>(static_cast<float>(element));
      }
    }
  });
  return values;
}
inline std::vector<double> rounded(DType dtype, const std::vector<double>& values) {
  return values_of(dtype, bytes_of(dtype, values));
}

// A problem of the reference, and how it comes to the library.
struct LstmCase {
  reference::Lstm problem;
  reference::Inputs inputs;
  reference::Outputs incoming;
  DType dtype = DType::kFloat32;
  DType cell_dtype = DType::kFloat32;
  bool packed = false;      // lengths must fall
  bool with_states = true;  // h_all and c_all are asked for
  double padding = kNan;    // of x beyond lengths

  // N(0, 1) numbers, weights as a trained network has them, all as dtype holds them.
  LstmCase(const reference::Lstm& p, DType type, unsigned seed, double scale = 1) : problem(p), dtype(type) {
    cell_dtype = is_half(type) ? DType::kFloat32 : type;
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto draw = [&](std::size_t count, double factor, double plus = 0) {
      std::vector<double> v(count);
      for (double& a : v) a = factor * normal(random) + plus;
      return rounded(type, v);
    };
    const std::size_t T = p.steps, B = p.batch, H = p.hidden, P = p.output(), cells = p.cells();
    inputs.x = draw(T * B * p.input, 1);
    for (int n = 0; n < p.cells(); ++n) {
      reference::Weights w;
      const std::size_t input = p.input_of(n / p.directions());
      w.ih = draw(4 * H * input, scale / std::sqrt(static_cast<double>(input)));
      w.hh = draw(4 * H * P, scale / std::sqrt(static_cast<double>(P)));
      w.bias = draw(4 * H, .3);
      if (p.projection > 0) w.hr = draw(P * H, 1 / std::sqrt(static_cast<double>(H)));
      if (p.layer_norm) {
        w.ln_ih = draw(4 * H, .2, 1), w.ln_hh = draw(4 * H, .2, 1);
        w.ln_cell = draw(H, .2, 1), w.ln_cell_bias = draw(H, .2);
      }
      inputs.weights.push_back(w);
    }
    inputs.h0 = draw(cells * B * P, .5), inputs.c0 = draw(cells * B * H, .5);
    incoming.y = draw(T * B * P * p.directions(), 1);
    incoming.h_n = draw(cells * B * P, 1), incoming.c_n = draw(cells * B * H, 1);
    incoming.h_all = draw(cells * T * B * P, 1), incoming.c_all = draw(cells * T * B * H, 1);
  }
  LstmCase(const Golden& golden, DType type) : problem(golden.problem), dtype(type), cell_dtype(type) {
    const GoldenInputs given(golden.problem);
    inputs = given.inputs, incoming = given.incoming;
    with_states = false;
  }

  // The rows of (T, B, ...) arrays in the order of memory: all, or those of packed rows.
  [[nodiscard]] std::vector<int> rows() const {
    std::vector<int> list;
    for (int t = 0; t < problem.steps; ++t) {
      for (int b = 0; b < problem.batch; ++b) {
        if (!packed || t < problem.lengths[b]) list.push_back(t * problem.batch + b);
      }
    }
    return list;
  }
  [[nodiscard]] bool holds(int row) const {
    return problem.lengths.empty() || row / problem.batch < problem.lengths[row % problem.batch];
  }
};

}  // namespace warpalign::test
