// The gradient pass: every logit's gradient, written once, with the upstream factor G in it.
//
//   d loss / d x[k] = G (p_k S - g_k),   p_k S = 2^(x_k log2(e) - shift + log2 S - log2_sum)
//
// A warp takes a tile of neighbouring rows. First lane r finds out what becomes of row r; then all lanes
// write one row after the other, or a few at a time; at last lane r mends the few columns of row r in which
// g_k is not 0. Rows that no path comes through are written as 0, without their logits being read. In place,
// what is needed of elements that other lanes write is read before.
#pragma once

#include "transducer/cuda/node_posteriors.cuh"
#include "transducer/cuda/params.cuh"
#include "transducer/cuda/row_sum.cuh"

namespace warpalign::detail::transducer {

template <class Storage>
struct GradientParams {
  using Real = cuda::Sum<Storage>;
  Batch batch;
  int lanes;  // of a row
  int tile;   // rows of a warp; at least 32 / lanes
  const Storage* logits;
  std::int64_t logits_stride[3];
  const Storage* duration_logits;
  std::int64_t duration_stride[3];
  const RowSum<Real>* sums;
  const Real* slots;
  const std::int32_t* outcome;
  const Real* grad_loss;
  std::int64_t grad_loss_stride;
  Real label_factor;  // 1 + FastEmit's lambda
  Real clamp;         // 0: none
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
        const float v = function(__int_as_float(static_cast<int>(bits.words[k])));
        to.bits.words[k] = static_cast<unsigned>(__float_as_int(v));
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float low, high;
        cuda::widen_pair<Storage>(bits.words[k], low, high);
        to.bits.words[k] = cuda::narrow_pair<Storage>(function(low), function(high));
      }
    }
    return to;
  }
};

// to[k] = function(from[k]) for the row's columns, or (!kReads) function of nothing. `lane` of `lanes` lanes.
template <bool kReads, class Storage, class Function>
__device__ __forceinline__ void write_row(Storage* to, const Storage* from, int labels, int lane, int lanes,
                                          const Function& function) {
  using Vector = Vector<Storage>;
  constexpr int kUnroll = 4;
  constexpr int kSize = static_cast<int>(sizeof(Storage));
  const auto misaligned = [](const Storage* p) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16);
  };
  const auto scalar = [&](int k) {
    to[k] = cuda::narrow<Storage>(function(kReads ? cuda::widen(from[k]) : 0));
  };
  const bool together = !kReads || misaligned(to) == misaligned(from);
  const int head = together ? min((16 - misaligned(to)) % 16 / kSize, labels) : labels;
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

// What all lanes need of a row.
template <class Storage>
struct RowTask {
  using Real = cuda::Sum<Storage>;
  const Storage* from;  // null: every entry is `value`
  Storage* to;          // null: no row
  Real shift;           // p_k S G = 2^(x_k log2(e) + shift + scale) factor
  Real scale;
  Real factor;
  Real value;
};

constexpr int kGradientThreads = 256;
constexpr int kGradientWarps = kGradientThreads / cuda::kWarpSize;
// Columns of plain and multi-blank RNN-T that are mended, at most; TDT has two.
constexpr int kMostMended = kTransducerBigBlanks + 2;

// One row of a tile, by one lane. Cursor says which node it is and where its row lies.
template <class Storage, class Cursor = RowCursor>
class NodeGradient {
  using Real = cuda::Sum<Storage>;

 public:
  // mended: kMostMended values, kWarpSize apart.
  __device__ __forceinline__ NodeGradient(const GradientParams<Storage>& params, const Cursor& at,
                                          bool exists, Real* mended)
      : p(params), at_(at), mended_(mended) {
    const Batch& batch = p.batch;
    if (!exists) return;
    task_.to = p.grad + at.offset(batch, p.grad_stride);
    if (at.b == batch.lattice.batch) return;  // packed rows of no utterance
    utterance_ = utterance_at(batch, at.b);
    if (at.t >= utterance_.frames || at.u > utterance_.labels) return;
    const int outcome = p.outcome[at.b];
    if (outcome == kInvalid) task_.value = static_cast<Real>(CUDART_NAN);
    if (outcome != kPaths) return;
    find_posterior();
    if (is_dead(posterior_)) return;
    row_ = p.logits + at.offset(batch, p.logits_stride);
    task_.factor = p.grad_loss[at.b * p.grad_loss_stride];
    if (!batch.log_probs) {
      const RowSum<Real> sum = p.sums[at.row];
      task_.from = row_;
      task_.shift = -sum.shift;
      task_.scale = static_cast<Real>(log2(posterior_)) - sum.log2_sum;
    }
    mend();
  }

  [[nodiscard]] __device__ __forceinline__ const RowTask<Storage>& task() const { return task_; }

  // When the row has been written.
  __device__ __forceinline__ void finish() const {
    if (row_) {
      each_mended([&](int k, int column, Real) {
        task_.to[column] = cuda::narrow<Storage>(mended_[k * cuda::kWarpSize]);
      });
    }
    if (p.batch.lattice.tdt && task_.to) write_durations();
  }

 private:
  [[nodiscard]] __device__ __forceinline__ const ArcTable& table() const {
    return table_of(p.batch, utterance_);
  }

