// Random batches that several tests go through.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "families.h"
#include "testing.h"
#include "values.h"

namespace warpalign::test {

inline constexpr DType kEveryDType[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

// body(batch, penalty) for every family, penalty and type: ragged batches, with gaps between rows, packed
// ones, in place, and targets behind each other, in turn.
template <class Body>
void for_ragged_batches(const Body& body) {
  int turn = 0;
  for (int kind = 0; kind < kFamilies; ++kind) {
    for (int penalty = 0; penalty < kPenalties; ++penalty) {
      for (const DType dtype : kEveryDType) {
        if (turn++ % kOptionThinning) continue;
        SCOPED_TRACE(::testing::Message() << "family " << kind << ", penalty " << penalty << ", dtype "
                                          << static_cast<int>(dtype));
        std::mt19937 random(turn);
        TransducerBatch batch;
        batch.dtype = dtype;
        batch.gap = turn % 3;
        batch.in_place = turn % 2 != 0;
        batch.packed = turn % 5 == 0;
        batch.flat_targets = turn % 4 == 0;
        for (const auto& [frames, u] : {std::pair{40, 9}, {1, 0}, {3, 12}, {0, 4}, {70, 33}, {17, 17}}) {
          detail::transducer::reference::Transducer p = family(kind, frames, u, 14, random);
          add_penalty(p, penalty);
          batch.add(p, random);
        }
        body(batch, penalty);
      }
    }
  }
}

// body(batch) for utterances of families whose arcs are nearly as long as the utterance, or as long arcs may
// be.
template <class Body>
void for_long_arcs(const Body& body) {
  for (const auto& [frames, u] : {std::pair{64, 3}, {63, 2}, {65, 40}, {200, 70}, {130, 130}}) {
    for (const int kind : {4, 5}) {
      SCOPED_TRACE(::testing::Message() << frames << " x " << u << ", family " << kind);
      std::mt19937 random(frames);
      TransducerBatch batch;
      batch.dtype = DType::kFloat64;
      batch.add(family(kind, frames, u, 12, random), random);
      body(batch);
    }
  }
}

}  // namespace warpalign::test
