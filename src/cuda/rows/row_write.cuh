// Writes a row of numbers that is a function of another row, or of nothing, in accesses of 16 bytes.
#pragma once

#include <cstdint>

#include "cuda/memory/streaming.cuh"
#include "cuda/numbers/half.cuh"

namespace warpalign::cuda {

// Elements of 16 bytes.
template <class Storage>
struct Vector {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(Storage));
  Bits128 bits;

  template <class Function>
  __device__ __forceinline__ Vector each(const Function& function) const {
    Vector to;
    if constexpr (sizeof(Storage) == 8) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const double v = function(
            __hiloint2double(static_cast<int>(bits.words[2 * k + 1]), static_cast<int>(bits.words[2 * k])));
        to.bits.words[2 * k] = static_cast<unsigned>(__double2loint(v));
        to.bits.words[2 * k + 1] = static_cast<unsigned>(__double2hiint(v));
      }
    } else if constexpr (sizeof(Storage) == 4) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float v = function(__int_as_float(static_cast<int>(bits.words[k])));
        to.bits.words[k] = static_cast<unsigned>(__float_as_int(v));
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float low, high;
        widen_pair<Storage>(bits.words[k], low, high);
        to.bits.words[k] = narrow_pair<Storage>(function(low), function(high));
      }
    }
    return to;
  }
};

// to[k] = function(from[k]) for the row's columns, or function() if !kReads. This thread is lane `lane` of
// the `lanes` that share the row. It loads kUnroll vectors before it uses the first.
template <bool kReads, int kUnroll = 4, class Storage, class Function>
__device__ __forceinline__ void write_row(Storage* to, const Storage* from, int labels, int lane, int lanes,
                                          const Function& function) {
  using Vector = Vector<Storage>;
  constexpr int kSize = static_cast<int>(sizeof(Storage));
  const auto misaligned = [](const Storage* p) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16);
  };
  const bool together = !kReads || misaligned(to) == misaligned(from);
  // Columns before the first whole vector, and after the last one.
  const int head = together ? min((16 - misaligned(to)) % 16 / kSize, labels) : labels;
  const int vectors = (labels - head) / Vector::kCount;
  const int single = labels - vectors * Vector::kCount;
  const auto column = [&](int k) { return k < head ? k : k + vectors * Vector::kCount; };
  // The first of these columns is loaded before the vectors, and used after them.
  Storage first{};
  if (kReads && lane < single) first = from[column(lane)];
  const auto* const source = reinterpret_cast<const Bits128*>(from + head);
  auto* const target = reinterpret_cast<Bits128*>(to + head);
  // All lanes load as many vectors each time, past the end the last one once more: a loop over the rest would
  // wait for each vector.
  for (int v = lane; v < vectors; v += kUnroll * lanes) {
    Vector x[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      x[j] = {};
      if constexpr (kReads) x[j].bits = load_streaming(source + min(v + j * lanes, vectors - 1));
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      if (v + j * lanes < vectors) store_streaming(target + v + j * lanes, x[j].each(function).bits);
    }
  }
  if (lane < single) to[column(lane)] = narrow<Storage>(function(kReads ? widen(first) : 0));
  for (int k = lane + lanes; k < single; k += lanes) {
    to[column(k)] = narrow<Storage>(function(kReads ? widen(from[column(k)]) : 0));
  }
}

}  // namespace warpalign::cuda
