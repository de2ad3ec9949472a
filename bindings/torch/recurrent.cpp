// torch.ops.warpalign.lstm and lstm_backward: tensors to the core's problem and back. Compiled into the CPU
// and the CUDA library; the outputs and the workspace come from torch's allocator.
#include "warpalign/recurrent.h"

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "call.h"
#include "checks.h"

namespace warpalign::torch_binding {
namespace {

using MaybeTensor = std::optional<Tensor>;

// The tensors of a call, by the names of recurrent_schemas.cpp.
struct Inputs {
  const Tensor& x;
  const std::vector<Tensor>& weights;
  const MaybeTensor& h0;
  const MaybeTensor& c0;
  const MaybeTensor& lengths;
  const MaybeTensor& row_starts;
  const MaybeTensor& resets;
  const MaybeTensor& seed;
};

// The settings. The registered functions list them in the schemas' order; nothing else here depends on it.
struct Settings {
  int64_t batch;
  bool bidirectional, bias, projection, layer_norm;
  int64_t activation;
  double hard_slope, hard_offset, layer_norm_eps, dropout, weight_dropout, zoneout_hidden, zoneout_cell;
  bool training, float32_cell;
  int64_t precision;
  bool batch_invariant, recompute;

  // Weights of a layer and direction.
  [[nodiscard]] std::size_t per_cell() const {
    return 2 + (bias ? 2 : 0) + (projection ? 1 : 0) + (layer_norm ? 4 : 0);
  }
};

DType dtype_of_x(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Double:
      return DType::kFloat64;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    default:
      fail("x", "dtype float64, float32, float16 or bfloat16", dtype_of(x));
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "a contiguous tensor of shape (";
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + ")";
}

// A contiguous tensor of x's device, of this dtype and shape.
const void* checked(const Tensor& tensor, const std::string& name, const Tensor& x, ScalarType dtype,
                    const std::vector<int64_t>& shape) {
  check_same_device(tensor, name.c_str(), x, "x");
  if (tensor.scalar_type() != dtype) {
    fail(name, std::string("dtype ") + torch::headeronly::toString(dtype), dtype_of(tensor));
  }
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size()) && tensor.is_contiguous();
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
    fits = tensor.size(static_cast<int64_t>(axis)) == shape[axis];
  }
  if (!fits) fail(name, shape_text(shape), shape_of(tensor));
  return tensor.const_data_ptr();
}
const void* checked_or_null(const MaybeTensor& tensor, const char* name, const Tensor& x, ScalarType dtype,
                            const std::vector<int64_t>& shape) {
  return tensor ? checked(*tensor, name, x, dtype, shape) : nullptr;
}

// A call's problem and what it points to.
struct Call {
  LstmProblem problem;
  std::vector<LstmWeights> weights;
  std::vector<std::vector<int64_t>> weight_shapes;  // one shape per weight, in the weights' order
  std::vector<int64_t> rows;                        // (T, B), or (N,)
  ScalarType dtype, cell_dtype;

  Call(const Inputs& in, const Settings& settings);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] int64_t directions() const { return problem.bidirectional ? 2 : 1; }
  [[nodiscard]] int64_t cells() const { return problem.layers * directions(); }
  [[nodiscard]] int64_t output() const {
    return problem.projection > 0 ? problem.projection : problem.hidden;
  }
  // `before`, the rows, `behind`.
  [[nodiscard]] std::vector<int64_t> of_rows(std::vector<int64_t> before, int64_t behind) const {
    before.insert(before.end(), rows.begin(), rows.end());
    before.push_back(behind);
    return before;
  }
  [[nodiscard]] std::vector<int64_t> of_state(int64_t width) const { return {cells(), problem.batch, width}; }

 private:
  void set_input(const Inputs& in, const Settings& settings);
  void set_weights(const Inputs& in, const Settings& settings);
};

