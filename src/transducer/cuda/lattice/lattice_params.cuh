// Arguments of the lattice pass, and the data that its blocks exchange.
#pragma once

#include "core/constants.h"
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

// The outcome of an utterance, from alpha of the end. Writes the loss and the outcome.
template <class Real>
__device__ __forceinline__ int conclude(const LatticeParams<Real>& p, int b, int frames,
                                        const State<Real>& end, bool invalid) {
  int outcome = kPaths;
  double loss = -(static_cast<double>(end.exponent) + log2(static_cast<double>(end.mantissa))) * kLn2<double>;
  if (frames == 0 || end.mantissa == Real(0)) {
    outcome = kNoPath;
    loss = p.batch.lattice.zero_infinity ? 0.0 : CUDART_INF;
  }
  if (invalid || isnan(end.mantissa)) {
    outcome = kInvalid;
    loss = CUDART_NAN;
  }
  p.loss[b] = static_cast<Real>(loss);
  if (p.outcome) p.outcome[b] = outcome;
  return outcome;
}

}  // namespace warpalign::detail::transducer
