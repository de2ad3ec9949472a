// The rows of a joint network's nodes, for products by warpgroups: hidden rows and data of nodes before the
// products, arc weights after them.
#pragma once

#include <cstdint>

#include "transducer/cuda/joint/joint_rows.cuh"
#include "transducer/cuda/rows/node_posteriors.cuh"
#include "transducer/cuda/wide/wide_product.cuh"

namespace warpalign::detail::transducer {

// Columns of the packed weights: TDT's durations, 0 to kDurationColumns - 1, then the labels. So durations
// are in the same columns of the first tile.
inline constexpr int kDurationColumns = 16;
static_assert(kTransducerDurations <= kDurationColumns);

// The columns of a node's logits that have arcs: blanks, the label, and TDT's durations.
struct WideColumns {
  std::int32_t first_label;                      // the packed column of label 0
  std::int32_t labels;                           // V
  std::int32_t durations;                        // TDT's D; else 0
  std::int32_t blanks;                           // number of blanks, big blanks included
  std::int32_t blank[kTransducerBigBlanks + 1];  // packed columns

  // The number of these columns of a node. They are stored in the order blanks, label, durations.
  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t picked() const { return blanks + 1 + durations; }
};

// A node's data for the gradient with respect to its logits: p_k S G = 2^(x_k log2(e) + shift + scale)
// factor. A node that does not exist has the factor 0 and the scale -inf.
struct alignas(16) WideNode {
  float shift, scale, factor, posterior;
  std::int32_t label;  // its packed column; -1: none
  std::int32_t has_durations;
};

// The outputs of encoder and predictor.
template <class Storage>
struct WideInputs {
  const Storage* encoder;
  std::int64_t encoder_stride[2];
  const Storage* predictor;
  std::int64_t predictor_stride[2];
  bool aligned;  // whether rows begin at multiples of 16 bytes, and H is a multiple of 8
};

template <class Half>
struct WideRows {
  std::int32_t hidden;  // H
  bool is_tanh;
  HiddenDropout<float> dropout;
  std::int32_t factor_parts;  // of h, W and G: 1 of a half type, 2 or 3 of float32
  Panels<Half> h;             // 1 in column H, 0 after it
  WideColumns columns;
  std::int32_t* label;  // (chunk,) the first call: packed columns, -1: none
  // The second call.
  WideNode* node;    // (chunk,); null: the first call
  float* posterior;  // (chunk, columns.picked()): by column, in the order of WideColumns
  const RowSum<float>* sums;
  const float* slots;
  const std::int32_t* outcome;
  const float* grad_loss;
  std::int64_t grad_loss_stride;
  float label_factor;
};

// 8 neighbouring elements of a row; 0 from `end` on.
template <class Storage>
__device__ __forceinline__ void load_eight(const Storage* row, int column, int end, bool aligned,
                                           float (&to)[8]) {
  if (aligned) {
    const auto* const vectors = reinterpret_cast<const cuda::Bits128*>(row + column);
    if constexpr (std::is_same_v<Storage, float>) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const cuda::Bits128 bits = vectors[v];
#pragma unroll
        for (int k = 0; k < 4; ++k) to[4 * v + k] = __int_as_float(static_cast<int>(bits.words[k]));
      }
    } else {
      const cuda::Bits128 bits = *vectors;
#pragma unroll
      for (int k = 0; k < 4; ++k) cuda::widen_pair<Storage>(bits.words[k], to[2 * k], to[2 * k + 1]);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) to[k] = column + k < end ? cuda::widen(row[column + k]) : 0.0f;
}

// Stores the parts of 8 neighbouring numbers, which become what is left of them.
template <class Half, int kBlock>
__device__ __forceinline__ void store_eight(const Panels<Half, kBlock>& to, int row, int column, int parts,
                                            float (&v)[8]) {
  for (int part = 0; part < parts; ++part) {
    cuda::Bits128 bits;
#pragma unroll
    for (int k = 0; k < 4; ++k) bits.words[k] = next_part<Half>(v[2 * k], v[2 * k + 1]);
    *reinterpret_cast<cuda::Bits128*>(to.at(row, column, part)) = bits;
  }
}

