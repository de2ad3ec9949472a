// The lattice pass of plain RNN-T within a band of few states.
//
// A block owns an utterance. Its frames are cut into segments of equal length, and a thread owns a segment
// and a state j of the segment's first frame.
//
//   1. The thread sweeps its segment from state j alone. So the threads of a segment make its matrix m[j][k]:
//   the
//      sum over all paths from state j of its first frame to state k of the next segment's first frame.
//   2. One warp computes alpha of all first frames, alpha' = alpha m, and another one beta = m beta'.
//   3. The segment's first thread sweeps forward from alpha, and stores the share of each node's label arc;
//   then
//      it sweeps back from the posteriors of the next segment's first frame, and stores those of all arcs.
//
// Shares are those of plain_sweep.cuh: the larger one is 1 minus the other, so that a frame's posteriors add
// up to 1. Where the blank's share is the smaller one, it is stored with its sign bit set.
//
// Every frame's states are those of the band. After the last frame there is the end alone: state U_b.
#pragma once

#include "cuda/threads/warp.cuh"
#include "transducer/band.h"
#include "transducer/cuda/lattice/lattice_params.cuh"

namespace warpalign::detail::transducer {

inline constexpr int kBandSweepThreads = 256;

// What the segments of an utterance exchange, in shared memory. Rows have `width` numbers, those of a matrix
// kBandStates.
template <class Real>
struct BandSegments {
  State<Real> matrix[kBandSweepThreads * kBandStates];  // (segments, width, kBandStates)
  State<Real> alpha[kBandSweepThreads + kBandStates];   // (segments + 1, width)
  State<Real> beta[kBandSweepThreads + kBandStates];    // (segments + 1, width)
  int outcome;
};

// The arcs out of a frame's states: log2 weights, -inf where there is no arc.
template <class Real>
struct BandFrame {
  int begin;     // the first state
  bool invalid;  // a weight is NaN: those of all of a node's arcs are, whether they exist or not
  Real blank[kBandStates], label[kBandStates];
};

__device__ __forceinline__ bool has_sign(float v) { return __float_as_int(v) < 0; }
__device__ __forceinline__ bool has_sign(double v) { return __double2hiint(v) < 0; }

// v[k] = v[k + by], `nothing` where there is no such element.
template <class T>
__device__ __forceinline__ void shift(T (&v)[kBandStates], int by, const T& nothing) {
  for (int n = min(by, kBandStates); n > 0; --n) {
#pragma unroll
    for (int k = 0; k < kBandStates; ++k)
      v[k] = k + 1 < kBandStates ? v[min(k + 1, kBandStates - 1)] : nothing;
  }
  for (int n = max(by, -kBandStates); n < 0; ++n) {
#pragma unroll
    for (int k = kBandStates - 1; k >= 0; --k) v[k] = k > 0 ? v[max(k - 1, 0)] : nothing;
  }
}

// The sum of v[j] over j < count, where each is the product of two normal states.
template <class Real, class Product>
__device__ __forceinline__ State<Real> sum_of(int count, const Product& product) {
  State<Real> v[kBandStates];
  Exponent top = kNothing;
#pragma unroll
  for (int j = 0; j < kBandStates; ++j) {
    v[j] = j < count ? product(j) : State<Real>::zero();
    top = larger(top, v[j].exponent);
  }
  Real sum = 0;
#pragma unroll
  for (int j = 0; j < kBandStates; ++j) sum += v[j].mantissa * scale_to<Real>(v[j].exponent, top);
  return normal(State<Real>{sum, top});
}
template <class Real>
__device__ __forceinline__ State<Real> product_of(const State<Real>& a, const State<Real>& b) {
  const Real mantissa = a.mantissa * b.mantissa;
  if (mantissa == Real(0)) return State<Real>::zero();
  return {mantissa, a.exponent + b.exponent};
}

template <class Real>
class BandSweep {
 public:
  using Number = State<Real>;

  __device__ __forceinline__ BandSweep(const LatticeParams<Real>& p, int b, BandSegments<Real>& segments)
      : p_(p),
        band_(p.batch.band),
        b_(b),
        segments_(segments),
        utterance_(utterance_at(p.batch, b)),
        length_(max(ceil_div(utterance_.frames, kBandSweepThreads / band_.width), 1)),
        count_(ceil_div(utterance_.frames, length_)) {}

  __device__ __forceinline__ void run() const {
    const int thread = static_cast<int>(threadIdx.x);
    const int segment = thread / band_.width, state = thread % band_.width;
    bool invalid = !utterance_.fits;
    if (utterance_.fits && utterance_.frames > 0) {
      for (int u = thread; u < utterance_.labels; u += kBandSweepThreads) {
        invalid |= !label_is_valid(p_.batch.lattice, p_.batch.labels, utterance_.targets[u]);
      }
      if (segment < count_) invalid |= make_matrix(segment, state);
    }
    invalid = __syncthreads_or(invalid);
    const int warp = thread / cuda::kWarpSize, lane = thread % cuda::kWarpSize;
    if (warp == 0) conclude_forward(lane, invalid);
    if (warp == 1 && p_.outcome) go_back(lane);
    __syncthreads();
    if (!p_.outcome || segments_.outcome != kPaths) return;
    if (segment < count_ && state == 0) make_posteriors(segment);
  }

