// The rows pass: of every node's logits the log of their sum, and the weights of the node's arcs. Logits are
// read once.
//
// A row belongs to 4 to 32 neighbouring lanes of a warp. Lane l has the columns that its place in the row
// gives it, wherever the row lies in memory: sums have the same bits for every alignment.
#pragma once

#include "cuda/half.cuh"
#include "cuda/math.cuh"
#include "cuda/streaming.cuh"
#include "cuda/warp.cuh"
#include "transducer/cuda/params.cuh"
#include "transducer/cuda/state.cuh"

namespace warpalign::detail::transducer {

// p_k = 2^(x_k log2(e) - shift - log2_sum). A row of -inf has log2_sum = +inf, so that p = 0.
template <class Real>
struct alignas(2 * sizeof(Real)) RowSum {
  Real shift;  // of the row's largest logit, times log2(e)
  Real log2_sum;
};

template <class Storage>
struct RowsParams {
  using Real = cuda::Sum<Storage>;
  Batch batch;
  RowStride stride;
  int lanes;  // of a row
  const Storage* logits;
  std::int64_t logits_stride[3];  // packed: only [2] is looked at
  const Storage* duration_logits;
  std::int64_t duration_stride[3];
  double log_star_penalty;
  RowSum<Real>* sums;  // null: not wanted
  Real* slots;
};

template <class Real>
inline constexpr Real kLog2E = static_cast<Real>(1.4426950408889634074);

__device__ __forceinline__ float minus_infinity(float) { return -CUDART_INF_F; }
__device__ __forceinline__ double minus_infinity(double) { return -CUDART_INF; }
template <class Real>
__device__ __forceinline__ Real minus_infinity() {
  return minus_infinity(Real(0));
}

// log2 of the arc's probability.
template <class Real>
__device__ __forceinline__ Real log2_probability(Real x, RowSum<Real> sum) {
  return fma(x, kLog2E<Real>, -sum.shift) - sum.log2_sum;
}

// Elements of one load of 4 bytes (8 for float64), as they are in memory.
template <class Storage>
struct Loaded {
  static constexpr int kCount = 1;
  Storage value;

  static __device__ __forceinline__ Loaded load(const Storage* row, int column, int labels, bool) {
    return {column < labels ? cuda::load_streaming(row + column) : minus_infinity<Storage>()};
  }
  __device__ __forceinline__ Storage operator[](int) const { return value; }
};

template <class Half>
struct LoadedPair {
  static constexpr int kCount = 2;
  std::uint32_t bits;

  // pairs: the row begins at a multiple of 4 bytes.
  static __device__ __forceinline__ LoadedPair load(const Half* row, int column, int labels, bool pairs) {
    constexpr std::uint32_t kMinusInfinity = std::is_same_v<Half, cuda::Float16> ? 0xfc00u : 0xff80u;
    const auto* const at = reinterpret_cast<const std::uint16_t*>(row + column);
    if (pairs && column + 1 < labels)
      return {cuda::load_streaming(reinterpret_cast<const std::uint32_t*>(at))};
    const std::uint32_t low = column < labels ? cuda::load_streaming(at) : kMinusInfinity;
    const std::uint32_t high = column + 1 < labels ? cuda::load_streaming(at + 1) : kMinusInfinity;
    return {low | high << 16};
  }
  __device__ __forceinline__ float operator[](int k) const {
    return cuda::widen(Half{static_cast<std::uint16_t>(bits >> (16 * k))});
  }
};
template <>
struct Loaded<cuda::Float16> : LoadedPair<cuda::Float16> {
  __device__ __forceinline__ Loaded(LoadedPair<cuda::Float16> pair) : LoadedPair(pair) {}
  Loaded() = default;
};
template <>
struct Loaded<cuda::BFloat16> : LoadedPair<cuda::BFloat16> {
  __device__ __forceinline__ Loaded(LoadedPair<cuda::BFloat16> pair) : LoadedPair(pair) {}
  Loaded() = default;
};

// Largest element times log2(e), and the sum of 2^(x log2(e) - shift), of what one lane has seen.
template <class Real>
struct OnlineSum {
  // Below every logit that counts, and finite times log2(e).
  static constexpr Real kLeast = static_cast<Real>(std::is_same_v<Real, float> ? -1.7e38 : -1.2e308);
  Real shift = kLeast * kLog2E<Real>;
  Real sum = 0;

