// From a tile of E to the outputs of the call: the alignment, and the gradients with respect to the series,
//   grad_x[i] += 2 sum_j E[i,j] (x[i] - y[j]),   grad_y[j] += 2 sum_i E[i,j] (y[j] - x[i]).
// Other metrics have their slope instead of the difference.
#pragma once

#include "cuda/memory/copy_async.cuh"
#include "soft_dtw/cuda/tiles/cost_tile.cuh"

namespace warpalign::detail::soft_dtw {

// E to the caller's (N, M) table.
template <class Ring, class Real, class In>
__device__ __forceinline__ void store_alignment(const Params& p, const Pair<In>& pair, int row0, int end_row,
                                                int column0, int lane, const Real* tile) {
  const int column = column0 + lane;
  if (column >= pair.m) return;
  for (int r = max(0, -row0); r < min(kTileRows, end_row - row0); ++r) {
    store_result(pair.alignment + (static_cast<std::int64_t>(row0 + r) * p.m + column),
                 result_of(tile[lane * Ring::stride(p) + r]));
  }
}

// One of the kWarps warps that make gradients from a strip's E. It takes every kWarps-th block of features. A
// warp with at most one block keeps y and the sums in shared memory for the whole strip. Other warps fetch
// them for every tile.
//
// Each lane owns one feature of a block of width_ features. The 32 / width_ groups of lanes share the strip's
// columns.
template <class Cell, class In, Options kOptions_, class Ring, int kWarps>
class GradientMaker {
  static constexpr bool kOptions = kOptions_ != Options::kNone;
  static constexpr bool kAll = kOptions_ == Options::kAll;
  using Real = typename Cell::Real;
  using Element = soft_dtw::Element<Cell, In>;
  static constexpr int kFeatures = kGradientFeatures<Real>;

 public:
  // adds: this strip adds to sums in grad_x. meets: the sweep from the other end adds to grad_y as well.
  template <class Memory>
  __device__ GradientMaker(const Params& p, const Pair<In>& pair, int column0, int lane, int helper,
                           bool adds, Memory& memory, bool meets)
      : p_(p),
        pair_(pair),
        column0_(column0),
        lane_(lane),
        adds_(adds),
        meets_(meets),
        width_(min(p.dim <= 8 * kWarps    ? 8
                   : p.dim <= 16 * kWarps ? 16
                                          : 32,
                   kFeatures)),
        first_feature_(helper * width_),
        keeps_(p.dim <= kWarps * width_),
        memory_(memory.reverse.gradients.of[helper]),
        slope_(kAll ? p.metric : Metric::kSquared),
        is_straight_(Cell::kCertifies && (p.metric == Metric::kSquared || p.metric == Metric::kNorm)) {
    if (kAll) absent_columns_ = absent_columns(p, pair, column0, lane);
    if (keeps_ && first_feature_ < p.dim) fetch(first_feature_, true);
  }

  // Starts to load x of the next tile, before the warp waits for the tile's E.
  __device__ __forceinline__ void look_ahead(int row0) {
    if (first_feature_ < p_.dim) load_x(row0, first_feature_);
  }

  // await_right() waits until the strip on the right has added to these rows of grad_x.
  template <class Await>
  __device__ __forceinline__ void add(int row0, int end_row, const Real* tile, const Await& await_right) {
    // After a band's end the tile has costs that the wave has not overwritten. With subsequences, rows before
    // row 0 have E.
    const unsigned absent = kOptions ? absent_rows(p_, pair_, row0, end_row, lane_) : 0u;
#pragma unroll 1
    for (int d0 = first_feature_; d0 < p_.dim; d0 += width_ * kWarps) {
      if (d0 != first_feature_) load_x(row0, d0);
      if (!keeps_) fetch(d0, is_first_);
      if (kAll && !is_straight_) {
        add_block<kAll, kOptions>(row0, tile, absent, d0, await_right);
      } else if (kOptions && (absent | absent_columns_)) {
        add_block<false, kOptions>(row0, tile, absent, d0, await_right);
      } else {
        add_block<false, false>(row0, tile, 0, d0, await_right);
      }
      if (!keeps_) put(d0);
    }
    is_first_ = false;
  }

  // Called when the strip is over.
  __device__ void finish() const {
    if (keeps_ && first_feature_ < p_.dim) put(first_feature_);
  }

 private:
  [[nodiscard]] __device__ int feature(int d0) const { return min(d0 + (lane_ & (width_ - 1)), p_.dim - 1); }

  // One bit per row of the tile: whether the row is in the pair.
  [[nodiscard]] __device__ unsigned rows_inside(int row0) const {
    const unsigned from_first = row0 < 0 ? 0xffffffffu << -row0 : 0xffffffffu;
    const int count = pair_.n - row0;
    return count < kTileRows ? from_first & ((1u << count) - 1) : from_first;
  }

