// Steps of beam search on every path: a search is compared, step for step, with one in float64 that keeps
// whole label sequences. The scores of each hypothesis are made up from its labels and its frame.
#include <map>
#include <optional>

#include "decode.h"

namespace warpalign::test {
namespace {

// One utterance's hypothesis, with its labels.
struct Hypothesis {
  int frame = 0;
  int symbols = 0;
  std::vector<int> labels;
  double log_prob = 0;
};

// Scores (columns,) of some labels at a frame: numbers that only look random. Some are -inf.
std::vector<double> scores_of(const std::vector<int>& labels, int frame, int columns, unsigned seed) {
  for (const int label : labels) seed = seed * 1664525U + static_cast<unsigned>(label) + 1013904223U;
  std::mt19937 random(seed * 31U + static_cast<unsigned>(frame));
  std::vector<double> x(columns);
  // Float32 holds them.
  for (double& v : x) v = static_cast<double>(static_cast<int>(random() % 4096) - 2048) / 512;
  if (random() % 4 == 0) x[random() % columns] = -kInf;
  return x;
}

void log_softmax(double* x, int count) {
  const double top = *std::max_element(x, x + count);
  double sum = 0;
  for (int k = 0; k < count; ++k) sum += std::exp(x[k] - top);
  for (int k = 0; k < count; ++k) x[k] -= top + std::log(sum);
}

// All that hypotheses of the earliest frame become, merged: the `keep` best at later frames, and those of the
// `keep` best at this one that are better than all of them, if they are so many.
std::vector<Hypothesis> step_reference(const std::vector<Hypothesis>& pool, const TransducerDecoding& d,
                                       int length, int keep, bool sum, unsigned seed) {
  std::optional<int> earliest;
  for (const Hypothesis& h : pool) {
    if (h.frame < length) earliest = earliest ? std::min(*earliest, h.frame) : h.frame;
  }
  std::map<std::pair<std::vector<int>, int>, Hypothesis> merged;
  const auto add = [&](const Hypothesis& h) {
    if (!(h.log_prob > -kInf)) return;
    const auto [place, is_new] = merged.try_emplace({h.labels, h.frame}, h);
    if (is_new) return;
    double& total = place->second.log_prob;
    const double high = std::max(total, h.log_prob), low = std::min(total, h.log_prob);
    total = sum ? high + std::log1p(std::exp(low - high)) : high;
  };
  for (const Hypothesis& h : pool) {
    if (!earliest || h.frame != *earliest) {
      add(h);
      continue;
    }
    const int columns = d.labels + (d.tdt ? d.durations : 0);
    std::vector<double> x = scores_of(h.labels, h.frame, columns, seed);
    log_softmax(x.data(), d.labels);
    if (d.tdt) log_softmax(x.data() + d.labels, d.durations);
    const auto big_blank = [&](int k) {
      for (int i = 0; !d.tdt && i < d.durations; ++i) {
        if (k == d.big_blank_column[i]) return d.duration[i];
      }
      return 0;
    };
    for (int k = 0; k < d.labels; ++k) {
      const int big = big_blank(k);
      const bool is_blank = k == d.blank || big > 0;
      int better = 0;  // labels
      for (int other = 0; other < d.labels; ++other) {
        if (other == d.blank || big_blank(other) > 0) continue;
        better += x[other] > x[k] || (x[other] == x[k] && other < k) ? 1 : 0;
      }
      if (!is_blank && better >= keep) continue;
      for (int i = 0; i < (d.tdt ? d.durations : 1); ++i) {
        Hypothesis next = h;
        const int frames = d.tdt ? d.duration[i] : big > 0 ? big : is_blank ? 1 : 0;
        if (is_blank && frames == 0) continue;
        next.log_prob += x[k] + (d.tdt ? x[d.labels + i] : 0);
        next.frame += frames;
        next.symbols = is_blank || frames > 0 ? 0 : next.symbols + 1;
        if (next.symbols == d.max_symbols) ++next.frame, next.symbols = 0;
        if (!is_blank) next.labels.push_back(k);
        add(next);
      }
    }
  }
  std::vector<Hypothesis> all;
  for (const auto& [key, h] : merged) all.push_back(h);
  std::stable_sort(all.begin(), all.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.log_prob > b.log_prob; });
  std::vector<Hypothesis> later, here;
  for (const Hypothesis& h : all) (earliest && h.frame == *earliest ? here : later).push_back(h);
  if (static_cast<int>(later.size()) > keep) later.resize(keep);
  const bool is_full = static_cast<int>(later.size()) == keep;
  const double least = is_full ? later.back().log_prob : -kInf;
  for (int k = 0; k < std::min<int>(keep, static_cast<int>(here.size())); ++k) {
    if (here[k].log_prob > least) later.push_back(here[k]);
  }
  return later;
}

// The arrays between steps, on the host.
struct Beams {
  int batch, beams, capacity;
  std::vector<TransducerHypothesis> hypothesis;
  std::vector<double> log_prob;
  std::vector<std::uint64_t> hash;
  std::vector<TransducerNode> nodes;
  std::vector<std::int32_t> used, lengths, expand;

