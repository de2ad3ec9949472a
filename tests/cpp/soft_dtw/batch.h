// Batches of soft-DTW problems with their data and float64 results, and the call itself in guarded memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "core/half.h"
#include "host_buffer.h"
#include "soft_dtw/reference.h"
#include "values.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::test::soft_dtw {

namespace reference = detail::soft_dtw::reference;

struct Shape {
  int batch, n, m, dim;  // dim 0: a batch of cost matrices
};

// One input as it lies in memory: at(b, i, d) is data[first + b stride[0] + i stride[1] + d stride[2]].
template <typename T>
struct Tensor {
  std::vector<T> data;
  std::array<std::int64_t, 3> stride{};
  std::int64_t first = 0;

  Tensor() = default;
  Tensor(int batch, int rows, int columns)
      : data(static_cast<std::size_t>(batch) * rows * columns),
        stride{static_cast<std::int64_t>(rows) * columns, columns, 1} {}

  T& at(int b, int i, int d) { return data[offset(b, i, d)]; }
  [[nodiscard]] T at(int b, int i, int d) const { return data[offset(b, i, d)]; }

  [[nodiscard]] std::vector<double> wide(int b, int rows, int columns) const {
    std::vector<double> out;
    out.reserve(static_cast<std::size_t>(rows) * columns);
    for (int i = 0; i < rows; ++i) {
      for (int d = 0; d < columns; ++d) out.push_back(at(b, i, d));
    }
    return out;
  }

 private:
  [[nodiscard]] std::size_t offset(int b, int i, int d) const {
    return static_cast<std::size_t>(first + b * stride[0] + i * stride[1] + d * stride[2]);
  }
};

// The same numbers, in memory of another order with NaN in between.
template <typename T>
Tensor<T> spread(const Tensor<T>& from, int batch, int rows, int columns,
                 std::array<std::int64_t, 3> stride) {
  Tensor<T> to;
  to.stride = stride;
  std::int64_t last = 0;
  const int extents[] = {batch, rows, columns};
  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t reach = stride[axis] * (extents[axis] - 1);
    last += std::abs(reach);
    if (reach < 0) to.first -= reach;  // the axis runs backwards from its far end
  }
  to.data.assign(static_cast<std::size_t>(last + 1), static_cast<T>(kNan));
  for (int b = 0; b < batch; ++b) {
    for (int i = 0; i < rows; ++i) {
      for (int d = 0; d < columns; ++d) to.at(b, i, d) = from.at(b, i, d);
    }
  }
  return to;
}

template <typename T>
Tensor<T> normal_tensor(int batch, int rows, int columns, std::mt19937& generator, double scale = 1.0,
                        double offset = 0.0) {
  std::normal_distribution<double> normal;
  Tensor<T> tensor(batch, rows, columns);
  for (T& v : tensor.data) v = static_cast<T>(offset + scale * normal(generator));
  return tensor;
}

// A problem with its data. With dim 0 the problem is `cost`, else it is x and y.
template <typename T>
struct Batch {
  Shape shape;
  double gamma;
  Tensor<T> x, y, cost;
  std::vector<std::int32_t> x_lengths, y_lengths;  // empty: full
  reference::Options options;                      // without masks
  std::vector<std::uint8_t> x_mask, y_mask;        // (B, N), (B, M); empty: nothing is missing
  std::vector<T> gammas;                           // empty: gamma for all

  Batch(Shape s, double g, unsigned seed, double scale = 1.0, double offset = 0.0) : shape(s), gamma(g) {
    std::mt19937 generator(seed);
    if (s.dim == 0) {
      cost = normal_tensor<T>(s.batch, s.n, s.m, generator, scale, offset);
    } else {
      x = normal_tensor<T>(s.batch, s.n, s.dim, generator, scale, offset);
      y = normal_tensor<T>(s.batch, s.m, s.dim, generator, scale, offset);
    }
  }

