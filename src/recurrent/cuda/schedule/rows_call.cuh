// The host's side of rows.cuh, and the products over all rows of a chunk.
#pragma once

#include "recurrent/cuda/cell/kept.cuh"
#include "recurrent/cuda/schedule/memory.cuh"
#include "recurrent/cuda/schedule/queue.cuh"

namespace warpalign::detail::recurrent {

template <class T>
void launch_pack(Queue& queue, const PackParams<T>& params) {
  const int blocks = cuda::div_up(params.rows, kPackTile) * cuda::div_up(params.stride, kPackTile);
  queue.launch(kPack<T>, blocks, kRowThreads, params);
}
// A weight matrix for products of a step.
template <class T>
void pack_matrix(Queue& queue, const LstmProblem& p, const MaskWords& masks, const void* from, int rows,
                 int columns, bool across, bool drops, const T* to) {
  PackParams<T> params{};
  params.from = static_cast<const T*>(from);
  params.to = const_cast<T*>(to);
  params.rows = rows, params.columns = columns, params.stride = whole_pieces<T>(columns);
  params.masks = masks;
  params.threshold = philox_threshold(p.weight_dropout);
  params.factor = drops ? static_cast<Sum<T>>(1 / (1 - p.weight_dropout)) : Sum<T>(0);
  params.across = across;
  launch_pack(queue, params);
}
inline bool drops_weights(const LstmProblem& p) { return p.training && p.weight_dropout > 0; }
// The gradient with respect to weights with dropout, from that with respect to what is left of them.
template <class T>
void drop_in_place(Queue& queue, const LstmProblem& p, const MaskWords& masks, T* weights, int rows,
                   int columns) {
  PackParams<T> params{weights, weights, rows, columns, columns, false, masks, {}, {}};
  params.threshold = philox_threshold(p.weight_dropout);
  params.factor = static_cast<Sum<T>>(1 / (1 - p.weight_dropout));
  launch_pack(queue, params);
}
template <class T>
void pack_forward(Queue& queue, const LstmProblem& p, const CudaCell<T>& cell, const LstmWeights& w,
                  bool drops) {
  pack_matrix(queue, p, cell.masks, w.hh, 4 * p.hidden, cell.output, false, drops, cell.hh);
  if (cell.projects) {
    pack_matrix(queue, p, cell.masks, w.hr, cell.output, p.hidden, false, false, cell.hr);
  }
}
// The same, but matrices that are packed as they are given stay where they are.
template <class T>
void pack_or_take(Queue& queue, const LstmProblem& p, CudaCell<T>& cell, const LstmWeights& w, bool drops) {
  const auto pack = [&](const void* from, int rows, int columns, bool drops_them, const T*& to) {
    const bool is_packed =
        !drops_them && columns == whole_pieces<T>(columns) && is_aligned(from, sizeof(Piece<T>));
    if (is_packed) {
      to = static_cast<const T*>(from);
    } else {
      pack_matrix(queue, p, cell.masks, from, rows, columns, false, drops_them, to);
    }
  };
  pack(w.hh, 4 * p.hidden, cell.output, drops, cell.hh);
  if (cell.projects) pack(w.hr, cell.output, p.hidden, false, cell.hr);
}

// The rows that a layer's products with W read, `stride` elements apart.
template <class T>
struct InputRows {
  const T* data;
  Offset stride;
};
// From row to row of x, if its rows lie at one stride and hold no padding; else 0.
inline Offset stride_of_x(const LstmProblem& p) {
  if (p.lengths || p.x.stride[2] != 1) return 0;
  const bool one_row = !p.row_starts && p.batch == 1;
  const Offset row = one_row ? p.x.stride[0] : p.x.stride[1];
  const bool even = p.row_starts || one_row || p.steps == 1 || p.x.stride[0] == p.batch * p.x.stride[1];
  return even && row >= p.input ? row : 0;
}
// Whether a layer's input has to be put together.
inline bool copies_input(const LstmProblem& p, int layer) {
  return layer == 0 ? stride_of_x(p) == 0 : p.bidirectional || (p.training && p.dropout > 0);
}
template <class T>
T* take_input(const LstmProblem& p, std::size_t rows, Arena& arena) {
  const bool below = p.layers > 1 && copies_input(p, 1), first = copies_input(p, 0);
  const std::int64_t widest = std::max(first ? input_of(p, 0) : 0, below ? input_of(p, 1) : 0);
  return arena.take<T>(rows * static_cast<std::size_t>(widest));
}
// `rows` rows from row `first` on: x or the layer below as they are, or their copy in `to`.
template <class T>
InputRows<T> layer_input(Queue& queue, const LstmProblem& p, int layer, const T* const (&below)[2], T* to,
                         Offset first, Offset rows) {
  const Offset width = input_of(p, layer);
  if (!copies_input(p, layer)) {
    if (layer > 0) return {below[0] + first * width, width};
    return {static_cast<const T*>(p.x.data) + first * stride_of_x(p), stride_of_x(p)};
  }
  InputParams<T> params{};
  const CudaCell<T> cell = plain_cell<T>(p, std::max(layer - 1, 0), 0);
  params.at = cell.at;
  params.x = static_cast<const T*>(p.x.data);
  std::copy_n(p.x.stride, 3, params.stride);
  params.parts = layer > 0 ? directions_of(p) : 1;
  params.width = static_cast<int>(width) / params.parts;
  for (int d = 0; d < params.parts && layer > 0; ++d) {
    params.below[d] = below[d];
    params.masks[d] = plain_cell<T>(p, layer - 1, d).masks;
  }
  params.dropout = cell.dropout;
  params.first_row = first, params.rows = rows;
  params.to = to;
  queue.for_each(static_cast<std::size_t>(rows) * cuda::kWarpSize, kInput<T>, params);
  return {to, width};
}

template <class T>
void normalise(Queue& queue, const NormaliseParams<T>& rows) {
  queue.launch(kNormalise<T>, static_cast<int>(std::min<Offset>(rows.rows, 1 << 16)), kNormThreads, rows);
}
// The gradients with respect to W x, or to R h (`of_state`), of all rows.
template <class T>
void normalise_back(Queue& queue, const CudaCell<T>& cell, bool of_state) {
  const int gates = 4 * cell.hidden;
  NormaliseParams<T> rows{of_state ? cell.norm_h : cell.norm_x, cell.at.rows, gates, cell.eps,
                          cell.scales + (of_state ? 1 : 0)};
  rows.by = cell.dz, rows.to = of_state ? cell.dz_h : cell.dz_x;
  rows.gamma = of_state ? cell.ln_hh : cell.ln_ih;
  rows.stride = cell.gates_stride, rows.at = cell.at;
  normalise(queue, rows);
}
// W x of `rows` rows, from row `first` of the cell on.
template <class T>
void multiply_input(Queue& queue, const LstmProblem& p, const LstmWeights& w, const CudaCell<T>& cell,
                    const InputRows<T>& input, Offset width, Offset first, Offset rows) {
  const Offset gates = 4 * static_cast<Offset>(p.hidden);
  T* const to = (p.layer_norm ? cell.norm_x : cell.gates) + first * gates;
  queue.multiply(p.dtype, Extents{rows, gates, width}, matrix(input.data, input.stride),
                 transposed(w.ih, width), to, gates);
  if (!p.layer_norm) return;
  normalise<T>(queue, {to, rows, static_cast<int>(gates), cell.eps, cell.scales + first * 3});
}

// Zoneout's bits of these steps, which sweeps in one launch read (cell/kept.cuh).
template <class T>
void draw_kept(Queue& queue, const CudaCell<T>& cell, bool backward, Places places) {
  if (!cell.kept) return;
  const int steps = cell.at.steps, count = places.end - places.begin, words = kept_words(cell.hidden);
  const Offset first = cell.reverse == backward ? places.begin : steps - places.end;
  // Packed rows are swept as a whole.
  const Offset rows = count == steps ? cell.at.rows : static_cast<Offset>(count) * cell.at.batch;
  const KeptParams params{cell.at,
                          cell.masks,
                          cell.zoneout_hidden.threshold,
                          cell.zoneout_cell.threshold,
                          words,
                          first * cell.at.batch,
                          rows,
                          const_cast<std::uint8_t*>(cell.kept)};
  queue.for_each(static_cast<std::size_t>(rows) * words, kKept, params);
}

}  // namespace warpalign::detail::recurrent