Call::Call(const Inputs& in, const Settings& settings) : dtype(in.x.scalar_type()), cell_dtype(dtype) {
  LstmProblem& p = problem;
  p.dtype = dtype_of_x(in.x);
  const bool wide = in.c0 ? in.c0->scalar_type() == ScalarType::Float : settings.float32_cell;
  const bool is_half = p.dtype == DType::kFloat16 || p.dtype == DType::kBFloat16;
  if (is_half && wide) cell_dtype = ScalarType::Float;
  p.cell_dtype = is_half && wide ? DType::kFloat32 : p.dtype;
  p.bidirectional = settings.bidirectional;
  set_input(in, settings);
  set_weights(in, settings);
  p.h0 = checked_or_null(in.h0, "h0", in.x, dtype, of_state(output()));
  p.c0 = checked_or_null(in.c0, "c0", in.x, cell_dtype, of_state(p.hidden));
  p.lengths = static_cast<const std::int32_t*>(
      checked_or_null(in.lengths, "input_lengths", in.x, ScalarType::Int, {p.batch}));
  p.resets =
      static_cast<const std::uint8_t*>(checked_or_null(in.resets, "resets", in.x, ScalarType::Bool, rows));
  p.seed = static_cast<const std::uint64_t*>(checked_or_null(in.seed, "seed", in.x, ScalarType::Long, {}));
  p.activation = enumerator<LstmActivation>(settings.activation);
  p.hard_slope = settings.hard_slope;
  p.hard_offset = settings.hard_offset;
  p.layer_norm = settings.layer_norm;
  p.layer_norm_eps = settings.layer_norm_eps;
  p.dropout = settings.dropout;
  p.weight_dropout = settings.weight_dropout;
  p.zoneout_hidden = settings.zoneout_hidden;
  p.zoneout_cell = settings.zoneout_cell;
  p.training = settings.training;
  p.recompute = settings.recompute;
}

void Call::set_input(const Inputs& in, const Settings& settings) {
  LstmProblem& p = problem;
  const int64_t axes = in.row_starts ? 2 : 3;
  if (in.x.dim() != axes)
    fail("x", in.row_starts ? "2 axes (N, I), packed" : "3 axes (T, B, I)", shape_of(in.x));
  p.input = narrowed(in.x.size(axes - 1));
  if (!in.row_starts) {
    p.steps = narrowed(in.x.size(0));
    p.batch = narrowed(in.x.size(1));
    p.x = strided<3>(in.x);
    rows = {p.steps, p.batch};
    return;
  }
  p.batch = narrowed(settings.batch);
  p.packed_rows = in.x.size(0);
  p.steps = in.row_starts->dim() == 1 ? narrowed(in.row_starts->size(0) - 1) : 0;
  p.x = {in.x.const_data_ptr(), {0, in.x.stride(0), in.x.stride(1)}};
  p.row_starts = static_cast<const std::int32_t*>(
      checked_or_null(in.row_starts, "row_starts", in.x, ScalarType::Int, {int64_t{p.steps} + 1}));
  rows = {p.packed_rows};
}

void Call::set_weights(const Inputs& in, const Settings& settings) {
  LstmProblem& p = problem;
  const std::size_t per_cell = settings.per_cell();
  if (in.weights.empty() || in.weights.size() % (per_cell * directions()) != 0) {
    fail("weights", std::to_string(per_cell) + " for each layer and direction",
         std::to_string(in.weights.size()));
  }
  const Tensor& recurrent = in.weights[1];
  if (recurrent.dim() != 2 || recurrent.size(0) % 4 != 0 || recurrent.size(0) == 0) {
    fail("weight_hh", "shape (4H, P)", shape_of(recurrent));
  }
  p.hidden = narrowed(recurrent.size(0) / 4);
  p.projection = settings.projection ? narrowed(recurrent.size(1)) : 0;
  p.layers = narrowed(static_cast<int64_t>(in.weights.size() / per_cell) / directions());
  const int64_t h = p.hidden, gates = 4 * h;
  auto next = in.weights.begin();
  for (int64_t cell = 0; cell < cells(); ++cell) {
    LstmWeights w;
    const auto take = [&](const char* name, const std::vector<int64_t>& shape) {
      weight_shapes.push_back(shape);
      return checked(*next++, name, in.x, dtype, shape);
    };
    w.ih = take("weight_ih", {gates, cell < directions() ? p.input : output() * directions()});
    w.hh = take("weight_hh", {gates, output()});
    if (settings.bias) w.bias_ih = take("bias_ih", {gates}), w.bias_hh = take("bias_hh", {gates});
    if (settings.projection) w.hr = take("weight_hr", {output(), h});
    if (settings.layer_norm) {
      w.ln_ih = take("weight_ln_ih", {gates}), w.ln_hh = take("weight_ln_hh", {gates});
      w.ln_cell = take("weight_ln_c", {h}), w.ln_cell_bias = take("bias_ln_c", {h});
    }
    weights.push_back(w);
  }
  p.weights = weights.data();
}