  [[nodiscard]] int n(int b) const { return x_lengths.empty() ? shape.n : x_lengths[b]; }
  [[nodiscard]] int m(int b) const { return y_lengths.empty() ? shape.m : y_lengths[b]; }

  // Fills what no path may read, so that a read shows.
  void fill_padding_with_nan() {
    const T nan = static_cast<T>(kNan);
    for (int b = 0; b < shape.batch; ++b) {
      for (int i = n(b); i < shape.n; ++i) {
        for (int d = 0; d < shape.dim; ++d) x.at(b, i, d) = nan;
      }
      for (int j = m(b); j < shape.m; ++j) {
        for (int d = 0; d < shape.dim; ++d) y.at(b, j, d) = nan;
      }
      for (int i = 0; shape.dim == 0 && i < shape.n; ++i) {
        for (int j = 0; j < shape.m; ++j) {
          if (i >= n(b) || j >= m(b)) cost.at(b, i, j) = nan;
        }
      }
    }
  }

  // The float64 result for pair b, from the inputs as they were rounded to T.
  [[nodiscard]] reference::Result expected(int b) const {
    const double g = gammas.empty() ? gamma : gammas[b];
    reference::Options own = options;
    if (!x_mask.empty()) own.x_mask.assign(&x_mask[b * shape.n], &x_mask[b * shape.n] + n(b));
    if (!y_mask.empty()) own.y_mask.assign(&y_mask[b * shape.m], &y_mask[b * shape.m] + m(b));
    if (shape.dim == 0) return reference::soft_dtw_from_cost(cost.wide(b, n(b), m(b)), n(b), m(b), g, own);
    return reference::soft_dtw(x.wide(b, n(b), shape.dim), y.wide(b, m(b), shape.dim), n(b), m(b), shape.dim,
                               g, own);
  }
};

// The outputs, contiguous, as the library wrote them; empty: not wanted.
template <typename T>
struct Outputs {
  std::vector<T> value, grad_x, grad_y, alignment, grad_gamma = {}, end_values = {};
};

using test::same_bits;

template <typename T>
bool same_bits(const Outputs<T>& a, const Outputs<T>& b) {
  return same_bits(a.value, b.value) && same_bits(a.grad_x, b.grad_x) && same_bits(a.grad_y, b.grad_y) &&
         same_bits(a.alignment, b.alignment);
}

// The outputs of a call besides the value. kGradients: the gradients of the series; kEverything: also the
// alignment; kAllGradients, kAll: the same two, and the gradient by gamma.
enum Wanted { kValue, kGradients, kEverything, kAll, kAllGradients };

