// What precision "medium" computes, in float64: costs of steps that were rounded to TF32.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "tolerance.h"

namespace warpalign::test::soft_dtw {

// To the nearest TF32, of two equally near ones to the larger one.
inline float rounded_to_tf32(float v) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(v) + 0x1000u) & ~0x1fffu);
}

// The result of pair b with costs |x' - y'|^2, where x' and y' are TF32. Both are relative to the mean of
// four steps of the 64 columns that the cell belongs to. Columns are the longer series where `exchanges`,
// else y. Gradients are those of the steps as they are, by the alignment of these costs.
inline reference::Result expected_of_tf32(const Batch<float>& batch, int b, bool exchanges) {
  constexpr int kColumns = 64;
  const bool x_is_column = exchanges && batch.shape.n > batch.shape.m;
  const Tensor<float>& rows = x_is_column ? batch.y : batch.x;
  const Tensor<float>& columns = x_is_column ? batch.x : batch.y;
  const int n = batch.n(b), m = batch.m(b), dim = batch.shape.dim;
  const int height = x_is_column ? m : n, width = x_is_column ? n : m;
  std::vector<double> cost(static_cast<std::size_t>(n) * m);
  for (int j = 0; j < width; ++j) {
    const int first = j / kColumns * kColumns;
    for (int d = 0; d < dim; ++d) {
      float origin = 0;
      for (int k = 0; k < 4; ++k)
        origin += 0.25f * columns.at(b, std::min(first + k * kColumns / 4, width - 1), d);
      const double y = rounded_to_tf32(columns.at(b, j, d) - origin);
      for (int i = 0; i < height; ++i) {
        const double difference = rounded_to_tf32(rows.at(b, i, d) - origin) - y;
        cost[x_is_column ? j * m + i : i * m + j] += difference * difference;
      }
    }
  }
  reference::Result result = reference::soft_dtw_from_cost(cost, n, m, batch.gamma);
  result.grad_x.assign(static_cast<std::size_t>(n) * dim, 0.0);
  result.grad_y.assign(static_cast<std::size_t>(m) * dim, 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      for (int d = 0; d < dim; ++d) {
        const double g =
            2.0 * result.alignment[i * m + j] *
            (static_cast<double>(batch.x.at(b, i, d)) - static_cast<double>(batch.y.at(b, j, d)));
        result.grad_x[i * dim + d] += g;
        result.grad_y[j * dim + d] -= g;
      }
    }
  }
  return result;
}

// One product of TF32 rounds E and the other step in a gradient, by 2^-11 each: twice their sum. Values have
// float32's own floor, beside costs that are sums of squares of x' and y', which may cancel.
constexpr Tolerance kFloorOfOneTf32{1e-5, 0x1p-9};

inline void expect_close_to_tf32(const Batch<float>& batch, const Outputs<float>& got, bool exchanges) {
  for (int b = 0; b < batch.shape.batch; ++b) {
    SCOPED_TRACE(::testing::Message()
                 << "pair " << b << " of N=" << batch.n(b) << "/" << batch.shape.n << " M=" << batch.m(b)
                 << "/" << batch.shape.m << " D=" << batch.shape.dim << " gamma=" << batch.gamma);
    expect_pair_close(batch, b, got, expected_of_tf32(batch, b, exchanges), {}, kFloorOfOneTf32);
  }
}

}  // namespace warpalign::test::soft_dtw
