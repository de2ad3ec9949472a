// Decoding on every path against the float64 reference: of all prefixes where they are few, of a beam, of
// streams, and with label scores.
#include <functional>
#include <thread>
#include <utility>

#include "ctc/reference_decode.h"
#include "fixture.h"
#include "warpalign/ctc_decode.h"

namespace warpalign::test {
namespace {

using reference::CtcPrefix;

#if WARPALIGN_SIMT
constexpr int kThinning = 3;  // every third problem in the emulator
#else
constexpr int kThinning = 1;
#endif

// Its members are initialised here for g++, which otherwise asks every initialiser list for them.
// NOLINTBEGIN(readability-redundant-member-init)
struct Search {
  int beams = 1;
  double threshold = kInf;
  std::vector<int> chunks = {};       // frames of each call; empty: all in one
  reference::LabelScores added = {};  // then every call has a frame
};
// NOLINTEND(readability-redundant-member-init)

struct Found {
  std::vector<CtcPrefix> prefixes;
  std::vector<unsigned char> bits;  // of all hypotheses
};

void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.argument ? status.argument : "") << ": "
                           << (status.message ? status.message : "") << " " << status.value;
}

// Labels that the places of an utterance have, in the steps of a search.
using Sequences = std::vector<std::vector<int>>;

template <class Buffer>
class Stream {
 public:
  Stream(const CtcBatch& batch, const Search& search, const Execution& execution)
      : batch_(batch),
        search_(search),
        execution_(execution),
        memory_(batch),
        places_(static_cast<std::size_t>(batch.size()) * search.beams),
        nodes_(places_ * batch.frames * sizeof(CtcNode)),
        hypotheses_{Buffer(places_ * sizeof(CtcHypothesis)), Buffer(places_ * sizeof(CtcHypothesis))},
        frames_{Buffer(batch.size() * 4), Buffer(batch.size() * 4)},
        source_(places_ * 4),
        label_(places_ * 4),
        sequences_(places_) {}

  std::vector<Found> run() {
    std::vector<int> chunks = search_.chunks;
    if (search_.added) chunks.assign(batch_.frames, 1);
    if (chunks.empty()) chunks.push_back(batch_.frames);
    int begin = 0;
    for (const int count : chunks) {
      step(begin, count);
      begin += count;
    }
    return read();
  }

 private:
  void step(int begin, int count) {
    CtcProblem p = memory_.problem;
    const auto& stride = memory_.stride();
    p.frames = count;
    p.logits.data =
        static_cast<const unsigned char*>(p.logits.data) + begin * stride[1] * size_of(batch_.dtype);
    std::vector<std::int32_t> lengths;
    lengths.reserve(batch_.size());
    for (const Ctc& one : batch_.utterances) lengths.push_back(std::clamp(one.frames - begin, 0, count));
    const Buffer length(lengths);
    p.logit_lengths = static_cast<const std::int32_t*>(length.data());
    CtcBeam beam;
    beam.beams = search_.beams;
    beam.threshold = search_.threshold;
    if (calls_ > 0) {
      beam.before = static_cast<const CtcHypothesis*>(hypotheses_[calls_ % 2].data());
      beam.frames_before = static_cast<const std::int32_t*>(frames_[calls_ % 2].data());
    }
    beam.nodes = static_cast<CtcNode*>(nodes_.data());
    beam.capacity = batch_.frames;
    beam.after = static_cast<CtcHypothesis*>(hypotheses_[(calls_ + 1) % 2].data());
    beam.frames_after = static_cast<std::int32_t*>(frames_[(calls_ + 1) % 2].data());
    beam.source = static_cast<std::int32_t*>(source_.data());
    beam.label = static_cast<std::int32_t*>(label_.data());
    const Buffer scores(search_.added ? label_scores() : std::vector<unsigned char>());
    if (search_.added) beam.label_scores = scores.data();
    const std::size_t needed = ctc_beam_workspace_bytes(p, beam, execution_);
    const Buffer workspace(needed);
    expect_ok(ctc_beam(p, beam, {workspace.data(), needed}, execution_));
    ++calls_;
    if (!search_.added) return;
    const auto source = source_.template read<std::int32_t>(places_);
    const auto label = label_.template read<std::int32_t>(places_);
    Sequences next;
    for (std::size_t at = 0; at < places_; ++at) {
      next.push_back(sequences_[at / search_.beams * search_.beams + source[at]]);
      if (label[at] >= 0) next.back().push_back(label[at]);
    }
    sequences_ = std::move(next);
  }

