// Scores and steps of greedy search on every path, against float64 from the definition.
#include "decode.h"

#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

class TransducerDecode : public OnEveryPath {
 protected:
  template <class Real>
  static std::vector<Real> scores(const DecodeCase<Real>& c, const std::vector<std::int32_t>& frame,
                                  int window) {
#if WARPALIGN_TEST_CUDA
    if (GetParam().cuda) return run_scores<DeviceBuffer, Real>(c, frame, window, Execution::cuda(0, nullptr));
#endif
    return run_scores<HostBuffer, Real>(c, frame, window, Execution::host());
  }
  template <class Real>
  static std::vector<Found> greedy(const DecodeCase<Real>& c, const TransducerDecoding& d,
                                   const std::vector<Real>& table, int window, bool by_scores = false,
                                   ParallelFor parallel_for = {}) {
#if WARPALIGN_TEST_CUDA
    if (GetParam().cuda) {
      return run_greedy<DeviceBuffer, Real>(c, d, table, window, by_scores, Execution::cuda(0, nullptr));
    }
#endif
    return run_greedy<HostBuffer, Real>(c, d, table, window, by_scores, Execution::host(parallel_for));
  }
};

template <class Real>
void expect_scores(const DecodeCase<Real>& c, const std::vector<std::int32_t>& frame, int window,
                   const std::vector<Real>& got) {
  const double epsilon = sizeof(Real) == 4 ? 0x1p-23 : 0x1p-52;
  for (std::size_t n = 0; n < frame.size(); ++n) {
    const int b = static_cast<int>(n) / c.beams;
    for (int f = 0; f < window; ++f) {
      const int t = frame[n] + f;
      const bool wanted = frame[n] >= 0 && t < c.lengths[b];
      const auto expected =
          wanted ? c.scores(b, t, c.predictor.data() + n * c.hidden) : std::vector<double>(c.columns, 0.0);
      for (int k = 0; k < c.columns; ++k) {
        // A sum of H products of numbers of some units, each rounded once, and tanh to 2 epsilon.
        const double tolerance = wanted ? 4 * epsilon * (c.hidden + 2) : 0;
        ASSERT_NEAR(got[(n * window + f) * c.columns + k], expected[k], tolerance)
            << n << ", " << f << ", " << k;
      }
    }
  }
}

TEST_P(TransducerDecode, ScoresAreTheDefinition) {
  int number = 0;
  for (const int hidden : {1, 3, 31, 32, 33, 70}) {
    for (const int columns : {1, 2, 63, 64, 65, 130}) {
      for (const auto& [beams, window] : {std::pair{1, 1}, {1, 5}, {3, 1}, {2, 9}, {1, 17}}) {
        if (number++ % kThinning != 0) continue;
        SCOPED_TRACE(::testing::Message() << hidden << ", " << columns << ", " << beams << ", " << window);
        const auto check = [&](auto zero) {
          using Real = decltype(zero);
          DecodeCase<Real> c(3, beams, 11, hidden, columns, static_cast<unsigned>(number));
          c.activation = number % 2 ? Activation::kTanh : Activation::kRelu;
          if (number % 3 == 0) c.bias.clear();
          std::vector<std::int32_t> frame;
          for (int n = 0; n < 3 * beams; ++n) frame.push_back(n % 4 == 3 ? -1 : n);
          expect_scores(c, frame, window, scores(c, frame, window));
        };
        check(0.0F);
        check(0.0);
      }
    }
  }
}

std::vector<float> table_of(int labels, int hidden) {
  return DecodeCase<float>(1, labels + 1, 0, hidden, 1, 77).predictor;
}

DecodeCase<float> greedy_case(const TransducerDecoding& d, int batch, int frames, int hidden) {
  DecodeCase<float> c(batch, 1, frames, hidden, d.labels + (d.tdt ? d.durations : 0), 5);
  for (int k = 0; k < d.labels; ++k) {
    const bool is_label = k < d.labels - 1 - (d.tdt ? 0 : d.durations);
    c.bias[k] = (is_label ? 0.0F : 2.0F) + 0.001F * static_cast<float>(k);
  }
  return c;
}

void expect_found(const std::vector<Found>& got, const std::vector<Found>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t b = 0; b < got.size(); ++b) {
    EXPECT_EQ(got[b].labels, expected[b].labels) << b;
    EXPECT_EQ(got[b].frames, expected[b].frames) << b;
    EXPECT_EQ(got[b].durations, expected[b].durations) << b;
    EXPECT_EQ(got[b].end, expected[b].end) << b;
    const double arcs = expected[b].end + static_cast<double>(expected[b].labels.size()) + 1;
    EXPECT_NEAR(got[b].log_prob, expected[b].log_prob, arcs * 32 * 0x1p-23) << b;
  }
}

TEST_P(TransducerDecode, GreedySearchIsTheDefinition) {
  for (int kind = 0; kind < 3; ++kind) {
    for (const int labels : {2, 31, 33, 65}) {
      for (const int window : {1, 5, 16, 40}) {
        if (GetParam().cuda && kThinning > 1 && (labels + window + kind) % 3 != 0) continue;
        SCOPED_TRACE(::testing::Message() << kind << ", " << labels << ", " << window);
        const TransducerDecoding d = decoding(kind, labels);
        const DecodeCase<float> c = greedy_case(d, 9, 19, 13);
        const std::vector<float> table = table_of(labels, 13);
        const auto got = greedy(c, d, table, window);
        expect_found(got, greedy_reference(c, d, table));
        EXPECT_EQ(greedy(c, d, table, window, true), got);
      }
    }
  }
}

TEST_P(TransducerDecode, NothingDependsOnTheBatchOrTheWindow) {
  for (int kind = 0; kind < 3; ++kind) {
    const TransducerDecoding d = decoding(kind, 37);
    const DecodeCase<float> c = greedy_case(d, 17, 21, 40);
    const std::vector<float> table = table_of(37, 40);
    const auto together = greedy(c, d, table, 16);
    EXPECT_EQ(greedy(c, d, table, 3), together);
    for (const int b : {0, 3, 16}) {
      DecodeCase<float> one = c;
      one.batch = 1;
      one.lengths = {c.lengths[b]};
      const auto begin = c.encoder.begin() + static_cast<std::ptrdiff_t>(b) * 21 * 40;
      one.encoder.assign(begin, begin + std::ptrdiff_t{21} * 40);
      EXPECT_EQ(greedy(one, d, table, 16)[0], together[b]);
    }
    if (GetParam().cuda) continue;
    for (const int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      EXPECT_EQ(greedy(c, d, table, 16, false, pool.parallel_for()), together) << threads;
    }
  }
}

WARPALIGN_FOR_EVERY(TransducerDecode, all_paths);

}  // namespace
}  // namespace warpalign::test