  template <int kLoads, class Element>
  __device__ __forceinline__ void add(const Element (&x)[kLoads]) {
    constexpr int kCount = Element::kCount;
    Real largest = kLeast;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) largest = max(largest, static_cast<Real>(x[j][k]));
    }
    const Real next = max(shift, largest * kLog2E<Real>);
    Real part[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      part[j] = exp2_of(fma(static_cast<Real>(x[j][0]), kLog2E<Real>, -next));
      if constexpr (kCount == 2) part[j] += exp2_of(fma(static_cast<Real>(x[j][1]), kLog2E<Real>, -next));
    }
#pragma unroll
    for (int step = 1; step < kLoads; step *= 2) {
#pragma unroll
      for (int j = 0; j + step < kLoads; j += 2 * step) part[j] += part[j + step];
    }
    sum = fma(sum, exp2_of(shift - next), part[0]);
    shift = next;
  }

  // Joins what `lanes` neighbouring lanes have. All of them get the same bits.
  __device__ __forceinline__ RowSum<Real> join(int lanes) const {
    Real all = shift;
    for (int bit = 1; bit < lanes; bit *= 2) all = max(all, cuda::shuffle_xor(all, bit));
    Real total = sum * exp2_of(shift - all);
    for (int bit = 1; bit < lanes; bit *= 2) total += cuda::shuffle_xor(total, bit);
    if (total == Real(0)) return {0, -minus_infinity<Real>()};
    return {all, static_cast<Real>(log2(total))};
  }
};

template <class Storage>
__device__ __forceinline__ RowSum<cuda::Sum<Storage>> sum_row(const Storage* row, int labels, int lane,
                                                              int lanes, bool active) {
  using Element = Loaded<Storage>;
  const bool pairs = reinterpret_cast<std::uintptr_t>(row) % 4 == 0;
  const int chunk = lanes * kRowLoads * Element::kCount;
  const int end = active ? labels : 0;
  const auto load = [&](Element(&to)[kRowLoads], int begin) {
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) {
      to[j] = Element::load(row, begin + (j * lanes + lane) * Element::kCount, end, pairs);
    }
  };
  OnlineSum<cuda::Sum<Storage>> sum;
  Element now[kRowLoads];
  load(now, 0);
  for (int begin = chunk; begin < labels; begin += chunk) {  // the next chunk is on its way
    Element next[kRowLoads];
    load(next, begin);
    sum.add(now);
#pragma unroll
    for (int j = 0; j < kRowLoads; ++j) now[j] = next[j];
  }
  sum.add(now);
  return sum.join(lanes);
}

// The log-softmax of few duration logits in base 2: every lane has all of it.
template <class Storage>
__device__ __forceinline__ RowSum<cuda::Sum<Storage>> sum_durations(const Storage* row, int durations) {
  using Real = cuda::Sum<Storage>;
  Real largest = OnlineSum<Real>::kLeast;
  for (int d = 0; d < durations; ++d) largest = max(largest, static_cast<Real>(cuda::widen(row[d])));
  const Real shift = largest * kLog2E<Real>;
  Real sum = 0;
  for (int d = 0; d < durations; ++d) {
    sum += exp2_of(fma(static_cast<Real>(cuda::widen(row[d])), kLog2E<Real>, -shift));
  }
  if (sum == Real(0)) return {0, -minus_infinity<Real>()};
  return {shift, static_cast<Real>(log2(sum))};
}

// The arcs out of one node.
template <class Storage>
struct NodeWeights {
  using Real = cuda::Sum<Storage>;
  const RowsParams<Storage>& p;
  const Utterance& utterance;
  const ArcTable& table;
  int t, u;
  const Storage* row;
  const Storage* duration_row;  // null: the arcs have no durations
  RowSum<Real> sum;
  RowSum<Real> duration_sum;

  __device__ __forceinline__ Real probability(Real x, RowSum<Real> of) const {
    if (!p.batch.log_probs) return log2_probability(x, of);
    const Real w = x * kLog2E<Real>;
    return w == -minus_infinity<Real>() ? static_cast<Real>(CUDART_NAN) : w;
  }

