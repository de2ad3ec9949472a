// The second pass over the lattice, from the last segment to the first: alpha of the segment's frames is
// computed again and stored, then beta is computed backward, and their products are posteriors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ctc/cpu_frames.h"
#include "ctc/cpu_saved.h"

namespace warpalign::detail::ctc {

// One utterance's memory for the second pass.
struct ReverseMemory {
  Lattice lattice;
  std::int64_t row;     // number of doubles of a row
  double* start;        // the row of the frame before a segment
  double* beta[2];      // rows
  double* alpha;        // the rows of a segment's frames
  std::int64_t stride;  // number of doubles of a frame's weights, and of its posteriors
  double* weights;      // of a segment: mantissas, then exponents
  double* posteriors;   // of a segment
  double* labels;       // posteriors of a frame's labels

  ReverseMemory(const CtcProblem& p, Arena& arena)
      : lattice(p, arena),
        row(4 * cpu_stride(p.labels)),
        start(arena.take<double>(row)),
        beta{arena.take<double>(row), arena.take<double>(row)},
        alpha(arena.take<double>(row * segment_frames(p))),
        stride(weights_stride(most_slots(p))),
        weights(arena.take<double>(2 * stride * segment_frames(p))),
        posteriors(arena.take<double>(stride * segment_frames(p))),
        labels(arena.take<double>(cpu_stride(p.labels))) {}

  [[nodiscard]] CpuWeights weights_of(std::int32_t frame) const {
    double* const mantissa = weights + 2 * stride * frame;
    return {mantissa, mantissa + stride};
  }
};

// Computes alpha of frames begin .. end - 1.
template <class T>
void recompute_segment(const Utterance& u, const Frames<T>& frames, const Saved& saved,
                       const ReverseMemory& memory, std::int32_t segment, std::int32_t begin,
                       std::int32_t end) {
  const CpuLattice lattice = memory.lattice.view();
  const CpuKernels& k = kernels();
  clear_row(memory.start, lattice.stride);
  if (segment == 0) {
    set_end(memory.start, lattice.stride, 0);
  } else {
    saved.get(segment, memory.start, lattice.stride);
  }
  for (std::int32_t t = begin; t < end; ++t) {
    const CpuWeights weights = memory.weights_of(t - begin);
    double* const row = memory.alpha + memory.row * (t - begin);
    const CpuRange range = range_of(u, t);
    static_cast<void>(frames.weigh(t, weights));
    k.alpha(lattice, weights, t == begin ? memory.start : row - memory.row, row, range);
    if ((t + 1) % kCpuLazy == 0) k.normalize(lattice, row, range);
  }
}

// Goes from the last frame to the first. Calls on_frame(t, labels) for each frame if wants_labels, where
// labels[kCpuPad + k] is the posterior of label k, and on_segment(begin, end) for each segment, when its
// posteriors by slot are in memory.
template <class T, class OnFrame, class OnSegment>
void reverse(const CtcProblem& p, const Utterance& u, const Frames<T>& frames, const Saved& saved,
             const ReverseMemory& memory, bool wants_labels, OnFrame&& on_frame, OnSegment&& on_segment) {
  const CpuLattice lattice = memory.lattice.view();
  const CpuKernels& k = kernels();
  const SavedHeader& header = *saved.header;
  const std::int32_t length = segment_frames(p);
  double* row = memory.beta[0];
  double* next = memory.beta[1];
  clear_row(row, lattice.stride);
  clear_row(next, lattice.stride);
  set_end(row, lattice.stride, u.labels);
  for (std::int32_t segment = segments_of(u.frames, length) - 1; segment >= 0; --segment) {
    const std::int32_t begin = segment * length, end = std::min(begin + length, u.frames);
    recompute_segment<T>(u, frames, saved, memory, segment, begin, end);
    std::fill_n(memory.posteriors, memory.stride * (end - begin), 0.0);
    for (std::int32_t t = end - 1; t >= begin; --t) {
      const CpuRange range = range_of(u, t);
      const CpuPosteriors posteriors{1 / header.mantissa, header.exponent,
                                     memory.posteriors + memory.stride * (t - begin),
                                     wants_labels ? memory.labels : nullptr};
      k.beta(lattice, memory.weights_of(t - begin), row, next, memory.alpha + memory.row * (t - begin),
             posteriors, range);
      std::swap(row, next);
      if (t % kCpuLazy == 0) k.normalize(lattice, row, range);
      if (wants_labels) on_frame(t, memory.labels + kCpuPad, range);
    }
    on_segment(begin, end);
  }
}

}  // namespace warpalign::detail::ctc
