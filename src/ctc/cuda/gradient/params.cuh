// What the passes over segments take: a segment is kSegment frames of an utterance, a block's task.
#pragma once

#include "ctc/cuda/lattice/params.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kSegmentWarps = 8;  // of a block, at most

template <class Element>
struct SegmentParams {
  using Real = cuda::Sum<Element>;
  Batch batch;
  Emissions<Element> from;
  Checkpoints<State<Real>> checkpoints;  // at the boundaries of segments
  Edges<State<Real>> edges;              // behind every strip; data null: utterances have one strip
  const Verdict* verdicts;               // (B,)
  int first_segment, segments;           // this launch's
};

// How posteriors of equal labels are added up. dense: by class, in a row of C + 1 numbers, the last of which
// is star's. Else in a row of U + 1, at the place of the label's first occurrence; the last is star's.
struct Slots {
  bool dense;
  int width;
  const std::int32_t* first;  // (B, U): not dense
};

template <class Element>
struct GradientParams {
  using Real = cuda::Sum<Element>;
  SegmentParams<Element> segment;
  Slots slots;
  Real* occupancies;      // (blocks, kSegment, slots.width); null: they are in shared memory
  const Real* grad_loss;  // null: 1
  std::int64_t grad_loss_stride;
  Element* grad;
  std::int64_t grad_stride[3];
};

template <class Element>
struct PosteriorParams {
  SegmentParams<Element> segment;
  cuda::Sum<Element>* labels;  // (B, T, U)
};

}  // namespace warpalign::detail::ctc
