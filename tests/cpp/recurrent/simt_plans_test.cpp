// Plans of lstm() and of its gradient that a thread keeps; on the CPU alone.
#include <cstddef>
#include <vector>

#include "kept_plans.h"
#include "warpalign/recurrent.h"

namespace warpalign::test {
namespace {

struct Call {
  LstmProblem problem;
  bool gradient = true, has_lengths = false, is_packed = false, has_resets = false, lends_products = true,
       has_bias = true, has_packed_weights = false, has_states = false, keeps_cells = false;
  int streams = 0;
  bool streams_lend_products = false;
  Execution execution = Execution::cuda(0, nullptr);
  simt::Device device;

  explicit Call(DType dtype, int hidden, int steps = 40) {
    device.multiprocessors = 132;
    problem.dtype = dtype;
    problem.steps = steps;
    problem.batch = 8;
    problem.input = 48;
    problem.hidden = hidden;
    problem.layers = 2;
    problem.training = true;
  }

  [[nodiscard]] Status run() const {
    Places places;
    LstmProblem p = problem;
    if (p.dtype == DType::kFloat64) p.cell_dtype = DType::kFloat64;
    p.x = places.tensor<3>({p.steps, p.batch, p.input});
    LstmWeights of_layer{places.next(), places.next()};
    if (has_bias) of_layer.bias_ih = places.next();
    if (has_bias) of_layer.bias_hh = places.next();
    if (p.projection > 0) of_layer.hr = places.next();
    if (p.layer_norm) {
      of_layer.ln_ih = places.next();
      of_layer.ln_hh = places.next();
      of_layer.ln_cell = places.next();
      of_layer.ln_cell_bias = places.next();
    }
    const std::vector<LstmWeights> weights(p.layers * 2, of_layer);
    p.weights = weights.data();
    if (has_lengths) p.lengths = static_cast<const std::int32_t*>(places.next());
    if (is_packed) p.row_starts = static_cast<const std::int32_t*>(places.next());
    if (is_packed) p.packed_rows = 100;
    if (has_resets) p.resets = static_cast<const std::uint8_t*>(places.next());
    if (has_packed_weights) p.packed_weights = places.next();
    if (has_states) p.h0 = places.next();
    if (has_states) p.c0 = places.next();
    p.seed = static_cast<const std::uint64_t*>(places.next());
    Execution execution_ = execution;
    const MatrixProduct product{[](void*, const MatrixProductCall&) { return false; }};
    if (lends_products) execution_.matrix_product = product;
    std::vector<void*> queues;
    for (int k = 0; k < streams; ++k) queues.push_back(places.next());
    const std::vector<MatrixProduct> products(streams, product);
    p.side_streams = {queues.data(), streams, streams_lend_products ? products.data() : nullptr};
    LstmOutputs out;
    out.y = places.next();
    if (gradient) out.tape = places.next();
    if (keeps_cells) out.c_all = places.next();
    const std::size_t bytes = lstm_workspace_bytes(p, out, execution_);
    if (Status s = lstm(p, out, places.workspace(bytes), execution_); !s.ok() || !gradient) return s;
    LstmIncoming incoming;
    incoming.y = places.next();
    LstmWeightGradients grads{places.next(), places.next(), places.next()};
    if (p.projection > 0) grads.hr = places.next();
    const std::vector<LstmWeightGradients> of_weights(p.layers * 2, grads);
    LstmGradients gradients;
    gradients.x = places.next();
    gradients.weights = of_weights.data();
    const std::size_t more = lstm_backward_workspace_bytes(p, gradients, execution_);
    return lstm_backward(p, {out.tape, out.y}, incoming, gradients, places.workspace(more), execution_);
  }
};

TEST(PlansCuda, FollowFromEveryArgument) {
  expect_no_stale_plan<Call>(
      {Call(DType::kFloat16, 512), Call(DType::kFloat32, 256), Call(DType::kFloat32, 1100, 100),
       Call(DType::kBFloat16, 1100, 400), Call(DType::kFloat16, 256, 1)},
      {
          {"dtype", [](Call& c) { c.problem.dtype = DType::kFloat64; }},
          {"bfloat16", [](Call& c) { c.problem.dtype = DType::kBFloat16; }},
          {"steps", [](Call& c) { c.problem.steps = 1; }},
          {"more steps", [](Call& c) { c.problem.steps = 400; }},
          {"batch", [](Call& c) { c.problem.batch = 300; }},
          {"one row", [](Call& c) { c.problem.batch = 1; }},
          {"input", [](Call& c) { c.problem.input = 1000; }},
          {"odd input", [](Call& c) { c.problem.input = 47; }},
          {"hidden", [](Call& c) { c.problem.hidden = 1500; }},
          {"odd hidden", [](Call& c) { c.problem.hidden = 61; }},
          {"projection", [](Call& c) { c.problem.projection = 32; }},
          {"layers", [](Call& c) { c.problem.layers = 3; }},
          {"bidirectional", [](Call& c) { c.problem.bidirectional = true; }},
          {"gradient", [](Call& c) { c.gradient = false; }},
          {"cells", [](Call& c) { c.keeps_cells = true; }, InPlan::kNo},
          {"lengths", [](Call& c) { c.has_lengths = true; }},
          {"packed rows", [](Call& c) { c.is_packed = true; }},
          {"resets", [](Call& c) { c.has_resets = true; }},
          {"bias", [](Call& c) { c.has_bias = false; }, InPlan::kNo},
          {"packed weights", [](Call& c) { c.has_packed_weights = true; }},
          {"states", [](Call& c) { c.has_states = true; }},
          {"activation", [](Call& c) { c.problem.activation = LstmActivation::kHard; }, InPlan::kNo},
          {"layer norm", [](Call& c) { c.problem.layer_norm = true; }},
          {"recompute", [](Call& c) { c.problem.recompute = true; }},
          {"training", [](Call& c) { c.problem.training = false; }, InPlan::kNo},
          {"dropout", [](Call& c) { c.problem.dropout = 0.1; }},
          {"weight dropout", [](Call& c) { c.problem.weight_dropout = 0.1; }},
          {"zoneout of h", [](Call& c) { c.problem.zoneout_hidden = 0.1; }},
          {"zoneout of c", [](Call& c) { c.problem.zoneout_cell = 0.1; }},
          {"streams", [](Call& c) { c.streams = 2; }},
          {"streams with products", [](Call& c) { c.streams = 2, c.streams_lend_products = true; }},
          {"products", [](Call& c) { c.lends_products = false; }},
          {"precision", [](Call& c) { c.execution.precision = Precision::kMedium; }},
          {"batch_invariant", [](Call& c) { c.execution.batch_invariant = true; }},
          {"way", [](Call& c) { c.execution.way = "steps"; }},
          {"multiprocessors", [](Call& c) { c.device.multiprocessors = 16; }},
          {"shared memory", [](Call& c) { c.device.shared_bytes = 64 * 1024; }},
          {"capability", [](Call& c) { c.device.compute_capability_major = 7; }},
          {"capability 8.0", [](Call& c) { c.device.compute_capability_major = 8; }},
      });
}

}  // namespace
}  // namespace warpalign::test
