// Normalisations of logits on a path, and their comparison with the float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "core/half.h"
#include "core/visit_dtype.h"
#include "fixture.h"
#include "transport/reference_normalize.h"
#include "warpalign/sinkhorn_normalize.h"

namespace warpalign::test {

struct NormalizeCase {
  int batch = 1, n = 1, m = 1, iterations = 20;
  NormalizeOrder order = NormalizeOrder::kRowsFirst;
  DType dtype = DType::kFloat32;
  double scale = 1, offset = 0;
  bool transposed = false;  // logits and the gradient of the plan lie in memory by columns
  unsigned seed = 1;
};

struct Normalized {
  std::vector<double> plan, grad_logits;  // (B, N, M)
};

template <class Element>
std::vector<Element> as_elements(const std::vector<double>& v) {
  std::vector<Element> elements(v.size());
  for (std::size_t k = 0; k < v.size(); ++k) {
    if constexpr (std::is_same_v<Element, double>) {
      elements[k] = v[k];
    } else {
      elements[k] = detail::rounded_to<Element>(static_cast<float>(v[k]));
    }
  }
  return elements;
}
template <class Element>
double as_double(Element v) {
  if constexpr (std::is_same_v<Element, double>) {
    return v;
  } else {
    return static_cast<double>(static_cast<float>(v));
  }
}
// The values that the elements have.
inline std::vector<double> rounded_values(const std::vector<double>& v, DType dtype) {
  std::vector<double> values(v.size());
  detail::visit_dtype(dtype, [&](auto type) {
    const auto elements = as_elements<typename decltype(type)::Type>(v);
    std::transform(elements.begin(), elements.end(), values.begin(), [](auto x) { return as_double(x); });
  });
  return values;
}

// (B, M, N) from (B, N, M).
inline std::vector<double> by_columns(const std::vector<double>& v, const NormalizeCase& c) {
  std::vector<double> turned(v.size());
  const std::size_t n = c.n, m = c.m;
  for (std::size_t k = 0; k < v.size(); ++k) {
    turned[k / (n * m) * n * m + k % m * n + k / m % n] = v[k];
  }
  return turned;
}

template <class Element, class Buffer>
Normalized normalize_on(const NormalizeCase& c, const std::vector<double>& logits,
                        const std::vector<double>& grad_plan, const Execution& execution) {
  const auto laid_out = [&](const std::vector<double>& v) {
    return as_elements<Element>(c.transposed ? by_columns(v, c) : v);
  };
  const Buffer logits_data(laid_out(logits)), grad_data(laid_out(grad_plan));
  const std::int64_t n = c.n, m = c.m, all = n * m;
  const auto view = [&](const void* data) {
    return c.transposed ? StridedTensor(data, {all, 1, n}) : StridedTensor(data, {all, m, 1});
  };
  const NormalizeProblem p{c.dtype, c.batch, c.n, c.m, view(logits_data.data()), c.iterations, c.order};
  const Buffer plan(logits.size() * sizeof(Element)), grad_logits(logits.size() * sizeof(Element));
  const auto run = [&](std::size_t bytes, const auto& call) {
    const Buffer workspace(bytes);
    const Status status = call(Workspace{workspace.data(), bytes});
    EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  };
  run(sinkhorn_normalize_workspace_bytes(p, execution),
      [&](Workspace w) { return sinkhorn_normalize(p, plan.data(), w, execution); });
  run(sinkhorn_normalize_gradient_workspace_bytes(p, execution), [&](Workspace w) {
    return sinkhorn_normalize_gradient(p, view(grad_data.data()), grad_logits.data(), w, execution);
  });
  const auto values = [&](const Buffer& buffer) {
    std::vector<double> v;
    for (const Element& x : buffer.template read<Element>(logits.size())) v.push_back(as_double(x));
    return v;
  };
  return {values(plan), values(grad_logits)};
}

inline Normalized normalize(const NormalizeCase& c, const std::vector<double>& logits,
                            const std::vector<double>& grad_plan) {
  return detail::visit_dtype(c.dtype, [&](auto type) {
    return on_path([&]<class Buffer>(const Execution& execution) {
      return normalize_on<typename decltype(type)::Type, Buffer>(c, logits, grad_plan, execution);
    });
  });
}

// Sums of rows and of columns of matrix b.
struct LineSums {
  std::vector<double> rows, columns;
  LineSums(const NormalizeCase& c, const std::vector<double>& plan, int b) : rows(c.n), columns(c.m) {
    for (int i = 0; i < c.n; ++i) {
      for (int j = 0; j < c.m; ++j) {
        const double p = plan[(static_cast<std::size_t>(b) * c.n + i) * c.m + j];
        rows[i] += p;
        columns[j] += p;
      }
    }
  }
};

// float32: errors of some ten roundings of numbers up to 1, and of logits of this scale; half types besides:
// the results' own rounding.
inline void check_normalize(const NormalizeCase& c, const std::vector<double>& given,
                            const std::vector<double>& given_gradient) {
  SCOPED_TRACE("B " + std::to_string(c.batch) + " N " + std::to_string(c.n) + " M " + std::to_string(c.m) +
               " T " + std::to_string(c.iterations) + " order " + std::to_string(static_cast<int>(c.order)) +
               " dtype " + std::to_string(static_cast<int>(c.dtype)) + " seed " + std::to_string(c.seed));
  const std::vector<double> logits = rounded_values(given, c.dtype);
  const std::vector<double> grad_plan = rounded_values(given_gradient, c.dtype);
  const Normalized got = normalize(c, logits, grad_plan);
  const bool wide = c.dtype == DType::kFloat64;
  const double own = c.dtype == DType::kFloat16 ? 1e-3 : c.dtype == DType::kBFloat16 ? 8e-3 : 0;
  const double tolerance = (wide ? 1e-14 : 4e-6) * std::max(1.0, c.scale);
  const std::size_t all = static_cast<std::size_t>(c.n) * c.m;
  for (int b = 0; b < c.batch; ++b) {
    const auto part = [&](const std::vector<double>& v) {
      return std::vector<double>(v.begin() + b * all, v.begin() + (b + 1) * all);
    };
    const auto expected = detail::transport::reference::sinkhorn_normalize(part(logits), part(grad_plan), c.n,
                                                                           c.m, c.iterations, c.order);
    const double largest_gradient = std::max(1.0, largest(expected.grad_logits));
    for (std::size_t k = 0; k < all; ++k) {
      ASSERT_NEAR(got.plan[b * all + k], expected.plan[k], tolerance + own * expected.plan[k])
          << "matrix " << b << " element " << k;
      ASSERT_NEAR(got.grad_logits[b * all + k], expected.grad_logits[k],
                  tolerance * largest_gradient + own * std::abs(expected.grad_logits[k]))
          << "matrix " << b << " element " << k;
    }
  }
}

inline std::vector<double> draw_logits(const NormalizeCase& c) {
  std::vector<double> v = normal(static_cast<std::size_t>(c.batch) * c.n * c.m, c.seed, c.scale);
  for (double& x : v) x += c.offset;
  return v;
}
inline std::vector<double> draw_gradient(const NormalizeCase& c) {
  return normal(static_cast<std::size_t>(c.batch) * c.n * c.m, c.seed + 1000);
}
inline void check_normalize(const NormalizeCase& c) { check_normalize(c, draw_logits(c), draw_gradient(c)); }

}  // namespace warpalign::test
