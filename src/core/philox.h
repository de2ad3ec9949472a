// Philox4x32-10: random words as a function of a counter and a key, for masks that do not depend on the
// layout of a launch.
//
// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
#pragma once

#include <cstdint>

#include "core/anywhere.h"

namespace warpalign::detail {

struct PhiloxWords {
  std::uint32_t word[4];
};

// Ten rounds. The key's lower half is the first key word.
WARPALIGN_ANYWHERE constexpr PhiloxWords philox(PhiloxWords counter, std::uint64_t key) {
  std::uint32_t low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t third = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(third >> 32) ^ counter.word[1] ^ low,
                static_cast<std::uint32_t>(third),
                static_cast<std::uint32_t>(first >> 32) ^ counter.word[3] ^ high,
                static_cast<std::uint32_t>(first)}};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// The threshold for which a random word is less than it with probability p, 0 <= p < 1.
WARPALIGN_ANYWHERE constexpr std::uint64_t philox_threshold(double p) {
  return static_cast<std::uint64_t>(p * 4294967296.0);
}

}  // namespace warpalign::detail