  [[nodiscard]] std::vector<unsigned char> label_scores() const {
    const DType real = batch_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    std::vector<unsigned char> bytes(places_ * batch_.classes() * size_of(real));
    for (std::size_t at = 0; at < places_; ++at) {
      for (int c = 0; c < batch_.classes(); ++c) {
        write_element(real, &bytes[(at * batch_.classes() + c) * size_of(real)],
                      search_.added(sequences_[at], c));
      }
    }
    return bytes;
  }

  [[nodiscard]] std::vector<Found> read() const {
    const int n_best = search_.beams, longest = batch_.frames;
    const Buffer tokens(places_ * longest * 8), frames(places_ * longest * 8), lengths(places_ * 8),
        scores(places_ * 8);
    const Buffer& last = hypotheses_[calls_ % 2];
    CtcBeamLabels p;
    p.batch = batch_.size();
    p.beams = search_.beams;
    p.n_best = n_best;
    p.hypotheses = static_cast<const CtcHypothesis*>(last.data());
    p.nodes = static_cast<const CtcNode*>(nodes_.data());
    p.capacity = batch_.frames;
    p.longest = longest;
    p.tokens = static_cast<std::int64_t*>(tokens.data());
    p.token_frames = static_cast<std::int64_t*>(frames.data());
    p.lengths = static_cast<std::int64_t*>(lengths.data());
    p.scores = static_cast<double*>(scores.data());
    expect_ok(ctc_beam_labels(p, execution_));
    const auto token = tokens.template read<std::int64_t>(places_ * longest);
    const auto frame = frames.template read<std::int64_t>(places_ * longest);
    const auto length = lengths.template read<std::int64_t>(places_);
    const auto score = scores.template read<double>(places_);
    const auto all = last.template read<unsigned char>(places_ * sizeof(CtcHypothesis));
    std::vector<Found> found(batch_.size());
    for (std::size_t at = 0; at < places_; ++at) {
      Found& to = found[at / search_.beams];
      const auto* const one = &all[at * sizeof(CtcHypothesis)];
      to.bits.insert(to.bits.end(), one, one + sizeof(CtcHypothesis));
      for (int k = static_cast<int>(length[at]); k < longest; ++k) {
        EXPECT_EQ(token[at * longest + k], -1);
        EXPECT_EQ(frame[at * longest + k], -1);
      }
      if (score[at] == -kInf) {
        EXPECT_EQ(length[at], 0);
        continue;
      }
      const auto first = static_cast<std::ptrdiff_t>(at) * longest;
      to.prefixes.push_back({{token.begin() + first, token.begin() + first + length[at]},
                             score[at],
                             {frame.begin() + first, frame.begin() + first + length[at]}});
      if (search_.added) {
        EXPECT_EQ(to.prefixes.back().labels, sequences_[at]);
      }
    }
    return found;
  }

  const CtcBatch& batch_;
  const Search& search_;
  const Execution execution_;
  const CtcMemory<Buffer> memory_;
  const std::size_t places_;
  const Buffer nodes_;
  const Buffer hypotheses_[2], frames_[2];
  const Buffer source_, label_;
  Sequences sequences_;
  int calls_ = 0;
};

std::vector<Found> search(const CtcBatch& batch, const Search& options, ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
  if (on_cuda()) return Stream<DeviceBuffer>(batch, options, Execution::cuda(0, nullptr)).run();
#endif
  return Stream<HostBuffer>(batch, options, Execution::host(parallel_for)).run();
}

