// Decoding on any device, and the same in float64 from the definition.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "host_buffer.h"
#include "paths.h"
#include "values.h"
#include "warpalign/transducer_decode.h"

namespace warpalign::test {

// A joint network, encoder rows, and predictor rows by (hypothesis, last label + 1).
template <class Real>
struct DecodeCase {
  int batch = 1, beams = 1, frames = 0, hidden = 1, columns = 1;
  Activation activation = Activation::kRelu;
  std::vector<Real> encoder, predictor, weight, bias;
  std::vector<std::int32_t> lengths;

  DecodeCase(int b, int k, int t, int h, int c, unsigned seed)
      : batch(b), beams(k), frames(t), hidden(h), columns(c) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<Real>& to, std::size_t count) {
      to.resize(count);
      for (Real& v : to) v = static_cast<Real>(normal(random));
    };
    fill(encoder, static_cast<std::size_t>(b) * t * h);
    fill(predictor, static_cast<std::size_t>(b) * k * h);
    fill(weight, static_cast<std::size_t>(c) * h);
    fill(bias, c);
    for (int i = 0; i < b; ++i) lengths.push_back(t - static_cast<int>(random() % (t + 1)) / (i % 2 + 1));
    // Padding is never read.
    for (int i = 0; i < b; ++i) {
      const auto begin = encoder.begin() + (static_cast<std::ptrdiff_t>(i) * t + lengths[i]) * h;
      std::fill(begin, encoder.begin() + static_cast<std::ptrdiff_t>(i + 1) * t * h, static_cast<Real>(kNan));
    }
  }

  [[nodiscard]] std::vector<double> scores(int b, int t, const Real* row) const {
    std::vector<double> out(columns);
    for (int c = 0; c < columns; ++c) {
      out[c] = bias.empty() ? 0.0 : bias[c];
      for (int j = 0; j < hidden; ++j) {
        // The sum is made in the type of the numbers.
        const double sum = encoder[(static_cast<std::size_t>(b) * frames + t) * hidden + j] + row[j];
        out[c] += weight[static_cast<std::size_t>(c) * hidden + j] *
                  (activation == Activation::kTanh ? std::tanh(sum) : std::max(sum, 0.0));
      }
    }
    return out;
  }
};

// The arrays of a call that do not change from step to step.
template <class Buffer, class Real>
struct DecodeMemory {
  const DecodeCase<Real>& c;
  Buffer encoder, weight, bias, lengths;

  explicit DecodeMemory(const DecodeCase<Real>& from)
      : c(from), encoder(from.encoder), weight(from.weight), bias(from.bias), lengths(from.lengths) {}

  [[nodiscard]] TransducerJoint joint(const Buffer& predictor) const {
    TransducerJoint j;
    j.hidden = c.hidden;
    j.encoder = StridedTensor::contiguous(encoder.data(), {c.batch, c.frames, c.hidden});
    j.predictor = predictor.data();
    j.weight = weight.data();
    j.bias = c.bias.empty() ? nullptr : bias.data();
    j.activation = c.activation;
    return j;
  }
};

template <class Buffer, class Call, class Bytes>
void call_with_workspace(const Bytes& bytes, const Call& call) {
  const std::size_t needed = bytes();
  const Buffer workspace(needed);
  const Status status = call(Workspace{workspace.data(), needed});
  ASSERT_TRUE(status.ok()) << to_string(status);
}

template <class Buffer, class Real>
std::vector<Real> run_scores(const DecodeCase<Real>& c, const std::vector<std::int32_t>& frame, int window,
                             const Execution& execution) {
  const DecodeMemory<Buffer, Real> memory(c);
  const Buffer predictor(c.predictor), at(frame);
  const std::size_t count = static_cast<std::size_t>(c.batch) * c.beams * window * c.columns;
  const Buffer out(count * sizeof(Real));
  TransducerScores p;
  p.dtype = kDType<Real>;
  p.batch = c.batch;
  p.beams = c.beams;
  p.frames = c.frames;
  p.window = window;
  p.columns = c.columns;
  p.lengths = static_cast<const std::int32_t*>(memory.lengths.data());
  p.frame = static_cast<const std::int32_t*>(at.data());
  p.joint = memory.joint(predictor);
  p.scores = out.data();
  call_with_workspace<Buffer>([&] { return transducer_scores_workspace_bytes(p, execution); },
                              [&](Workspace w) { return transducer_scores(p, w, execution); });
  return out.template read<Real>(count);
}

// What a search finds.
struct Found {
  std::vector<int> labels, frames, durations;
  double log_prob = 0;
  int end = 0;

  bool operator==(const Found&) const = default;
};

// The predictor of these tests: the row of the last label, or the last row before the first one.
template <class Real>
const Real* row_of(const std::vector<Real>& table, int hidden, int rows, int label) {
  return table.data() + static_cast<std::size_t>(label < 0 ? rows - 1 : label) * hidden;
}

