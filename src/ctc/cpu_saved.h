// What ctc_loss() saves for ctc_gradient() on the CPU, for each utterance: the sum over all paths, a
// normaliser per frame (two with a star), and alpha at the beginning of every segment but the first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ctc/cpu_batch.h"
#include "ctc/tuning.h"

namespace warpalign::detail::ctc {

// The number of frames of a segment, whose alphas are in memory at the same time: as many as fit into a part
// of a second-level cache, and at least the square root of T, which the bound of ctc_most_saved_bytes()
// needs.
inline std::int32_t segment_frames(const CtcProblem& p) {
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(p.frames))));
  const std::int64_t most = cpu_tuning(cpu::selected_isa()).segment_doubles;
  const std::int64_t fitting = most / (4 * cpu_stride(p.labels));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::max(root, fitting), 1, std::max(p.frames, 1)));
}
inline std::int32_t segments_of(std::int32_t frames, std::int32_t segment) {
  return (frames + segment - 1) / segment;
}

enum class Outcome : std::int64_t { kPaths = 0, kNoPath = 1, kBadLogit = 2 };

struct SavedHeader {
  Outcome outcome;
  double mantissa;  // the sum over all paths is mantissa 2^exponent
  double exponent;
};

// An utterance's part of saved memory.
struct Saved {
  SavedHeader* header;
  double* lse;       // [frame]
  double* others;    // [frame]: log-sum-exp of the classes but blank; only with a star
  double* segments;  // four arrays of `pairs` doubles each
  std::int64_t pairs;

  // The number of doubles of an utterance.
  static std::int64_t doubles(const CtcProblem& p) {
    const std::int64_t pairs = pairs_of(p);
    return 4 + std::int64_t{p.frames} * (p.star >= 0 ? 2 : 1) +
           4 * pairs * std::max(segments_of(p.frames, segment_frames(p)) - 1, 0);
  }
  static std::int64_t pairs_of(const CtcProblem& p) { return cpu_stride(p.labels) - 2 * kCpuPad; }

  Saved(const CtcProblem& p, void* saved, std::int32_t index)
      : header(reinterpret_cast<SavedHeader*>(static_cast<double*>(saved) + index * doubles(p))),
        lse(reinterpret_cast<double*>(header) + 4),
        others(lse + p.frames),
        segments(others + (p.star >= 0 ? p.frames : 0)),
        pairs(pairs_of(p)) {}

  // Stores alpha of the frame before segment `segment` >= 1: `count` pairs from `first` on, which is pair 0
  // of the row.
  void put(std::int32_t segment, const double* row, std::int64_t stride, std::int64_t first,
           std::int64_t count) const {
    for (int array = 0; array < 4; ++array) {
      std::copy_n(row + array * stride + kCpuPad, count, at(segment, array) + first);
    }
  }
  void get(std::int32_t segment, double* row, std::int64_t stride, std::int64_t first,
           std::int64_t count) const {
    for (int array = 0; array < 4; ++array) {
      std::copy_n(at(segment, array) + first, count, row + array * stride + kCpuPad);
    }
  }

 private:
  [[nodiscard]] double* at(std::int32_t segment, int array) const {
    return segments + (4 * std::int64_t{segment - 1} + array) * pairs;
  }
};
static_assert(sizeof(SavedHeader) <= 4 * sizeof(double));

}  // namespace warpalign::detail::ctc