  __device__ __forceinline__ void load_x(int row0, int d0) {
    const auto tangent = behind(pair_.x_tangent, feature(d0) * p_.tangents.x_stride[2]);
    with_pointer(pair_.x + feature(d0) * p_.x_stride[2], [&](const auto* x) {
      if (!Cell::kDual && row0 >= 0 && row0 + kTileRows <= pair_.n) {
        const auto* at = x + pair_.true_row(row0) * p_.x_stride[1];
        const std::int64_t step = pair_.from_back ? -p_.x_stride[1] : p_.x_stride[1];
#pragma unroll
        for (int r = 0; r < kTileRows; ++r, at += step) x_[r] = load_element<Cell>(at, at);
      } else {
#pragma unroll
        for (int r = 0; r < kTileRows; ++r) {
          const int i = pair_.true_row(min(max(row0 + r, 0), pair_.n - 1));
          x_[r] = load_element<Cell>(x + i * p_.x_stride[1], behind(tangent, i * p_.tangents.x_stride[1]));
        }
      }
    });
  }

  // Copies an element of y, or a sum so far in the caller's memory, to shared memory; asynchronously if the
  // types are the same.
  template <class Stored>
  __device__ __forceinline__ void fetch_y(Real* to, const Stored* y, int column, int d) const {
    const Stored* const at = y + column * p_.y_stride[1] + d * p_.y_stride[2];
    if constexpr (Cell::kDual) {
      const std::int64_t(&stride)[3] = p_.tangents.y_stride;
      *to = load_element<Cell>(at, behind(pair_.y_tangent, column * stride[1] + d * stride[2]));
    } else if constexpr (std::is_same_v<Real, Stored>) {
      cuda::copy_async(to, at);
    } else {
      *to = load_input(at);
    }
  }
  template <class Stored>
  static __device__ __forceinline__ void fetch_sum(Real* to, const Stored* at) {
    if constexpr (Cell::kDual) {
      *to = Dual(0, load_result_from_l2(at));
    } else if constexpr (std::is_same_v<Real, Stored>) {
      cuda::copy_async(to, at);
    } else {
      *to = load_result_from_l2(at);
    }
  }

  // The sums in grad_x so far, of the rows of a tile that are in the pair.
  template <class Stored>
  __device__ __forceinline__ void fetch_before(Real* to, const Stored* at, unsigned inside) const {
#pragma unroll
    for (int r = 0; r < kTileRows; ++r, at += p_.dim) {
      if (lane_ < width_ && inside >> r & 1) fetch_sum(to + r * kFeatures, at);
    }
  }
  __device__ __forceinline__ void fetch_before(Real* to, AnyAddress from, unsigned inside) const {
    from.as_pointer([&](const auto* at) { fetch_before(to, at, inside); });
  }

  // Fetches y and the sums so far. A lane fetches what it will use itself.
  __device__ void fetch(int d0, bool from_zero) {
    const int f = lane_ & (width_ - 1);
    const bool sums_are_there = !from_zero && pair_.grad_y;
    with_pointer(pair_.y, [&](const auto* y) {
      using Stored = std::remove_cvref_t<decltype(*y)>;
      const Stored* const sums =
          pointer_as(y, pair_.grad_y) + static_cast<std::int64_t>(column0_) * p_.dim + feature(d0);
#pragma unroll 4
      for (int column = lane_ / width_; column < 32; column += 32 / width_) {
        const int there = min(pair_.true_column(column0_ + column), pair_.m - 1);
        if (kAll && is_straight_ && absent_columns_ >> column & 1) {
          memory_.y[column * width_ + f] = Real(0);
        } else {
          fetch_y(memory_.y + column * width_ + f, y, there, feature(d0));
        }
        if (sums_are_there) {
          fetch_sum(memory_.sums + column * width_ + f,
                    sums + static_cast<std::int64_t>(there - column0_) * p_.dim);
        } else {
          memory_.sums[column * width_ + f] = Real(0);
        }
      }
    });
    cuda::await_copies();
  }

  // Writes the sums to grad_y.
  __device__ void put(int d0) const {
    const int f = lane_ & (width_ - 1);
    if (!pair_.grad_y || d0 + f >= p_.dim) return;
    if constexpr (!kOptions && std::is_same_v<In, float> && Cell::kCertifies) {
      if (meets_) {  // at most two sweeps add to a column: their order changes no bit
        for (int column = lane_ / width_; column < 32; column += 32 / width_) {
          const int there = pair_.true_column(column0_ + column);
          if (there < pair_.m) {
            atomicAdd(pair_.grad_y + static_cast<std::int64_t>(there) * p_.dim + d0 + f,
                      memory_.sums[column * width_ + f]);
          }
        }
        return;
      }
    }
    const int columns = min(32, pair_.m - column0_);
    int column = lane_ / width_;
    const std::int64_t step = static_cast<std::int64_t>(32 / width_) * p_.dim;
    with_pointer(pair_.grad_y + static_cast<std::int64_t>(column0_ + column) * p_.dim + d0 + f,
                 [&](auto* to) {
#pragma unroll 8
                   for (; column < columns; column += 32 / width_, to += step)
                     store_result(to, result_of(memory_.sums[column * width_ + f]));
                 });
  }

