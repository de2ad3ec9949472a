// The gradient pass: every logit's gradient, written once, with the upstream factor G in it.
//
//   d loss / d x[k] = G (p_k S - g_k),   p_k S = 2^(x_k log2(e) - shift + log2 S - log2_sum)
//
// g_k is not 0 in a few columns alone: they are computed apart and written over the others. Rows that no path
// comes through are written as 0, without their logits being read. In place, what a lane needs of other
// lanes' elements is read before they are written.
#pragma once

#include "transducer/cuda/rows.cuh"

namespace warpalign::detail::transducer {

template <class Storage>
struct GradientParams {
  using Real = cuda::Sum<Storage>;
  Batch batch;
  RowStride stride;
  int lanes;  // of a row
  const Storage* logits;
  std::int64_t logits_stride[3];
  const Storage* duration_logits;
  std::int64_t duration_stride[3];
  const RowSum<Real>* sums;
  const Real* slots;
  const std::int32_t* outcome;
  const Real* grad_loss;
  std::int64_t grad_loss_stride;
  Storage* grad;
  std::int64_t grad_stride[3];
  Storage* duration_grad;
  std::int64_t duration_grad_stride[3];
};

// Below, no entry of the gradient exceeds 2^-40 G.
__device__ __forceinline__ bool is_dead(float posterior) { return posterior < 0x1p-40f; }
__device__ __forceinline__ bool is_dead(double posterior) { return posterior == 0.0; }

// Elements of 16 bytes.
template <class Storage>
struct Vector {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(Storage));
  static constexpr int kPerWord = 4 / static_cast<int>(sizeof(Storage));  // 0: a half of an element
  using Real = cuda::Sum<Storage>;
  cuda::Bits128 bits;

  template <class Function>
  __device__ __forceinline__ Vector each(const Function& function) const {
    Vector to;
    if constexpr (sizeof(Storage) == 8) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const double v = function(
            __hiloint2double(static_cast<int>(bits.words[2 * k + 1]), static_cast<int>(bits.words[2 * k])));
        to.bits.words[2 * k] = static_cast<unsigned>(__double2loint(v));
        to.bits.words[2 * k + 1] = static_cast<unsigned>(__double2hiint(v));
      }
    } else if constexpr (sizeof(Storage) == 4) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        to.bits.words[k] =
            static_cast<unsigned>(__float_as_int(function(__int_as_float(static_cast<int>(bits.words[k])))));
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float low = function(cuda::widen(Storage{static_cast<std::uint16_t>(bits.words[k])}));
        const float high = function(cuda::widen(Storage{static_cast<std::uint16_t>(bits.words[k] >> 16)}));
        to.bits.words[k] = static_cast<unsigned>(cuda::narrow<Storage>(low).bits) |
                           static_cast<unsigned>(cuda::narrow<Storage>(high).bits) << 16;
      }
    }
    return to;
  }
};

// to[k] = function(from[k]) for the row's columns, or (!kReads) function() of nothing. `lane` of `lanes`
// lanes.
template <bool kReads, class Storage, class Function>
__device__ __forceinline__ void write_row(Storage* to, const Storage* from, int labels, int lane, int lanes,
                                          const Function& function) {
  using Vector = Vector<Storage>;
  constexpr int kUnroll = 4;
  const auto misaligned = [](const Storage* p) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16);
  };
  const auto scalar = [&](int k) {
    to[k] = cuda::narrow<Storage>(function(kReads ? cuda::widen(from[k]) : 0));
  };
  const bool together = !kReads || misaligned(to) == misaligned(from);
  const int head =
      together ? min((16 - misaligned(to)) % 16 / static_cast<int>(sizeof(Storage)), labels) : labels;
  for (int k = lane; k < head; k += lanes) scalar(k);
  const int vectors = (labels - head) / Vector::kCount;
  const auto* const source = reinterpret_cast<const cuda::Bits128*>(from + head);
  auto* const target = reinterpret_cast<cuda::Bits128*>(to + head);
  int v = lane;
  for (; v + (kUnroll - 1) * lanes < vectors; v += kUnroll * lanes) {
    Vector x[kUnroll] = {};
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      if constexpr (kReads) x[j].bits = cuda::load_streaming(source + v + j * lanes);
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      cuda::store_streaming(target + v + j * lanes, x[j].each(function).bits);
    }
  }
  for (; v < vectors; v += lanes) {
    Vector x = {};
    if constexpr (kReads) x.bits = cuda::load_streaming(source + v);
    cuda::store_streaming(target + v, x.each(function).bits);
  }
  for (int k = head + vectors * Vector::kCount + lane; k < labels; k += lanes) scalar(k);
}

// What becomes of a row.
enum class RowKind { kNone, kZero, kInvalid, kLive };

