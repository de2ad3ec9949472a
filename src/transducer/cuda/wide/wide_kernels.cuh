// The three products of the joint network by warpgroups (sm_90a), each over a chunk of nodes.
//
//   logits    x = h Wᵀ + c. The first call writes the sum of exponentials of each row's tile and the few
//             logits that have arcs, the second call the gradients G of the logits, in a half type.
//   outer     W's sums += Gᵀ h; column H, where h is 1, is that of the bias
//   pull back dh = act' (G W), which overwrites h
//
// With float32, h, W and G have parts, and dh is float32: the upper halves of its numbers overwrite the first
// part of h, the lower halves the second one.
#pragma once

#include "cuda/memory/add_pair.cuh"
#include "transducer/cuda/wide/wide_rows.cuh"
#include "transducer/cuda/wide/wide_sums.cuh"

namespace warpalign::detail::transducer {

template <class Storage>
struct WideProducts {
  using Half = WideFactor<Storage>;
  WideRows<Half> rows;
  JointChunk chunk;
  WidePacked<Storage> packed;
  std::int32_t depth;  // H, rounded up to whole stages
  WideParts parts;     // the first call
  // The second call.
  Panels<Half> g;            // (chunk, columns)
  float clamp;               // 0: none
  float* weight_sums;        // (split, packed columns, sums_stride)
  std::int64_t sums_stride;  // even, larger than H
  std::int32_t split;        // parts of a chunk, each with its own sums
};

// A thread's elements of a tile of logits: a quarter of the columns of two rows, which are `half` 0 and 1.
template <int kColumns>
class WideLogits {
 public:
  static constexpr int kPairs = kColumns / 8;

  __device__ __forceinline__ WideLogits(float (&sum)[kColumns / 2], const WidePlace& place, int column)
      : x_(sum), pair_(place.pair), column_(column) {}

  __device__ __forceinline__ void add_bias(const float* bias) {
    const auto* const pairs = reinterpret_cast<const float2*>(bias + column_ + pair_);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float2 b = pairs[4 * j];
      x_[4 * j] += b.x;
      x_[4 * j + 1] += b.y;
      x_[4 * j + 2] += b.x;
      x_[4 * j + 3] += b.y;
    }
  }

  // The largest logit times log2(e), and the sum of 2^(x log2(e) - shift). Bitwise identical in all lanes of
  // a row.
  [[nodiscard]] __device__ __forceinline__ RowSum<float> sum(int half) const {
    float largest[2] = {OnlineSum<float>::kLeast, OnlineSum<float>::kLeast};
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) largest[k] = max(largest[k], x_[4 * j + 2 * half + k]);
    }
    float most = max(largest[0], largest[1]);
    most = max(most, cuda::shuffle_xor(most, 1));
    most = max(most, cuda::shuffle_xor(most, 2));
    const float shift = most * kLog2E<float>;
    float part[4] = {};
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        part[j % 2 * 2 + k] += exp2_of(fma(x_[4 * j + 2 * half + k], kLog2E<float>, -shift));
      }
    }
    float total = (part[0] + part[1]) + (part[2] + part[3]);
    total += cuda::shuffle_xor(total, 1);
    total += cuda::shuffle_xor(total, 2);
    return {shift, total};
  }

  // Replaces x by 2^(x log2(e) + shift + scale).
  __device__ __forceinline__ void exponentiate(int half, float shift, float scale) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float& x = x_[4 * j + 2 * half + k];
        x = exp2_of(fma(x, kLog2E<float>, shift) + scale);
      }
    }
  }

  // Whether this thread owns a packed column.
  [[nodiscard]] __device__ __forceinline__ bool owns(int column) const {
    return column >= column_ && column < column_ + kColumns && (column & 6) == pair_;
  }
  // The element there; undefined if the thread does not own the column.
  [[nodiscard]] __device__ __forceinline__ float at(int half, int column) const {
    const int own = (column - column_) / 8;
    const bool second = column & 1;
    float v = 0;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (j == own) v = second ? x_[4 * j + 2 * half + 1] : x_[4 * j + 2 * half];
    }
    return v;
  }
  __device__ __forceinline__ void subtract(int half, int column, float v) {
    const int own = owns(column) ? (column - column_) / 8 : -1;
    const float first = column & 1 ? 0.0f : v, second = column & 1 ? v : 0.0f;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (j == own) {
        x_[4 * j + 2 * half] -= first;
        x_[4 * j + 2 * half + 1] -= second;
      }
    }
  }
  // The thread's duration columns, in the tile that has them: number n is column 8 (n / 2) + pair + n % 2.
  [[nodiscard]] __device__ __forceinline__ float& duration(int half, int n) {
    return x_[n / 2 * 4 + 2 * half + n % 2];
  }
  [[nodiscard]] __device__ __forceinline__ int duration_column(int n) const {
    return 8 * (n / 2) + pair_ + n % 2;
  }

 private:
  float (&x_)[kColumns / 2];
  const int pair_, column_;
};

