// What the tests of the joint share: a network and batches in memory, the two calls, and the tolerances.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "fixture.h"
#include "transducer/reference_joint.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::test {

// Utterances of one family, with encoder and predictor rows of N(0, scale).
struct JointBatch {
  DType dtype = DType::kFloat32;
  reference::JointNetwork network = {};
  bool has_bias = true;
  int frames = 0;  // T
  int states = 1;  // U + 1
  int gap = 0;     // numbers behind each row of encoder and predictor that belong to nobody
  bool flat_targets = false;
  bool lengths = true;
  std::int64_t workspace_limit = TransducerJointProblem{}.workspace_limit;
  std::vector<reference::Transducer> problems = {};
  std::vector<std::vector<double>> encoder = {}, predictor = {};
  std::vector<double> grad_loss = {};

  [[nodiscard]] int columns() const {
    const reference::Transducer& p = problems.front();
    return p.labels + (p.tdt ? static_cast<int>(p.durations.size()) : 0);
  }
  [[nodiscard]] std::vector<double> draw(int count, double scale, std::mt19937& random) const {
    std::normal_distribution<double> normal;
    std::vector<double> values(count);
    for (double& v : values) v = rounded(dtype, scale * normal(random));
    return values;
  }
  // The network of the first utterance's family.
  void add(const reference::Transducer& problem, std::mt19937& random, double upstream = 1) {
    problems.push_back(problem);
    if (problems.size() == 1) {
      network.weight = draw(columns() * network.hidden, 1 / std::sqrt(network.hidden), random);
      network.bias = has_bias ? draw(columns(), 1, random) : std::vector<double>(columns());
    }
    encoder.push_back(draw(problem.frames * network.hidden, 1, random));
    predictor.push_back(draw(problem.states() * network.hidden, 1, random));
    grad_loss.push_back(upstream);
    frames = std::max(frames, problem.frames);
    states = std::max(states, problem.states());
  }
};

struct JointRun {
  Status status;
  std::vector<double> loss;
  std::vector<double> encoder, predictor;  // (B, T, H), (B, U+1, H)
  std::vector<double> weight, bias;
};

