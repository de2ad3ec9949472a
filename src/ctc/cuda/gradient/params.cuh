// Arguments of the passes over segments. A block owns a segment: kSegment frames of an utterance.
#pragma once

#include "ctc/cuda/lattice/params.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kSegmentWarps = 8;  // the most of a block

template <class Element>
struct SegmentParams {
  using Real = cuda::Sum<Element>;
  Batch batch;
  Emissions<Element> from;
  Checkpoints<State<Real>> checkpoints;  // at the boundaries of segments
  Edges<State<Real>> edges;              // after every strip; data null: utterances have one strip
  const Verdict* verdicts;               // (B,)
  int first_segment, segments;           // of this launch
};

// The same segments for a kernel that serves both half types.
template <class Element>
SegmentParams<Stored<Element>> stored(const SegmentParams<Element>& s) {
  return {s.batch, stored(s.from), s.checkpoints, s.edges, s.verdicts, s.first_segment, s.segments};
}

// The slots in which posteriors of equal labels are added. dense: a row of C + 1 numbers, by class. Otherwise
// a row of U + 1 numbers, by the index of the label's first occurrence. The last number is the star's.
struct Slots {
  bool dense;
  int width;
  const std::int32_t* first;  // (B, U): see EqualParams; not read if dense
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
