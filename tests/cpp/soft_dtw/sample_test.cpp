// Sampled alignments: their distribution, against the enumeration of all paths and the reference's expected
// alignment, and that every path of the library draws the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "fixture.h"
#include "warpalign/soft_dtw_sample.h"

namespace warpalign::test::soft_dtw {
namespace {

struct Drawn {
  std::vector<std::int64_t> paths, lengths;
};

template <typename Buffer, typename T>
Drawn draw_on(const Batch<T>& batch, int count, std::uint64_t seed, const Execution& execution) {
  const Shape s = batch.shape;
  Buffer x(batch.x.data), y(batch.y.data), cost(batch.cost.data), gammas(batch.gammas);
  Buffer x_lengths(batch.x_lengths), y_lengths(batch.y_lengths), x_mask(batch.x_mask), y_mask(batch.y_mask);
  SoftDtwProblem p;
  p.dtype = kDType<T>;
  p.batch = s.batch;
  p.n = s.n;
  p.m = s.m;
  p.dim = s.dim;
  const auto view = [](const Buffer& buffer, const Tensor<T>& tensor) {
    return StridedTensor{static_cast<const T*>(buffer.data()) + tensor.first,
                         {tensor.stride[0], tensor.stride[1], tensor.stride[2]}};
  };
  if (s.dim == 0) p.cost = view(cost, batch.cost);
  if (s.dim > 0) p.x = view(x, batch.x);
  if (s.dim > 0) p.y = view(y, batch.y);
  p.gamma = batch.gamma;
  p.band = batch.options.band;
  p.step_penalty = batch.options.step_penalty;
  p.cost_kind = batch.options.cost_kind;
  if (!batch.gammas.empty()) p.gammas = gammas.data();
  if (!batch.x_lengths.empty()) p.x_lengths = static_cast<const std::int32_t*>(x_lengths.data());
  if (!batch.y_lengths.empty()) p.y_lengths = static_cast<const std::int32_t*>(y_lengths.data());
  if (!batch.x_mask.empty()) p.x_mask = static_cast<const std::uint8_t*>(x_mask.data());
  if (!batch.y_mask.empty()) p.y_mask = static_cast<const std::uint8_t*>(y_mask.data());
  const std::size_t paths = static_cast<std::size_t>(s.batch) * count, cells = s.n + s.m - 1;
  Buffer path(paths * cells * 2 * sizeof(std::int64_t)), lengths(paths * sizeof(std::int64_t));
  SoftDtwSamples samples;
  samples.paths_per_pair = count;
  samples.seed = seed;
  samples.paths = static_cast<std::int64_t*>(path.data());
  samples.lengths = static_cast<std::int64_t*>(lengths.data());
  const std::size_t bytes = soft_dtw_sample_workspace_bytes(p, samples, execution);
  Buffer workspace(bytes);
  const Status status = soft_dtw_sample(p, samples, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  return {path.template read<std::int64_t>(paths * cells * 2), lengths.template read<std::int64_t>(paths)};
}

class Sample : public OnEveryPath {
 protected:
  template <typename T>
  static Drawn draw(const Batch<T>& batch, int count, std::uint64_t seed) {
#if WARPALIGN_TEST_CUDA
    if (GetParam().cuda) return draw_on<DeviceBuffer>(batch, count, seed, Execution::cuda(0, nullptr));
#endif
    return draw_on<HostBuffer>(batch, count, seed, Execution::host());
  }
};

// The cells of path s of pair b, after a check of its form.
template <typename T>
std::vector<std::int64_t> cells_of(const Batch<T>& batch, const Drawn& drawn, int count, int b, int s) {
  const std::int64_t longest = batch.shape.n + batch.shape.m - 1, at = std::int64_t{b} * count + s;
  const std::int64_t length = drawn.lengths[at];
  const auto begin = drawn.paths.begin() + at * 2 * longest;
  std::vector<std::int64_t> cells(begin, begin + 2 * length);
  EXPECT_TRUE(std::all_of(begin + 2 * length, begin + 2 * longest, [](auto v) { return v == -1; }));
  for (std::int64_t k = 0; k < length; ++k) {
    const std::int64_t i = cells[2 * k], j = cells[2 * k + 1];
    EXPECT_TRUE(k > 0 || (i == 0 && j == 0));
    EXPECT_TRUE(k + 1 < length || (i == batch.n(b) - 1 && j == batch.m(b) - 1));
    if (k == 0) continue;
    const std::int64_t down = i - cells[2 * k - 2], right = j - cells[2 * k - 1];
    EXPECT_TRUE(down >= 0 && down <= 1 && right >= 0 && right <= 1 && down + right >= 1);
  }
  return cells;
}

// The probability of every path, by enumeration.
std::map<std::vector<std::int64_t>, double> all_paths_of(const std::vector<double>& cost, int n, int m,
                                                         double gamma, const reference::Options& options) {
  std::map<std::vector<std::int64_t>, double> found;
  double total = 0;
  std::vector<std::int64_t> path;
  const std::function<void(int, int, double)> go = [&](int i, int j, double sum) {
    if (i >= n || j >= m || !reference::in_band(options.band, i, j, n, m)) return;
    path.insert(path.end(), {i, j});
    sum += cost[static_cast<std::size_t>(i) * m + j];
    if (i == n - 1 && j == m - 1) total += found[path] = std::exp(-sum / gamma);
    go(i + 1, j, sum + options.step_penalty);
    go(i, j + 1, sum + options.step_penalty);
    go(i + 1, j + 1, sum);
    path.resize(path.size() - 2);
  };
  go(0, 0, 0);
  for (auto& [cells, probability] : found) probability /= total;
  return found;
}

// Pearson's statistic of the counts of paths against their probabilities, paths below 5 expected draws
// together. Its expectation is the number of classes minus 1, its variance twice that: six deviations are the
// bound.
void expect_distribution(const std::map<std::vector<std::int64_t>, double>& expected,
                         const std::map<std::vector<std::int64_t>, int>& counts, int draws) {
  double statistic = 0, rare = 0, rare_draws = 0;
  int classes = 0, accounted = 0;
  for (const auto& [path, probability] : expected) {
    const auto found = counts.find(path);
    const int count = found == counts.end() ? 0 : found->second;
    const double mean = probability * draws;
    accounted += count;
    if (mean < 5) {
      rare += mean;
      rare_draws += count;
      continue;
    }
    statistic += (count - mean) * (count - mean) / mean;
    ++classes;
  }
  EXPECT_EQ(accounted, draws) << "paths that do not exist";
  if (rare > 0) statistic += (rare_draws - rare) * (rare_draws - rare) / std::max(rare, 1.0);
  ASSERT_GE(classes, 4);
  EXPECT_LT(statistic, classes + 6 * std::sqrt(2.0 * classes)) << classes << " classes";
}

TEST_P(Sample, PathsHaveTheirProbabilities) {
  constexpr int kDraws = 10000;
  for (int option = 0; option < 4; ++option) {
    Batch<double> batch({2, 4, 5, 0}, 0.7, 3 + option);
    if (option == 1) batch.options.step_penalty = 0.4;
    if (option == 2) batch.options.band = {BandKind::kSakoeChiba, 1};
    if (option == 3) {
      batch.x_lengths = {3, 4};
      batch.y_lengths = {5, 3};
      batch.fill_padding_with_nan();
    }
    const Drawn drawn = draw(batch, kDraws, 100 + option);
    for (int b = 0; b < 2; ++b) {
      std::map<std::vector<std::int64_t>, int> counts;
      for (int s = 0; s < kDraws; ++s) ++counts[cells_of(batch, drawn, kDraws, b, s)];
      expect_distribution(all_paths_of(batch.cost.wide(b, batch.n(b), batch.m(b)), batch.n(b), batch.m(b),
                                       batch.gamma, batch.options),
                          counts, kDraws);
    }
  }
}

// The share of the paths that use a cell is E within six deviations, over several tiles, their edges
// included.
TEST_P(Sample, MeansAreTheExpectedAlignment) {
  constexpr int kDraws = 400;
  for (const auto& [n, m] : {std::pair{33, 64}, {65, 31}, {1, 40}, {40, 1}}) {
    const Batch<float> batch({1, n, m, 3}, 2.0, 7);
    const Drawn drawn = draw(batch, kDraws, 5);
    std::vector<double> share(static_cast<std::size_t>(n) * m, 0.0);
    for (int s = 0; s < kDraws; ++s) {
      const std::vector<std::int64_t> cells = cells_of(batch, drawn, kDraws, 0, s);
      for (std::size_t k = 0; k < cells.size(); k += 2) share[cells[k] * m + cells[k + 1]] += 1.0 / kDraws;
    }
    const std::vector<double> expected = batch.expected(0).alignment;
    for (std::size_t at = 0; at < share.size(); ++at) {
      const double deviation = std::sqrt(expected[at] * (1 - std::min(expected[at], 1.0)) / kDraws);
      ASSERT_NEAR(share[at], expected[at], 6 * deviation + 8.0 / kDraws) << n << " x " << m << ", " << at;
    }
  }
}

template <typename T>
Batch<T> ragged_batch(CostKind kind, int dim, Band band, double gamma) {
  Batch<T> batch({3, 70, 45, dim}, gamma, 11);
  batch.x_lengths = {70, 64, 33};
  batch.y_lengths = {45, 32, 33};
  batch.options.cost_kind = kind;
  batch.options.band = band;
  batch.options.step_penalty = 0.1;
  batch.fill_padding_with_nan();
  if (dim == 0) return batch;
  batch.x_mask.assign(3 * 70, 0);
  batch.y_mask.assign(3 * 45, 0);
  batch.x_mask[9] = batch.x_mask[75] = batch.y_mask[44] = batch.y_mask[50] = 1;
  for (int d = 0; d < dim; ++d) batch.x.at(0, 9, d) = static_cast<T>(kNan);
  for (int d = 0; d < dim; ++d) batch.x.at(2, 1, d) = 0;  // no direction
  return batch;
}

// The CPU's draws are those of every path of the library. Costs differ in the last bit of float64 at most.
TEST_P(Sample, DrawsAreThoseOfTheCpu) {
  const auto compare = [](const auto& batch) {
    const Drawn here = draw(batch, 37, 42), there = draw_on<HostBuffer>(batch, 37, 42, Execution::host());
    EXPECT_EQ(here.lengths, there.lengths);
    EXPECT_EQ(here.paths, there.paths);
    for (const std::int64_t length : here.lengths) ASSERT_GE(length, 33);
  };
  for (const CostKind kind : {CostKind::kSquaredEuclidean, CostKind::kEuclidean, CostKind::kCosine,
                              CostKind::kL1, CostKind::kHuber}) {
    compare(ragged_batch<float>(kind, 9, {}, 1.0));
  }
  compare(ragged_batch<double>(CostKind::kCosine, 2, {BandKind::kSlanted, 5}, 1e-3));
  compare(ragged_batch<double>(CostKind::kL1, 17, {BandKind::kItakura, 0, 3.0}, 100.0));
  compare(ragged_batch<double>(CostKind::kSquaredEuclidean, 0, {BandKind::kSakoeChiba, 2}, 1.0));
  Batch<float> gammas = ragged_batch<float>(CostKind::kSquaredEuclidean, 0, {}, 1.0);
  gammas.gammas = {0.01f, 1.0f, 50.0f};
  compare(gammas);
  // Several rounds of rows of tiles on CUDA.
  compare(Batch<float>({1, 300, 40, 1}, 1.0, 2));
}

TEST_P(Sample, SeedAndNumberDecide) {
  const Batch<float> batch({2, 20, 20, 2}, 5.0, 1);
  const Drawn one = draw(batch, 40, 9);
  EXPECT_EQ(one.paths, draw(batch, 40, 9).paths);
  EXPECT_NE(one.paths, draw(batch, 40, 10).paths);
  const Drawn fewer = draw(batch, 3, 9);
  for (int s = 0; s < 3; ++s)
    EXPECT_EQ(cells_of(batch, one, 40, 1, s), cells_of(batch, fewer, 3, 1, s))
        << "of another number of paths";
  EXPECT_NE(cells_of(batch, one, 40, 1, 0), cells_of(batch, one, 40, 1, 1));
}

TEST_P(Sample, PairsWithoutPathsHaveNone) {
  Batch<float> batch({5, 40, 40, 0}, 1.0, 1);
  batch.cost.at(0, 35, 2) = kNan;
  batch.cost.at(1, 0, 0) = kInf;
  batch.cost.at(2, 3, 3) = -kInf;
  batch.cost.at(3, 3, 3) = kInf;  // a detour
  const Drawn drawn = draw(batch, 3, 1);
  for (int b = 0; b < 5; ++b) {
    for (int s = 0; s < 3; ++s) {
      const std::vector<std::int64_t> cells = cells_of(batch, drawn, 3, b, s);
      EXPECT_EQ(cells.empty(), b < 3) << b;
      for (std::size_t k = 0; b == 3 && k < cells.size(); k += 2)
        EXPECT_FALSE(cells[k] == 3 && cells[k + 1] == 3);
    }
  }
  // What lies outside of a band is not looked at.
  batch.options.band = {BandKind::kSakoeChiba, 5};
  EXPECT_GT(draw(batch, 3, 1).lengths[0], 0);
}

WARPALIGN_FOR_EVERY(Sample, all_paths);

}  // namespace
}  // namespace warpalign::test::soft_dtw