// All memory is in Buffers; results, saved memory, workspace and padding start as NaN.
template <class Buffer>
JointRun run_joint_on(const JointBatch& batch, const Execution& execution, bool want_gradient) {
  const int size = batch.network.hidden, row = size + batch.gap,
            count = static_cast<int>(batch.problems.size());
  const std::size_t element = size_of(batch.dtype);
  const auto in_memory = [&](const std::vector<std::vector<double>>& rows, int axis) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * axis * row * element, kPoison);
    for (int b = 0; b < count; ++b) {
      for (std::size_t n = 0; n < rows[b].size(); ++n) {
        const std::size_t at = (static_cast<std::size_t>(b) * axis + n / size) * row + n % size;
        write_element(batch.dtype, &bytes[at * element], rows[b][n]);
      }
    }
    return Buffer(bytes);
  };
  const auto flat = [&](const std::vector<double>& values) {
    std::vector<unsigned char> bytes(values.size() * element);
    for (std::size_t n = 0; n < values.size(); ++n)
      write_element(batch.dtype, &bytes[n * element], values[n]);
    return Buffer(bytes);
  };
  std::vector<std::int32_t> t_lengths, u_lengths, labels, band;
  std::vector<std::uint8_t> without;
  for (int b = 0; b < count; ++b) {
    const reference::Transducer& p = batch.problems[b];
    t_lengths.push_back(p.frames);
    u_lengths.push_back(p.states() - 1);
    labels.insert(labels.end(), p.targets.begin(), p.targets.end());
    if (!batch.flat_targets) labels.resize(static_cast<std::size_t>(b + 1) * (batch.states - 1), -77);
    without.push_back(p.without_durations ? 1 : 0);
    band.insert(band.end(), p.band.begin(), p.band.end());
    band.resize(static_cast<std::size_t>(b + 1) * batch.frames, -77);
  }
  const bool wide = batch.dtype == DType::kFloat64;
  const Buffer encoder = in_memory(batch.encoder, batch.frames),
               predictor = in_memory(batch.predictor, batch.states), weight = flat(batch.network.weight),
               bias = flat(batch.network.bias);
  const Buffer frames(t_lengths), states(u_lengths), targets(labels), plain(without), first_states(band);
  const std::vector<float> upstream32(batch.grad_loss.begin(), batch.grad_loss.end());
  const Buffer upstream = wide ? Buffer(batch.grad_loss) : Buffer(upstream32);

  TransducerBatch family;
  TransducerCase one{"", batch.problems.front(), {}};
  family.dtype = batch.dtype;
  family.cases.push_back(one);
  TransducerJointProblem p;
  p.dtype = batch.dtype;
  p.hidden = size;
  p.labels = batch.problems.front().labels;
  p.encoder = {encoder.data(), {std::int64_t{batch.frames} * row, row, 1}};
  p.predictor = {predictor.data(), {std::int64_t{batch.states} * row, row, 1}};
  p.weight = weight.data();
  p.bias = batch.has_bias ? bias.data() : nullptr;
  p.workspace_limit = batch.workspace_limit;
  const Buffer seed(std::vector<std::uint64_t>{batch.network.seed});
  p.dropout = batch.network.dropout;
  p.band_states = batch.problems.front().band_states;
  if (p.band_states > 0) p.band = static_cast<const std::int32_t*>(first_states.data());
  if (p.dropout > 0) p.seed = static_cast<const std::uint64_t*>(seed.data());
  p.activation = batch.network.tanh ? Activation::kTanh : Activation::kRelu;
  p.lattice = problem_of(family).lattice;
  p.lattice.batch = count;
  p.lattice.frames = batch.frames;
  p.lattice.states = batch.states;
  if (batch.lengths) {
    p.lattice.logit_lengths = static_cast<const std::int32_t*>(frames.data());
    p.lattice.target_lengths = static_cast<const std::int32_t*>(states.data());
  }
  p.lattice.targets = static_cast<const std::int32_t*>(targets.data());
  p.lattice.target_stride = batch.states - 1;
  p.lattice.flat_targets = batch.flat_targets;
  p.lattice.target_count = static_cast<std::int64_t>(labels.size());
  if (p.lattice.tdt) p.lattice.without_durations = static_cast<const std::uint8_t*>(plain.data());

  const Buffer loss(count * (wide ? 8 : 4));
  const Buffer saved(want_gradient ? transducer_joint_saved_bytes(p, execution) : 0);
  const TransducerOutputs outputs{loss.data(), want_gradient ? saved.data() : nullptr};
  JointRun run;
  {
    const std::size_t needed = transducer_joint_workspace_bytes(p, outputs, execution);
    const Buffer workspace(needed);
    run.status = transducer_joint(p, outputs, {workspace.data(), needed}, execution);
    if (!run.status.ok()) return run;
    const auto keep = [&](const auto& values) { run.loss.assign(values.begin(), values.end()); };
    wide ? keep(loss.template read<double>(count)) : keep(loss.template read<float>(count));
  }
  if (!want_gradient) return run;
  const auto numbers = [&](int n) { return static_cast<std::size_t>(n) * element; };
  const Buffer to_encoder(numbers(count * batch.frames * size)),
      to_predictor(numbers(count * batch.states * size)), to_weight(numbers(batch.columns() * size)),
      to_bias(numbers(batch.columns()));
  const TransducerJointGradient gradient{saved.data(),      upstream.data(),     1,
                                         to_encoder.data(), to_predictor.data(), to_weight.data(),
                                         to_bias.data()};
  const std::size_t needed = transducer_joint_gradient_workspace_bytes(p, gradient, execution);
  const Buffer workspace(needed);
  run.status = transducer_joint_gradient(p, gradient, {workspace.data(), needed}, execution);
  if (!run.status.ok()) return run;
  const auto values = [&](const Buffer& from, int n) {
    const std::vector<unsigned char> bytes = from.template read<unsigned char>(numbers(n));
    std::vector<double> to(n);
    for (int k = 0; k < n; ++k) to[k] = read_element(batch.dtype, &bytes[k * element]);
    return to;
  };
  run.encoder = values(to_encoder, count * batch.frames * size);
  run.predictor = values(to_predictor, count * batch.states * size);
  run.weight = values(to_weight, batch.columns() * size);
  run.bias = values(to_bias, batch.columns());
  return run;
}

inline JointRun run_joint(const JointBatch& batch, bool want_gradient = true, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (TransducerPath::GetParam().cuda) {
    return run_joint_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_gradient);
  }
#endif
  return run_joint_on<HostBuffer>(batch, Execution::host(parallel_for), want_gradient);
}