// Logits of another kind than N(0, 1): rare labels, ties of classes, classes that cannot be emitted.
std::vector<double> frames_of(const Ctc& one, std::mt19937& random, int kind) {
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<std::size_t>(one.frames) * one.classes);
  for (std::size_t k = 0; k < x.size(); ++k) {
    const int c = static_cast<int>(k) % one.classes;
    x[k] = 2 * normal(random) - (one.log_probs ? 3 : 0);
    if (kind == 1 && c == one.blank) x[k] += 4;
    // Pairs of equal labels. A label that is equal to blank would make prefixes equal but for rounding.
    if (kind == 2 && c % 2 == 1 && c != one.blank && c - 1 != one.blank) x[k] = x[k - 1];
    if (kind == 3 && random() % 4 == 0) x[k] = -kInf;
  }
  return x;
}

// Scores: sums of T frames, each rounded in the reals of dtype.
void expect_equal(const CtcBatch& batch, int b, const std::vector<CtcPrefix>& got,
                  const std::vector<CtcPrefix>& wanted) {
  SCOPED_TRACE("utterance " + std::to_string(b));
  const double epsilon = batch.dtype == DType::kFloat64 ? 0x1p-50 : 0x1p-22;
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    SCOPED_TRACE("place " + std::to_string(n));
    const double bound = epsilon * (batch.utterances[b].frames + 4 + std::abs(wanted[n].score));
    EXPECT_NEAR(got[n].score, wanted[n].score, bound);
    ASSERT_EQ(got[n].labels, wanted[n].labels);
    EXPECT_EQ(got[n].frames, wanted[n].frames);
  }
}

void check(const CtcBatch& batch, const Search& options) {
  const std::vector<Found> found = search(batch, options);
  for (int b = 0; b < batch.size(); ++b) {
    expect_equal(batch, b, found[b].prefixes,
                 reference::ctc_beam(batch.utterances[b], batch.logits[b], options.beams, options.threshold,
                                     options.added));
  }
}

using CtcDecode = CtcPath;
WARPALIGN_FOR_EVERY(CtcDecode, all_paths);