// The log-sum-exp of a row's durations, which four lanes share.
__device__ __forceinline__ RowSum<float> sum_durations_of_lanes(const float (&x)[4]) {
  float most = OnlineSum<float>::kLeast;
#pragma unroll
  for (int n = 0; n < 4; ++n) most = max(most, x[n]);
  most = max(most, cuda::shuffle_xor(most, 1));
  most = max(most, cuda::shuffle_xor(most, 2));
  const float shift = most * kLog2E<float>;
  float total = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n) total += exp2_of(fma(x[n], kLog2E<float>, -shift));
  total += cuda::shuffle_xor(total, 1);
  total += cuda::shuffle_xor(total, 2);
  return finished(RowSum<float>{shift, total});
}

// The end of the first call's tile: sums of exponentials, and logits of the columns that have arcs.
template <class Storage>
__device__ __forceinline__ void keep_parts(const WideProducts<Storage>& p, const WideTile& tile,
                                           WideLogits<kWideLabels<Storage>>& x, const WidePlace& place) {
  constexpr int kColumns = kWideLabels<Storage>;
  const WideColumns& columns = p.rows.columns;
  const int row = tile.row + place.row;
  float* const picked = p.parts.picked + static_cast<std::int64_t>(row) * columns.picked();
  if (columns.durations > 0 && tile.column == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int d = x.duration_column(n);
        if (d < columns.durations) {
          picked[8 * half * columns.picked() + columns.blanks + 1 + d] =
              x.duration(half, n) + p.packed.duration_bias[d];
        }
      }
    }
  }
  x.add_bias(p.packed.bias);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* const to = picked + 8 * half * columns.picked();
    const int label = p.rows.label[row + 8 * half];
    const float v = x.at(half, label);
    if (x.owns(label)) to[columns.blanks] = v;
    for (int k = 0; k < columns.blanks; ++k) {
      const int blank = columns.blank[k];
      if (blank < tile.column || blank >= tile.column + kColumns) continue;
      const float b = x.at(half, blank);
      if (x.owns(blank)) to[k] = b;
    }
    const RowSum<float> sum = x.sum(half);
    if (place.pair == 0) {
      p.parts.part[static_cast<std::int64_t>(tile.column / kColumns) * p.chunk.most + row + 8 * half] = sum;
    }
  }
}

// The end of the second call's tile: gradients with respect to logits.
template <class Storage>
__device__ __forceinline__ void make_gradients(const WideProducts<Storage>& p, const WideTile& tile,
                                               WideLogits<kWideLabels<Storage>>& x,
                                               const float (&sum)[kWideLabels<Storage> / 2],
                                               const WidePlace& place) {
  constexpr int kColumns = kWideLabels<Storage>;
  const WideColumns& columns = p.rows.columns;
  const int row = tile.row + place.row;
  const bool has_durations = columns.durations > 0 && tile.column == 0;
  const float* const posterior = p.rows.posterior + static_cast<std::int64_t>(row) * columns.picked();
  float durations[2][4] = {};
  float factor[2];
  if (has_durations) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const WideNode node = p.rows.node[row + 8 * half];
      float z[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int d = x.duration_column(n);
        z[n] =
            d < columns.durations ? x.duration(half, n) + p.packed.duration_bias[d] : minus_infinity<float>();
      }
      const RowSum<float> all = sum_durations_of_lanes(z);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int d = x.duration_column(n);
        if (d >= columns.durations) continue;
        const float g = posterior[8 * half * columns.picked() + columns.blanks + 1 + d];
        const float r = node.has_durations ? exp2_of(log2_probability(z[n], all)) * node.posterior - g : 0.0f;
        durations[half][n] = r * node.factor;
      }
    }
  }
  x.add_bias(p.packed.bias);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const WideNode node = p.rows.node[row + 8 * half];
    const float* const g = posterior + 8 * half * columns.picked();
    factor[half] = node.factor;
    x.exponentiate(half, node.shift, node.scale);
    x.subtract(half, node.label, g[columns.blanks]);
    for (int k = 0; k < columns.blanks; ++k) {
      const int blank = columns.blank[k];
      if (blank >= tile.column && blank < tile.column + kColumns) x.subtract(half, blank, g[k]);
    }
  }
  const float most = p.clamp > 0 ? p.clamp : -minus_infinity<float>();
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    const int column = tile.column + 8 * j;
    if (column / 8 >= p.g.count) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float v[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        v[k] = fmin(fmax(sum[4 * j + 2 * half + k], -most), most) * factor[half];
        if (j < 2 && has_durations) v[k] = durations[half][2 * j + k];
      }
#pragma unroll 1
      for (int part = 0; part < p.rows.factor_parts; ++part) {
        *reinterpret_cast<std::uint32_t*>(p.g.at(row + 8 * half, column + place.pair, part)) =
            next_part<WideFactor<Storage>>(v[0], v[1]);
      }
    }
  }
}