template <class Storage>
class NodeGradient {
  using Real = cuda::Sum<Storage>;
  // Columns of plain and multi-blank RNN-T that a lane mends, at most; TDT has two in all.
  static constexpr int kMended = (kTransducerBigBlanks + 2 + kLeastRowLanes - 1) / kLeastRowLanes;

 public:
  __device__ __forceinline__ NodeGradient(const GradientParams<Storage>& params, const RowCursor& at,
                                          int lane)
      : p(params), lane_(lane), t_(at.t), u_(at.u), index_(at.row), utterance_() {
    const Batch& batch = p.batch;
    if (at.row >= batch.rows) return;
    kind_ = RowKind::kZero;
    grad_ = p.grad + at.offset(batch, p.grad_stride);
    if (batch.lattice.tdt) duration_grad_ = p.duration_grad + at.offset(batch, p.duration_grad_stride);
    if (at.b == batch.lattice.batch) return;  // packed rows of no utterance
    utterance_ = utterance_at(batch, at.b);
    if (at.t >= utterance_.frames || at.u > utterance_.labels) return;
    const int outcome = p.outcome[at.b];
    if (outcome == kInvalid) kind_ = RowKind::kInvalid;
    if (outcome != kPaths) return;
    kind_ = RowKind::kLive;
    row_ = p.logits + at.offset(batch, p.logits_stride);
    if (batch.lattice.tdt && !utterance_.without_durations) {
      duration_row_ = p.duration_logits + at.offset(batch, p.duration_stride);
    }
    factor_ = p.grad_loss[at.b * p.grad_loss_stride];
  }

  // All lanes of the warp call this: rows of different kinds stand side by side in it.
  __device__ __forceinline__ void write() {
    const int lanes = p.lanes;
    const int labels = p.batch.labels;
    read_posteriors();
    if (kind_ == RowKind::kLive && is_dead(posterior_)) kind_ = RowKind::kZero;
    Real mended[kMended];
    if (kind_ == RowKind::kLive) mend(mended);
    __syncwarp();
    if (kind_ == RowKind::kZero || (kind_ == RowKind::kLive && p.batch.log_probs)) {
      write_row<false>(grad_, row_, labels, lane_, lanes, [](Real) { return Real(0); });
    } else if (kind_ == RowKind::kInvalid) {
      write_row<false>(grad_, row_, labels, lane_, lanes, [](Real) { return static_cast<Real>(CUDART_NAN); });
    } else if (kind_ == RowKind::kLive) {
      const Real shift = -sum_.shift, scale = scale_, factor = factor_;
      if (p.batch.lattice.clamp > 0) {
        const Real most = static_cast<Real>(p.batch.lattice.clamp);
        write_row<true>(grad_, row_, labels, lane_, lanes, [=](Real x) {
          return fmin(exp2_of(fma(x, kLog2E<Real>, shift) + scale), most) * factor;
        });
      } else {
        write_row<true>(grad_, row_, labels, lane_, lanes,
                        [=](Real x) { return exp2_of(fma(x, kLog2E<Real>, shift) + scale) * factor; });
      }
    }
    __syncwarp();
    if (kind_ == RowKind::kLive) write_mended(mended);
    if (p.batch.lattice.tdt) write_durations();
  }

 private:
  // FastEmit's g of a slot, 0 where there is no arc or the arc does not depend on the logits.
  [[nodiscard]] __device__ __forceinline__ Real posterior(const ArcTable& table, int arc) const {
    const TransducerLattice& lattice = p.batch.lattice;
    if (!arc_end(table, arc, t_, u_, utterance_.frames, utterance_.labels).exists) return 0;
    const bool is_label = table.is_label(arc);
    if (lattice.star >= 0 && (is_label || u_ > 0) && utterance_.targets[u_ - !is_label] == lattice.star)
      return 0;
    const Real g = p.slots[utterance_.slot + utterance_.layout.slot(t_, u_ + is_label, arc)];
    return is_label ? g * static_cast<Real>(1.0 + lattice.fastemit) : g;
  }

  __device__ __forceinline__ void read_posteriors() {
    Real blanks = 0, labels = 0;
    if (kind_ == RowKind::kLive) {
      const ArcTable& table = table_of(p.batch, utterance_);
      for (int arc = lane_; arc < table.arcs(); arc += p.lanes) {
        (table.is_label(arc) ? labels : blanks) += posterior(table, arc);
      }
      if (!p.batch.log_probs) sum_ = p.sums[index_];
    }
    for (int bit = 1; bit < p.lanes; bit *= 2) {
      blanks += cuda::shuffle_xor(blanks, bit);
      labels += cuda::shuffle_xor(labels, bit);
    }
    by_blanks_ = blanks;
    by_labels_ = labels;
    posterior_ = blanks + labels;
    scale_ = log2(posterior_) - sum_.log2_sum;
  }

