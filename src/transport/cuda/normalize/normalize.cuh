// Kernels of sinkhorn_normalize() and of its gradient. Rows are normalised first.
//
// The gradient of a normalisation: dlogP <- dlogP - P (sum of dlogP over the line), with P after it. Let r be
// these sums of the last lines that were taken back. Those of the lines before are minus the sums of P r,
// because the sums along a line that is normalised are 0 from then on, and dlogP gets -P r. So a step back
// reads and writes numbers of lines, and half of the elements: P r of a row's lines stays in the copy by
// columns, and the other way round, and both are added in the end. Source: Adams & Zemel, arXiv 1106.1925,
// section 3.
#pragma once

#include "transport/cuda/normalize/lines.cuh"

namespace warpalign::detail::transport {

template <class Element>
struct NormalizeParams {
  NormalizeLayout layout;
  int batch, n, m, iterations;
  const Element* logits;
  std::int64_t stride[3];  // matrix, row, column
  const Element* grad_plan;
  std::int64_t grad_stride[3];
  Element* result;  // the plan, or the gradient
  std::int64_t result_stride[3];
  cuda::Sum<Element>* history;  // exchanges in global memory; null: they are in shared memory
};

// Slots of an exchange: two that take turns, and one for the largest logits.
inline constexpr int kNormalizeSlots = 3;
// Of the gradient: one for each normalisation, and two that take turns.
inline int normalize_gradient_slots(int iterations) { return 2 * iterations + 2; }

// The block's matrix of this thread, and the number of the first one.
struct BlockMatrix {
  int of_block;
  std::int64_t of_batch;

  __device__ __forceinline__ explicit BlockMatrix(const NormalizeLayout& layout)
      : of_block(static_cast<int>(threadIdx.x) / (layout.lines * layout.parts)),
        of_batch(static_cast<std::int64_t>(blockIdx.x) * layout.matrices + of_block) {}
};

template <class Element>
__device__ __forceinline__ MatrixView<Element> view(const NormalizeParams<Element>& p, const Element* data,
                                                    const std::int64_t* stride, std::int64_t matrix) {
  const bool exists = matrix < p.batch;
  return {data + (exists ? matrix * stride[0] : 0), stride[1], stride[2], exists ? p.n : 0, exists ? p.m : 0};
}

// Writes v(e), elements of the lane's column; or of its row, where rows follow each other in memory.
template <class Element, class Value>
__device__ __forceinline__ void write(const NormalizeParams<Element>& p,
                                      const Lanes<cuda::Sum<Element>>& lanes, std::int64_t matrix,
                                      bool by_rows, const Value& v) {
  if (matrix >= p.batch) return;
  const int count = by_rows ? p.m : p.n;
  if (lanes.line() >= (by_rows ? p.n : p.m)) return;
  const std::int64_t* const stride = p.result_stride;
  Element* const to = p.result + matrix * stride[0] + lanes.line() * (by_rows ? stride[1] : stride[2]);
  lanes.for_elements([&](int e) {
    const int k = lanes.first() + e;
    if (k < count) to[k * (by_rows ? stride[2] : stride[1])] = cuda::narrow<Element>(v(e));
  });
}

template <class Element>
__global__ void __launch_bounds__(kMostNormalizeThreads)
    normalize_kernel(const __grid_constant__ NormalizeParams<Element> p) {
  using Real = cuda::Sum<Element>;
  const BlockMatrix matrix(p.layout);
  auto* const exchange = reinterpret_cast<Real*>(cuda::dynamic_shared());
  const Lanes<Real> lanes(p.layout, exchange + matrix.of_block * p.layout.exchange(kNormalizeSlots));
  LogPlan<Real> plan(lanes, view(p, p.logits, p.stride, matrix.of_batch), 2);
#pragma unroll 1
  for (int k = 0; k < p.iterations; ++k) {
    plan.template normalize<true>(0);
    plan.template normalize<false>(1);
  }
  const bool by_rows = p.result_stride[2] != 1;
  write(p, lanes, matrix.of_batch, by_rows,
        [&](int e) { return power_of_two(by_rows ? plan.rows.x[e] : plan.columns.x[e]); });
}

// Goes back through the normalisations; the plan is the last one's.
template <class Real>
class Reverse {
 public:
  __device__ __forceinline__ Reverse(const Lanes<Real>& lanes, LogPlan<Real>& plan, int slots)
      : lanes_(lanes), plan_(plan), slots_(slots) {}

