// Packed series, end to end in one tensor: every result is bitwise identical to that of padded series.
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "api_call.h"
#include "fixture.h"
#include "warpalign/soft_dtw_sample.h"

namespace warpalign::test::soft_dtw {
namespace {

// One side's series: as they are, or packed, in another order than the pairs', with a NaN step before each.
template <typename T, typename Series>
struct Side {
  const std::vector<std::int32_t>& lengths;
  int length, dim;
  std::vector<Series> data;
  std::vector<std::int64_t> offsets;  // empty: padded
  std::int64_t steps = 0;

  Side(const Tensor<T>& from, const std::vector<std::int32_t>& of_pairs, int padded, int features,
       bool packed)
      : lengths(of_pairs), length(padded), dim(features) {
    if (!packed) {
      for (T v : from.data) data.push_back(converted(v));
      return;
    }
    offsets.resize(lengths.size());
    for (int b = static_cast<int>(lengths.size()) - 1; b >= 0; --b) {
      for (int d = 0; d < dim; ++d) data.push_back(converted(static_cast<T>(kNan)));
      offsets[b] = steps + 1;
      steps += 1 + lengths[b];
      for (int i = 0; i < lengths[b]; ++i) {
        for (int d = 0; d < dim; ++d) data.push_back(converted(from.at(b, i, d)));
      }
    }
  }

  [[nodiscard]] StridedTensor view(const void* at) const {
    return {at, {offsets.empty() ? static_cast<std::int64_t>(length) * dim : 0, dim, 1}};
  }
  // The gradient, padded with zeros. Steps of no pair must be 0.
  [[nodiscard]] std::vector<T> padded(std::vector<T> gradient) const {
    if (offsets.empty() || gradient.empty()) return gradient;
    std::vector<T> to(lengths.size() * length * dim);
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const auto first = gradient.begin() + offsets[b] * dim;
      const auto last = first + static_cast<std::ptrdiff_t>(lengths[b]) * dim;
      std::copy(first, last, to.begin() + static_cast<std::ptrdiff_t>(b) * length * dim);
      std::fill(first, last, T(0));
    }
    EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), [](T v) { return v == 0; }))
        << "steps of no pair";
    return to;
  }

 private:
  static Series converted(T v) {
    if constexpr (std::is_same_v<Series, T>) {
      return v;
    } else {
      return detail::rounded_to<Series>(v);
    }
  }
};

// run_on() of a ragged batch with packed sides; the outputs as those of padded series.
template <typename Buffer, typename T, typename Series>
Outputs<T> run_packed_on(const Batch<T>& batch, bool alignment, bool x_packed, bool y_packed,
                         const Execution& execution) {
  const Shape s = batch.shape;
  const Side<T, Series> x(batch.x, batch.x_lengths, s.n, s.dim, x_packed);
  const Side<T, Series> y(batch.y, batch.y_lengths, s.m, s.dim, y_packed);
  Buffer x_data(x.data), y_data(y.data), x_offsets(x.offsets), y_offsets(y.offsets);
  Buffer x_lengths(batch.x_lengths), y_lengths(batch.y_lengths);
  SoftDtwProblem problem;
  problem.dtype = std::is_same_v<Series, detail::BFloat16> ? DType::kBFloat16 : kDType<T>;
  problem.batch = s.batch;
  problem.n = s.n;
  problem.m = s.m;
  problem.dim = s.dim;
  problem.gamma = batch.gamma;
  problem.band = batch.options.band;
  problem.step_penalty = batch.options.step_penalty;
  problem.cost_kind = batch.options.cost_kind;
  problem.x = x.view(x_data.data());
  problem.y = y.view(y_data.data());
  problem.x_lengths = static_cast<const std::int32_t*>(x_lengths.data());
  problem.y_lengths = static_cast<const std::int32_t*>(y_lengths.data());
  if (x_packed) problem.x_offsets = static_cast<const std::int64_t*>(x_offsets.data());
  if (y_packed) problem.y_offsets = static_cast<const std::int64_t*>(y_offsets.data());
  problem.x_steps = x.steps;
  problem.y_steps = y.steps;
  const std::size_t pairs = s.batch, table = alignment ? pairs * s.n * s.m : 0;
  Buffer value(pairs * sizeof(T)), cells(table * sizeof(T));
  Buffer grad_x(x.data.size() * sizeof(T)), grad_y(y.data.size() * sizeof(T));
  const SoftDtwOutputs out{value.data(), grad_x.data(), grad_y.data(), alignment ? cells.data() : nullptr};
  const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, execution);
  Buffer workspace(bytes);
  const Status status = warpalign::soft_dtw(problem, out, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << status.argument << ": " << status.message;
  return {value.template read<T>(pairs), x.padded(grad_x.template read<T>(x.data.size())),
          y.padded(grad_y.template read<T>(y.data.size())), cells.template read<T>(table)};
}

template <typename T, typename Series = T>
void compare(const Batch<T>& batch, bool alignment,
             [[maybe_unused]] Precision precision = Precision::kHighest) {  // of CUDA
  const Wanted wanted = alignment ? kEverything : kGradients;
  for (int sides : {1, 2, 3}) {
    SCOPED_TRACE(::testing::Message()
                 << "D = " << batch.shape.dim << ", alignment " << alignment << ", sides " << sides);
    const bool x = sides & 1, y = sides & 2;
    const auto same = [&]<typename Buffer>(const Execution& execution) {
      EXPECT_TRUE(same_bits(run_on<Buffer, T, Series>(batch, wanted, execution),
                            run_packed_on<Buffer, T, Series>(batch, alignment, x, y, execution)));
    };
#if WARPALIGN_TEST_CUDA
    if (SoftDtw::GetParam().cuda) {
      same.template operator()<DeviceBuffer>(Execution::cuda(0, nullptr, precision));
      continue;
    }
#endif
    if constexpr (std::is_same_v<Series, T>) same.template operator()<HostBuffer>(Execution::host());
  }
}