TEST_P(CtcDecode, AWideBeamHoldsEveryPrefix) {
  std::mt19937 random(1);
  for (int n = 0; n < 24 / kThinning; ++n) {
    SCOPED_TRACE(n);
    CtcBatch batch;
    batch.dtype = n % 3 == 1 ? DType::kFloat32 : DType::kFloat64;
    Ctc family;
    family.classes = 2 + n % 3;
    family.blank = n % family.classes;
    for (int b = 0; b < 3; ++b) {
      family.frames = static_cast<int>(random() % 5);
      batch.add(family, frames_of(family, random, n % 2));
    }
    const std::vector<Found> found = search(batch, {.beams = 128});
    for (int b = 0; b < batch.size(); ++b) {
      const auto wanted = reference::ctc_beam(batch.utterances[b], batch.logits[b], 0, kInf);
      ASSERT_LE(wanted.size(), 128U);
      expect_equal(batch, b, found[b].prefixes, wanted);
      double sum = 0;
      for (const CtcPrefix& prefix : found[b].prefixes) {
        sum += std::exp(prefix.score);
        Ctc one = batch.utterances[b];
        one.targets = prefix.labels;
        EXPECT_NEAR(prefix.score, -reference::ctc(one, batch.logits[b]).loss, 1e-5);
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST_P(CtcDecode, BeamsOfEverySizeAndLayout) {
  std::mt19937 random(2);
  const int beams[] = {1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 128};
  const int classes[] = {1, 2, 3, 5, 17, 33, 70, 150};
  int all = 0, n = 0;
  for (const int k : beams) {
    for (const int c : classes) {
      if (all++ % kThinning != 0) continue;
      ++n;
      SCOPED_TRACE("beam " + std::to_string(k) + ", classes " + std::to_string(c));
      CtcBatch batch;
      batch.dtype = DType::kFloat64;
      if (n % 5 == 1) batch.dtype = DType::kFloat32;
      batch.layout = {n % 3 == 1, n % 3 == 2, n % 2 == 1, false, true, false, n % 4};
      Ctc family;
      family.classes = c;
      family.blank = static_cast<int>(random() % static_cast<unsigned>(c));
      family.log_probs = n % 7 == 3;
      const int most = on_cuda() ? 12 : 30;
      for (int b = 0; b < 3; ++b) {
        family.frames = b == 1 ? most : static_cast<int>(random() % static_cast<unsigned>(most));
        const int kind = batch.dtype == DType::kFloat64 ? n % 4 : n % 2;  // float32: no near ties
        batch.add(family, frames_of(family, random, kind));
      }
      check(batch, {.beams = k, .threshold = n % 3 == 0 ? 6.5 : kInf});
    }
  }
}

TEST_P(CtcDecode, TheBestNewPrefixNeedNotHaveTheBestLabel) {
  CtcBatch batch;
  batch.dtype = DType::kFloat64;
  Ctc family;
  family.frames = family.classes = 3;
  family.log_probs = true;
  // "1" ends in blank and in 1 with probability 0.5 each. Then 0.25 go on to "1 1" and 0.26 stay, but 0.49 go
  // on to "1 2".
  std::vector<double> x;
  for (const double p : {0.0, 1.0, 0.0, 0.5, 0.5, 0.0, 0.01, 0.5, 0.49}) x.push_back(std::log(p));
  batch.add(family, x);
  const std::vector<Found> found = search(batch, {.beams = 1});
  ASSERT_EQ(found[0].prefixes.size(), 1U);
  EXPECT_EQ(found[0].prefixes[0].labels, (std::vector<int>{1, 2}));
  EXPECT_NEAR(found[0].prefixes[0].score, std::log(0.49), 1e-12);
  check(batch, {.beams = 1});
}

TEST_P(CtcDecode, HalfTypesAreReadAsTheyAre) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    CtcBatch batch;
    batch.dtype = dtype;
    Ctc family;
    family.classes = 40;
    for (const int frames : {9, 14}) {
      family.frames = frames;
      // Differences of hundredths of the labels' own keep half types from ties.
      std::vector<double> x = frames_of(family, random, 1);
      batch.add(family, std::move(x));
    }
    const std::vector<Found> found = search(batch, {.beams = 4});
    for (int b = 0; b < batch.size(); ++b) {
      const auto wanted = reference::ctc_beam(batch.utterances[b], batch.logits[b], 4, kInf);
      ASSERT_EQ(found[b].prefixes.size(), wanted.size());
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        EXPECT_NEAR(found[b].prefixes[k].score, wanted[k].score, 2e-5);
      }
      EXPECT_EQ(found[b].prefixes[0].labels, wanted[0].labels);
    }
  }
}

TEST_P(CtcDecode, AStreamIsTheWhole) {
  std::mt19937 random(4);
  CtcBatch batch;
  Ctc family;
  family.classes = 12;
  for (const int frames : {20, 13, 0, 7}) {
    family.frames = frames;
    batch.add(family, frames_of(family, random, 1));
  }
  Search options{.beams = 9};
  const std::vector<Found> whole = search(batch, options);
  options.chunks = {3, 1, 0, 9, 7};
  const std::vector<Found> parts = search(batch, options);
  for (int b = 0; b < batch.size(); ++b) EXPECT_EQ(whole[b].bits, parts[b].bits) << b;
}

TEST_P(CtcDecode, LabelScoresCount) {
  std::mt19937 random(5);
  for (const int k : {1, 4, 20, 40}) {
    SCOPED_TRACE(k);
    CtcBatch batch;
    batch.dtype = k == 4 ? DType::kFloat32 : DType::kFloat64;
    Ctc family;
    family.classes = 9;
    family.blank = 3;
    for (const int frames : {8, 5}) {
      family.frames = frames;
      batch.add(family, frames_of(family, random, 0));
    }
    Search options{.beams = k};
    options.added = [](const std::vector<int>& labels, int label) {
      unsigned seed = 7;
      for (const int one : labels) seed = seed * 1664525U + static_cast<unsigned>(one) + 1013904223U;
      std::mt19937 numbers(seed * 31U + static_cast<unsigned>(label));
      const unsigned number = numbers() % 4096;
      return number < 400 ? -kInf : -static_cast<double>(number) / 512;
    };
    check(batch, options);
  }
}

TEST_P(CtcDecode, WhatCannotBeIsToldByScores) {
  CtcBatch batch;
  Ctc family;
  family.classes = 3;
  family.frames = 4;
  const std::vector<double> good(12, 0.5);
  std::vector<double> nan = good, inf = good, none = good;
  nan[7] = std::nan("");
  inf[11] = kInf;
  for (int c = 0; c < 3; ++c) none[3 + c] = -kInf;  // frame 1 has no class
  batch.add(family, nan);
  batch.add(family, good);
  batch.add(family, inf);
  batch.add(family, none);
  Search options{.beams = 5};
  const std::vector<Found> found = search(batch, options);
  ASSERT_EQ(found[0].prefixes.size(), 1U);
  EXPECT_TRUE(std::isnan(found[0].prefixes[0].score) && found[0].prefixes[0].labels.empty());
  EXPECT_EQ(found[1].prefixes.size(), 5U);
  ASSERT_EQ(found[2].prefixes.size(), 1U);
  EXPECT_TRUE(std::isnan(found[2].prefixes[0].score));
  EXPECT_TRUE(found[3].prefixes.empty());
  options.chunks = {3, 1};  // a stream stays NaN
  EXPECT_TRUE(std::isnan(search(batch, options)[0].prefixes.at(0).score));
}

TEST_P(CtcDecode, ThreadsShareUtterances) {
  if (on_cuda()) return;
  std::mt19937 random(6);
  CtcBatch batch;
  Ctc family;
  family.classes = 20;
  for (int b = 0; b < 7; ++b) {
    family.frames = 3 * b;
    batch.add(family, frames_of(family, random, 1));
  }
  ParallelFor parallel_for;
  parallel_for.threads = 3;
  parallel_for.run = [](void*, int count, void (*task)(void*, int), void* state) {
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (int k = 0; k < count; ++k) threads.emplace_back(task, state, k);
    for (std::thread& thread : threads) thread.join();
  };
  const std::vector<Found> alone = search(batch, {.beams = 6}),
                           shared = search(batch, {.beams = 6}, parallel_for);
  for (int b = 0; b < batch.size(); ++b) EXPECT_EQ(alone[b].bits, shared[b].bits);
}

// ------------------------------------------------------------------------------------------------- greedy

template <class Buffer>
std::vector<CtcPrefix> greedy(const CtcBatch& batch, const std::vector<int>& chunks,
                              const Execution& execution) {
  const CtcMemory<Buffer> memory(batch);
  const Buffer walks[2] = {Buffer(batch.size() * sizeof(CtcWalk)), Buffer(batch.size() * sizeof(CtcWalk))};
  std::vector<CtcPrefix> found(batch.size());
  int begin = 0, calls = 0;
  for (const int count : chunks) {
    CtcProblem p = memory.problem;
    p.frames = count;
    p.logits.data =
        static_cast<const unsigned char*>(p.logits.data) + begin * memory.stride()[1] * size_of(batch.dtype);
    std::vector<std::int32_t> lengths;
    lengths.reserve(batch.size());
    for (const Ctc& one : batch.utterances) lengths.push_back(std::clamp(one.frames - begin, 0, count));
    const Buffer length(lengths);
    p.logit_lengths = static_cast<const std::int32_t*>(length.data());
    const std::size_t rows = static_cast<std::size_t>(batch.size()) * count;
    const Buffer tokens(rows * 8), frames(rows * 8), found_lengths(batch.size() * 8);
    CtcGreedy out;
    if (calls > 0) out.before = static_cast<const CtcWalk*>(walks[calls % 2].data());
    out.after = static_cast<CtcWalk*>(walks[(calls + 1) % 2].data());
    out.tokens = static_cast<std::int64_t*>(tokens.data());
    out.token_frames = static_cast<std::int64_t*>(frames.data());
    out.lengths = static_cast<std::int64_t*>(found_lengths.data());
    const std::size_t needed = ctc_greedy_workspace_bytes(p, out, execution);
    const Buffer workspace(needed);
    expect_ok(ctc_greedy(p, out, {workspace.data(), needed}, execution));
    const auto token = tokens.template read<std::int64_t>(rows);
    const auto frame = frames.template read<std::int64_t>(rows);
    const auto number = found_lengths.template read<std::int64_t>(batch.size());
    const auto walk = walks[(calls + 1) % 2].template read<CtcWalk>(batch.size());
    for (int b = 0; b < batch.size(); ++b) {
      for (int k = 0; k < count; ++k) {
        const std::size_t at = static_cast<std::size_t>(b) * count + k;
        if (k < number[b]) {
          found[b].labels.push_back(static_cast<int>(token[at]));
          found[b].frames.push_back(static_cast<int>(frame[at]));
        } else {
          EXPECT_TRUE(token[at] == -1 && frame[at] == -1);
        }
      }
      found[b].score = walk[b].score;
      EXPECT_EQ(walk[b].frames, std::min(batch.utterances[b].frames, begin + count));
    }
    begin += count;
    ++calls;
  }
  return found;
}

std::vector<CtcPrefix> greedy(const CtcBatch& batch, const std::vector<int>& chunks) {
#if WARPALIGN_TEST_CUDA
  if (on_cuda()) return greedy<DeviceBuffer>(batch, chunks, Execution::cuda(0, nullptr));
#endif
  return greedy<HostBuffer>(batch, chunks, Execution::host());
}

TEST_P(CtcDecode, GreedySearchTakesTheBestClasses) {
  std::mt19937 random(7);
  for (int n = 0; n < 40 / kThinning; ++n) {
    SCOPED_TRACE(n);
    CtcBatch batch;
    const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
    batch.dtype = dtypes[n % 4];
    batch.layout = {n % 3 == 1, n % 3 == 2, n % 2 == 1, false, true, false, n % 4};
    Ctc family;
    family.classes = 1 + static_cast<int>(random() % 40);
    family.blank = static_cast<int>(random() % static_cast<unsigned>(family.classes));
    family.log_probs = n % 5 == 2;
    for (int b = 0; b < 3; ++b) {
      family.frames = b == 2 ? 300 : static_cast<int>(random() % 40);
      batch.add(family, frames_of(family, random, n % 4));
    }
    for (const auto& chunks : {std::vector<int>{300}, std::vector<int>{0, 17, 1, 282}}) {
      const std::vector<CtcPrefix> found = greedy(batch, chunks);
      for (int b = 0; b < batch.size(); ++b) {
        const CtcPrefix wanted = reference::ctc_greedy(batch.utterances[b], batch.logits[b]);
        const double epsilon = batch.dtype == DType::kFloat64 ? 0x1p-50 : 0x1p-22;
        if (std::isinf(wanted.score)) {
          EXPECT_EQ(found[b].score, wanted.score);
        } else {
          const double bound = epsilon * (batch.utterances[b].frames + 4 + std::abs(wanted.score));
          EXPECT_NEAR(found[b].score, wanted.score, bound);
        }
        EXPECT_EQ(found[b].labels, wanted.labels);
        EXPECT_EQ(found[b].frames, wanted.frames);
      }
    }
  }
}

TEST_P(CtcDecode, GreedySearchOfABadFrame) {
  CtcBatch batch;
  Ctc family;
  family.classes = 3;
  family.frames = 3;
  batch.add(family, {0, 1, 0, 0, 0, std::nan(""), 0, 1, 0});
  batch.add(family, {0, 1, 0, 0, 0, 2, kInf, 1, 0});
  batch.add(family, {0, 1, 0, 0, 0, 2, 3, 1, 0});
  const std::vector<CtcPrefix> found = greedy(batch, {3});
  EXPECT_TRUE(std::isnan(found[0].score) && found[0].labels.empty());
  EXPECT_TRUE(std::isnan(found[1].score) && found[1].labels.empty());
  EXPECT_EQ(found[2].labels, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace warpalign::test
