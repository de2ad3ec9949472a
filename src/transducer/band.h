// The band of a pruned joint: the nodes that its paths may go through, s neighbouring states of every frame.
#pragma once

#include <cstdint>

#include "core/anywhere.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::detail::transducer {

struct Band {
  const std::int32_t* first = nullptr;  // (B, T); null: every node is in the band
  std::int32_t width = 0;               // states of a frame: s
  std::int32_t frames = 0;              // T
  std::int32_t states = 1;              // U + 1

  [[nodiscard]] WARPALIGN_ANYWHERE explicit operator bool() const { return first != nullptr; }

  // The nodes of the band, in the order of rows, before the one of row (b T + t) (U + 1) + u.
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t node(std::int64_t b, std::int32_t t, std::int32_t u) const {
    return (b * frames + t) * width + (u - begin(b, t));
  }
  // The first state of frame t of utterance b, so that all states of the frame exist in the batch.
  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t begin(std::int64_t b, std::int32_t t) const {
    const std::int32_t given = first[b * frames + t], last = states - width;
    return given < 0 ? 0 : given > last ? last : given;
  }
  // Node n of the band, in the order of rows: its row (b T + t) (U + 1) + u.
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t row(std::int64_t n) const {
    const std::int64_t frame = n / width, b = frame / frames;
    return frame * states + begin(b, static_cast<std::int32_t>(frame - b * frames)) + (n - frame * width);
  }
  [[nodiscard]] WARPALIGN_ANYWHERE bool has(std::int64_t b, std::int32_t t, std::int32_t u) const {
    if (!first) return true;
    const std::int32_t at = u - begin(b, t);
    return at >= 0 && at < width;
  }
};

// The most states of a frame for which CUDA has a lattice pass over the band alone.
inline constexpr std::int32_t kBandStates = 8;

// Whether CUDA saves the arcs and sums of the band's nodes alone, and sweeps them alone.
inline bool has_band_lattice(const TransducerJointProblem& p) {
  const bool is_plain = !p.lattice.tdt && p.lattice.durations == 0;
  return p.band && p.band_states <= kBandStates && is_plain && p.dtype != DType::kFloat64;
}

inline Band band_of(const TransducerJointProblem& p) {
  return {p.band, p.band_states, p.lattice.frames, p.lattice.states};
}

// The band whose nodes alone have slots and sums on CUDA; none: all nodes have.
inline Band saved_band_of(const TransducerJointProblem& p) {
  return has_band_lattice(p) ? band_of(p) : Band{};
}

// The nodes whose logits are computed, padding of the batch included.
inline std::int64_t joint_nodes(const TransducerJointProblem& p) {
  const TransducerLattice& l = p.lattice;
  return std::int64_t{l.batch} * l.frames * (p.band ? p.band_states : l.states);
}

}  // namespace warpalign::detail::transducer