 private:
  using Numbers = Number[kBandStates];

  [[nodiscard]] __device__ __forceinline__ static int ceil_div(int a, int b) { return (a + b - 1) / b; }
  [[nodiscard]] __device__ __forceinline__ int end_of(int segment) const {
    return min((segment + 1) * length_, utterance_.frames);
  }
  // The first state of a frame, and of the end.
  [[nodiscard]] __device__ __forceinline__ int begin_of(int t) const {
    return t < utterance_.frames ? band_.begin(b_, t) : utterance_.labels;
  }
  // The slot of an arc to state `column` of a frame, among the frame's; a label's may be their number.
  [[nodiscard]] __device__ __forceinline__ Real* slot(int t, int column, int arc) const {
    return p_.slots + utterance_.slot + utterance_.layout.slot(t, column, arc);
  }

  [[nodiscard]] __device__ __forceinline__ BandFrame<Real> load(int t, int begin) const {
    const Real nothing = -static_cast<Real>(CUDART_INF);
    BandFrame<Real> frame;
    frame.begin = begin;
    frame.invalid = false;
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) {
      const int u = begin + k;
      const bool exists = k < band_.width && u <= utterance_.labels;
      Real blank = exists ? *slot(t, k, 0) : nothing;
      Real label = exists && u < utterance_.labels && k + 1 < band_.width ? *slot(t, k + 1, 1) : nothing;
      if (isnan(blank)) {
        frame.invalid = true;
        blank = label = nothing;
      }
      frame.blank[k] = blank;
      frame.label[k] = label;
    }
    return frame;
  }

