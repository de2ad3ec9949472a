// Copies between the caller's strided tensors and a pair's own memory: series in, gradients out.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "soft_dtw/cpu_kernel.h"
#include "soft_dtw/packed.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::detail::soft_dtw {

template <class Storage>
const Storage* element(const StridedTensor& tensor, int b) {
  return static_cast<const Storage*>(tensor.data) + b * tensor.stride[0];
}

// Packs the series (length, dim) that begins at element `first`, in any layout, into one row of `stride`
// elements per feature, padded with the last element; `backwards` for y. With this padding, lanes past an
// anti-diagonal's end compute costs of real steps.
template <class Storage, class Real>
void pack_series(const StridedTensor& tensor, std::int64_t first, int length, int dim, bool backwards,
                 std::int64_t stride, Real* to) {
  for (int k = 0; k < dim; ++k, to += stride) {
    const Storage* from = static_cast<const Storage*>(tensor.data) + first + k * tensor.stride[2];
    std::int64_t step = tensor.stride[1];
    if (backwards) {
      from += (length - 1) * step;
      step = -step;
    }
    for (int i = 0; i < length; ++i) to[i] = static_cast<Real>(from[i * step]);
    for (std::int64_t i = length; i < stride; ++i) to[i] = to[length - 1];
  }
}

// Weights laid out like a feature of the series: 0 for a missing step, else 1.
template <class Real>
void pack_weights(const std::uint8_t* mask, int length, bool backwards, std::int64_t stride, Real* to) {
  for (int i = 0; i < length; ++i) to[i] = mask && mask[backwards ? length - 1 - i : i] ? Real(0) : Real(1);
  for (std::int64_t i = length; i < stride; ++i) to[i] = to[length - 1];
}

// Sets missing steps to 0, because their values, often NaN, must not be used.
template <class Real>
void clear_missing(const Real* weights, std::int64_t stride, int dim, Real* series) {
  for (int k = 0; k < dim; ++k, series += stride) {
    for (std::int64_t i = 0; i < stride; ++i) {
      if (weights[i] == 0) series[i] = 0;
    }
  }
}

// For the cosine: scales every step of a packed series to length 1 and writes the original lengths to
// `norms`. The cost is then |x - y|^2 / 2, which has no cancellation for nearly parallel steps. A step too
// short to have a direction gets norm 0 and keeps its values. Returns whether there was such a step.
template <class Real>
bool normalize_steps(Real* series, std::int64_t stride, int dim, double* norms) {
  bool any_zero = false;
  for (std::int64_t i = 0; i < stride; ++i) {
    double largest = 0;
    for (int k = 0; k < dim; ++k) {
      const double v = std::abs(static_cast<double>(series[k * stride + i]));
      if (!(v <= largest)) largest = v;  // NaN stays
    }
    norms[i] = 0;
    if (largest < static_cast<double>(std::numeric_limits<Real>::min())) {
      any_zero = true;
      continue;
    }
    double sum = 0;
    for (int k = 0; k < dim; ++k) {
      const double v = static_cast<double>(series[k * stride + i]) / largest;
      sum += v * v;
    }
    const double root = std::sqrt(sum);
    norms[i] = largest * root;
    for (int k = 0; k < dim; ++k) {
      Real& v = series[k * stride + i];
      v = static_cast<Real>(static_cast<double>(v) / largest / root);
    }
  }
  return any_zero;
}

// Appends two features, which give each step without a direction one that is orthogonal to all other steps,
// also those of the other series: its costs are 1. `own` is 0 for one series and 1 for the other.
template <class Real>
void add_own_direction(Real* series, std::int64_t stride, int dim, int own, const double* norms) {
  for (std::int64_t i = 0; i < stride; ++i) {
    const bool zero = norms[i] == 0;
    for (int k = 0; zero && k < dim; ++k) series[k * stride + i] = 0;
    series[(dim + own) * stride + i] = zero ? Real(1) : Real(0);
    series[(dim + 1 - own) * stride + i] = 0;
  }
}