  Beams(int b, int k, int steps, int frames)
      : batch(b),
        beams(k),
        capacity(k * steps),
        hypothesis(static_cast<std::size_t>(b) * k, {0, 0, -1, 0}),
        log_prob(static_cast<std::size_t>(b) * k, -kInf),
        hash(static_cast<std::size_t>(b) * k),
        nodes(static_cast<std::size_t>(b) * capacity, {-1, -1, -1, -1}),
        used(b) {
    for (int i = 0; i < b; ++i) {
      log_prob[static_cast<std::size_t>(i) * k] = 0;
      lengths.push_back(frames - 2 * i);
    }
  }

  [[nodiscard]] std::vector<int> labels(int b, int k) const {
    std::vector<int> all;
    for (int node = hypothesis[b * beams + k].node; node >= 0; node = nodes[b * capacity + node].parent) {
      all.push_back(nodes[b * capacity + node].token);
    }
    std::reverse(all.begin(), all.end());
    return all;
  }
};

template <class Buffer, class Real>
void run_step(Beams& s, const TransducerDecoding& d, int frames, bool sum, unsigned seed,
              const Execution& execution) {
  const int columns = d.labels + (d.tdt ? d.durations : 0);
  std::vector<Real> x;
  for (int b = 0; b < s.batch; ++b) {
    for (int k = 0; k < s.beams; ++k) {
      const TransducerHypothesis& h = s.hypothesis[b * s.beams + k];
      for (const double v : scores_of(s.labels(b, k), h.frame, columns, seed + b))
        x.push_back(static_cast<Real>(v));
    }
  }
  const std::size_t count = s.hypothesis.size();
  const Buffer scores(x), hypothesis(s.hypothesis), log_prob(s.log_prob), hash(s.hash), nodes(s.nodes),
      used(s.used), lengths(s.lengths), next_hypothesis(count * sizeof(TransducerHypothesis)),
      next_log_prob(count * 8), next_hash(count * 8), source(count * 4), label(count * 4), expand(count * 4);
  TransducerBeamStep p;
  p.dtype = kDType<Real>;
  p.batch = s.batch;
  p.beams = s.beams;
  p.frames = frames;
  p.lengths = static_cast<const std::int32_t*>(lengths.data());
  p.decoding = d;
  p.sum = sum;
  p.scores = scores.data();
  p.hypothesis = static_cast<const TransducerHypothesis*>(hypothesis.data());
  p.log_prob = static_cast<const double*>(log_prob.data());
  p.hash = static_cast<const std::uint64_t*>(hash.data());
  p.nodes = static_cast<TransducerNode*>(nodes.data());
  p.capacity = s.capacity;
  p.used = static_cast<std::int32_t*>(used.data());
  p.next_hypothesis = static_cast<TransducerHypothesis*>(next_hypothesis.data());
  p.next_log_prob = static_cast<double*>(next_log_prob.data());
  p.next_hash = static_cast<std::uint64_t*>(next_hash.data());
  p.source = static_cast<std::int32_t*>(source.data());
  p.label = static_cast<std::int32_t*>(label.data());
  p.expand = static_cast<std::int32_t*>(expand.data());
  call_with_workspace<Buffer>([&] { return transducer_beam_step_workspace_bytes(p, execution); },
                              [&](Workspace w) { return transducer_beam_step(p, w, execution); });
  const Beams before = s;
  s.hypothesis = next_hypothesis.template read<TransducerHypothesis>(count);
  s.log_prob = next_log_prob.template read<double>(count);
  s.hash = next_hash.template read<std::uint64_t>(count);
  s.nodes = nodes.template read<TransducerNode>(s.nodes.size());
  s.used = used.template read<std::int32_t>(s.used.size());
  s.expand = expand.template read<std::int32_t>(count);
  const auto sources = source.template read<std::int32_t>(count),
             labels = label.template read<std::int32_t>(count);
  // A new hypothesis is the one that it comes from, with its label.
  for (int b = 0; b < s.batch; ++b) {
    for (int k = 0; k < s.beams; ++k) {
      if (!(s.log_prob[b * s.beams + k] > -kInf)) continue;
      std::vector<int> expected = before.labels(b, sources[b * s.beams + k]);
      if (labels[b * s.beams + k] >= 0) expected.push_back(labels[b * s.beams + k]);
      EXPECT_EQ(s.labels(b, k), expected);
    }
  }
}

class TransducerBeam : public OnEveryPath {
 protected:
  template <class Real>
  static void step(Beams& s, const TransducerDecoding& d, int frames, bool sum, unsigned seed) {
#if WARPALIGN_TEST_CUDA
    if (GetParam().cuda)
      return run_step<DeviceBuffer, Real>(s, d, frames, sum, seed, Execution::cuda(0, nullptr));
#endif
    run_step<HostBuffer, Real>(s, d, frames, sum, seed, Execution::host());
  }
};

void expect_pool(const Beams& s, int b, const std::vector<Hypothesis>& expected, int length,
                 double tolerance) {
  int earliest = length;
  for (const Hypothesis& h : expected) earliest = std::min(earliest, h.frame);
  auto next = expected.begin();  // living ones stand in this order
  for (int k = 0; k < s.beams; ++k) {
    const int n = b * s.beams + k;
    if (!(s.log_prob[n] > -kInf)) {
      EXPECT_EQ(s.expand[n], -1);
      continue;
    }
    ASSERT_NE(next, expected.end());
    const Hypothesis& h = *next++;
    ASSERT_EQ(s.labels(b, k), h.labels) << b << ", " << k;
    ASSERT_NEAR(s.log_prob[n], h.log_prob, tolerance) << b << ", " << k;
    EXPECT_EQ(s.hypothesis[n].frame, h.frame);
    EXPECT_EQ(s.hypothesis[n].symbols, h.symbols);
    EXPECT_EQ(s.hypothesis[n].length, static_cast<int>(h.labels.size()));
    EXPECT_EQ(s.expand[n], h.frame == earliest && h.frame < length ? h.frame : -1);
  }
  EXPECT_EQ(next, expected.end());
}

template <class Real, class Step>
void search(int kind, int labels, int keep, bool sum, const Step& step) {
  TransducerDecoding d = decoding(kind, labels);
  d.max_symbols = 2;
  constexpr int kFrames = 7, kSteps = 24, kBatch = 3;
  const auto seed = static_cast<unsigned>(1000 * kind + 10 * labels + keep);
  Beams s(kBatch, 2 * keep, kSteps, kFrames);
  std::vector<std::vector<Hypothesis>> expected(kBatch, std::vector<Hypothesis>(1));
  for (int n = 0; n < kSteps; ++n) {
    step(s, d, kFrames, sum, seed);
    for (int b = 0; b < kBatch; ++b) {
      expected[b] = step_reference(expected[b], d, s.lengths[b], keep, sum, seed + b);
      // Sums of some ten log-probabilities of some units, each rounded once or twice.
      expect_pool(s, b, expected[b], s.lengths[b], sizeof(Real) == 4 ? 2e-4 : 1e-12);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(TransducerBeam, AStepIsTheDefinition) {
  int number = 0;
  for (int kind = 0; kind < 3; ++kind) {
    for (const int labels : {2, 5, 33, 130}) {
      for (const int keep : {1, 2, 4, 16}) {
        for (const bool sum : {true, false}) {
          if (number++ % kThinning != 0 && GetParam().cuda) continue;
          SCOPED_TRACE(::testing::Message() << kind << ", " << labels << ", " << keep << ", " << sum);
          search<double>(kind, labels, keep, sum, [](auto&... arguments) { step<double>(arguments...); });
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(TransducerBeam, Float32) {
  for (int kind = 0; kind < 3; ++kind) {
    search<float>(kind, 33, 3, true, [](auto&... arguments) { step<float>(arguments...); });
  }
}

WARPALIGN_FOR_EVERY(TransducerBeam, all_paths);

}  // namespace
}  // namespace warpalign::test