template <typename T>
Batch<T> ragged(int dim, double gamma = 0.5) {
  Batch<T> batch({6, 90, 140, dim}, gamma, 71);
  batch.x_lengths = {1, 90, 33, 32, 64, 17};
  batch.y_lengths = {140, 1, 65, 64, 33, 16};
  return batch;
}

TEST_P(SoftDtw, PackedSeries) {
  for (int dim : {1, 3, 16, 70}) {
    compare(ragged<float>(dim), dim % 2 == 0);
    compare(ragged<double>(dim), dim % 2 == 1);
    compare(ragged<float>(dim, 0.0), dim % 2 == 1);
  }
}

TEST_P(SoftDtw, PackedSeriesWithOptions) {
  for (int dim : {2, 20}) {
    Batch<float> batch = ragged<float>(dim);
    batch.options.step_penalty = 0.1;
    batch.options.band = {BandKind::kSakoeChiba, 5};
    compare(batch, false);
    compare(batch, true);
    batch.options.cost_kind = CostKind::kL1;
    compare(batch, false);
    batch.options = {};
    batch.options.cost_kind = CostKind::kEuclidean;
    compare(batch, true);
  }
}

// A pair with NaN, and one beyond float32's range, which is computed again.
TEST_P(SoftDtw, PackedSeriesThatAreNaNOrComputedAgain) {
  for (int dim : {2, 20}) {
    Batch<float> batch = ragged<float>(dim);
    batch.x.at(1, 3, 1) = static_cast<float>(kNan);
    batch.x.at(4, 3, 1) = 1e6f;
    compare(batch, false);
  }
}

TEST_P(SoftDtw, PackedSeriesOfHalfTypes) {
  for (int dim : {3, 24}) {
    for (Precision precision : {Precision::kHighest, Precision::kHigh}) {
      compare<float, detail::BFloat16>(ragged<float>(dim), false, precision);
    }
  }
}

// Pairs that take turns in a panel.
TEST_P(SoftDtw, PackedSeriesInTurns) {
  if (!GetParam().cuda || kThinning > 1) return;
  Batch<float> batch({20, 2000, 2000, 72}, 1.0, 5);
  batch.x_lengths = std::vector<std::int32_t>(20, 1500);
  batch.y_lengths = std::vector<std::int32_t>(20, 300);
  batch.y_lengths[17] = 2000;
  compare(batch, false);
}

WARPALIGN_FOR_EVERY(SoftDtw, all_paths);

struct Spoilt {
  const char* name;
  const char* argument;
  void (*spoil)(Call&, std::vector<std::int64_t>&);
};

// A call with packed x: three series of four steps, the last of which has two.
TEST(SoftDtwPacked, ContractIsHeld) {
  const Spoilt spoilt[] = {
      {"nothing", nullptr, [](Call&, auto&) {}},
      {"no lengths", "x_lengths", [](Call& c, auto&) { c.problem.x_lengths = nullptr; }},
      {"no steps", "x_steps", [](Call& c, auto&) { c.problem.x_steps = 0; }},
      {"too many steps", "x_steps", [](Call& c, auto&) { c.problem.x_steps = std::int64_t{1} << 48; }},
      {"before the first step", "x_offsets", [](Call&, auto& offsets) { offsets[1] = -1; }},
      {"after the last step", "x_offsets", [](Call&, auto& offsets) { offsets[2] = 11; }},
      {"cosine", "x_offsets", [](Call& c, auto&) { c.problem.cost_kind = CostKind::kCosine; }},
      {"a cost matrix", "x_offsets", [](Call& c, auto&) { c.use_cost(); }},
      {"masks", "x_offsets",
       [](Call& c, auto&) {
         static const std::uint8_t kMask[kBatch * kN] = {};
         c.problem.x_mask = kMask;
       }},
      {"unaligned offsets", "x_offsets",
       [](Call& c, auto& offsets) {
         c.execution = Execution::host();
         c.problem.x_offsets = static_cast<const std::int64_t*>(shifted(offsets.data(), 4));
         std::fill(offsets.begin(), offsets.end(), 0);
       }},
  };
  for (const Spoilt& one : spoilt) {
    SCOPED_TRACE(one.name);
    std::vector<std::int64_t> offsets = {0, 4, 10, 0};
    Call call;
    call.problem.x_offsets = offsets.data();
    call.problem.x_steps = 12;
    one.spoil(call, offsets);
    const Status status = call.run();
    EXPECT_EQ(status.ok(), one.argument == nullptr) << status.message;
    if (one.argument) {
      EXPECT_STREQ(status.argument, one.argument);
      EXPECT_TRUE(call.untouched());
    }
  }
}

TEST(SoftDtwPacked, HasNoSecondDerivativesAndNoSampledPaths) {
  const std::vector<std::int64_t> offsets = {0, 4, 10};
  Call call;
  call.problem.y_offsets = offsets.data();
  call.problem.y_steps = 20;
  call.out.alignment = nullptr;
  const Status jvp = soft_dtw_jvp(call.problem, {}, call.out, call.workspace, call.execution);
  const Status sample = soft_dtw_sample(call.problem, {}, call.workspace, call.execution);
  for (const Status& status : {jvp, sample}) {
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_STREQ(status.argument, "y_offsets");
  }
  EXPECT_TRUE(call.untouched());
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
