// The gradient pass: every logit's gradient, written once, including the upstream factor G.
//
//   d loss / d x[k] = G (p_k S - g_k),   p_k S = 2^(x_k log2(e) - shift + log2 S - log2_sum)
//
// A warp owns a tile of rows. First lane r prepares row r. Then all lanes write the rows one after the other,
// or a few at a time. Directly after each row, while it is in the cache, the few columns with g_k != 0 are
// corrected ("mended"). Rows that no path visits are written as 0, and their logits are not read. The
// gradient may overwrite the logits: elements that other lanes write are read before.
#pragma once

#include "cuda/rows/row_write.cuh"
#include "transducer/cuda/call/params.cuh"
#include "transducer/cuda/rows/node_posteriors.cuh"
#include "transducer/cuda/rows/row_sum.cuh"

namespace warpalign::detail::transducer {

template <class Storage>
struct GradientParams {
  using Real = cuda::Sum<Storage>;
  Batch batch;
  int lanes;  // lanes of a row
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

// Whether a node's posterior is so small that no entry of the gradient exceeds 2^-40 G.
__device__ __forceinline__ bool is_dead(float posterior) { return posterior < 0x1p-40f; }
__device__ __forceinline__ bool is_dead(double posterior) { return posterior == 0.0; }
// Whether all entries are rounded to 0: none exceeds half of the smallest float16 number.
template <class Storage, class Real>
__device__ __forceinline__ bool vanishes(Real posterior, Real factor) {
  return std::is_same_v<Storage, cuda::Float16> && posterior * fabs(factor) < Real(0x1p-25);
}

using cuda::write_row;

// The data of a row that all lanes need.
template <class Storage>
struct RowTask {
  using Real = cuda::Sum<Storage>;
  const Storage* from;  // null: every entry is `value`
  Storage* to;          // null: no row
  Real shift;           // p_k S G = 2^(x_k log2(e) + shift + scale) factor
  Real scale;
  Real factor;
  Real value;
  int mended;             // number of columns, see Mended
  Storage* to_durations;  // filled with `value`; null: there are none, or finish() writes them
};

constexpr int kGradientThreads = 256;
constexpr int kGradientWarps = kGradientThreads / cuda::kWarpSize;
// The most columns that are mended: those of multi-blank RNN-T. TDT has two.
constexpr int kMostMended = kTransducerBigBlanks + 2;

// The columns of a warp's rows that have posteriors, with their g_k, later overwritten by the gradient.
template <class Real>
struct Mended {
  Real value[kMostMended][cuda::kWarpSize];
  int column[kMostMended][cuda::kWarpSize];
};

// One row of a tile, by one lane. Cursor has the node and the offset of its row.
template <class Storage, class Cursor = RowCursor>
class NodeGradient {
  using Real = cuda::Sum<Storage>;

 public:
  // mended: that of the warp, of which this lane fills its part.
  __device__ __forceinline__ NodeGradient(const GradientParams<Storage>& params, const Cursor& at,
                                          bool exists, Mended<Real>& mended)
      : p(params), at_(at) {
    const Batch& batch = p.batch;
    if (!exists) return;
    task_.to = p.grad + at.offset(batch, p.grad_stride);
    if (batch.lattice.tdt) task_.to_durations = p.duration_grad + at.offset(batch, p.duration_grad_stride);
    if (at.b == batch.lattice.batch) return;  // packed rows of no utterance
    utterance_ = utterance_at(batch, at.b);
    if (at.t >= utterance_.frames || at.u > utterance_.labels) return;
    const int outcome = p.outcome[at.b];
    if (outcome == kInvalid) task_.value = static_cast<Real>(CUDART_NAN);
    if (outcome != kPaths) return;
    find_posterior();
    task_.factor = p.grad_loss[at.b * p.grad_loss_stride];
    if (is_dead(posterior_) || vanishes<Storage>(posterior_, task_.factor)) return;
    is_live_ = true;
    task_.to_durations = nullptr;
    if (!batch.log_probs) {
      const RowSum<Real> sum = p.sums[sum_place(batch, at)];
      task_.from = p.logits + at.offset(batch, p.logits_stride);
      task_.shift = -sum.shift;
      task_.scale = static_cast<Real>(log2(posterior_)) - sum.log2_sum;
    }
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    each_mended([&](int column, Real g) {
      mended.column[task_.mended][lane] = column;
      mended.value[task_.mended++][lane] = g;
    });
  }

  [[nodiscard]] __device__ __forceinline__ const RowTask<Storage>& task() const { return task_; }

