// Runs the LSTM on either path, and compares it with the float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/visit_dtype.h"
#include "host_buffer.h"
#include "lstm_case.h"
#include "paths.h"
#include "values.h"
#include "warpalign/recurrent.h"

namespace warpalign::test {

struct LstmRun {
  Status status;
  reference::Outputs out;
  reference::Gradients gradients;
  std::vector<unsigned char> bits;  // of everything
};

// Both calls, with memory of the kind Buffer.
template <class Buffer>
class LstmRunnerIn {
 public:
  LstmRunnerIn(const LstmCase& given, const Execution& execution)
      : case_(given), execution_(execution), rows_(given.rows()) {
    const reference::Lstm& r = given.problem;
    problem_.dtype = given.dtype, problem_.cell_dtype = given.cell_dtype;
    problem_.steps = r.steps, problem_.batch = r.batch, problem_.input = r.input, problem_.hidden = r.hidden;
    problem_.projection = r.projection, problem_.layers = r.layers, problem_.bidirectional = r.bidirectional;
    std::vector<double> x(rows_.size() * r.input);
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      for (int k = 0; k < r.input; ++k) {
        x[n * r.input + k] = given.holds(rows_[n]) ? given.inputs.x[rows_[n] * r.input + k] : given.padding;
      }
    }
    // Elements of x are two apart, and every row has a gap.
    std::vector<double> spread(rows_.size() * (2 * r.input + 1), kNan);
    for (std::size_t n = 0; n < x.size(); ++n)
      spread[n / r.input * (2 * r.input + 1) + n % r.input * 2] = x[n];
    const std::int64_t row = 2 * r.input + 1;
    problem_.x = {keep(given.dtype, spread), {row * r.batch, row, 2}};
    for (const reference::Weights& w : given.inputs.weights) {
      LstmWeights to;
      to.ih = keep(given.dtype, w.ih), to.hh = keep(given.dtype, w.hh);
      // The sum of both biases is the reference's.
      to.bias_ih = keep(given.dtype, w.bias);
      to.bias_hh = keep(given.dtype, std::vector<double>(w.bias.size(), 0.0));
      if (!w.hr.empty()) to.hr = keep(given.dtype, w.hr);
      if (r.layer_norm) {
        to.ln_ih = keep(given.dtype, w.ln_ih), to.ln_hh = keep(given.dtype, w.ln_hh);
        to.ln_cell = keep(given.dtype, w.ln_cell), to.ln_cell_bias = keep(given.dtype, w.ln_cell_bias);
      }
      weights_.push_back(to);
    }
    problem_.weights = weights_.data();
    problem_.h0 = keep(given.dtype, given.inputs.h0), problem_.c0 = keep(given.cell_dtype, given.inputs.c0);
    if (given.packed) {
      starts_.assign(r.steps + 1, 0);
      for (const int at : rows_) ++starts_[at / r.batch + 1];
      for (int t = 0; t < r.steps; ++t) starts_[t + 1] += starts_[t];
      problem_.row_starts = keep(starts_), problem_.packed_rows = static_cast<std::int64_t>(rows_.size());
    } else if (!r.lengths.empty()) {
      lengths_.assign(r.lengths.begin(), r.lengths.end());
      problem_.lengths = keep(lengths_);
    }
    for (const int at : rows_)
      resets_.push_back(r.resets.empty() ? 0 : static_cast<std::uint8_t>(r.resets[at]));
    if (!r.resets.empty()) problem_.resets = keep(resets_);
    problem_.activation = r.hard ? LstmActivation::kHard : LstmActivation::kSoft;
    problem_.hard_slope = r.slope, problem_.hard_offset = r.offset;
    problem_.layer_norm = r.layer_norm, problem_.layer_norm_eps = r.eps;
    problem_.dropout = r.dropout, problem_.weight_dropout = r.weight_dropout;
    problem_.zoneout_hidden = r.zoneout_hidden, problem_.zoneout_cell = r.zoneout_cell;
    problem_.training = r.training;
    problem_.seed = keep(std::vector<std::uint64_t>{r.seed});
  }
  LstmRunnerIn(const LstmRunnerIn&) = delete;
  LstmRunnerIn& operator=(const LstmRunnerIn&) = delete;

