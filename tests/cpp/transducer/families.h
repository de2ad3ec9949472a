// Problems of every family, for tests of every path.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "transducer/reference.h"

namespace warpalign::test {

using detail::transducer::reference::Transducer;

inline Transducer plain(int frames, int labels_u, int v, std::mt19937& random) {
  Transducer p;
  p.frames = frames;
  p.labels = v;
  p.blank = v - 1;
  for (int u = 0; v > 1 && u < labels_u; ++u) p.targets.push_back(static_cast<int>(random() % (v - 1)));
  return p;
}

inline Transducer with_big_blanks(Transducer p, std::vector<int> durations) {
  p.durations = std::move(durations);
  for (int i = 0; i < static_cast<int>(p.durations.size()); ++i)
    p.big_blank_columns.push_back(p.labels - 2 - i);
  for (int& label : p.targets) label %= p.labels - 1 - static_cast<int>(p.durations.size());
  return p;
}

inline Transducer with_durations(Transducer p, std::vector<int> durations) {
  p.tdt = true;
  p.durations = std::move(durations);
  return p;
}

// Family number 0 .. 5 at the given size, V >= 12.
inline Transducer family(int number, int frames, int labels_u, int v, std::mt19937& random) {
  const Transducer p = plain(frames, labels_u, v, random);
  switch (number) {
    case 1:
      return with_big_blanks(p, {2, 4, 8});
    case 2:
      return with_durations(p, {0, 1, 2, 3, 4});
    case 3:
      return with_durations(p, {3, 1});
    case 4:
      return with_big_blanks(p, {64, 2, 3, 5, 7, 11, 13, 17});
    case 5:
      return with_durations(p, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 64});
    default:
      return p;
  }
}
inline constexpr int kFamilies = 6;

// Penalty number 0 .. 7 on top of a family; labels are below 14.
inline void add_penalty(Transducer& p, int number) {
  if (number == 1) p.sigma = .05;
  if (number == 2) p.delay = .01;
  if (number == 3 || number == 6) p.eos = 3, p.eos_penalty = .1;
  if ((number == 4 || number == 6) && !p.tdt) p.star = 2, p.star_penalty = .5;
  if (number == 5) p.log_probs = true;
  if (number == 6) p.sigma = .02, p.delay = .003, p.fastemit = .1, p.clamp = .05;
  if (number == 7) {
    p.zero_infinity = true, p.fastemit = .01;
    p.without_durations = p.tdt && p.targets.size() % 2 == 0;
  }
}
inline constexpr int kPenalties = 8;

}  // namespace warpalign::test
