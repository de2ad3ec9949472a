// An LSTM call of torch's: from tensors and settings to the core's problem, with all checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "checks.h"
#include "warpalign/recurrent.h"

namespace warpalign::binding {

using MaybeTensor = std::optional<Tensor>;

// The tensors of a call, by the names of recurrent_schemas.cpp.
struct LstmTensors {
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
struct LstmSettings {
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

inline DType lstm_dtype(const Tensor& x) {
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

inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "a contiguous tensor of shape (";
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + ")";
}

// A contiguous tensor of x's device, of this dtype and shape.
inline const void* checked(const Tensor& tensor, const std::string& name, const Tensor& x, ScalarType dtype,
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
inline const void* checked_or_null(const MaybeTensor& tensor, const char* name, const Tensor& x,
                                   ScalarType dtype, const std::vector<int64_t>& shape) {
  return tensor ? checked(*tensor, name, x, dtype, shape) : nullptr;
}

// A call's problem and what it points to.
struct LstmCall {
  LstmProblem problem;
  std::vector<LstmWeights> weights;
  std::vector<std::vector<int64_t>> weight_shapes;  // one shape per weight, in the weights' order
  std::vector<int64_t> rows;                        // (T, B), or (N,)
  ScalarType dtype, cell_dtype;

  LstmCall(const LstmTensors& in, const LstmSettings& settings);
  LstmCall(const LstmCall&) = delete;
  LstmCall& operator=(const LstmCall&) = delete;

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
  void set_input(const LstmTensors& in, const LstmSettings& settings);
  void set_weights(const LstmTensors& in, const LstmSettings& settings);
};

inline LstmCall::LstmCall(const LstmTensors& in, const LstmSettings& settings)
    : dtype(in.x.scalar_type()), cell_dtype(dtype) {
  LstmProblem& p = problem;
  p.dtype = lstm_dtype(in.x);
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

inline void LstmCall::set_input(const LstmTensors& in, const LstmSettings& settings) {
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

inline void LstmCall::set_weights(const LstmTensors& in, const LstmSettings& settings) {
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

}  // namespace warpalign::binding
