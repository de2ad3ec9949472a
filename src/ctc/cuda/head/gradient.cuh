// The gradient of frames whose logits come in chunks (warpalign/ctc_head.h), over the logits. A block owns a
// frame:
//
//   d loss / d x[c] = G (p_c (1 - s) - sum of the posteriors of labels c),   s = star's posterior / sum of
//   p_c
//
// for c != blank, and G (p_c - blank's posterior) for blank. Posteriors of equal labels are added in the
// order of the labels, along CtcHeadLabels::next; others by a thread each, then by lane and warp: bitwise
// identical in every run.
#pragma once

#include "ctc/cuda/lattice/params.cuh"
#include "cuda/launch/shared.cuh"
#include "cuda/rows/row_sum.cuh"
#include "cuda/rows/row_write.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kHeadThreads = 256;

template <class Element>
struct HeadGradientParams {
  using Real = cuda::Sum<Element>;
  Batch batch;
  Element* logits;      // of frame first_row
  std::int64_t stride;  // elements from frame to frame
  std::int64_t first_row;
  const std::int32_t* first;  // (B, U)
  const std::int32_t* next;   // (B, U)
  const double* log_sums;     // (B, T)
  const double* log_sums_of_others;
  const Real* posteriors;  // (B, T, U)
  const Real* loss;        // (B,)
  const Real* grad_loss;   // (B,), or null: 1
  std::int64_t grad_loss_stride;
  Real* values;  // (blocks, U): gradients of labels' columns; null: they are in shared memory
};

template <class Element>
class HeadGradient {
  using Real = cuda::Sum<Element>;
  static constexpr int kWarps = kHeadThreads / cuda::kWarpSize;

 public:
  __device__ __forceinline__ explicit HeadGradient(const HeadGradientParams<Element>& p)
      : p_(p),
        batch_(p.batch),
        thread_(static_cast<int>(threadIdx.x)),
        row_(p.first_row + blockIdx.x),
        b_(static_cast<int>(row_ / p.batch.frames)),
        utterance_(utterance_at(p.batch, b_)),
        labels_(static_cast<std::int64_t>(b_) * p.batch.labels),
        posteriors_(p.posteriors + row_ * p.batch.labels),
        logits_(p.logits + blockIdx.x * p.stride),
        values_(p.values ? p.values + static_cast<std::int64_t>(blockIdx.x) * p.batch.labels
                         : reinterpret_cast<Real*>(cuda::dynamic_shared())) {}

  __device__ __forceinline__ void run() const {
    const Real factor = p_.grad_loss ? p_.grad_loss[b_ * p_.grad_loss_stride] : Real(1);
    const Real loss = p_.loss[b_];
    const bool counts = row_ % batch_.frames < utterance_.frames && factor != Real(0) && !isinf(loss);
    if (!counts || isnan(loss)) {
      const Real value = counts ? static_cast<Real>(CUDART_NAN) : Real(0);
      cuda::write_row<false>(logits_, logits_, batch_.classes, thread_, kHeadThreads,
                             [=](Real) { return value; });
      return;
    }
    write(factor);
  }

 private:
  // Sums over the threads, which all of them get.
  __device__ __forceinline__ Real sum_of_block(Real v, Real (&parts)[kWarps]) const {
    v = cuda::reduce_sum(v);
    if (thread_ % cuda::kWarpSize == 0) parts[thread_ / cuda::kWarpSize] = v;
    __syncthreads();
    Real sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += parts[w];
    return sum;
  }
  // The sum of the posteriors of label k and of those equal to it behind it.
  [[nodiscard]] __device__ __forceinline__ Real sum_of_equals(int k) const {
    Real sum = 0;
    for (; k >= 0; k = p_.next[labels_ + k]) sum += posteriors_[k];
    return sum;
  }
  // The class of label k if it is the first of equal labels; -1 otherwise, and for the star.
  [[nodiscard]] __device__ __forceinline__ int column_of(int k) const {
    if (p_.first[labels_ + k] != k) return -1;
    const int label = utterance_.label(batch_, k);
    return batch_.star >= 0 && label == batch_.star ? -1 : label;
  }

  __device__ __forceinline__ void write(Real factor) const {
    __shared__ Real all_parts[kWarps], star_parts[kWarps];
    Real all = 0, star = 0;
    for (int k = thread_; k < utterance_.labels; k += kHeadThreads) {
      const Real posterior = posteriors_[k];
      all += posterior;
      if (batch_.star >= 0 && utterance_.label(batch_, k) == batch_.star) star += posterior;
    }
    all = sum_of_block(all, all_parts);
    const double log_sum = p_.log_sums[row_];
    Real weight = 1;  // 1 - s
    if (batch_.star >= 0) {
      star = sum_of_block(star, star_parts);
      if (star > 0) weight -= star * static_cast<Real>(exp(log_sum - p_.log_sums_of_others[row_]));
    }
    // log2 of the normaliser in two parts, because its rounding would be that of all probabilities.
    const double log2_sum = log_sum * static_cast<double>(kLog2E<Real>);
    const Real shift = static_cast<Real>(log2_sum);
    const Real rest = static_cast<Real>(log2_sum - static_cast<double>(shift));
    const auto value = [=](Real x, Real weight_of) {
      return cuda::exp2_of(fma(x, kLog2E<Real>, -shift) - rest) * weight_of;
    };
    Real of_blank = 0;
    if (thread_ == 0) {
      of_blank = (value(cuda::widen(logits_[batch_.blank]), 1) - max(1 - all, Real(0))) * factor;
    }
    for (int k = thread_; k < utterance_.labels; k += kHeadThreads) {
      const int c = column_of(k);
      if (c >= 0) values_[k] = (value(cuda::widen(logits_[c]), weight) - sum_of_equals(k)) * factor;
    }
    __syncthreads();  // the row is overwritten from here on
    const Real scale = weight * factor;
    cuda::write_row<true, 8>(logits_, logits_, batch_.classes, thread_, kHeadThreads,
                             [=](Real x) { return value(x, scale); });
    __syncthreads();
    for (int k = thread_; k < utterance_.labels; k += kHeadThreads) {
      const int c = column_of(k);
      if (c >= 0) logits_[c] = cuda::narrow<Element>(values_[k]);
    }
    if (thread_ == 0) logits_[batch_.blank] = cuda::narrow<Element>(of_blank);
  }

  const HeadGradientParams<Element>& p_;
  const Batch& batch_;
  const int thread_;
  const std::int64_t row_;  // of the B T frames
  const int b_;
  const Utterance utterance_;
  const std::int64_t labels_;     // index of label 0 in first and next
  const Real* const posteriors_;  // of the frame
  Element* const logits_;         // of the frame
  Real* const values_;
};

template <class Element>
__global__ void __launch_bounds__(kHeadThreads)
    head_gradient_kernel(const __grid_constant__ HeadGradientParams<Element> p) {
  HeadGradient<Element>(p).run();
}

}  // namespace warpalign::detail::ctc