Tensor allocate(const Tensor& like, const std::vector<int64_t>& shape, bool wanted, ScalarType dtype) {
  return wanted ? empty(like, shape.data(), shape.size(), dtype)
                : torch_binding::allocate(like, {0}, true, dtype);
}

// Streams for layers at once, and torch's products on them.
class SideStreams {
 public:
  void lend(LstmProblem& p, const Tensor& x, const Execution& execution) {
    if (p.layers > 1 && p.steps > 1) streams_ = side_streams_of(x, p.layers);
    for (void* stream : streams_) products_.push_back({execution.matrix_product.run, stream});
    p.side_streams = {streams_.data(), static_cast<int>(streams_.size()), products_.data()};
  }

 private:
  std::vector<void*> streams_;
  std::vector<MatrixProduct> products_;
};

// Runs a call whose results have their places, but for the tape, which is returned.
Tensor run_forward(const Inputs& in, Call& call, LstmOutputs& outputs, const MaybeTensor& packed,
                   bool want_tape, const Settings& settings) {
  LstmProblem& p = call.problem;
  SideStreams streams;
  Tensor tape;
  call_core(
      Operator::kLstm, in.x, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) {
        streams.lend(p, in.x, execution);
        const auto packed_bytes = static_cast<int64_t>(lstm_packed_bytes(p, execution));
        p.packed_weights = checked_or_null(packed, "packed", in.x, ScalarType::Byte, {packed_bytes});
        if (want_tape) {
          tape =
              allocate(in.x, {static_cast<int64_t>(lstm_tape_bytes(p, execution))}, true, ScalarType::Byte);
          outputs.tape = data_or_null(tape, true);
        }
        return lstm_workspace_bytes(p, outputs, execution);
      },
      [&](Workspace workspace, const Execution& execution) {
        return named(lstm(p, outputs, workspace, execution), "lengths", "input_lengths");
      });
  return tape;
}

using ForwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

ForwardResult forward(const Inputs& in, const MaybeTensor& packed, bool want_states, bool want_tape,
                      const Settings& settings) {
  Call call(in, settings);
  const LstmProblem& p = call.problem;
  const int64_t width = call.output();
  const Tensor y = allocate(in.x, call.of_rows({}, call.directions() * width), true, call.dtype);
  const Tensor h_n = allocate(in.x, call.of_state(width), true, call.dtype);
  const Tensor c_n = allocate(in.x, call.of_state(p.hidden), true, call.cell_dtype);
  const Tensor h_all = allocate(in.x, call.of_rows({call.cells()}, width), want_states, call.dtype);
  const Tensor c_all = allocate(in.x, call.of_rows({call.cells()}, p.hidden), want_states, call.cell_dtype);
  LstmOutputs outputs{y.mutable_data_ptr(), h_n.mutable_data_ptr(), c_n.mutable_data_ptr()};
  outputs.h_all = data_or_null(h_all, want_states);
  outputs.c_all = data_or_null(c_all, want_states);
  const Tensor tape = run_forward(in, call, outputs, packed, want_tape, settings);
  return {y, h_n, c_n, h_all, c_all, want_tape ? tape : allocate(in.x, {0}, false, ScalarType::Byte)};
}

// What the forward call has left.
struct Kept {
  const Tensor& y;
  const Tensor& tape;
  bool spends_tape;  // gradients may take its place
};
// The gradients by the forward call's outputs.
struct Incoming {
  const MaybeTensor& y;
  const MaybeTensor& h_n;
  const MaybeTensor& c_n;
  const MaybeTensor& h_all;
  const MaybeTensor& c_all;
};
struct Wanted {
  bool x, h0, c0, weights;
};

using BackwardResult = std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>>;