  // Called when the row has been written. Writes the gradient of the duration logits of a live row.
  __device__ __forceinline__ void finish() const {
    if (p.batch.lattice.tdt && is_live_) write_durations();
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

  // Calls function(column, g) for the columns with posteriors: those of RNN-T's arcs, or of TDT's blank and
  // label.
  template <class Function>
  __device__ __forceinline__ void each_mended(const Function& function) const {
    const bool has_label = at_.u < utterance_.labels;
    const int label = has_label ? utterance_.targets[at_.u] : -1;
    const bool label_counts = has_label && label != p.batch.lattice.star;
    if (p.batch.lattice.tdt) {
      function(p.batch.lattice.blank, by_blanks_);
    } else {
      const int blanks = table().blanks;
      for (int arc = 0; arc < blanks; ++arc) function(table().column[arc], posterior(arc));
    }
    if (label_counts) function(label, by_labels_);
  }

  __device__ __forceinline__ void write_durations() const {
    const Batch& batch = p.batch;
    const int durations = batch.lattice.durations;
    Storage* const to = p.duration_grad + at_.offset(batch, p.duration_grad_stride);
    const bool live = !utterance_.without_durations;
    const Storage* const from = live ? p.duration_logits + at_.offset(batch, p.duration_stride) : nullptr;
    RowSum<Real> sum{};
    if (live && !batch.log_probs) sum = sum_durations(from, durations);
    for (int d = 0; d < durations; ++d) {
      Real v = 0;
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
  Utterance utterance_{};
  RowTask<Storage> task_{};
  bool is_live_ = false;
  Real by_blanks_ = 0, by_labels_ = 0;
  Real posterior_ = 0;  // S
};

// Writes row r of the warp's tile. Called by all lanes of the warp, in groups that may have different rows.
template <class Storage>
__device__ __forceinline__ void write(const GradientParams<Storage>& p, const RowTask<Storage>& task,
                                      Mended<cuda::Sum<Storage>>& mended, int r, int lane) {
  using Real = cuda::Sum<Storage>;
  const int labels = p.batch.labels;
  const Real shift = task.shift, scale = task.scale, factor = task.factor;
  const auto gradient = [=](Real x) { return exp2_of(fma(x, kLog2E<Real>, shift) + scale); };
  const auto mend = [&](int k, Storage x) {
    const Real g = mended.value[k][r];
    Real v = task.from ? gradient(cuda::widen(x)) - g : -g;
    if (p.clamp > 0) v = fmin(fmax(v, -p.clamp), p.clamp);
    return v * factor;
  };
  // The logits of mended columns are read before the row is written, which may overwrite them. The load of
  // the first one overlaps with the preparation of the row.
  Storage first{};
  const bool mends = lane < task.mended;
  if (mends && task.from) first = task.from[mended.column[lane][r]];
  for (int k = lane + p.lanes; k < task.mended; k += p.lanes) {
    mended.value[k][r] = mend(k, task.from ? task.from[mended.column[k][r]] : Storage{});
  }
  __syncwarp();
  if (task.from) {
    if (p.clamp > 0) {
      const Real most = p.clamp;
      write_row<true>(task.to, task.from, labels, lane, p.lanes,
                      [=](Real x) { return fmin(gradient(x), most) * factor; });
    } else {
      write_row<true>(task.to, task.from, labels, lane, p.lanes,
                      [=](Real x) { return gradient(x) * factor; });
    }
  } else if (task.to) {
    const Real value = task.value;
    write_row<false>(task.to, task.from, labels, lane, p.lanes, [=](Real) { return value; });
  }
  if (task.to_durations) {
    for (int d = lane; d < p.batch.lattice.durations; d += p.lanes)
      task.to_durations[d] = cuda::narrow<Storage>(task.value);
  }
  __syncwarp();
  if (mends) task.to[mended.column[lane][r]] = cuda::narrow<Storage>(mend(lane, first));
  for (int k = lane + p.lanes; k < task.mended; k += p.lanes)
    task.to[mended.column[k][r]] = cuda::narrow<Storage>(mended.value[k][r]);
}

template <class Storage>
inline constexpr int kGradientBlocks = sizeof(Storage) == 8 ? 2 : 4;  // per multiprocessor

template <class Storage>
__global__ void __launch_bounds__(kGradientThreads, kGradientBlocks<Storage>)
    row_gradient_kernel(const __grid_constant__ GradientParams<Storage> p) {
  using Real = cuda::Sum<Storage>;
  __shared__ RowTask<Storage> tasks[kGradientWarps][cuda::kWarpSize];
  __shared__ Mended<Real> mended[kGradientWarps];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp_of_block = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  // The rows of a block's warps alternate, so that the block writes to contiguous memory at a time.
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kGradientWarps * p.tile + warp_of_block;
  if (first >= p.batch.rows) return;
  RowTask<Storage>* const own = tasks[warp_of_block];
  const RowCursor at(p.batch, first + lane * kGradientWarps);
  const bool exists = lane < p.tile && at.row < p.batch.rows;
  const NodeGradient<Storage> node(p, at, exists, mended[warp_of_block]);
  own[lane] = node.task();
  __syncwarp();
  for (int r = lane / p.lanes; r < p.tile; r += cuda::kWarpSize / p.lanes) {
    write(p, own[r], mended[warp_of_block], r, lane % p.lanes);
  }
  node.finish();
}

}  // namespace warpalign::detail::transducer