  // The last normalisation, of columns: dlogP = P (G - sum of P G). Sums are of one normalisation's elements,
  // so that they cancel as G and its mean do.
  template <class Element>
  __device__ __forceinline__ void begin(const MatrixView<Element>& grad) {
    const int line = lanes_.line(), first = lanes_.first();
    const Real mean = lanes_.sum(
        [&](int e) { return power_of_two(plan_.columns.x[e]) * grad.at(first + e, line, Real{}); });
    lanes_.tell(turn(0), mean);
    lanes_.meet();
    lanes_.for_told(turn(0), [&](int e, Real told) {
      rows.x[e] = power_of_two(plan_.rows.x[e]) * (grad.at(line, first + e, Real{}) - told);
    });
    lanes_.for_elements([&](int e) { columns.x[e] = 0; });
    sum_ = lanes_.sum([&](int e) { return rows.x[e]; });
  }

  // Normalisation number `step`, of rows if it is even. All later ones but the next have been taken back.
  template <bool kRows>
  __device__ __forceinline__ void step_back(int step) {
    constexpr int kTurn = kRows ? 1 : 0;
    plan_.template undo<!kRows>(step + 1);
    lanes_.tell(turn(kTurn), sum_);
    lanes_.meet();
    if constexpr (kRows) {
      pull(plan_.columns, columns, turn(kTurn));
    } else {
      pull(plan_.rows, rows, turn(kTurn));
    }
  }

  Line<Real> rows, columns;  // parts of dlogP

 private:
  [[nodiscard]] __device__ __forceinline__ int turn(int k) const { return slots_ - 2 + k; }

  __device__ __forceinline__ void pull(const Line<Real>& t, Line<Real>& gradient, int slot) {
    Line<Real> share;
    lanes_.for_told(slot, [&](int e, Real told) {
      share.x[e] = power_of_two(t.x[e]) * told;
      gradient.x[e] -= share.x[e];
    });
    sum_ = -lanes_.sum([&](int e) { return share.x[e]; });
  }

  const Lanes<Real>& lanes_;
  LogPlan<Real>& plan_;
  const int slots_;
  Real sum_;  // of dlogP, over the lane's line of the normalisation that is taken back next
};

template <class Element>
__global__ void __launch_bounds__(kMostNormalizeThreads)
    normalize_gradient_kernel(const __grid_constant__ NormalizeParams<Element> p) {
  using Real = cuda::Sum<Element>;
  const BlockMatrix matrix(p.layout);
  const int slots = 2 * p.iterations + 2;
  auto* const shared = reinterpret_cast<Real*>(cuda::dynamic_shared());
  Real* const exchange = p.history ? p.history + matrix.of_batch * p.layout.exchange(slots)
                                   : shared + matrix.of_block * p.layout.exchange(slots);
  Real* const tile = shared + (p.history ? 0 : p.layout.matrices * p.layout.exchange(slots)) +
                     matrix.of_block * p.layout.tile();
  const Lanes<Real> lanes(p.layout, exchange);
  LogPlan<Real> plan(lanes, view(p, p.logits, p.stride, matrix.of_batch), slots - 1);
#pragma unroll 1
  for (int k = 0; k < p.iterations; ++k) {
    plan.template normalize<true>(2 * k);
    plan.template normalize<false>(2 * k + 1);
  }
  Reverse<Real> reverse(lanes, plan, slots);
  reverse.begin(view(p, p.grad_plan, p.grad_stride, matrix.of_batch));
  reverse.template step_back<true>(2 * p.iterations - 2);
#pragma unroll 1
  for (int k = p.iterations - 2; k >= 0; --k) {
    reverse.template step_back<false>(2 * k + 1);
    reverse.template step_back<true>(2 * k);
  }
  // The part of the lines that are not written goes through shared memory.
  const bool by_rows = p.result_stride[2] != 1;
  const int stride = p.layout.tile_stride();
  lanes.for_elements([&](int e) {
    tile[lanes.line() * stride + lanes.first() + e] = by_rows ? reverse.columns.x[e] : reverse.rows.x[e];
  });
  lanes.meet();
  write(p, lanes, matrix.of_batch, by_rows, [&](int e) {
    const Real other = tile[(lanes.first() + e) * stride + lanes.line()];
    return (by_rows ? reverse.rows.x[e] : reverse.columns.x[e]) + other;
  });
}

}  // namespace warpalign::detail::transport
