// Arguments of the lattice pass, and the data that its blocks exchange.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "transducer/cuda/call/params.cuh"
#include "transducer/cuda/lattice/state.cuh"

namespace warpalign::detail::transducer {

// Data that the blocks of an utterance exchange. Counters are initialised to -1.
template <class Real>
struct alignas(16) Record {
  State<Real> end;  // alpha of the end
  int done;         // number of panels whose forward sweep has ended
  int invalid;      // 1: a NaN, or an invalid label
  int outcome;
};

// The sizes that determine the shared memory of a sweep.
struct SweepShape {
  int history;  // number of frames that a sweep with long arcs stores
  int slots;    // slots of a node
  bool staged;  // whether slots are staged in shared memory
};

template <class Real>
struct LatticeParams {
  Batch batch;
  Real* slots;
  Real* loss;             // (B,)
  std::int32_t* outcome;  // (B,); null: no posteriors are computed
  SweepShape shape;
  // With more than one panel, the following memory is initialised to one-bits:
  int* ticket;
  Record<Real>* records;  // (B,)
  // Borders between panels, for each frame: two words of alpha, and one word of the flow through labels to
  // the left.
  cuda::Word* borders;
  cuda::Word* reverse_borders;
};

}  // namespace warpalign::detail::transducer
