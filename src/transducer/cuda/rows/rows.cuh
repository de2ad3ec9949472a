// The rows pass: for every node the log-sum-exp of its logits, and the weights of its arcs. Logits are read
// once.
//
// A warp owns a tile of neighbouring rows. First lane r finds the address of row r; then all lanes sum the
// rows one after the other, or a few at a time; finally lane r computes the weights of row r's arcs.
#pragma once

#include "transducer/cuda/call/params.cuh"
#include "transducer/cuda/rows/row_sum.cuh"

namespace warpalign::detail::transducer {

template <class Storage>
struct RowsParams {
  using Real = cuda::Sum<Storage>;
  Batch batch;
  RowStride stride;
  int lanes;  // lanes of a row
  int tile;   // rows of a warp; at least 32 / lanes
  const Storage* logits;
  std::int64_t logits_stride[3];  // for packed rows only [2] is used
  const Storage* duration_logits;
  std::int64_t duration_stride[3];
  Penalties<Real> penalties;
  RowSum<Real>* sums;  // may be null
  Real* slots;
};

// The arcs out of one node, by one lane. kPicked: `row` has only the logits of the node's own columns: its
// blanks, then the label (TDT has one blank).
template <class Storage, bool kPicked = false>
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

  [[nodiscard]] __device__ __forceinline__ int blank_place(int arc) const {
    if (!kPicked) return table.column[arc];
    return p.batch.lattice.tdt ? 0 : arc;
  }
  [[nodiscard]] __device__ __forceinline__ int label_place(int label) const {
    if (!kPicked) return label;
    return p.batch.lattice.tdt ? 1 : table.blanks;
  }

  // log2 of an arc's weight; -inf if there is no such arc.
  __device__ __forceinline__ Real weight(int arc) const {
    if (!arc_end(table, arc, t, u, utterance.frames, utterance.labels).exists) return minus_infinity<Real>();
    Penalties<Real> penalties = p.penalties;
    if (utterance.without_durations) penalties.sigma = 0;
    const bool is_label = table.is_label(arc);
    int label = -1;
    if (is_label) label = utterance.targets[u];
    if (!is_label && penalties.star >= 0 && u > 0) label = utterance.targets[u - 1];
    const ArcTerm<Real> term =
        is_label ? label_term(penalties, t, utterance.frames, label) : blank_term(penalties, label);
    const Real constant = term.constant * kLog2E<Real>;
    if (!term.scored) return constant;
    // The lattice reports invalid labels; no logit is read for them here.
    if (is_label && !label_is_valid(p.batch.lattice, p.batch.labels, label)) return minus_infinity<Real>();
    const Storage* const x = row + (is_label ? label_place(label) : blank_place(arc));
    const Real w = constant + probability(static_cast<Real>(cuda::widen(*x)), sum);
    if (!duration_row) return w;
    return w + probability(static_cast<Real>(cuda::widen(duration_row[table.duration[arc]])), duration_sum);
  }

  // If a node has a NaN among its logits (for log-probabilities: among those of its arcs), all its slots are
  // NaN, whether the arc exists or not. No label leads to column 0.
  __device__ __forceinline__ void write() const {
    bool invalid = isnan(sum.log2_sum) || isnan(duration_sum.log2_sum);
    const int arcs = table.arcs(), column = utterance.column(t, u);
    if (p.batch.log_probs) {
      for (int arc = 0; arc < arcs; ++arc) invalid |= isnan(weight(arc));
    }
    for (int arc = 0; arc < arcs; ++arc) {
      const bool is_label = table.is_label(arc);
      Real* const slots = p.slots + utterance.slot;
      if (is_label && u == 0) slots[utterance.layout.slot(t, column, arc)] = minus_infinity<Real>();
      if (is_label && u == utterance.labels) continue;
      slots[utterance.layout.slot(t, column + is_label, arc)] =
          invalid ? static_cast<Real>(CUDART_NAN) : weight(arc);
    }
  }
};

// from: lane r's row of the tile, or null. Returns its sum.
template <class Storage>
__device__ __forceinline__ RowSum<cuda::Sum<Storage>> sum_tile(const Storage* mine, int labels, int tile,
                                                               int lanes, int lane) {
  const unsigned active = __ballot_sync(cuda::kFullWarp, mine != nullptr);
  const int together = cuda::kWarpSize / lanes;
  RowSum<cuda::Sum<Storage>> result{};
  for (int first = 0; first < tile; first += together) {
    if ((active >> first & (0xffffffffu >> (cuda::kWarpSize - together))) == 0) continue;
    const int r = first + lane / lanes;
    const auto address = cuda::shuffle(reinterpret_cast<std::uintptr_t>(mine), r);
    const auto* const row = reinterpret_cast<const Storage*>(address);
    const auto sum = sum_row(row, row ? labels : 0, lane % lanes, lanes);
    const int from = (lane - first) * lanes & (cuda::kWarpSize - 1);
    const auto shift = cuda::shuffle(sum.shift, from);
    const auto total = cuda::shuffle(sum.log2_sum, from);
    if (lane >= first && lane < first + together) result = {shift, total};
  }
  return finished(result);
}

constexpr int kRowThreads = 256;
template <class Storage>
inline constexpr int kRowBlocks = sizeof(Storage) == 8   ? 3
                                  : sizeof(Storage) == 4 ? 5
                                                         : 4;  // per multiprocessor

template <class Storage>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Storage>)
    rows_kernel(const __grid_constant__ RowsParams<Storage> p) {
  using Real = cuda::Sum<Storage>;
  const Batch& batch = p.batch;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t warp =
      (static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x) / cuda::kWarpSize;
  RowCursor at(batch, warp * p.tile + lane);
  for (std::int64_t first = warp * p.tile; first < batch.rows; first += p.stride.rows) {
    bool active = lane < p.tile && at.row < batch.rows && at.b < batch.lattice.batch;
    if (active) {
      const Utterance utterance = utterance_at(batch, at.b);
      active = utterance.fits && at.t < utterance.frames && at.u <= utterance.labels;
    }
    const Storage* const row = active ? p.logits + at.offset(batch, p.logits_stride) : nullptr;
    RowSum<Real> sum{};
    if (!batch.log_probs) sum = sum_tile(row, batch.labels, p.tile, p.lanes, lane);
    if (active) {
      if (p.sums) p.sums[at.row] = sum;
      const Utterance utterance =
          utterance_at(batch, at.b);  // computed again, because the sums need the registers
      const bool has_durations = batch.lattice.tdt && !utterance.without_durations;
      const Storage* const duration_row =
          has_durations ? p.duration_logits + at.offset(batch, p.duration_stride) : nullptr;
      RowSum<Real> durations{};
      if (has_durations && !batch.log_probs) durations = sum_durations(duration_row, batch.lattice.durations);
      NodeWeights<Storage>{p,   utterance, table_of(batch, utterance), at.t, at.u, row, duration_row,
                           sum, durations}
          .write();
    }
    at.advance(batch, p.stride);
  }
}

}  // namespace warpalign::detail::transducer
