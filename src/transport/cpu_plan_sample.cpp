// The CPU path of plan_sample(): rows by their sums, then columns within a row, each by inversion.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/philox.h"
#include "transport/cpu_plan.h"
#include "transport/problem.h"

namespace warpalign::detail::transport {
namespace {

struct SampleCall {
  const SinkhornProblem& p;
  const PlanSamples& samples;
};

// 53 bits of two words, in [0, 1).
double uniform(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// The entry of u in running sums. Its share is above 0.
int place_of(const double* sums, int count, double u) {
  const double* place = std::upper_bound(sums, sums + count, u * sums[count - 1]);
  if (place == sums + count) place = std::lower_bound(sums, sums + count, sums[count - 1]);
  return static_cast<int>(place - sums);
}

template <class Real>
class Sample {
 public:
  Sample(Arena& arena, const SampleCall& call, int threads)
      : samples_(call.samples), plan_(arena, call.p, threads) {
    begins_ = arena.take<std::int32_t>(static_cast<std::size_t>(call.p.n) + 1);
    order_ = arena.take<std::int32_t>(samples_.count);
    stride_ = call.p.m;
    columns_ = arena.take<double>(static_cast<std::size_t>(stride_) * threads);
  }

  void run(int b, const BlockTeam& team) {
    plan_.bind(b, team);
    auto& s = plan_.s;
    const int n = s.rows.count, count = samples_.count;
    std::int32_t* const pairs = samples_.pairs + static_cast<std::int64_t>(b) * count * 2;
    double* const sums = s.rows.spare;
    plan_.for_rows([&](int i, int, const LogitRow<Real>&, double sum) { sums[i] = plan_.weight(i) * sum; });
    for (int i = 1; i < n; ++i) sums[i] += sums[i - 1];
    if (!(sums[n - 1] > 0) || std::isinf(sums[n - 1])) {
      std::fill_n(pairs, 2 * std::int64_t{count}, -1);
      return;
    }

    // Sorts the samples by row, so that each row is computed once.
    std::fill_n(begins_, n + 1, 0);
    for (int k = 0; k < count; ++k) {
      const PhiloxWords words = words_of(k, b);
      pairs[2 * k] = place_of(sums, n, uniform(words.word[0], words.word[1]));
      ++begins_[pairs[2 * k] + 1];
    }
    for (int i = 0; i < n; ++i) begins_[i + 1] += begins_[i];
    for (int k = count - 1; k >= 0; --k) order_[--begins_[pairs[2 * k] + 1]] = k;
    // begins_[i + 1] is now the begin of row i, and begins_[i + 2] its end.
    plan_.for_rows([&](int i, int worker, const LogitRow<Real>& row, double) {
      const int begin = begins_[i + 1], end = i + 1 < n ? begins_[i + 2] : count;
      if (begin == end) return;
      const Real* const e = s.scratch[worker].e;
      double* const columns = columns_ + static_cast<std::ptrdiff_t>(worker) * stride_;
      double sum = 0;
      for (int j = 0; j < row.m; ++j) columns[j] = sum += static_cast<double>(e[j]);
      for (int at = begin; at < end; ++at) {
        const PhiloxWords words = words_of(order_[at], b);
        pairs[2 * order_[at] + 1] = place_of(columns, row.m, uniform(words.word[2], words.word[3]));
      }
    });
  }

 private:
  [[nodiscard]] PhiloxWords words_of(int k, int b) const {
    return philox({{static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(b), 0, 0}}, samples_.seed);
  }

  const PlanSamples& samples_;
  CpuPlan<Real> plan_;
  std::int32_t* begins_;
  std::int32_t* order_;
  double* columns_;
  int stride_;
};

}  // namespace

std::size_t plan_sample_cpu_workspace_bytes(const SinkhornProblem& p, const PlanSamples& samples,
                                            const Execution& execution) {
  return workspace_bytes_of<Sample>(SampleCall{p, samples}, execution);
}
Status plan_sample_cpu(const SinkhornProblem& p, const PlanSamples& samples, Workspace workspace,
                       const Execution& execution) {
  const SinkhornProblem of = at_its_potentials(p);
  run_batch<Sample>("plan_sample", SampleCall{of, samples}, workspace, execution);
  return {};
}

}  // namespace warpalign::detail::transport