// Calls the library with all memory in Buffers: HostBuffer, or a device's buffer with the same interface.
// Outputs and workspace start as NaN, so that a cell that is never written, or is read first, shows. Series
// is the type of x and y, which have its values.
template <typename Buffer, typename T, typename Series = T>
Outputs<T> run_on(const Batch<T>& batch, Wanted wanted, const Execution& execution) {
  const Shape s = batch.shape;
  const bool series = s.dim > 0;
  const auto as_series = [](const std::vector<T>& data) {
    std::vector<Series> converted(data.size());
    std::transform(data.begin(), data.end(), converted.begin(), [](T v) {
      if constexpr (std::is_same_v<Series, T>) {
        return v;
      } else {
        return detail::rounded_to<Series>(v);
      }
    });
    return converted;
  };
  Buffer x(as_series(batch.x.data)), y(as_series(batch.y.data)), cost(batch.cost.data);
  Buffer x_lengths(batch.x_lengths), y_lengths(batch.y_lengths);
  const std::size_t pairs = s.batch;
  const std::size_t xs = series && wanted != kValue ? pairs * s.n * s.dim : 0;
  const std::size_t ys = series && wanted != kValue ? pairs * s.m * s.dim : 0;
  const std::size_t table = wanted == kEverything || wanted == kAll ? pairs * s.n * s.m : 0;
  Buffer value(pairs * sizeof(T)), grad_x(xs * sizeof(T)), grad_y(ys * sizeof(T)),
      alignment(table * sizeof(T));

  const auto view = [](const Buffer& buffer, const Tensor<T>& tensor, auto element) {
    return StridedTensor{static_cast<const decltype(element)*>(buffer.data()) + tensor.first,
                         {tensor.stride[0], tensor.stride[1], tensor.stride[2]}};
  };
  SoftDtwProblem problem;
  problem.dtype = std::is_same_v<Series, detail::Float16>    ? DType::kFloat16
                  : std::is_same_v<Series, detail::BFloat16> ? DType::kBFloat16
                                                             : kDType<T>;
  problem.batch = s.batch;
  problem.n = s.n;
  problem.m = s.m;
  problem.dim = s.dim;
  problem.gamma = batch.gamma;
  problem.band = batch.options.band;
  problem.step_penalty = batch.options.step_penalty;
  problem.cost_kind = batch.options.cost_kind;
  Buffer x_mask(batch.x_mask), y_mask(batch.y_mask), gammas(batch.gammas);
  if (!batch.x_mask.empty()) problem.x_mask = static_cast<const std::uint8_t*>(x_mask.data());
  if (!batch.y_mask.empty()) problem.y_mask = static_cast<const std::uint8_t*>(y_mask.data());
  if (!batch.gammas.empty()) problem.gammas = gammas.data();
  if (series) {
    problem.x = view(x, batch.x, Series{});
    problem.y = view(y, batch.y, Series{});
  } else {
    problem.cost = view(cost, batch.cost, T{});
  }
  if (!batch.x_lengths.empty()) problem.x_lengths = static_cast<const std::int32_t*>(x_lengths.data());
  if (!batch.y_lengths.empty()) problem.y_lengths = static_cast<const std::int32_t*>(y_lengths.data());
  const std::size_t gamma_slopes = wanted >= kAll ? pairs : 0;
  problem.subsequence = batch.options.subsequence;
  const std::size_t ends = problem.subsequence ? pairs * s.m : 0;
  Buffer end_values(ends * sizeof(T));
  Buffer grad_gamma(gamma_slopes * sizeof(T));
  const SoftDtwOutputs outputs{value.data(),
                               xs ? grad_x.data() : nullptr,
                               ys ? grad_y.data() : nullptr,
                               table ? alignment.data() : nullptr,
                               gamma_slopes ? grad_gamma.data() : nullptr,
                               ends ? end_values.data() : nullptr};
  const std::size_t bytes = soft_dtw_workspace_bytes(problem, outputs, execution);
  Buffer workspace(bytes);
  const Status status = warpalign::soft_dtw(problem, outputs, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  return {value.template read<T>(pairs),
          grad_x.template read<T>(xs),
          grad_y.template read<T>(ys),
          alignment.template read<T>(table),
          grad_gamma.template read<T>(gamma_slopes),
          end_values.template read<T>(ends)};
}

// Relative L2 error over the true part; the padding must be exactly 0.
template <typename T>
double error(const T* got, const std::vector<double>& expected, int rows, int columns, int full_rows,
             int full_columns) {
  double difference = 0, norm = 0;
  int dirty = 0;
  for (int i = 0; i < full_rows; ++i) {
    for (int j = 0; j < full_columns; ++j) {
      const double v = got[static_cast<std::size_t>(i) * full_columns + j];
      if (i >= rows || j >= columns) {
        dirty += !(v == 0.0);
        continue;
      }
      const double e = expected[static_cast<std::size_t>(i) * columns + j];
      difference += (v - e) * (v - e);
      norm += e * e;
    }
  }
  EXPECT_EQ(dirty, 0) << "elements of padding that are not 0";
  if (difference == 0) return 0;  // also when both are all 0
  return std::sqrt(difference / std::max(norm, 1e-60));
}

}  // namespace warpalign::test::soft_dtw