template <class Storage, bool kForGradient>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_logits_kernel(const __grid_constant__ WideProducts<Storage> p) {
  constexpr int kColumns = kWideLabels<Storage>;
  const WideTiles tiles{p.chunk.rows(), p.packed.rows, p.depth, kColumns};
  multiply_wide<Storage, kColumns, false, false>(
      p.rows.h, p.packed.weight, p.rows.factor_parts, tiles,
      [&](const WideTile& tile, float(&sum)[kColumns / 2], const WidePlace& place) {
        WideLogits<kColumns> x(sum, place, tile.column);
        if constexpr (kForGradient) {
          make_gradients<Storage>(p, tile, x, sum, place);
        } else {
          keep_parts<Storage>(p, tile, x, place);
        }
      });
}

template <class Storage, int kWidth>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_outer_kernel(const __grid_constant__ WideProducts<Storage> p) {
  // Rows after the last node, up to a whole tile, are 0.
  const int rows = (p.chunk.rows() + kWideRows - 1) / kWideRows * kWideRows;
  const WideSplitTiles tiles{8 * p.g.count, p.rows.hidden + 1, kWidth, p.split, rows};
  const int columns = p.rows.columns.first_label + p.rows.columns.labels;
  multiply_wide<Storage, kWidth, true, true>(
      p.g, p.rows.h, p.rows.factor_parts, tiles,
      [&](const WideTile& tile, float(&sum)[kWidth / 2], const WidePlace& place) {
        float* const sums = p.weight_sums + static_cast<std::int64_t>(tile.part) * columns * p.sums_stride;
    // Each number has one writer at a time: the order of additions is that of the chunks.
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = tile.row + place.row + 8 * i;
          if (row >= columns) continue;
          float* const to = sums + row * p.sums_stride + tile.column + place.pair;
#pragma unroll
          for (int j = 0; j < kWidth / 8; ++j) {
            if (tile.column + 8 * j + place.pair > p.rows.hidden) continue;
            cuda::add_pair(to + 8 * j, sum[4 * j + 2 * i], sum[4 * j + 2 * i + 1]);
          }
        }
      });
}

// The end of a tile of dh: h is read in groups of kTogether pairs, each before it is overwritten.
template <class Storage, int kWidth>
__device__ __forceinline__ void write_back(const WideProducts<Storage>& p, const WideTile& tile,
                                           const float (&sum)[kWidth / 2], const WidePlace& place) {
  constexpr int kPairs = kWidth / 8, kTogether = 8;
  const auto slope = [&](float h) { return p.rows.dropout.slope(h, p.rows.is_tanh); };
#pragma unroll
  for (int first = 0; first < kPairs; first += kTogether) {
    std::uint32_t hidden[kTogether][2];
    const auto each = [&](const auto& function) {
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int column = tile.column + 8 * (first + k) + place.pair;
        if (first + k >= kPairs || column >= p.rows.hidden) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          function(k, i, reinterpret_cast<std::uint32_t*>(p.rows.h.at(tile.row + place.row + 8 * i, column)));
        }
      }
    };
    each([&](int k, int i, const std::uint32_t* at) { hidden[k][i] = *at; });
    each([&](int k, int i, std::uint32_t* at) {
      float left, right;
      cuda::widen_pair<Storage>(hidden[k][i], left, right);
      const int j = min(first + k, kPairs - 1);
      *at =
          cuda::narrow_pair<Storage>(sum[4 * j + 2 * i] * slope(left), sum[4 * j + 2 * i + 1] * slope(right));
    });
  }
}
// The same of float32.
template <int kWidth>
__device__ __forceinline__ void write_back_parts(const WideProducts<float>& p, const WideTile& tile,
                                                 const float (&sum)[kWidth / 2], const WidePlace& place) {
  using Half = WideFactor<float>;
  constexpr int kPairs = kWidth / 8;
  const auto slope = [&](float h) { return p.rows.dropout.slope(h, p.rows.is_tanh); };
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int column = tile.column + 8 * j + place.pair;
    if (column >= p.rows.hidden) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto at = [&](int part) {
        return reinterpret_cast<std::uint32_t*>(p.rows.h.at(tile.row + place.row + 8 * i, column, part));
      };
      float left, right;
      cuda::widen_pair<Half>(*at(0), left, right);
      for (int part = 1; part < p.rows.factor_parts; ++part) {
        float first, second;
        cuda::widen_pair<Half>(*at(part), first, second);
        left += first;
        right += second;
      }
      const SplitPair dh(sum[4 * j + 2 * i] * slope(left), sum[4 * j + 2 * i + 1] * slope(right));
      *at(0) = dh.upper;
      *at(1) = dh.lower;
    }
  }
}

template <class Storage, int kWidth>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_back_kernel(const __grid_constant__ WideProducts<Storage> p) {
  // Columns of G after the last label are 0, and so are the weights there.
  const WideTiles tiles{p.chunk.rows(), p.rows.hidden, 8 * p.g.count, kWidth};
  multiply_wide<Storage, kWidth, false, true>(
      p.g, p.packed.back, p.rows.factor_parts, tiles,
      [&](const WideTile& tile, float(&sum)[kWidth / 2], const WidePlace& place) {
        if constexpr (std::is_same_v<Storage, float>) {
          write_back_parts<kWidth>(p, tile, sum, place);
        } else {
          write_back<Storage, kWidth>(p, tile, sum, place);
        }
      });
}

}  // namespace warpalign::detail::transducer