// Allocates the gradients by weights, and says where they are.
std::vector<Tensor> weight_gradients(const Call& call, const Tensor& x, const Settings& settings,
                                     std::vector<LstmWeightGradients>& to) {
  std::vector<Tensor> tensors;
  auto shape = call.weight_shapes.begin();
  for (int64_t cell = 0; cell < call.cells(); ++cell) {
    const auto make = [&] {
      tensors.push_back(empty(x, shape->data(), shape->size(), std::nullopt));
      ++shape;
      return tensors.back().mutable_data_ptr();
    };
    LstmWeightGradients g;
    g.ih = make(), g.hh = make();
    if (settings.bias) g.bias = make(), ++shape;
    if (settings.projection) g.hr = make();
    if (settings.layer_norm) g.ln_ih = make(), g.ln_hh = make(), g.ln_cell = make(), g.ln_cell_bias = make();
    to.push_back(g);
  }
  return tensors;
}

BackwardResult backward(const Inputs& in, const Kept& left, const Incoming& given, const Wanted& wanted,
                        const Settings& settings) {
  Call call(in, settings);
  LstmProblem& p = call.problem;
  SideStreams streams;
  const int64_t width = call.output();
  const std::vector<int64_t> of_y = call.of_rows({}, call.directions() * width);
  LstmKept kept;
  kept.y = checked(left.y, "y", in.x, call.dtype, of_y);
  LstmIncoming incoming;
  incoming.y = checked_or_null(given.y, "grad_y", in.x, call.dtype, of_y);
  incoming.h_n = checked_or_null(given.h_n, "grad_h_n", in.x, call.dtype, call.of_state(width));
  incoming.c_n = checked_or_null(given.c_n, "grad_c_n", in.x, call.cell_dtype, call.of_state(p.hidden));
  incoming.h_all =
      checked_or_null(given.h_all, "grad_h_all", in.x, call.dtype, call.of_rows({call.cells()}, width));
  incoming.c_all = checked_or_null(given.c_all, "grad_c_all", in.x, call.cell_dtype,
                                   call.of_rows({call.cells()}, p.hidden));
  const Tensor x = allocate(in.x, call.of_rows({}, p.input), wanted.x, call.dtype);
  const Tensor h0 = allocate(in.x, call.of_state(width), wanted.h0, call.dtype);
  const Tensor c0 = allocate(in.x, call.of_state(p.hidden), wanted.c0, call.cell_dtype);
  std::vector<LstmWeightGradients> to;
  std::vector<Tensor> by_weights;
  if (wanted.weights) by_weights = weight_gradients(call, in.x, settings, to);
  LstmGradients gradients{data_or_null(x, wanted.x), data_or_null(h0, wanted.h0), data_or_null(c0, wanted.c0),
                          wanted.weights ? to.data() : nullptr};
  if (left.spends_tape) gradients.spent_tape = left.tape.mutable_data_ptr();
  call_core(
      Operator::kLstm, in.x, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) {
        streams.lend(p, in.x, execution);
        return lstm_backward_workspace_bytes(p, gradients, execution);
      },
      [&](Workspace workspace, const Execution& execution) {
        const auto needed = static_cast<int64_t>(lstm_tape_bytes(p, execution));
        kept.tape = checked(left.tape, "tape", in.x, ScalarType::Byte, {needed});
        return lstm_backward(p, kept, incoming, gradients, workspace, execution);
      });
  return {x, h0, c0, by_weights};
}

// The registered functions. Their parameters are their schema's, in its order.

ForwardResult lstm_op(const Tensor& x, const std::vector<Tensor>& weights, const MaybeTensor& h0,
                      const MaybeTensor& c0, const MaybeTensor& lengths, const MaybeTensor& row_starts,
                      const MaybeTensor& resets, const MaybeTensor& seed, const MaybeTensor& packed,
                      bool want_states, bool want_tape, int64_t batch, bool bidirectional, bool bias,
                      bool projection, bool layer_norm, int64_t activation, double hard_slope,
                      double hard_offset, double layer_norm_eps, double dropout, double weight_dropout,
                      double zoneout_hidden, double zoneout_cell, bool training, bool float32_cell,
                      int64_t precision, bool batch_invariant, bool recompute) {
  return forward({x, weights, h0, c0, lengths, row_starts, resets, seed}, packed, want_states, want_tape,
                 {batch, bidirectional, bias, projection, layer_norm, activation, hard_slope, hard_offset,
                  layer_norm_eps, dropout, weight_dropout, zoneout_hidden, zoneout_cell, training,
                  float32_cell, precision, batch_invariant, recompute});
}