  // log2 of an arc's weight; -inf where there is no such arc.
  __device__ __forceinline__ Real weight(int arc) const {
    const TransducerLattice& lattice = p.batch.lattice;
    if (!arc_end(table, arc, t, u, utterance.frames, utterance.labels).exists) return minus_infinity<Real>();
    const auto penalties =
        penalties_of<Real>(lattice, static_cast<Real>(p.log_star_penalty), utterance.without_durations);
    const bool is_label = table.is_label(arc);
    int label = -1;
    if (is_label) label = utterance.targets[u];
    if (!is_label && penalties.star >= 0 && u > 0) label = utterance.targets[u - 1];
    const ArcTerm<Real> term =
        is_label ? label_term(penalties, t, utterance.frames, label) : blank_term(penalties, label);
    const Real constant = term.constant * kLog2E<Real>;
    if (!term.scored) return constant;
    // The lattice finds invalid labels; nothing is read for them here.
    if (is_label && !label_is_valid(lattice, p.batch.labels, label)) return minus_infinity<Real>();
    const Storage* const x = row + (is_label ? label : table.column[arc]);
    const Real w = constant + probability(static_cast<Real>(cuda::widen(*x)), sum);
    if (!duration_row) return w;
    return w + probability(static_cast<Real>(cuda::widen(duration_row[table.duration[arc]])), duration_sum);
  }

  // Writes the slots of the arcs lane, lane + lanes, ... A node with NaN among its logits (of
  // log-probabilities: among its arcs') has NaN in every slot, whether the arc exists or not. No label leads
  // to column 0.
  __device__ __forceinline__ void write(int lane, int lanes) const {
    bool invalid = isnan(sum.log2_sum) || isnan(duration_sum.log2_sum);
    if (p.batch.log_probs) {
      for (int arc = 0; arc < table.arcs(); ++arc) invalid |= isnan(weight(arc));
    }
    for (int arc = lane; arc < table.arcs(); arc += lanes) {
      const bool is_label = table.is_label(arc);
      Real* const slots = p.slots + utterance.slot;
      if (is_label && u == 0) slots[utterance.layout.slot(t, 0, arc)] = minus_infinity<Real>();
      if (is_label && u == utterance.labels) continue;
      slots[utterance.layout.slot(t, u + is_label, arc)] =
          invalid ? static_cast<Real>(CUDART_NAN) : weight(arc);
    }
  }
};

constexpr int kRowThreads = 256;
template <class Storage>
inline constexpr int kRowBlocks = sizeof(Storage) == 8   ? 3
                                  : sizeof(Storage) == 4 ? 5
                                                         : 4;  // of a multiprocessor

template <class Storage>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Storage>)
    rows_kernel(const __grid_constant__ RowsParams<Storage> p) {
  using Real = cuda::Sum<Storage>;
  const Batch& batch = p.batch;
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  RowCursor at(batch, thread / p.lanes);
  const std::int64_t first_of_warp = (thread - threadIdx.x % 32) / p.lanes;
  for (std::int64_t first = first_of_warp; first < batch.rows; first += p.stride.groups) {
    Utterance utterance{};
    bool active = at.row < batch.rows && at.b < batch.lattice.batch;
    if (active) {
      utterance = utterance_at(batch, at.b);
      active = utterance.fits && at.t < utterance.frames && at.u <= utterance.labels;
    }
    if (__any_sync(cuda::kFullWarp, active)) {
      const Storage* const row = p.logits + (active ? at.offset(batch, p.logits_stride) : 0);
      RowSum<Real> sum{};
      if (!batch.log_probs) sum = sum_row(row, batch.labels, lane, p.lanes, active);
      if (active) {
        if (lane == 0 && p.sums) p.sums[at.row] = sum;
        const bool has_durations = batch.lattice.tdt && !utterance.without_durations;
        const Storage* const duration_row =
            has_durations ? p.duration_logits + at.offset(batch, p.duration_stride) : nullptr;
        RowSum<Real> durations{};
        if (has_durations && !batch.log_probs) {
          durations = sum_durations(duration_row, batch.lattice.durations);
        }
        NodeWeights<Storage>{p,   utterance, table_of(batch, utterance), at.t, at.u, row, duration_row,
                             sum, durations}
            .write(lane, p.lanes);
      }
    }
    at.advance(batch, p.stride);
  }
}

}  // namespace warpalign::detail::transducer