template <class Real>
std::vector<Found> greedy_reference(const DecodeCase<Real>& c, const TransducerDecoding& d,
                                    const std::vector<Real>& table) {
  std::vector<Found> all(c.batch);
  const auto log_softmax = [](std::vector<double> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double v : x) sum += std::exp(v - top);
    for (double& v : x) v -= top + std::log(sum);
    return x;
  };
  for (int b = 0; b < c.batch; ++b) {
    Found& found = all[b];
    int symbols = 0;
    while (found.end < c.lengths[b]) {
      const int last = found.labels.empty() ? -1 : found.labels.back();
      const std::vector<double> x = c.scores(b, found.end, row_of(table, c.hidden, d.labels + 1, last));
      const auto lp = log_softmax({x.begin(), x.begin() + d.labels});
      const int k = static_cast<int>(std::max_element(lp.begin(), lp.end()) - lp.begin());
      found.log_prob += lp[k];
      int frames = k == d.blank ? 1 : 0;
      bool is_blank = k == d.blank;
      for (int i = 0; !d.tdt && i < d.durations; ++i) {
        if (k == d.big_blank_column[i]) frames = d.duration[i], is_blank = true;
      }
      if (d.tdt) {
        const auto q = log_softmax({x.begin() + d.labels, x.end()});
        int best = -1;
        for (int i = 0; i < d.durations; ++i) {
          if ((!is_blank || d.duration[i] > 0) && (best < 0 || q[i] > q[best])) best = i;
        }
        frames = d.duration[best];
        found.log_prob += q[best];
      }
      if (!is_blank) {
        found.labels.push_back(k);
        found.frames.push_back(found.end);
        found.durations.push_back(frames);
      }
      symbols = is_blank || frames > 0 ? 0 : symbols + 1;
      found.end += frames;
      if (symbols == d.max_symbols) ++found.end, symbols = 0;
    }
  }
  return all;
}

// Steps until all have ended. by_scores: transducer_scores() makes what a step takes.
template <class Buffer, class Real>
std::vector<Found> run_greedy(const DecodeCase<Real>& c, const TransducerDecoding& d,
                              const std::vector<Real>& table, int window, bool by_scores,
                              const Execution& execution) {
  const DecodeMemory<Buffer, Real> memory(c);
  std::vector<TransducerWalk> walk(c.batch, TransducerWalk{0, 0, -1, -1, 0});
  std::vector<double> log_prob(c.batch, 0.0);
  std::vector<Found> all(c.batch);
  std::vector<Real> rows;
  for (int b = 0; b < c.batch; ++b) {
    const Real* const row = row_of(table, c.hidden, d.labels + 1, -1);
    rows.insert(rows.end(), row, row + c.hidden);
  }
  for (int step = 0; step <= c.frames * (d.max_symbols + 1); ++step) {
    const Buffer predictor(rows), before(walk), before_log_prob(log_prob);
    const Buffer after(walk.size() * sizeof(TransducerWalk)),
        after_log_prob(log_prob.size() * sizeof(double)), token(c.batch * sizeof(std::int64_t)),
        found(c.batch);
    TransducerGreedyStep p;
    p.dtype = kDType<Real>;
    p.batch = c.batch;
    p.frames = c.frames;
    p.window = window;
    p.lengths = static_cast<const std::int32_t*>(memory.lengths.data());
    p.decoding = d;
    p.joint = memory.joint(predictor);
    p.walk = static_cast<const TransducerWalk*>(before.data());
    p.log_prob = static_cast<const double*>(before_log_prob.data());
    p.next_walk = static_cast<TransducerWalk*>(after.data());
    p.next_log_prob = static_cast<double*>(after_log_prob.data());
    p.token = static_cast<std::int64_t*>(token.data());
    p.found = static_cast<bool*>(found.data());
    std::vector<Real> scores(1);
    if (by_scores) {
      DecodeCase<Real> now = c;
      now.predictor = rows;
      std::vector<std::int32_t> frame;
      for (const TransducerWalk& w : walk) frame.push_back(w.frame);
      scores = run_scores<Buffer, Real>(now, frame, window, execution);
    }
    const Buffer given(scores);
    if (by_scores) p.scores = given.data();
    call_with_workspace<Buffer>([&] { return transducer_greedy_step_workspace_bytes(p, execution); },
                                [&](Workspace w) { return transducer_greedy_step(p, w, execution); });
    walk = after.template read<TransducerWalk>(walk.size());
    log_prob = after_log_prob.template read<double>(log_prob.size());
    const auto tokens = token.template read<std::int64_t>(c.batch);
    const auto has_label = found.template read<unsigned char>(c.batch);
    bool ended = true;
    for (int b = 0; b < c.batch; ++b) {
      ended &= walk[b].frame >= c.lengths[b];
      all[b].end = walk[b].frame;
      all[b].log_prob = log_prob[b];
      EXPECT_EQ(has_label[b], walk[b].label >= 0 ? 1 : 0);
      EXPECT_EQ(tokens[b], std::max(walk[b].label, 0));
      if (walk[b].label < 0) continue;
      all[b].labels.push_back(walk[b].label);
      all[b].frames.push_back(walk[b].label_frame);
      all[b].durations.push_back(walk[b].label_duration);
      const Real* const row = row_of(table, c.hidden, d.labels + 1, walk[b].label);
      std::copy(row, row + c.hidden, rows.begin() + static_cast<std::ptrdiff_t>(b) * c.hidden);
    }
    if (ended) return all;
  }
  ADD_FAILURE() << "the search has not ended";
  return all;
}

inline TransducerDecoding decoding(int kind, int labels) {
  TransducerDecoding d;
  d.labels = labels;
  d.blank = labels - 1;
  d.max_symbols = 3;
  if (kind == 1 && labels > 4) {
    d.durations = 2;
    d.duration[0] = 2, d.duration[1] = 5;
    d.big_blank_column[0] = labels - 2, d.big_blank_column[1] = labels - 3;
  } else if (kind == 2) {
    d.tdt = true;
    d.durations = 4;
    for (int i = 0; i < 4; ++i) d.duration[i] = i * (i + 1) / 2;
  }
  return d;
}

}  // namespace warpalign::test