  // A lane's column of a tile: E, the feature of y, and the sum of grad_y so far.
  struct Column {
    Real e[kTileRows];
    Real y;
    Real total;
  };

  // kBends: the slope is not the difference itself. kMasked: some E of the tile must be ignored.
  template <bool kBends, bool kMasked, class Await>
  __device__ __forceinline__ void add_block(int row0, const Real* tile, unsigned absent, int d0,
                                            const Await& await_right) {
    const bool in_range = d0 + (lane_ & (width_ - 1)) < p_.dim;
    const auto out_x = pair_.grad_x + static_cast<std::int64_t>(row0) * p_.dim + feature(d0);
    const unsigned inside = rows_inside(row0);
    Real* const before_x = memory_.before_x + (lane_ & (width_ - 1));
    const bool adds = pair_.grad_x && adds_;
    if (adds) {
      await_right();
      fetch_before(before_x, out_x, inside);
    }
    if (kAll && kMasked && !kBends) {  // a missing step may contain any numbers
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) x_[r] = absent >> r & 1 ? Element(0) : x_[r];
    }
    Real by_row[kTileRows] = {};
    const int step = 32 / width_;
    int column = lane_ / width_;
    Real* y = memory_.y + column * width_ + (lane_ & (width_ - 1));
    const Real* from = tile + column * Ring::stride(p_);
    // A column is loaded while the previous one is used.
    const auto load = [&](Column& c, int k) {
      c.y = y[32 * k];  // 32 = step * width_
      c.total = y[32 * (kFeatures + k)];
#pragma unroll
      for (int r = 0; r < kTileRows; r += 16 / sizeof(Real))
        *reinterpret_cast<float4*>(c.e + r) =
            *reinterpret_cast<const float4*>(from + k * step * Ring::stride(p_) + r);
    };
    const auto use = [&](Column& c, int k) {
      if (kMasked && (!kBends || (absent | absent_columns_))) {
        const bool all = absent_columns_ >> (column + k * step) & 1;
#pragma unroll
        for (int r = 0; r < kTileRows; ++r) c.e[r] = all || absent >> r & 1 ? Real(0) : c.e[r];
      }
      Real by_column[4] = {};
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        Real difference = Real(x_[r]) - c.y;
        if (kBends) difference = slope_.of(c.e[r], difference);
        by_row[r] += c.e[r] * difference;
        by_column[r % 4] += c.e[r] * difference;
      }
      const Real all_rows = by_column[0] + by_column[1] + (by_column[2] + by_column[3]);
      y[32 * (kFeatures + k)] = c.total - slope_.factor * all_rows;
    };
    Column even, odd;
    load(even, 0);
#pragma unroll 1  // two columns at a time, so that the loop fits into the instruction cache
    for (; column < 32; column += 2 * step) {
      load(odd, 1);
      use(even, 0);
      if (column + 2 * step < 32) load(even, 2);
      use(odd, 1);
      y += 64;
      from += 2 * step * Ring::stride(p_);
    }
    cuda::await_copies();
    __syncwarp();
    if (!pair_.grad_x) return;
    for (int bit = width_; bit < 32; bit *= 2) {
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) by_row[r] += cuda::shuffle_xor(by_row[r], bit);
    }
    if (lane_ < width_ && in_range) {
      with_pointer(out_x, [&](auto* at) {
#pragma unroll
        for (int r = 0; r < kTileRows; ++r, at += p_.dim) {
          const Real before = adds ? before_x[r * kFeatures] : Real(0);
          if (inside >> r & 1) store_result_in_l2(at, result_of(before + slope_.factor * by_row[r]));
        }
      });
    }
    __syncwarp();
  }

  const Params& p_;
  const Pair<In>& pair_;
  const int column0_;
  const int lane_;
  const bool adds_;
  const bool meets_;
  const int width_;
  const int first_feature_;
  const bool keeps_;
  GradientMemory<Real>& memory_;
  const Slope<typename Cell::Scale> slope_;
  const bool is_straight_;  // the slope is the difference, and certified costs bound the difference
  unsigned absent_columns_ = 0;
  bool is_first_ = true;
  Element x_[kTileRows];
};

}  // namespace warpalign::detail::soft_dtw