// Relative L2 error at most `limit`, besides each element's own rounding to its type. Floor: `floor` of the
// root of the number of elements.
inline void expect_near_l2(const std::vector<double>& got, const std::vector<double>& wanted, double limit,
                           double rounding, double floor, const char* what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  double error = 0, norm = 0;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (std::isnan(wanted[n])) {
      ASSERT_TRUE(std::isnan(got[n])) << what << " " << n;
      continue;
    }
    ASSERT_FALSE(std::isnan(got[n])) << what << " " << n;
    const double own = std::max(std::abs(got[n] - wanted[n]) - rounding * std::abs(wanted[n]), 0.0);
    error += own * own;
    norm += wanted[n] * wanted[n];
  }
  EXPECT_LE(std::sqrt(error), limit * std::sqrt(norm) + floor * std::sqrt(static_cast<double>(wanted.size())))
      << what << ", norm " << std::sqrt(norm);
}

// Holds a run to the float64 reference on the rounded inputs.
//
// A logit is a sum of H rounded products: its error is some sqrt(H) epsilon of its size. A loss has T + U of
// them. Gradients: relative L2 1e-5 and 1e-10; float32's floor is what the sum of nodes leaves of rounding
// where terms cancel. `product` is the error of one
// product's factors: matrix units take h, logits and their gradients rounded to a half type.
inline void expect_close(const JointBatch& batch, const JointRun& run, double product = 0) {
  ASSERT_TRUE(run.status.ok()) << run.status.argument << ": " << run.status.message << " "
                               << run.status.value;
  const bool wide = batch.dtype == DType::kFloat64;
  const double epsilon = wide ? 2.3e-16 : 1.2e-7, limit = (wide ? 1e-10 : 1e-5) + product;
  const double rounding = batch.dtype == DType::kFloat16    ? 0x1p-11
                          : batch.dtype == DType::kBFloat16 ? 0x1p-8
                                                            : 0;
  const int size = batch.network.hidden;
  std::vector<double> weight(batch.network.weight.size()), bias(batch.network.bias.size()), encoder,
      predictor;
  int nodes = 0;
  double all_steps = 0;
  for (std::size_t b = 0; b < batch.problems.size(); ++b) {
    const reference::Transducer& p = batch.problems[b];
    const auto result = reference::transducer_joint(p, batch.network, batch.encoder[b], batch.predictor[b],
                                                    static_cast<int>(b));
    const double steps = p.frames + p.states();
    nodes += p.frames * p.states();
    all_steps += steps;
    if (std::isnan(result.loss)) {
      EXPECT_TRUE(std::isnan(run.loss[b])) << b;
    } else if (std::isinf(result.loss)) {
      EXPECT_EQ(run.loss[b], result.loss) << b;
    } else {
      EXPECT_NEAR(
          run.loss[b], result.loss,
          4 * epsilon * std::abs(result.loss) + steps * (2 + 2 * std::sqrt(size)) * (epsilon + product))
          << b;
    }
    if (run.weight.empty()) continue;
    const auto add = [&](const std::vector<double>& from, std::vector<double>& to) {
      for (std::size_t n = 0; n < from.size(); ++n) to[n] += batch.grad_loss[b] * from[n];
    };
    add(result.grad_weight, weight);
    add(result.grad_bias, bias);
    encoder.resize((b + 1) * batch.frames * size);  // padding: 0
    predictor.resize((b + 1) * batch.states * size);
    for (std::size_t n = 0; n < result.grad_encoder.size(); ++n) {
      encoder[b * batch.frames * size + n] = batch.grad_loss[b] * result.grad_encoder[n];
    }
    for (std::size_t n = 0; n < result.grad_predictor.size(); ++n) {
      predictor[b * batch.states * size + n] = batch.grad_loss[b] * result.grad_predictor[n];
    }
  }
  if (run.weight.empty()) return;
  const double floor = epsilon * (batch.dtype == DType::kFloat16 ? 4 : 1);
  // Gradients by h are sums over a frame's states, or a state's frames, of terms of size H^-1/2 that cancel.
  const auto terms = [&](int count) {
    return floor + product / 8 * std::sqrt(static_cast<double>(count) / size);
  };
  expect_near_l2(run.encoder, encoder, limit, rounding, terms(batch.states), "encoder");
  expect_near_l2(run.predictor, predictor, limit, rounding, terms(batch.frames), "predictor");
  // Gradients by logits that are rounded to `product` / 2 are some T + U numbers of size 1.
  const double sums = floor * std::sqrt(static_cast<double>(nodes)) + product / 2 * std::sqrt(all_steps);
  expect_near_l2(run.weight, weight, limit, rounding, sums, "weight");
  expect_near_l2(run.bias, bias, limit, rounding, sums, "bias");
}

}  // namespace warpalign::test