// In place: from the gradient with respect to a step of length 1 to the gradient with respect to the step
// itself. The sign of y's gradient is set later, by unpack_gradient().
template <class Real>
void denormalize_gradient(const Real* series, std::int64_t stride, int length, int dim, const double* norms,
                          Real* gradient) {
  for (int i = 0; i < length; ++i) {
    double along = 0;
    for (int k = 0; k < dim; ++k)
      along += static_cast<double>(series[k * stride + i]) * gradient[k * stride + i];
    for (int k = 0; k < dim; ++k) {
      Real& g = gradient[k * stride + i];
      g = norms[i] == 0 ? Real(0) : static_cast<Real>((g - series[k * stride + i] * along) / norms[i]);
    }
  }
}

// In place: from the tangents x' of steps to the tangents u' = (x' - u <u, x'>) / |x| of the steps at
// length 1. Writes the tangents <u, x'> of the lengths to norm_tangents. The tangent of a step without a
// direction becomes 0.
inline void normalize_tangents(const double* unit, std::int64_t stride, int dim, const double* norms,
                               double* tangents, double* norm_tangents) {
  for (std::int64_t i = 0; i < stride; ++i) {
    double along = 0;
    for (int k = 0; k < dim; ++k) along += unit[k * stride + i] * tangents[k * stride + i];
    norm_tangents[i] = along;
    for (int k = 0; k < dim; ++k) {
      double& v = tangents[k * stride + i];
      v = norms[i] == 0 ? 0.0 : (v - unit[k * stride + i] * along) / norms[i];
    }
  }
}

// The derivative of denormalize_gradient()'s result, (g - u <u, g>) / |x|, with respect to u, g and |x|
// together. `tangent` is the tangent of g, and becomes the tangent of the result.
inline void denormalize_tangent(const double* unit, const double* unit_tangent, const double* gradient,
                                std::int64_t stride, int length, int dim, const double* norms,
                                const double* norm_tangents, double* tangent) {
  for (int i = 0; i < length; ++i) {
    double along = 0;
    double along_tangent = 0;
    for (std::int64_t at = i; at < i + dim * stride; at += stride) {
      along += unit[at] * gradient[at];
      along_tangent += unit_tangent[at] * gradient[at] + unit[at] * tangent[at];
    }
    for (std::int64_t at = i; at < i + dim * stride; at += stride) {
      const double turned = tangent[at] - unit_tangent[at] * along - unit[at] * along_tangent;
      const double shrunk = (gradient[at] - unit[at] * along) * norm_tangents[i] / norms[i];
      tangent[at] = norms[i] == 0 ? 0.0 : (turned - shrunk) / norms[i];
    }
  }
}

// Unpacks a gradient, times `factor`, into the pair's own steps of the contiguous (steps, dim). Elements past
// `length` become 0. `gradient` is null if it is not wanted; then `from` may be null, too.
template <class Storage, class Real>
void unpack_gradient(const Real* from, std::int64_t stride, int length, int dim, bool backwards, Real factor,
                     GradientSteps own, void* gradient) {
  if (!gradient || !from) return;
  Storage* to = static_cast<Storage*>(gradient) + own.first * dim;
  for (int i = 0; i < length; ++i) {
    const Real* column = from + (backwards ? length - 1 - i : i);
    for (int k = 0; k < dim; ++k) *to++ = static_cast<Storage>(factor * column[k * stride]);
  }
  for (std::int64_t rest = static_cast<std::int64_t>(own.count - length) * dim; rest > 0; --rest) *to++ = 0;
}

// Fills a pair's own rows of a contiguous (rows, columns): `value` within the true lengths, 0 past them.
template <class Storage>
void fill_pair(void* output, GradientSteps own, int columns, int true_rows, int true_columns, Storage value) {
  if (!output) return;
  Storage* to = static_cast<Storage*>(output) + own.first * columns;
  for (int i = 0; i < own.count; ++i) {
    for (int j = 0; j < columns; ++j) *to++ = i < true_rows && j < true_columns ? value : Storage(0);
  }
}

// Sets the elements past pair b's true lengths to 0, and leaves the others.
template <class Storage>
void zero_padding(void* output, int b, int rows, int columns, int true_rows, int true_columns) {
  if (!output) return;
  Storage* row = static_cast<Storage*>(output) + static_cast<std::int64_t>(b) * rows * columns;
  for (int i = 0; i < rows; ++i, row += columns) {
    for (int j = i < true_rows ? true_columns : 0; j < columns; ++j) row[j] = 0;
  }
}

}  // namespace warpalign::detail::soft_dtw