  // Adds the paths of a frame's labels: v[k] += v[k-1] label[k-1]. kStores: stores shares in the labels'
  // slots.
  template <bool kStores>
  __device__ __forceinline__ void add_labels(int t, const BandFrame<Real>& frame, Numbers& v) const {
#pragma unroll
    for (int k = 1; k < kBandStates; ++k) {
      const Number by_label = product(v[k - 1], Weight<Real>::of(frame.label[k - 1]));
      const Exponent top = larger(v[k].exponent, by_label.exponent);
      const Real z_blank = v[k].mantissa * scale_to<Real>(v[k].exponent, top);
      const Real z_label = by_label.mantissa * scale_to<Real>(by_label.exponent, top);
      const Real sum = z_blank + z_label;
      v[k] = {sum, top};
      if (kStores && k < band_.width && frame.begin + k <= utterance_.labels) {
        const Real smaller = sum > Real(0) ? min(z_blank, z_label) * reciprocal_of(sum) : Real(0);
        *slot(t, k, 1) = z_label <= z_blank ? smaller : -smaller;
      }
    }
  }
  // From a frame's nodes to the states of the next frame, which begin with `to`.
  __device__ __forceinline__ void take_blanks(const BandFrame<Real>& frame, int to, Numbers& v) const {
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) v[k] = normal(product(v[k], Weight<Real>::of(frame.blank[k])));
    shift(v, to - frame.begin, Number::zero());
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) {
      if (k >= band_.width) v[k] = Number::zero();
    }
  }

  // A row of a segment's matrix. Returns whether a weight is NaN.
  [[nodiscard]] __device__ __forceinline__ bool make_matrix(int segment, int state) const {
    const int first = segment * length_, end = end_of(segment);
    Numbers v;
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) v[k] = k == state ? Number::one() : Number::zero();
    bool invalid = false;
    BandFrame<Real> next = load(first, begin_of(first));
    for (int t = first; t < end; ++t) {
      const BandFrame<Real> frame = next;
      const int to = begin_of(t + 1);
      if (t + 1 < end) next = load(t + 1, to);
      invalid |= frame.invalid;
      add_labels<false>(t, frame, v);
      take_blanks(frame, to, v);
    }
    Number* const row = segments_.matrix + (segment * band_.width + state) * kBandStates;
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) row[k] = v[k];
    return invalid;
  }

  // Alpha of all first frames and of the end; then the outcome and the loss. Called by a warp.
  __device__ __forceinline__ void conclude_forward(int lane, bool invalid) const {
    const int width = band_.width;
    if (lane < width) {
      const bool is_start = lane == 0 && utterance_.frames > 0 && begin_of(0) == 0;
      segments_.alpha[lane] = is_start ? Number::one() : Number::zero();
    }
    __syncwarp();
    const int segments = utterance_.fits ? count_ : 0;
    for (int segment = 0; segment < segments; ++segment) {
      if (lane < width) {
        const Number* const from = segments_.alpha + segment * width;
        const Number* const matrix = segments_.matrix + segment * width * kBandStates + lane;
        segments_.alpha[(segment + 1) * width + lane] =
            sum_of<Real>(width, [&](int j) { return product_of<Real>(from[j], matrix[j * kBandStates]); });
      }
      __syncwarp();
    }
    if (lane == 0) {
      segments_.outcome = conclude(p_, b_, utterance_.frames, segments_.alpha[segments * width], invalid);
    }
  }
  // Beta of all first frames. Called by a warp.
  __device__ __forceinline__ void go_back(int lane) const {
    const int width = band_.width, segments = utterance_.fits ? count_ : 0;
    if (lane < width) segments_.beta[segments * width + lane] = lane == 0 ? Number::one() : Number::zero();
    __syncwarp();
    for (int segment = segments - 1; segment > 0; --segment) {
      if (lane < width) {
        const Number* const from = segments_.beta + (segment + 1) * width;
        const Number* const matrix = segments_.matrix + (segment * width + lane) * kBandStates;
        segments_.beta[segment * width + lane] =
            sum_of<Real>(width, [&](int k) { return product_of<Real>(matrix[k], from[k]); });
      }
      __syncwarp();
    }
  }

  // Posteriors of the states of a segment's first frame, or of the end.
  __device__ __forceinline__ void boundary(int segment, Real (&q)[kBandStates]) const {
    Number v[kBandStates];
    Exponent top = kNothing;
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) {
      const int at = segment * band_.width + k;
      v[k] = k < band_.width ? product_of<Real>(segments_.alpha[at], segments_.beta[at]) : Number::zero();
      top = larger(top, v[k].exponent);
    }
    Real sum = 0;
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) {
      q[k] = v[k].mantissa * scale_to<Real>(v[k].exponent, top);
      sum += q[k];
    }
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) q[k] = sum > Real(0) ? q[k] / sum : Real(0);
  }

  __device__ __forceinline__ void make_posteriors(int segment) const {
    const int first = segment * length_, end = end_of(segment);
    Numbers v;
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) {
      v[k] = k < band_.width ? segments_.alpha[segment * band_.width + k] : Number::zero();
    }
    BandFrame<Real> next = load(first, begin_of(first));
    for (int t = first; t < end; ++t) {
      const BandFrame<Real> frame = next;
      const int to = begin_of(t + 1);
      if (t + 1 < end) next = load(t + 1, to);
      add_labels<true>(t, frame, v);
      take_blanks(frame, to, v);
    }
    Real by_blank[kBandStates];  // what leaves a frame's states by blanks
    boundary(segment + 1, by_blank);
    int behind = begin_of(end), begin = begin_of(end - 1);
    Real share[kBandStates];
    load_shares(end - 1, begin, share);
    for (int t = end - 1; t >= first; --t) {
      shift(by_blank, begin - behind, Real(0));
      const int before = t > first ? begin_of(t - 1) : 0;
      Real of_frame[kBandStates];
#pragma unroll
      for (int k = 0; k < kBandStates; ++k) of_frame[k] = share[k];
      if (t > first) load_shares(t - 1, before, share);
      flow_back(t, begin, of_frame, by_blank);
      behind = begin;
      begin = before;
    }
  }
  __device__ __forceinline__ void load_shares(int t, int begin, Real (&share)[kBandStates]) const {
#pragma unroll
    for (int k = 0; k < kBandStates; ++k) {
      const bool exists = k > 0 && k < band_.width && begin + k <= utterance_.labels;
      share[k] = exists ? *slot(t, k, 1) : Real(0);
    }
  }
  // Stores the posteriors of a frame's arcs. by_blank: what leaves its states by blanks; then what has come
  // to them by blanks.
  __device__ __forceinline__ void flow_back(int t, int begin, const Real (&share)[kBandStates],
                                            Real (&by_blank)[kBandStates]) const {
    Real by_label = 0;  // what leaves the state by its label
#pragma unroll
    for (int k = kBandStates - 1; k >= 0; --k) {
      const int u = begin + k;
      const bool exists = k < band_.width && u <= utterance_.labels;
      const Real node = by_blank[k] + by_label;
      if (exists) *slot(t, k, 0) = by_blank[k];
      if (exists && u < utterance_.labels) *slot(t, k + 1, 1) = by_label;
      const bool is_blanks = has_sign(share[k]);
      by_blank[k] = exists ? node * (is_blanks ? -share[k] : Real(1) - share[k]) : Real(0);
      by_label = exists ? node * (is_blanks ? Real(1) + share[k] : share[k]) : Real(0);
    }
  }

  const LatticeParams<Real>& p_;
  const Band& band_;
  const int b_;
  BandSegments<Real>& segments_;
  const Utterance utterance_;
  const int length_;  // frames of a segment
  const int count_;   // segments
};

template <class Real>
__global__ void __launch_bounds__(kBandSweepThreads, 1)
    band_sweep_kernel(const __grid_constant__ LatticeParams<Real> p) {
  __shared__ BandSegments<Real> segments;
  BandSweep<Real>(p, static_cast<int>(blockIdx.x), segments).run();
}

}  // namespace warpalign::detail::transducer
