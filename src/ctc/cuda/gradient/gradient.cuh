// The gradient pass. A block owns a segment: it computes the posteriors of the segment's frames, adds those
// of equal labels, and writes the frames' gradients once, including the upstream factor G:
//
//   d loss / d x[c] = G (p_c - sum of the posteriors of the states of class c - star's share)
//
// The order of sums is fixed: equal labels of a strip by lane, then strips from left to right. The gradient
// may be written over the logits: a block reads logits of its own frames alone, and each element before it is
// written.
#pragma once

#include "ctc/cuda/gradient/segment.cuh"
#include "cuda/launch/shared.cuh"
#include "cuda/rows/row_write.cuh"

namespace warpalign::detail::ctc {

template <class Element>
class Gradient {
  using Real = cuda::Sum<Element>;

 public:
  __device__ __forceinline__ explicit Gradient(const GradientParams<Element>& p)
      : p_(p),
        batch_(p.segment.batch),
        b_(static_cast<int>(blockIdx.x) / p.segment.segments),
        warps_(static_cast<int>(blockDim.x) / cuda::kWarpSize),
        warp_(cuda::shuffle(static_cast<int>(threadIdx.x) / cuda::kWarpSize, 0)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        segment_(p.segment, b_, p.segment.first_segment + static_cast<int>(blockIdx.x) % p.segment.segments),
        sums_(*reinterpret_cast<FrameSums<Real>*>(cuda::dynamic_shared())),
        columns_(reinterpret_cast<int*>(&sums_ + 1)),
        shared_(reinterpret_cast<Real*>(columns_ + column_count(p.slots))),
        occupancies_(p.occupancies
                         ? p.occupancies + static_cast<std::int64_t>(blockIdx.x) * kSegment * p.slots.width
                         : shared_),
        strips_(reinterpret_cast<GradientMemory<Real>*>(p.occupancies ? shared_
                                                                      : shared_ + kSegment * p.slots.width)) {
  }

  __device__ __forceinline__ void run() const {
    const int outcome = p_.segment.verdicts[b_].outcome;
    const Real factor = p_.grad_loss ? p_.grad_loss[b_ * p_.grad_loss_stride] : Real(1);
    const bool live = segment_.frames() > 0 && outcome == kPaths && factor != Real(0);
    if (live) find_occupancies();
    const Real value = outcome == kInvalid && factor != Real(0) ? static_cast<Real>(CUDART_NAN) : Real(0);
    const int rows = min(kSegment, batch_.frames - segment_.first());
    for (int f = warp_; f < rows; f += warps_) {
      if (live && f < segment_.frames()) {
        write_frame(f, factor);
      } else {
        fill(row_of(f), f < segment_.frames() ? value : Real(0));
      }
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ Real* occupancies(int f) const {
    return occupancies_ + f * p_.slots.width;
  }
  [[nodiscard]] __device__ __forceinline__ Element* row_of(int f) const {
    return p_.grad + b_ * p_.grad_stride[0] + (segment_.first() + f) * p_.grad_stride[1];
  }
  // The slot of the utterance's label k, which is `label`; -1 if there is no such label.
  [[nodiscard]] __device__ __forceinline__ int slot_of(int k, int label) const {
    if (label < 0) return -1;
    if (batch_.star >= 0 && label == batch_.star) return p_.slots.width - 1;
    return p_.slots.dense ? label : p_.slots.first[static_cast<std::int64_t>(b_) * batch_.labels + k];
  }

  // Adds the posteriors of all strips by slot, warps_ strips at a time.
  __device__ __forceinline__ void find_occupancies() const {
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    for (int k = thread; k < segment_.frames() * p_.slots.width; k += threads) occupancies_[k] = 0;
    if (thread < kSegment) sums_.all[thread] = sums_.blank[thread] = 0;
    for (int round = 0; round < segment_.strips(); round += warps_) {
      if (round + warp_ < segment_.strips()) {
        GradientMemory<Real>& own = strips_[warp_];
        segment_.solve(round + warp_, own.strip);
        const int k = (round + warp_) * kStrip + lane_ - 1, label = segment_.utterance().label(batch_, k);
        const int slot = slot_of(k, label);
        own.equal.find(slot, lane_);
        if (!p_.slots.dense && k >= 0 && k < segment_.utterance().labels)
          columns_[k] = slot == k ? label : -1;
      }
      __syncthreads();
      const int strips = min(warps_, segment_.strips() - round);
      for (int f = warp_; f < segment_.frames(); f += warps_) add_frame(f, strips);
      __syncthreads();
    }
  }

  // Adds a frame's posteriors of `strips` strips. One warp does this for a frame.
  __device__ __forceinline__ void add_frame(int f, int strips) const {
    Real all = 0, blanks = 0;
    for (int j = 0; j < strips; ++j) {
      StripMemory<Real>& strip = strips_[j].strip;
      const Real blank = strip.blank_posterior(f, lane_), label = strip.label_posterior(f, lane_);
      blanks += blank;
      all += blank + label;
      const Real sum = strips_[j].equal.sum(label, lane_);
      const int slot = strips_[j].equal.slot[lane_];
      if (slot >= 0) occupancies(f)[slot] += sum;
      __syncwarp();
    }
    all = cuda::reduce_sum(all);
    blanks = cuda::reduce_sum(blanks);
    if (lane_ == 0) {
      sums_.all[f] += all;
      sums_.blank[f] += blanks;
    }
  }

  __device__ __forceinline__ void fill(Element* to, Real value) const {
    if (p_.grad_stride[2] == 1) {
      cuda::write_row<false>(to, to, batch_.classes, lane_, cuda::kWarpSize, [=](Real) { return value; });
      return;
    }
    for (int c = lane_; c < batch_.classes; c += cuda::kWarpSize) {
      to[c * p_.grad_stride[2]] = cuda::narrow<Element>(value);
    }
  }

  // The part of the gradient without the classes' occupancies: 2^(x log2(e) - shift + scale) weight, with the
  // weight 1 for blank.
  struct Smooth {
    Real shift, scale, weight, blank_weight;

    [[nodiscard]] __device__ __forceinline__ Real power(Real x) const {
      return cuda::exp2_of(fma(x, kLog2E<Real>, -shift) + scale);
    }
    // The power may be infinite if its weight is 0.
    [[nodiscard]] __device__ __forceinline__ Real value(Real x, Real weight_of) const {
      return weight_of == Real(0) ? Real(0) : power(x) * weight_of;
    }
    [[nodiscard]] __device__ __forceinline__ bool reads() const {
      return weight != Real(0) || blank_weight != Real(0);
    }
  };
  [[nodiscard]] __device__ __forceinline__ Smooth smooth(int f) const {
    const std::int64_t row = static_cast<std::int64_t>(b_) * batch_.frames + segment_.first() + f;
    const auto& from = p_.segment.from;
    Real star = 0;  // occupancy of the star
    if (batch_.star >= 0) star = occupancies(f)[p_.slots.width - 1] / sums_.all[f];
    if (!from.sums) {
      return {star > 0 ? from.stars[row] * kLog2E<Real> : Real(0), 0, -star, 0};
    }
    const cuda::RowSum<Real> sum = from.sums[row];
    if (star > 0) star /= cuda::exp2_of(fma(from.stars[row], kLog2E<Real>, -sum.shift) - sum.log2_sum);
    return {sum.shift, -sum.log2_sum, Real(1) - star, 1};
  }

  __device__ __forceinline__ void write_frame(int f, Real factor) const {
    const Smooth s = smooth(f);
    const Element* const from =
        p_.segment.from.data + b_ * batch_.stride[0] + (segment_.first() + f) * batch_.stride[1];
    const Real of_blank = sums_.blank[f] / sums_.all[f];
    if (p_.slots.dense) {
      write_dense(f, s, from, of_blank, factor);
    } else {
      write_sparse(f, s, from, of_blank, factor);
    }
  }

  __device__ __forceinline__ void write_dense(int f, const Smooth& s, const Element* from, Real of_blank,
                                              Real factor) const {
    Element* const to = row_of(f);
    const Real* const occupancy = occupancies(f);
    const Real share = Real(1) / sums_.all[f];
    const bool reads = s.reads();
#pragma unroll 4
    for (int c = lane_; c < batch_.classes; c += cuda::kWarpSize) {
      const bool is_blank = c == batch_.blank;
      Real v = is_blank ? -of_blank : -occupancy[c] * share;
      if (reads) v += s.value(cuda::widen(from[c * batch_.stride[2]]), is_blank ? s.blank_weight : s.weight);
      to[c * p_.grad_stride[2]] = cuda::narrow<Element>(v * factor);
    }
  }

  // Writes the row without occupancies, then the columns that have one. Their values are computed first, and
  // replace the occupancies in memory, because the row may be written over the logits.
  __device__ __forceinline__ void write_sparse(int f, const Smooth& s, const Element* from, Real of_blank,
                                               Real factor) const {
    Element* const to = row_of(f);
    Real* const occupancy = occupancies(f);
    const Real share = Real(1) / sums_.all[f];
    const bool reads = s.reads();
    const auto value = [&](int c, Real weight) {
      return reads ? s.value(cuda::widen(from[c * batch_.stride[2]]), weight) : Real(0);
    };
    const Real blank = (value(batch_.blank, s.blank_weight) - of_blank) * factor;
    for (int k = lane_; k < segment_.utterance().labels; k += cuda::kWarpSize) {
      const int c = columns_[k];
      if (c >= 0) occupancy[k] = (value(c, s.weight) - occupancy[k] * share) * factor;
    }
    __syncwarp();
    const Real weight = s.weight * factor;
    if (batch_.stride[2] != 1 || p_.grad_stride[2] != 1) {
      for (int c = lane_; c < batch_.classes; c += cuda::kWarpSize) {
        to[c * p_.grad_stride[2]] = cuda::narrow<Element>(value(c, weight));
      }
    } else if (reads) {
      cuda::write_row<true, 8>(to, from, batch_.classes, lane_, cuda::kWarpSize,
                               [=](Real x) { return s.value(x, weight); });
    } else {
      cuda::write_row<false>(to, from, batch_.classes, lane_, cuda::kWarpSize, [=](Real) { return Real(0); });
    }
    __syncwarp();
    for (int k = lane_; k < segment_.utterance().labels; k += cuda::kWarpSize) {
      const int c = columns_[k];
      if (c >= 0) to[c * p_.grad_stride[2]] = cuda::narrow<Element>(occupancy[k]);
    }
    if (lane_ == 0) to[batch_.blank * p_.grad_stride[2]] = cuda::narrow<Element>(blank);
  }

  const GradientParams<Element>& p_;
  const Batch& batch_;
  const int b_, warps_, warp_, lane_;
  const Segment<Element> segment_;
  FrameSums<Real>& sums_;
  // (U,), unless slots are dense: the class of label k if it is the first of equal labels, else -1.
  int* const columns_;
  Real* const shared_;  // after columns_, at a multiple of 16 bytes
  Real* const occupancies_;
  GradientMemory<Real>* const strips_;  // one for each warp that has a strip
};

template <class Element>
__global__ void __launch_bounds__(kSegmentWarps * 32, sizeof(cuda::Sum<Element>) == 4 ? 3 : 1)
    gradient_kernel(const __grid_constant__ GradientParams<Element> p) {
  Gradient<Element>(p).run();
}

}  // namespace warpalign::detail::ctc