  LstmProblem& problem() { return problem_; }
  bool spends_tape = false;  // the backward pass may write to it
  std::size_t before_y = 0;  // entries in front of y, which then begins within a word
  bool wants_y = true;       // without a tape
  bool in_place = false;     // without a tape: the state after the call takes the place of that before
  std::function<void()> before_backward;

  // Packs the weights for the calls to come.
  void pack() {
    const std::size_t bytes = lstm_packed_bytes(problem_, execution_);
    memory_.push_back(std::make_unique<Buffer>(bytes));
    ASSERT_TRUE(lstm_pack(problem_, memory_.back()->data(), execution_).ok());
    problem_.packed_weights = memory_.back()->data();
  }

  // Moves the matrices that a step multiplies, so that they begin within a piece of 16 bytes.
  void shift_weights() {
    const auto shifted = [&](std::vector<double> values) -> const void* {
      values.insert(values.begin(), 0.0);
      return static_cast<const char*>(keep(case_.dtype, values)) + size_of(case_.dtype);
    };
    for (std::size_t n = 0; n < weights_.size(); ++n) {
      const reference::Weights& w = case_.inputs.weights[n];
      weights_[n].hh = shifted(w.hh);
      if (!w.hr.empty()) weights_[n].hr = shifted(w.hr);
    }
  }

  LstmRun run(bool with_tape = true) {
    LstmRun result;
    const reference::Lstm& r = case_.problem;
    const std::size_t rows = rows_.size(), B = r.batch, H = r.hidden, P = r.output(), cells = r.cells();
    const std::size_t size = size_of(case_.dtype), cell_size = size_of(case_.cell_dtype);
    const bool states = case_.with_states;
    const std::size_t y_entries = rows * P * r.directions();
    const Buffer all_y((before_y + y_entries) * size), h_n(cells * B * P * size),
        c_n(cells * B * H * cell_size);
    void* const y = static_cast<char*>(all_y.data()) + before_y * size;
    const Buffer h_all(states ? cells * rows * P * size : 0),
        c_all(states ? cells * rows * H * cell_size : 0);
    const Buffer tape(with_tape ? lstm_tape_bytes(problem_, execution_) : 0);
    LstmOutputs out{wants_y ? y : nullptr, h_n.data(), c_n.data()};
    if (in_place) {
      out.h_n = const_cast<void*>(problem_.h0), out.c_n = const_cast<void*>(problem_.c0);
    }
    if (states) out.h_all = h_all.data(), out.c_all = c_all.data();
    if (with_tape) out.tape = tape.data();
    const std::size_t bytes = lstm_workspace_bytes(problem_, out, execution_);
    const Buffer workspace(bytes);
    result.status = lstm(problem_, out, {workspace.data(), bytes}, execution_);
    if (!result.status.ok()) return result;
    if (wants_y) {
      std::vector<double> v = take(result, case_.dtype, all_y, before_y + y_entries);
      v.erase(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(before_y));
      result.out.y = spread(v, 1, P * r.directions());
    }
    result.out.h_n = take(result, case_.dtype, in_place ? kept_at(out.h_n) : h_n, cells * B * P);
    result.out.c_n = take(result, case_.cell_dtype, in_place ? kept_at(out.c_n) : c_n, cells * B * H);
    if (states) {
      result.out.h_all = spread(take(result, case_.dtype, h_all, cells * rows * P), cells, P);
      result.out.c_all = spread(take(result, case_.cell_dtype, c_all, cells * rows * H), cells, H);
    }
    if (with_tape && before_backward) before_backward();
    if (with_tape) backward(result, {tape.data(), y});
    return result;
  }

 private:
  const Buffer& kept_at(const void* data) const {
    return **std::find_if(memory_.begin(), memory_.end(),
                          [&](const auto& one) { return one->data() == data; });
  }