  // The columns that this lane mends: of RNN-T its arcs', of TDT (0) blank and (1) the label.
  template <class Function>
  __device__ __forceinline__ void each_mended(const Function& function) const {
    const ArcTable& table = table_of(p.batch, utterance_);
    const int count = p.batch.lattice.tdt ? 2 : table.arcs();
#pragma unroll
    for (int k = 0; k < kMended; ++k) {
      const int at = lane_ + k * p.lanes;
      if (at >= count) break;
      const bool is_label = p.batch.lattice.tdt ? at == 1 : table.is_label(at);
      if (is_label && u_ == utterance_.labels) continue;
      const int column = is_label              ? utterance_.targets[u_]
                         : p.batch.lattice.tdt ? p.batch.lattice.blank
                                               : table.column[at];
      if (is_label && column == p.batch.lattice.star && column >= 0) continue;
      function(k, at, column);
    }
  }
  __device__ __forceinline__ void mend(Real (&mended)[kMended]) const {
    const ArcTable& table = table_of(p.batch, utterance_);
    each_mended([&](int k, int at, int column) {
      Real g = at == 0 ? by_blanks_ : by_labels_;
      if (!p.batch.lattice.tdt) g = posterior(table, at);
      Real v = -g;
      if (!p.batch.log_probs) {
        const Real x = cuda::widen(row_[column]);
        v = exp2_of(fma(x, kLog2E<Real>, -sum_.shift) + scale_) - g;
      }
      if (p.batch.lattice.clamp > 0) {
        const Real most = static_cast<Real>(p.batch.lattice.clamp);
        v = fmin(fmax(v, -most), most);
      }
      mended[k] = v * factor_;
    });
  }
  __device__ __forceinline__ void write_mended(const Real (&mended)[kMended]) const {
    each_mended([&](int k, int, int column) { grad_[column] = cuda::narrow<Storage>(mended[k]); });
  }

  __device__ __forceinline__ void write_durations() const {
    const TransducerLattice& lattice = p.batch.lattice;
    const bool live = kind_ == RowKind::kLive && duration_row_;
    RowSum<Real> sum{};
    if (live && !p.batch.log_probs) sum = sum_durations(duration_row_, lattice.durations);
    constexpr int kMost = (kTransducerDurations + kLeastRowLanes - 1) / kLeastRowLanes;
    Real grad[kMost];
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      const int d = lane_ + k * p.lanes;
      grad[k] = kind_ == RowKind::kInvalid ? static_cast<Real>(CUDART_NAN) : Real(0);
      if (!live || d >= lattice.durations) continue;
      Real g = 0;
      for (int arc = 0; arc < p.batch.arcs.arcs(); ++arc) {
        if (p.batch.arcs.duration[arc] == d) g += posterior(p.batch.arcs, arc);
      }
      Real v = -g;
      if (!p.batch.log_probs) {
        const Real z = cuda::widen(duration_row_[d]);
        v += exp2_of(log2_probability(z, sum)) * posterior_;
      }
      grad[k] = v * factor_;
    }
    __syncwarp();
    if (kind_ == RowKind::kNone) return;
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      const int d = lane_ + k * p.lanes;
      if (d < lattice.durations) duration_grad_[d] = cuda::narrow<Storage>(grad[k]);
    }
  }

  const GradientParams<Storage>& p;
  const int lane_, t_, u_;
  const std::int64_t index_;
  Utterance utterance_;
  RowKind kind_ = RowKind::kNone;
  const Storage* row_ = nullptr;
  const Storage* duration_row_ = nullptr;
  Storage* grad_ = nullptr;
  Storage* duration_grad_ = nullptr;
  Real factor_ = 0;  // G
  Real by_blanks_ = 0, by_labels_ = 0;
  Real posterior_ = 0;  // S
  Real scale_ = 0;      // log2 S - log2_sum
  RowSum<Real> sum_{};
};

template <class Storage>
inline constexpr int kGradientBlocks = sizeof(Storage) == 8 ? 2 : 4;  // of a multiprocessor

template <class Storage>
__global__ void __launch_bounds__(kRowThreads, kGradientBlocks<Storage>)
    row_gradient_kernel(const __grid_constant__ GradientParams<Storage> p) {
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  const std::int64_t first_of_warp = (thread - threadIdx.x % 32) / p.lanes;
  RowCursor at(p.batch, thread / p.lanes);
  for (std::int64_t first = first_of_warp; first < p.batch.rows; first += p.stride.groups) {
    NodeGradient<Storage>(p, at, lane).write();
    at.advance(p.batch, p.stride);
  }
}

}  // namespace warpalign::detail::transducer