// One lane calls this for a node.
template <class Half>
__device__ __forceinline__ void prepare_gradient(const WideRows<Half>& p, const Batch& batch,
                                                 const RowCursor& at, bool active, int index) {
  WideNode node{0, minus_infinity<float>(), 0, 0, -1, 0};
  float* const posterior = p.posterior + static_cast<std::int64_t>(index) * p.columns.picked();
  for (int k = 0; k < p.columns.picked(); ++k) posterior[k] = 0;
  if (active) {
    const Utterance utterance = utterance_at(batch, at.b);
    const int outcome = p.outcome[at.b];
    if (outcome == kInvalid) node.factor = CUDART_NAN_F;
    if (outcome == kPaths) {
      const ArcTable& table = table_of(batch, utterance);
      const NodePosteriors<float> arcs{batch, utterance, p.slots, p.label_factor, at.t, at.u};
      const float by_blanks = arcs.of_blanks(table), by_labels = arcs.of_labels(table);
      const RowSum<float> sum = p.sums[sum_place(batch, at)];
      node.posterior = by_blanks + by_labels;
      node.shift = -sum.shift;
      node.scale = log2(node.posterior) - sum.log2_sum;
      node.factor = p.grad_loss[at.b * p.grad_loss_stride];
      node.has_durations = batch.lattice.tdt && !utterance.without_durations;
      const int blanks = p.columns.blanks;
      if (batch.lattice.tdt) {
        posterior[0] = by_blanks;
        for (int arc = 0; node.has_durations && arc < table.arcs(); ++arc) {
          posterior[blanks + 1 + table.duration[arc]] += arcs.of(table, arc);
        }
      } else {
        for (int arc = 0; arc < blanks; ++arc) posterior[arc] = arcs.of(table, arc);
      }
      if (at.u < utterance.labels && utterance.targets[at.u] != batch.lattice.star) {
        node.label = p.columns.first_label + utterance.targets[at.u];
        posterior[blanks] = by_labels;
      }
    }
  }
  p.node[index] = node;
}

// Computes the hidden rows of a chunk, and each node's data for the products. A warp owns 32 rows and 8
// panels. Rows after the last one, up to a whole tile, are 0.
template <class Storage>
__global__ void __launch_bounds__(kJointThreads)
    wide_hidden_kernel(const __grid_constant__ Batch batch,
                       const __grid_constant__ WideInputs<Storage> inputs,
                       const __grid_constant__ WideRows<WideFactor<Storage>> p,
                       const __grid_constant__ JointChunk chunk) {
  constexpr int kPanels = 8;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int warp =
      static_cast<int>(blockIdx.x) * kJointWarps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int count = chunk.rows(), groups = (p.h.count + kPanels - 1) / kPanels;
  const int tasks = (count + kWideRows - 1) / kWideRows * (kWideRows / cuda::kWarpSize) * groups;
  for (int task = warp; task < tasks; task += static_cast<int>(gridDim.x) * kJointWarps) {
    const int group = task % groups, index = task / groups * cuda::kWarpSize + lane;
    const bool exists = index < count;
    const RowCursor at(batch, exists ? chunk.row(index) : 0);
    const bool active =
        exists && at.t < frames_of(batch.lattice, at.b) && at.u <= labels_of(batch.lattice, at.b);
    if (group == 0) {
      if (p.node) {
        prepare_gradient(p, batch, at, active, index);
      } else {
        int label = -1;
        if (active) {
          const Utterance utterance = utterance_at(batch, at.b);
          if (utterance.fits && at.u < utterance.labels) {
            label = utterance.targets[at.u];
            if (!label_is_valid(batch.lattice, batch.labels, label) || label == batch.lattice.star)
              label = -1;
          }
        }
        p.label[index] = label < 0 ? -1 : label + p.columns.first_label;
      }
    }
    const Storage* const e =
        inputs.encoder + at.b * inputs.encoder_stride[0] + at.t * inputs.encoder_stride[1];
    const Storage* const g =
        inputs.predictor + at.b * inputs.predictor_stride[0] + at.u * inputs.predictor_stride[1];
    for (int panel = group * kPanels; panel < min((group + 1) * kPanels, p.h.count); ++panel) {
      const int column = 8 * panel;
      float v[8] = {};
      if (active && column < p.hidden) {
        float other[8];
        load_eight(e, column, p.hidden, inputs.aligned, v);
        load_eight(g, column, p.hidden, inputs.aligned, other);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          v[k] = column + k < p.hidden ? joint_activation(v[k] + other[k], p.is_tanh) : 0.0f;
        }
        if (p.dropout.drops()) {
#pragma unroll
          for (int quad = 0; quad < 2; ++quad) {
            const PhiloxWords words = p.dropout.words(at.b, at.t, at.u, column / 4 + quad);
#pragma unroll
            for (int k = 4 * quad; k < 4 * quad + 4; ++k) {
              if (column + k < p.hidden) v[k] = p.dropout.masked(v[k], words.word[k % 4]);
            }
          }
        }
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if (exists && column + k == p.hidden) v[k] = 1;
      }
      store_eight(p.h, index, column, p.factor_parts, v);
    }
  }
}

