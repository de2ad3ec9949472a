// Where the CUDA path has its arrays: sizes, the tape, and what a cell knows before it has memory.
#pragma once

#include "core/arena.h"
#include "cuda/launch/check.h"
#include "recurrent/cuda/cell/params.cuh"
#include "recurrent/cuda/cell/pieces.cuh"

namespace warpalign::detail::recurrent {

// Extents as counts of elements. Strides are those of rows that products of a step read.
template <class T>
struct CudaSizes {
  std::size_t rows, batch, hidden, output, output_stride, hidden_stride, gates_stride;

  explicit CudaSizes(const LstmProblem& p)
      : rows(rows_of(p)),
        batch(p.batch),
        hidden(p.hidden),
        output(output_of(p)),
        output_stride(whole_pieces<T>(static_cast<int>(output_of(p)))),
        hidden_stride(whole_pieces<T>(p.hidden)),
        gates_stride(whole_pieces<T>(4 * p.hidden)) {}
};

// An array that is there if it is wanted.
template <class T>
T* take_if(bool wanted, Arena& arena, std::size_t count) {
  return wanted ? arena.take<T>(count) : nullptr;
}

// The packed weights of the forward pass.
template <class T>
void take_packed(const LstmProblem& p, CudaCell<T>& cell, Arena& arena) {
  const CudaSizes<T> s(p);
  cell.hh = arena.take<T>(4 * s.hidden * s.output_stride);
  cell.hr = take_if<T>(p.projection > 0, arena, s.output * s.hidden_stride);
}
template <class T>
std::size_t packed_cell_bytes(const LstmProblem& p) {
  Arena arena;
  CudaCell<T> cell{};
  take_packed(p, cell, arena);
  return arena.used();
}

inline bool is_last(const LstmProblem& p, int layer) { return layer == p.layers - 1; }

// What a chunk's steps leave for the backward pass, but for h.
template <class T>
void take_steps(const LstmProblem& p, std::size_t rows, bool with_c, CudaCell<T>& cell, Arena& arena) {
  const std::size_t hidden = p.hidden;
  cell.gates = arena.take<T>(rows * 4 * hidden);
  cell.tape_c = take_if<T>(with_c, arena, rows * hidden);
  cell.norm_x = take_if<T>(p.layer_norm, arena, rows * 4 * hidden);
  cell.norm_h = take_if<T>(p.layer_norm, arena, rows * 4 * hidden);
  cell.norm_c = take_if<T>(p.layer_norm, arena, rows * hidden);
  cell.scales = take_if<Sum<T>>(p.layer_norm, arena, rows * 3);
}

// The rows of a cell that the backward pass needs. h of the last layer is y.
template <class T>
void take_tape(const LstmProblem& p, int layer, CudaCell<T>& cell, Arena& arena) {
  const CudaSizes<T> s(p);
  if (p.recompute) {
    cell.kept_c = arena.take<Sum<T>>((kMostChunks - 1) * s.batch * s.hidden);
  } else {
    take_steps(p, s.rows, true, cell, arena);
  }
  cell.h_rows = take_if<T>(!is_last(p, layer), arena, s.rows * s.output);
}
template <class T>
std::size_t tape_cell_bytes(const LstmProblem& p, int layer) {
  Arena arena;
  CudaCell<T> cell{};
  take_tape(p, layer, cell, arena);
  return arena.used();
}
// Bytes of the tape that the layers below `layer` take.
template <class T>
std::size_t tape_bytes_below(const LstmProblem& p, int layer) {
  return layer > 0 ? tape_cell_bytes<T>(p, 0) * layer * directions_of(p) : 0;
}
template <class T>
Arena tape_of_cell(const LstmProblem& p, const void* tape, int layer, int d) {
  // Backward passes only read.
  std::byte* const data = static_cast<std::byte*>(const_cast<void*>(tape));
  return Arena(data + tape_bytes_below<T>(p, layer) + d * tape_cell_bytes<T>(p, layer));
}

// Says everything about a cell but where its memory is.
template <class T>
void set_plain(const LstmProblem& p, int layer, int d, CudaCell<T>& cell) {
  using Real = Sum<T>;
  const CudaSizes<T> s(p);
  const LstmWeights& w = p.weights[layer * directions_of(p) + d];
  cell.at = {p.steps, p.batch, static_cast<Offset>(s.rows), p.lengths, p.row_starts, p.resets};
  cell.hidden = p.hidden;
  cell.output = static_cast<int>(s.output);
  cell.h_stride = static_cast<Offset>(s.output);
  cell.reverse = d == 1;
  cell.layer_norm = p.layer_norm;
  cell.projects = p.projection > 0;
  cell.activation = {p.activation == LstmActivation::kHard, static_cast<Real>(p.hard_slope),
                     static_cast<Real>(p.hard_offset), static_cast<Real>(-p.hard_offset / p.hard_slope),
                     static_cast<Real>((1 - p.hard_offset) / p.hard_slope)};
  cell.masks = {p.seed, static_cast<std::uint32_t>(layer * 8 + d * 4)};
  cell.zoneout_hidden = {static_cast<Real>(p.zoneout_hidden), philox_threshold(p.zoneout_hidden), p.training};
  cell.zoneout_cell = {static_cast<Real>(p.zoneout_cell), philox_threshold(p.zoneout_cell), p.training};
  const bool drops = p.training && p.dropout > 0 && layer < p.layers - 1;
  cell.dropout = {philox_threshold(p.dropout), drops ? static_cast<Real>(1 / (1 - p.dropout)) : Real(0)};
  cell.eps = static_cast<Real>(p.layer_norm_eps);
  cell.output_stride = static_cast<int>(s.output_stride);
  cell.hidden_stride = static_cast<int>(s.hidden_stride);
  cell.gates_stride = static_cast<int>(s.gates_stride);
  cell.wide_cells = p.cell_dtype == DType::kFloat32;
  cell.bias_ih = static_cast<const T*>(w.bias_ih);
  cell.bias_hh = static_cast<const T*>(w.bias_hh);
  if (!p.layer_norm) return;
  cell.ln_ih = static_cast<const T*>(w.ln_ih);
  cell.ln_hh = static_cast<const T*>(w.ln_hh);
  cell.ln_cell = static_cast<const T*>(w.ln_cell);
  cell.ln_cell_bias = static_cast<const T*>(w.ln_cell_bias);
}
template <class T>
CudaCell<T> plain_cell(const LstmProblem& p, int layer, int d) {
  CudaCell<T> cell{};
  set_plain(p, layer, d, cell);
  return cell;
}

// Entry `index` of an array that may be null.
template <class T>
const T* part_of(const void* array, std::size_t index) {
  return array ? static_cast<const T*>(array) + index : nullptr;
}
template <class T>
T* part_of(void* array, std::size_t index) {
  return array ? static_cast<T*>(array) + index : nullptr;
}
// The same of an array of elements of `size` bytes.
inline const void* bytes_at(const void* array, std::size_t index, std::size_t size) {
  return part_of<std::byte>(array, index * size);
}
inline void* bytes_at(void* array, std::size_t index, std::size_t size) {
  return part_of<std::byte>(array, index * size);
}

// Direction d of the last layer has its h in y.
template <class T>
void place_h_in_y(const LstmProblem& p, int d, T* y, CudaCell<T>& cell) {
  cell.h_rows = y + d * cell.output;
  cell.h_stride = static_cast<Offset>(directions_of(p)) * cell.output;
}

// Whether a layer keeps units of its state at random.
inline bool draws_zoneout(const LstmProblem& p) {
  return p.training && (p.zoneout_hidden > 0 || p.zoneout_cell > 0);
}

// Whether every row has every step, from its own first state on.
inline bool has_every_row(const LstmProblem& p) { return !p.lengths && !p.row_starts && !p.resets; }
// The same, and nothing is kept at random.
inline bool is_plain(const LstmProblem& p) {
  return has_every_row(p) && p.zoneout_hidden == 0 && p.zoneout_cell == 0;
}

}  // namespace warpalign::detail::recurrent
