// What the lattice pass takes, and what its blocks tell each other.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "transducer/cuda/call/params.cuh"
#include "transducer/cuda/lattice/state.cuh"

namespace warpalign::detail::transducer {

// What the blocks of an utterance tell each other. Counters start at -1.
template <class Real>
struct alignas(16) Record {
  State<Real> end;  // alpha of the end
  int done;         // panels whose forward sweep is over
  int invalid;      // 1: NaN, or a label that cannot be
  int outcome;
};

// What the shared memory of a sweep depends on.
struct SweepShape {
  int history;  // frames that a sweep with long arcs remembers
  int slots;    // of a node
  bool staged;  // slots come through shared memory
};

template <class Real>
struct LatticeParams {
  Batch batch;
  Real* slots;
  Real* loss;             // (B,)
  std::int32_t* outcome;  // (B,); null: no gradient is wanted
  SweepShape shape;
  // With more than one panel, all of it starts as one-bits:
  int* ticket;
  Record<Real>* records;  // (B,)
  // Between panels: two words for each frame, alpha; and one, what a column's labels leave for the left.
  cuda::Word* borders;
  cuda::Word* reverse_borders;
};

}  // namespace warpalign::detail::transducer