  void backward(LstmRun& result, const LstmKept& kept) {
    const reference::Lstm& r = case_.problem;
    const std::size_t rows = rows_.size(), B = r.batch, H = r.hidden, P = r.output(), cells = r.cells();
    const std::size_t size = size_of(case_.dtype), cell_size = size_of(case_.cell_dtype);
    const reference::Outputs& given = case_.incoming;
    LstmIncoming incoming;
    incoming.y = keep(case_.dtype, gather(given.y, 1, P * r.directions()));
    incoming.h_n = keep(case_.dtype, given.h_n), incoming.c_n = keep(case_.cell_dtype, given.c_n);
    if (case_.with_states) {
      incoming.h_all = keep(case_.dtype, gather(given.h_all, cells, P));
      incoming.c_all = keep(case_.cell_dtype, gather(given.c_all, cells, H));
    }
    const Buffer x(rows * r.input * size), h0(cells * B * P * size), c0(cells * B * H * cell_size);
    std::vector<LstmWeightGradients> to(cells);
    std::vector<std::vector<Buffer*>> buffers(cells);
    const auto make = [&](std::size_t n, std::size_t count) {
      memory_.push_back(std::make_unique<Buffer>(count * size));
      buffers[n].push_back(memory_.back().get());
      return memory_.back()->data();
    };
    for (std::size_t n = 0; n < cells; ++n) {
      const reference::Weights& w = case_.inputs.weights[n];
      to[n].ih = make(n, w.ih.size()), to[n].hh = make(n, w.hh.size()), to[n].bias = make(n, w.bias.size());
      if (!w.hr.empty()) to[n].hr = make(n, w.hr.size());
      if (r.layer_norm) {
        to[n].ln_ih = make(n, 4 * H), to[n].ln_hh = make(n, 4 * H);
        to[n].ln_cell = make(n, H), to[n].ln_cell_bias = make(n, H);
      }
    }
    LstmGradients gradients{x.data(), h0.data(), c0.data(), to.data()};
    if (spends_tape) gradients.spent_tape = const_cast<void*>(kept.tape);
    const std::size_t bytes = lstm_backward_workspace_bytes(problem_, gradients, execution_);
    const Buffer workspace(bytes);
    result.status = lstm_backward(problem_, kept, incoming, gradients, {workspace.data(), bytes}, execution_);
    if (!result.status.ok()) return;
    result.gradients.x = spread(take(result, case_.dtype, x, rows * r.input), 1, r.input);
    result.gradients.h0 = take(result, case_.dtype, h0, cells * B * P);
    result.gradients.c0 = take(result, case_.cell_dtype, c0, cells * B * H);
    for (std::size_t n = 0; n < cells; ++n) {
      const reference::Weights& w = case_.inputs.weights[n];
      auto next = buffers[n].begin();
      const auto read = [&](std::size_t count) { return take(result, case_.dtype, **next++, count); };
      reference::Weights g;
      g.ih = read(w.ih.size()), g.hh = read(w.hh.size()), g.bias = read(w.bias.size());
      if (!w.hr.empty()) g.hr = read(w.hr.size());
      if (r.layer_norm) {
        g.ln_ih = read(4 * H), g.ln_hh = read(4 * H);
        g.ln_cell = read(H), g.ln_cell_bias = read(H);
      }
      result.gradients.weights.push_back(g);
    }
  }

  static std::vector<double> take(LstmRun& result, DType dtype, const Buffer& buffer, std::size_t count) {
    const auto bytes = buffer.template read<unsigned char>(count * size_of(dtype));
    result.bits.insert(result.bits.end(), bytes.begin(), bytes.end());
    return values_of(dtype, bytes);
  }
  // From (cells, rows in memory, width) to (cells, T, B, width) and back. What packed rows leave out is 0.
  [[nodiscard]] std::vector<double> spread(const std::vector<double>& v, std::size_t cells,
                                           std::size_t width) const {
    const std::size_t all = static_cast<std::size_t>(case_.problem.steps) * case_.problem.batch;
    std::vector<double> to(cells * all * width, 0.0);
    for (std::size_t n = 0; n < v.size(); ++n) {
      const std::size_t cell = n / (rows_.size() * width), row = n / width % rows_.size();
      to[(cell * all + rows_[row]) * width + n % width] = v[n];
    }
    return to;
  }
  [[nodiscard]] std::vector<double> gather(const std::vector<double>& v, std::size_t cells,
                                           std::size_t width) const {
    const std::size_t all = static_cast<std::size_t>(case_.problem.steps) * case_.problem.batch;
    std::vector<double> to(cells * rows_.size() * width);
    for (std::size_t n = 0; n < to.size(); ++n) {
      const std::size_t cell = n / (rows_.size() * width), row = n / width % rows_.size();
      to[n] = v[(cell * all + rows_[row]) * width + n % width];
    }
    return to;
  }
  template <class T>
  const T* keep(const std::vector<T>& values) {
    memory_.push_back(std::make_unique<Buffer>(values));
    return static_cast<const T*>(memory_.back()->data());
  }
  const void* keep(DType dtype, const std::vector<double>& values) { return keep(bytes_of(dtype, values)); }

