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
#include "recurrent_problem.h"
#include "streams.h"

namespace warpalign::binding {
namespace {

Tensor allocate(const Tensor& like, const std::vector<int64_t>& shape, bool wanted, ScalarType dtype) {
  return wanted ? empty(like, shape.data(), shape.size(), dtype) : binding::allocate(like, {0}, true, dtype);
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
Tensor run_forward(const LstmTensors& in, LstmCall& call, LstmOutputs& outputs, const MaybeTensor& packed,
                   bool want_tape, const LstmSettings& settings) {
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

ForwardResult forward(const LstmTensors& in, const MaybeTensor& packed, bool want_states, bool want_tape,
                      const LstmSettings& settings) {
  LstmCall call(in, settings);
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
std::vector<Tensor> weight_gradients(const LstmCall& call, const Tensor& x, const LstmSettings& settings,
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

BackwardResult backward(const LstmTensors& in, const Kept& left, const Incoming& given, const Wanted& wanted,
                        const LstmSettings& settings) {
  LstmCall call(in, settings);
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
  const LstmSettings settings{batch,          bidirectional,   bias,         projection,     layer_norm,
                              activation,     hard_slope,      hard_offset,  layer_norm_eps, dropout,
                              weight_dropout, zoneout_hidden,  zoneout_cell, training,       float32_cell,
                              precision,      batch_invariant, recompute};
  const MaybeTensor h0 = h, c0 = c, none;
  const LstmTensors in{x, weights, h0, c0, none, none, none, none};
  LstmCall call(in, settings);
  const Tensor y = allocate(x, call.of_rows({}, call.directions() * call.output()), true, call.dtype);
  LstmOutputs outputs{y.mutable_data_ptr(), h.mutable_data_ptr(), c.mutable_data_ptr()};
  run_forward(in, call, outputs, packed, false, settings);
  return y;
}

Tensor lstm_pack_op(const std::vector<Tensor>& weights, bool bidirectional, bool bias, bool projection,
                    bool layer_norm) {
  if (weights.empty()) fail("weights", "at least one layer's", "none");
  LstmSettings settings{};
  settings.bidirectional = bidirectional, settings.bias = bias;
  settings.projection = projection, settings.layer_norm = layer_norm;
  // One step of an empty batch has the sizes that the weights go with.
  const Tensor& first = weights.front();
  const int64_t input = first.dim() == 2 ? first.size(1) : 0;
  const Tensor x = binding::allocate(first, {1, 0, input});
  const MaybeTensor none;
  LstmCall call({x, weights, none, none, none, none, none, none}, settings);
  const Placement placement(first, Precision::kHighest, false);
  const std::size_t bytes = lstm_packed_bytes(call.problem, placement.execution());
  const Tensor packed = allocate(first, {static_cast<int64_t>(bytes)}, true, ScalarType::Byte);
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
}  // namespace warpalign::binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("lstm", TORCH_BOX(&lstm_op));
  library.impl("lstm_stream_", TORCH_BOX(&lstm_stream_op));
  library.impl("lstm_pack", TORCH_BOX(&lstm_pack_op));
  library.impl("lstm_backward", TORCH_BOX(&lstm_backward_op<false>));
  library.impl("lstm_backward_", TORCH_BOX(&lstm_backward_op<true>));
}