// h and c are the state before the call, and the one after it.
Tensor lstm_stream_op(const Tensor& x, const std::vector<Tensor>& weights, const Tensor& h, const Tensor& c,
                      const MaybeTensor& packed, int64_t batch, bool bidirectional, bool bias,
                      bool projection, bool layer_norm, int64_t activation, double hard_slope,
                      double hard_offset, double layer_norm_eps, double dropout, double weight_dropout,
                      double zoneout_hidden, double zoneout_cell, bool training, bool float32_cell,
                      int64_t precision, bool batch_invariant, bool recompute) {
  const Settings settings{batch,          bidirectional,   bias,         projection,     layer_norm,
                          activation,     hard_slope,      hard_offset,  layer_norm_eps, dropout,
                          weight_dropout, zoneout_hidden,  zoneout_cell, training,       float32_cell,
                          precision,      batch_invariant, recompute};
  const MaybeTensor h0 = h, c0 = c, none;
  const Inputs in{x, weights, h0, c0, none, none, none, none};
  Call call(in, settings);
  const Tensor y = allocate(x, call.of_rows({}, call.directions() * call.output()), true, call.dtype);
  LstmOutputs outputs{y.mutable_data_ptr(), h.mutable_data_ptr(), c.mutable_data_ptr()};
  run_forward(in, call, outputs, packed, false, settings);
  return y;
}

Tensor lstm_pack_op(const std::vector<Tensor>& weights, bool bidirectional, bool bias, bool projection,
                    bool layer_norm) {
  if (weights.empty()) fail("weights", "at least one layer's", "none");
  Settings settings{};
  settings.bidirectional = bidirectional, settings.bias = bias;
  settings.projection = projection, settings.layer_norm = layer_norm;
  // One step of an empty batch has the sizes that the weights go with.
  const Tensor& first = weights.front();
  const int64_t input = first.dim() == 2 ? first.size(1) : 0;
  const Tensor x = torch_binding::allocate(first, {1, 0, input});
  const MaybeTensor none;
  Call call({x, weights, none, none, none, none, none, none}, settings);
  const Placement placement(first, Precision::kHighest, false);
  const std::size_t bytes = lstm_packed_bytes(call.problem, placement.execution());
  const Tensor packed = workspace_of(bytes, first);
  check_status(lstm_pack(call.problem, packed.mutable_data_ptr(), placement.execution()));
  return packed;
}

template <bool kSpendsTape>
BackwardResult lstm_backward_op(
    const Tensor& x, const std::vector<Tensor>& weights, const MaybeTensor& h0, const MaybeTensor& c0,
    const MaybeTensor& lengths, const MaybeTensor& row_starts, const MaybeTensor& resets,
    const MaybeTensor& seed, const Tensor& y, const Tensor& tape, const MaybeTensor& grad_y,
    const MaybeTensor& grad_h_n, const MaybeTensor& grad_c_n, const MaybeTensor& grad_h_all,
    const MaybeTensor& grad_c_all, bool want_x, bool want_h0, bool want_c0, bool want_weights, int64_t batch,
    bool bidirectional, bool bias, bool projection, bool layer_norm, int64_t activation, double hard_slope,
    double hard_offset, double layer_norm_eps, double dropout, double weight_dropout, double zoneout_hidden,
    double zoneout_cell, bool training, bool float32_cell, int64_t precision, bool batch_invariant,
    bool recompute) {
  return backward({x, weights, h0, c0, lengths, row_starts, resets, seed}, {y, tape, kSpendsTape},
                  {grad_y, grad_h_n, grad_c_n, grad_h_all, grad_c_all},
                  {want_x, want_h0, want_c0, want_weights},
                  {batch, bidirectional, bias, projection, layer_norm, activation, hard_slope, hard_offset,
                   layer_norm_eps, dropout, weight_dropout, zoneout_hidden, zoneout_cell, training,
                   float32_cell, precision, batch_invariant, recompute});
}

}  // namespace
}  // namespace warpalign::torch_binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::torch_binding;  // NOLINT: registration
  library.impl("lstm", TORCH_BOX(&lstm_op));
  library.impl("lstm_stream_", TORCH_BOX(&lstm_stream_op));
  library.impl("lstm_pack", TORCH_BOX(&lstm_pack_op));
  library.impl("lstm_backward", TORCH_BOX(&lstm_backward_op<false>));
  library.impl("lstm_backward_", TORCH_BOX(&lstm_backward_op<true>));
}