  const LstmCase& case_;
  const Execution execution_;
  const std::vector<int> rows_;
  LstmProblem problem_;
  std::vector<std::unique_ptr<Buffer>> memory_;
  std::vector<LstmWeights> weights_;
  std::vector<std::int32_t> starts_, lengths_;
  std::vector<std::uint8_t> resets_;
};

// On the CPU.
class LstmRunner : public LstmRunnerIn<HostBuffer> {
 public:
  explicit LstmRunner(const LstmCase& given, ParallelFor parallel_for = {})
      : LstmRunnerIn(given, Execution::host(parallel_for)) {}
};

inline double relative_error(const std::vector<double>& is, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    difference += (is[n] - expected[n]) * (is[n] - expected[n]);
    norm += expected[n] * expected[n];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

// name -> (values, expected) of all results.
template <class Body>
void for_results(const LstmRun& run, const reference::Outputs& out, const reference::Gradients& g,
                 bool states, const Body& body) {
  body("y", run.out.y, out.y);
  body("h_n", run.out.h_n, out.h_n);
  body("c_n", run.out.c_n, out.c_n);
  if (states) body("h_all", run.out.h_all, out.h_all), body("c_all", run.out.c_all, out.c_all);
  body("gx", run.gradients.x, g.x);
  body("gh0", run.gradients.h0, g.h0);
  body("gc0", run.gradients.c0, g.c0);
  for (std::size_t n = 0; n < g.weights.size(); ++n) {
    const reference::Weights &is = run.gradients.weights[n], &w = g.weights[n];
    body("gw", is.ih, w.ih);
    body("gr", is.hh, w.hh);
    body("gb", is.bias, w.bias);
    body("ghr", is.hr, w.hr);
    body("gln_ih", is.ln_ih, w.ln_ih);
    body("gln_hh", is.ln_hh, w.ln_hh);
    body("gln_c", is.ln_cell, w.ln_cell);
    body("gln_cb", is.ln_cell_bias, w.ln_cell_bias);
  }
}

// Every result's relative L2 error is at most `tolerance`.
inline void expect_close(const LstmCase& given, const LstmRun& run, double tolerance) {
  ASSERT_TRUE(run.status.ok()) << to_string(run.status);
  for_results(run, reference::forward(given.problem, given.inputs),
              reference::backward(given.problem, given.inputs, given.incoming), given.with_states,
              [&](const char* name, const std::vector<double>& is, const std::vector<double>& expected) {
                ASSERT_EQ(is.size(), expected.size()) << name;
                EXPECT_LE(relative_error(is, expected), tolerance) << name;
              });
}

// y and dx have the same bits in both runs, in rows whose numbers in the batch are even. output, input: the
// widths of a row of y and of x.
inline void expect_same_bits_in_even_rows(const LstmRun& one, const LstmRun& two, int batch, int output,
                                          int input) {
  ASSERT_TRUE(one.status.ok() && two.status.ok());
  const auto compare = [batch](const char* name, const std::vector<double>& a, const std::vector<double>& b,
                               int width) {
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t n = 0; n < a.size(); ++n) {
      if (n / width % batch % 2 == 1) continue;
      ASSERT_EQ(a[n], b[n]) << name << " " << n;
    }
  };
  compare("y", one.out.y, two.out.y, output);
  compare("gx", one.gradients.x, two.gradients.x, input);
}

class RecurrentPath : public OnEveryPath {};

}  // namespace warpalign::test