// Packs the weights in panels, with rows in the order of WideColumns, and the biases in float32. The bias of
// columns without a label is -inf, so that their probability is 0.
template <class Storage>
struct WidePacked {
  using Half = WideFactor<Storage>;
  std::int32_t rows;  // whole tiles
  std::int32_t factor_parts;
  Panels<Half, kWideLabels<Storage>> weight;  // factor of the logits
  Panels<Half> back;                          // factor of the hidden rows' gradient; may be null
  float* bias;                                // (rows,)
  float* duration_bias;                       // (kDurationColumns,)
};
template <class Storage>
__global__ void __launch_bounds__(kJointThreads)
    wide_pack_kernel(const Storage* weight, const Storage* bias, int hidden,
                     const __grid_constant__ WideColumns columns,
                     const __grid_constant__ WidePacked<Storage> to) {
  const std::int64_t all = static_cast<std::int64_t>(to.rows) * to.weight.count;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kJointThreads;
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kJointThreads + threadIdx.x; n < all;
       n += step) {
    const int panel = static_cast<int>(n / to.rows),
              row = static_cast<int>(n - std::int64_t{panel} * to.rows);
    const int label = row - columns.first_label;
    const bool is_label = label >= 0 && label < columns.labels;
    const bool is_duration = label < 0 && row < columns.durations;
    const std::int64_t k = is_duration ? columns.labels + row : label;
    float v[8] = {};
    if (is_label || is_duration) load_eight(weight + k * hidden, 8 * panel, hidden, false, v);
    float again[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) again[i] = v[i];
    store_eight(to.weight, row, 8 * panel, to.factor_parts, v);
    if (to.back.data) store_eight(to.back, row, 8 * panel, to.factor_parts, again);
    if (panel > 0) continue;
    const float b = bias && (is_label || is_duration) ? cuda::widen(bias[k]) : 0.0f;
    to.bias[row] = is_label ? b : minus_infinity<float>();
    if (row < kDurationColumns) to.duration_bias[row] = b;
  }
}

// The results of the first call's tiles.
struct WideParts {
  RowSum<float>* part;  // (tiles of columns, chunk): shift, and the sum itself
  float* picked;        // (chunk, columns.picked())
  std::int32_t tiles;
};

// Computes the arc weights of a chunk of all rows. A thread owns a row.
static __global__ void __launch_bounds__(kJointThreads)
    wide_weights_kernel(const __grid_constant__ RowsParams<float> p, const __grid_constant__ JointChunk chunk,
                        const __grid_constant__ WideColumns columns,
                        const __grid_constant__ WideParts parts) {
  const Batch& batch = p.batch;
  const int count = chunk.rows(), step = static_cast<int>(gridDim.x) * kJointThreads;
  for (int index = static_cast<int>(blockIdx.x) * kJointThreads + static_cast<int>(threadIdx.x);
       index < count; index += step) {
    const RowCursor at(batch, chunk.row(index));
    const Utterance utterance = utterance_at(batch, at.b);
    if (!utterance.fits || at.t >= utterance.frames || at.u > utterance.labels) continue;
    const RowSum<float>* const part = parts.part + index;
    float shift = part[0].shift;
    for (int k = 1; k < parts.tiles; ++k) {
      shift = max(shift, part[static_cast<std::int64_t>(k) * chunk.most].shift);
    }
    float total = 0;
    for (int k = 0; k < parts.tiles; ++k) {
      const RowSum<float> one = part[static_cast<std::int64_t>(k) * chunk.most];
      total = fma(one.log2_sum, exp2_of(one.shift - shift), total);
    }
    const RowSum<float> sum = finished(RowSum<float>{shift, total});
    if (p.sums) p.sums[sum_place(batch, at)] = sum;
    const float* const picked = parts.picked + static_cast<std::int64_t>(index) * columns.picked();
    const bool has_durations = batch.lattice.tdt && !utterance.without_durations;
    const float* const durations = has_durations ? picked + columns.blanks + 1 : nullptr;
    RowSum<float> duration_sum{};
    if (has_durations) duration_sum = sum_durations(durations, batch.lattice.durations);
    NodeWeights<float, true>{p,   utterance,   table_of(batch, utterance), at.t, at.u, picked, durations,
                             sum, duration_sum}
        .write();
  }
}

}  // namespace warpalign::detail::transducer