  [[nodiscard]] __device__ __forceinline__ NodePosteriors<Real> posteriors() const {
    return {p.batch, utterance_, p.slots, p.label_factor, at_.t, at_.u};
  }
  [[nodiscard]] __device__ __forceinline__ Real posterior(int arc) const {
    return posteriors().of(table(), arc);
  }

  __device__ __forceinline__ void find_posterior() {
    by_blanks_ = posteriors().of_blanks(table());
    by_labels_ = posteriors().of_labels(table());
    posterior_ = by_blanks_ + by_labels_;
  }

  // function(k, column, g) for the columns with posteriors: of RNN-T its arcs', of TDT the blank's and the
  // label's.
  template <class Function>
  __device__ __forceinline__ void each_mended(const Function& function) const {
    const bool has_label = at_.u < utterance_.labels;
    const int label = has_label ? utterance_.targets[at_.u] : -1;
    const bool label_counts = has_label && label != p.batch.lattice.star;
    if (p.batch.lattice.tdt) {
      function(0, p.batch.lattice.blank, by_blanks_);
      if (label_counts) function(1, label, by_labels_);
      return;
    }
    const int blanks = table().blanks;
    for (int arc = 0; arc < blanks; ++arc) function(arc, table().column[arc], posterior(arc));
    if (label_counts) function(blanks, label, by_labels_);
  }
  __device__ __forceinline__ void mend() const {
    each_mended([&](int k, int column, Real g) {
      Real v = -g;
      if (!p.batch.log_probs) {
        const Real x = cuda::widen(row_[column]);
        v = exp2_of(fma(x, kLog2E<Real>, task_.shift) + task_.scale) - g;
      }
      if (p.clamp > 0) v = fmin(fmax(v, -p.clamp), p.clamp);
      mended_[k * cuda::kWarpSize] = v * task_.factor;
    });
  }

  __device__ __forceinline__ void write_durations() const {
    const Batch& batch = p.batch;
    const int durations = batch.lattice.durations;
    Storage* const to = p.duration_grad + at_.offset(batch, p.duration_grad_stride);
    const bool live = row_ && !utterance_.without_durations;
    const Storage* const from = live ? p.duration_logits + at_.offset(batch, p.duration_stride) : nullptr;
    RowSum<Real> sum{};
    if (live && !batch.log_probs) sum = sum_durations(from, durations);
    for (int d = 0; d < durations; ++d) {
      Real v = task_.value;
      if (live) {
        for (int arc = 0; arc < batch.arcs.arcs(); ++arc) {
          if (batch.arcs.duration[arc] == d) v -= posterior(arc);
        }
        if (!batch.log_probs)
          v += exp2_of(log2_probability(static_cast<Real>(cuda::widen(from[d])), sum)) * posterior_;
        v *= task_.factor;
      }
      to[d] = cuda::narrow<Storage>(v);
    }
  }

  const GradientParams<Storage>& p;
  const Cursor& at_;
  Real* const mended_;
  Utterance utterance_{};
  RowTask<Storage> task_{};
  const Storage* row_ = nullptr;  // of a row that is alive
  Real by_blanks_ = 0, by_labels_ = 0;
  Real posterior_ = 0;  // S
};

// By the lanes of a row.
template <class Storage>
__device__ __forceinline__ void write(const GradientParams<Storage>& p, const RowTask<Storage>& task,
                                      int lane) {
  using Real = cuda::Sum<Storage>;
  const int labels = p.batch.labels;
  if (!task.to) return;
  if (!task.from) {
    const Real value = task.value;
    write_row<false>(task.to, task.from, labels, lane, p.lanes, [=](Real) { return value; });
    return;
  }
  const Real shift = task.shift, scale = task.scale, factor = task.factor;
  if (p.clamp > 0) {
    const Real most = p.clamp;
    write_row<true>(task.to, task.from, labels, lane, p.lanes, [=](Real x) {
      return fmin(exp2_of(fma(x, kLog2E<Real>, shift) + scale), most) * factor;
    });
  } else {
    write_row<true>(task.to, task.from, labels, lane, p.lanes,
                    [=](Real x) { return exp2_of(fma(x, kLog2E<Real>, shift) + scale) * factor; });
  }
}

template <class Storage>
inline constexpr int kGradientBlocks = sizeof(Storage) == 8 ? 2 : 4;  // of a multiprocessor

template <class Storage>
__global__ void __launch_bounds__(kGradientThreads, kGradientBlocks<Storage>)
    row_gradient_kernel(const __grid_constant__ GradientParams<Storage> p) {
  using Real = cuda::Sum<Storage>;
  __shared__ RowTask<Storage> tasks[kGradientWarps][cuda::kWarpSize];
  __shared__ Real mended[kGradientWarps][kMostMended][cuda::kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp_of_block = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  // Rows of a block's warps alternate, so that what the block writes at a time lies side by side.
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kGradientWarps * p.tile + warp_of_block;
  if (first >= p.batch.rows) return;
  RowTask<Storage>* const own = tasks[warp_of_block];
  const RowCursor at(p.batch, first + lane * kGradientWarps);
  const bool exists = lane < p.tile && at.row < p.batch.rows;
  const NodeGradient<Storage> node(p, at, exists, &mended[warp_of_block][0][lane]);
  own[lane] = node.task();
  __syncwarp();
  for (int r = lane / p.lanes; r < p.tile; r += cuda::kWarpSize / p.lanes) write(p, own[r], lane % p.lanes);
  __syncwarp();
  node.finish();
}

}  // namespace warpalign::detail::transducer
