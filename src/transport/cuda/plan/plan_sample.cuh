// Samples pairs from a plan that is not stored: a row by the rows' sums, then a column within the row, each
// by inversion, as on a CPU.
#pragma once

#include "core/philox.h"
#include "transport/cuda/points/points.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class PlanSample : public Points<Real_> {
 public:
  using Real = Real_;
  using Points<Real_>::Points;

  // Called by all threads of the team, at the current potentials.
  __device__ __forceinline__ void write(Pass pass, Team& team) const {
    pass.rows = true;
    PlanSums unused;
    this->template run<PassKind::kSums>(pass, unused);
    team.barrier();
    for_totals<false>(rows_, team, [&](int i, double sum) {
      row_sums()[i] = sum;
      running_sums()[i] = rows_.reference(rows_.weight(i)) * sum;
    });
    team.barrier();
    if (team.rank == 0) add_up();
    team.barrier();
    std::int32_t* const pairs = p_.pairs + static_cast<std::int64_t>(rows_.b) * p_.pair_count * 2;
    const double total = running_sums()[rows_.count - 1];
    const bool has_mass = total > 0 && !isinf(total);
    const int step = team.blocks * static_cast<int>(blockDim.x);
    for (int k = team.rank * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x); k < p_.pair_count;
         k += step) {
      const PhiloxWords words = words_of(k);
      pairs[2 * static_cast<std::int64_t>(k)] =
          has_mass ? row_of(uniform(words.word[0], words.word[1]) * total) : -1;
      if (!has_mass) pairs[2 * static_cast<std::int64_t>(k) + 1] = -1;
    }
    team.barrier();
    if (has_mass) find_columns(pass, pairs);
  }

 private:
  using Base = Points<Real_>;
  using Base::columns_;
  using Base::costs_of_tile;
  using Base::first_other;
  using Base::first_own;
  using Base::kThreads;
  using Base::kTile;
  using Base::load_numbers;
  using Base::logit;
  using Base::p_;
  using Base::rows_;
  using Base::shared;
  using Base::team_;
  using typename Base::TilePoints;

  // First the rows' sums without their own weights, later running sums with the weights.
  [[nodiscard]] __device__ __forceinline__ double* row_sums() const { return rows_.shift(); }
  [[nodiscard]] __device__ __forceinline__ double* running_sums() const { return rows_.next(); }

  // 53 bits of two words, in [0, 1).
  static __device__ __forceinline__ double uniform(std::uint32_t low, std::uint32_t high) {
    const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
    return static_cast<double>(bits) * 0x1p-53;
  }
  [[nodiscard]] __device__ __forceinline__ PhiloxWords words_of(int k) const {
    return philox({{static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(rows_.b), 0, 0}}, p_.seed);
  }

  // Replaces the rows' sums by running sums. By one block, in an order that depends on their number alone.
  __device__ __attribute__((noinline)) void add_up() const {
    double* const sums = running_sums();
    auto* const parts = reinterpret_cast<double*>(cuda::dynamic_shared() + kScratchBytes);
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t count = rows_.count;
    const int first = static_cast<int>(count * thread / kThreads);
    const int last = static_cast<int>(count * (thread + 1) / kThreads);
    double sum = 0;
    for (int i = first; i < last; ++i) sum += sums[i];
    parts[thread] = sum;
    __syncthreads();
    double before = 0;
    for (int k = 0; k < thread; ++k) before += parts[k];
    for (int i = first; i < last; ++i) sums[i] = before += sums[i];
  }

  // The first row whose running sum exceeds the target. Its own sum is above 0.
  [[nodiscard]] __device__ __forceinline__ int row_of(double target) const {
    const double* const sums = running_sums();
    // If the target was rounded to the total, the first row that reaches it.
    const double total = sums[rows_.count - 1];
    int low = 0, high = rows_.count - 1;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (sums[middle] > target || sums[middle] >= total) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Finds the columns of 64 samples at a time, whose rows are computed again.
  __device__ __attribute__((noinline)) void find_columns(const Pass& pass, std::int32_t* pairs) const {
    const Real k = static_cast<Real>(pass.k);
    for (int task = team_.rank; task < cuda::div_up(p_.pair_count, kTile); task += team_.blocks) {
      const TilePoints own{rows_, task * kTile, pairs, p_.pair_count};
      __syncthreads();
      load_numbers(own, 0, pass.rows_at, 0, pass.rounder);
      // The same in the 16 threads of a row, except `found` and `last`.
      double target[4], running[4] = {};
      int reached[4],
          last[4];  // columns: the one that reaches the target, and the last one with a positive entry
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int i = own.point(first_own() + r);
        const PhiloxWords words = words_of(own.begin + first_own() + r);
        target[r] = i < 0 ? 0.0 : uniform(words.word[2], words.word[3]) * row_sums()[i];
        reached[r] = 0x7fffffff;
        last[r] = 0;
      }
      for (int begin = 0; begin < columns_.count; begin += kTile) {
        const TilePoints other{columns_, begin};
        __syncthreads();
        load_numbers(other, 1, pass.columns_at, 0, pass.rounder);
        Real costs[4][4];
        costs_of_tile(own, other, costs);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          double share[4], sum = 0;
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            share[c] = static_cast<double>(exp2_of(logit(r, c, costs[r][c], k)) *
                                           shared().weight[1][first_other() + c]);
            sum += share[c];
          }
          double to = sum;  // inclusive sum over the threads up to this one
#pragma unroll
          for (int delta = 1; delta < 16; delta *= 2) {
            const double before = cuda::shuffle_up(to, delta);
            if (static_cast<int>(threadIdx.x) % 16 >= delta) to += before;
          }
          double at = running[r] + (to - sum);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const int j = begin + first_other() + c;
            at += share[c];
            if (share[c] > 0) last[r] = j;
            if (share[c] > 0 && at > target[r]) reached[r] = min(reached[r], j);
          }
          running[r] += cuda::shuffle(to, static_cast<int>(threadIdx.x) % 32 / 16 * 16 + 15);
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int first = cuda::reduce<16>(reached[r], [](int a, int b) { return min(a, b); });
        const int fallback = cuda::reduce<16>(last[r], [](int a, int b) { return max(a, b); });
        const int place = own.begin + first_own() + r;
        if (first_other() > 0 || place >= p_.pair_count) continue;
        // Because of rounding, the row's sum may be below the target.
        pairs[2 * static_cast<std::int64_t>(place) + 1] = first < columns_.count ? first : fallback;
      }
    }
  }
};

}  // namespace warpalign::detail::transport
