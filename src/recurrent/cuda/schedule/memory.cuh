// Where the CUDA path has its arrays, and the launches of a call in stream order.
#pragma once

#include <algorithm>

#include "core/arena.h"
#include "cuda/launch/launch.cuh"
#include "cuda/products/product.h"
#include "recurrent/cuda/call/path.h"
#include "recurrent/cuda/cell/ways.h"
#include "recurrent/cuda/steps/kernels.cuh"

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

// Everything about a cell but its memory.
template <class T>
CudaCell<T> plain_cell(const LstmProblem& p, int layer, int d) {
  using Real = Sum<T>;
  const CudaSizes<T> s(p);
  const int index = layer * directions_of(p) + d;
  CudaCell<T> cell{};
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
  const LstmWeights& w = p.weights[index];
  cell.bias_ih = static_cast<const T*>(w.bias_ih);
  cell.bias_hh = static_cast<const T*>(w.bias_hh);
  if (!p.layer_norm) return cell;
  cell.ln_ih = static_cast<const T*>(w.ln_ih);
  cell.ln_hh = static_cast<const T*>(w.ln_hh);
  cell.ln_cell = static_cast<const T*>(w.ln_cell);
  cell.ln_cell_bias = static_cast<const T*>(w.ln_cell_bias);
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

// The calling thread's current device; nothing where there is none.
inline cuda::DeviceTraits current_device() {
  int device = 0;
  if (!cuda::to_status(cudaGetDevice(&device)).ok()) return {};
  return cuda::traits_of(device);
}

// The launches of a call. After the first one that fails nothing is enqueued.
class Queue {
 public:
  explicit Queue(const Execution& execution)
      : execution_(execution),
        status_(cuda::check_device(execution.cuda_device)),
        device_(status_.ok() ? cuda::traits_of(execution.cuda_device) : cuda::DeviceTraits{}) {}

  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] const Execution& execution() const { return execution_; }
  [[nodiscard]] const cuda::DeviceTraits& device() const { return device_; }
  // Whether one product of TF32 stands for one of float32 in steps on matrix units.
  [[nodiscard]] bool by_tf32() const {
    return execution_.precision == Precision::kMedium && !execution_.batch_invariant;
  }
  [[nodiscard]] cudaStream_t stream() const { return static_cast<cudaStream_t>(execution_.stream); }
  void fail(Status status) {
    if (status_.ok()) status_ = status;
  }

  template <class... Parameters, class... Arguments>
  void launch(const cuda::Kernel<Parameters...>& kernel, int blocks, int threads,
              const Arguments&... arguments) {
    if (!status_.ok() || blocks == 0) return;
    status_ = cuda::launch(kernel, {.blocks = blocks, .threads = threads, .stream = stream()}, arguments...);
  }
  template <class... Parameters, class... Arguments>
  void launch(const cuda::Kernel<Parameters...>& kernel, cuda::LaunchConfig config,
              const Arguments&... arguments) {
    if (!status_.ok() || config.blocks == 0) return;
    config.stream = stream();
    status_ = cuda::launch(kernel, config, arguments...);
  }
  // A thread per element, or more elements where they are many.
  template <class... Parameters, class... Arguments>
  void for_each(std::size_t elements, const cuda::Kernel<Parameters...>& kernel,
                const Arguments&... arguments) {
    constexpr std::size_t kMostBlocks = 1 << 16;
    const std::size_t blocks = std::min(cuda::div_up(elements, kRowThreads), kMostBlocks);
    launch(kernel, static_cast<int>(blocks), kRowThreads, arguments...);
  }
  void clear(void* data, std::size_t bytes) { fill(data, 0, bytes); }
  void fill(void* data, int byte, std::size_t bytes) {
    if (status_.ok()) status_ = cuda::set_memory(data, byte, bytes, stream());
  }
  // The launch alone: an error of it is the caller's.
  template <class... Parameters, class... Arguments>
  [[nodiscard]] Status launch_cooperative(const cuda::Kernel<Parameters...>& kernel,
                                          cuda::LaunchConfig config, const Arguments&... arguments) {
    config.stream = stream();
    config.cooperative = true;
    return cuda::launch(kernel, config, arguments...);
  }
  // False: the device does not take the launch, and nothing has been enqueued.
  template <class... Parameters, class... Arguments>
  [[nodiscard]] bool try_launch(const cuda::Kernel<Parameters...>& kernel, cuda::LaunchConfig config,
                                const Arguments&... arguments) {
    config.stream = stream();
    return cuda::launch(kernel, config, arguments...).ok();
  }
  void multiply(const MatrixProductCall& call) {
    if (!status_.ok()) return;
    const bool is_empty = call.depth == 0 && !call.add;
    const std::size_t row = call.columns * size_of(call.dtype);
    if (is_empty && call.c_stride == call.columns) return clear(call.c, call.rows * row);
    status_ = cuda::multiply(call, execution_);
  }
  // A step of the sweeps of all directions. follows: the launch in front of it is one of the same sweeps.
  template <class Task, class T>
  void step(StepParams<T>& params, int directions, bool follows) {
    const CudaCell<T>& cell = params.cell[0];
    cuda::LaunchConfig config{.blocks = 0, .threads = kTileThreads, .stream = stream()};
    config.programmatic = follows && device_.has_clusters;
    constexpr int kGroups = kTileWarps / Task::kSplits;
    const int blocks =
        cuda::div_up(Task::rows(cell), kGroups * kGroupRows) * cuda::div_up(cell.at.batch, kTileRows);
    if constexpr (kHasUnits<T>) {
      const int pieces = Task::depth(cell) / Piece<T>::kSize;
      const int multiprocessors = device_.multiprocessors;
      // A row's bits depend on the way and on the tiles of a block, so that one choice of them has to serve
      // all batches where they must not.
      const bool invariant = execution_.batch_invariant;
      const bool gains =
          sizeof(T) == 2 || invariant ||
          (cell.at.batch >= kRowsOfFloatUnits && blocks * directions > kTurnsOfFloatLanes * multiprocessors);
      if (device_.has_matrix_units && pieces >= kFewestPieces && gains) {
        const bool is_many = static_cast<Offset>(cell.at.batch) * cell.hidden >=
                             static_cast<Offset>(kUnitsOfWideBlocks<T>) * multiprocessors;
        const UnitKernel<T> found = unit_step<T, Task>(is_many, by_tf32());
        const int least_stacks = (sizeof(T) == 2 && is_many && !invariant ? 1 : 3) * multiprocessors / 2;
        const auto share = UnitShare::of(Task::rows(cell), pieces, kMostTiles<Task>, multiprocessors,
                                         least_stacks, device_.has_clusters);
        const int rows = 8 * (found.is_wide ? kWideRowTiles : kRowTiles);
        params.blocks_of_direction = share.stacks * share.blocks * cuda::div_up(cell.at.batch, rows);
        config.cluster = share.blocks;
        return launch_with(*found.kernel, config, directions, params, share);
      }
    }
    params.blocks_of_direction = blocks;
    launch_with(kStep<T, Task>, config, directions, params);
  }
  template <class T>
  void rows_of_step(const cuda::Kernel<StepParams<T>>& kernel, StepParams<T>& params, int directions) {
    params.blocks_of_direction = params.cell[0].at.batch;
    launch(kernel, params.blocks_of_direction * directions, kNormThreads, params);
  }

 private:
  template <class T, class... Parameters, class... More>
  void launch_with(const cuda::Kernel<StepParams<T>, Parameters...>& kernel, cuda::LaunchConfig config,
                   int directions, const StepParams<T>& params, const More&... more) {
    config.blocks = params.blocks_of_direction * directions;
    if (status_.ok() && config.blocks > 0) status_ = cuda::launch(kernel, config, params, more...);
  }

  const Execution& execution_;
  Status status_;
  cuda::DeviceTraits device_;
};

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
// The gradient by weights with dropout, from that by what is left of them.
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
    const bool is_packed = !drops_them && columns == whole_pieces<T>(columns) &&
                           reinterpret_cast<std::uintptr_t>(from) % sizeof(Piece<T>) == 0;
    if (is_packed) {
      to = static_cast<const T*>(from);
    } else {
      pack_matrix(queue, p, cell.masks, from, rows, columns, false, drops_them, to);
    }
  };
  pack(w.hh, 4 * p.hidden, cell.output, drops, cell.hh);
  if (cell.projects) pack(w.hr, cell.output, p.hidden, false, cell.hr);
}

// The rows that a layer's products with W read.
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
// The gradients by W x, or by R h, of all rows.
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
  queue.multiply(
      {p.dtype, rows, gates, width, input.data, {input.stride, 1}, w.ih, {1, width}, to, gates, false});
  if (!p.layer_norm) return;
  normalise<T>(queue, {to, rows, static_cast<int>(gates), cell.eps, cell.scales + first * 3});
}

}  // namespace warpalign::detail::recurrent
