// How the CPU path sees a problem: which rows belong to which step, rows in the compute type, and masks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/philox.h"
#include "core/visit_dtype.h"
#include "recurrent/cpu_kernel.h"
#include "recurrent/problem.h"

namespace warpalign::detail::recurrent {

using Index = std::int64_t;

inline Index padded(Index entries) { return (entries + kUnits - 1) / kUnits * kUnits; }
inline Index panels_of(Index columns) { return (columns + kPanel - 1) / kPanel; }  // of 64 columns
// Where gate `gate` of a unit stands in a row of gates.
inline Index gate_column(Index gate, Index unit) {
  return unit / kUnits * kPanel + gate * kUnits + unit % kUnits;
}

// Extents of a cell (a layer in a direction), plain and padded.
struct CellSizes {
  Index rows, batch, input, hidden, output, ip, hp, pp;

  CellSizes(const LstmProblem& p, int layer)
      : rows(rows_of(p)),
        batch(p.batch),
        input(input_of(p, layer)),
        hidden(p.hidden),
        output(output_of(p)),
        ip(padded(input)),
        hp(padded(hidden)),
        pp(padded(output)) {}

  [[nodiscard]] Index gates() const { return 4 * hp; }
  [[nodiscard]] Index panels() const { return hp / kUnits; }
};

// The rows of each step. Row first(t) + b is that of (t, b).
class Steps {
 public:
  explicit Steps(const LstmProblem& p) : p_(p) {}

  [[nodiscard]] Index first(int t) const {
    return p_.row_starts ? p_.row_starts[t] : static_cast<Index>(t) * p_.batch;
  }
  [[nodiscard]] Index count(int t) const {
    return p_.row_starts ? p_.row_starts[t + 1] - p_.row_starts[t] : p_.batch;
  }
  [[nodiscard]] bool holds(int t, Index b) const {
    return t >= 0 && t < p_.steps && b < count(t) && (!p_.lengths || t < p_.lengths[b]);
  }
  [[nodiscard]] bool resets(int t, Index b) const { return p_.resets && p_.resets[first(t) + b] != 0; }

  // body(first b, number of rows) for each run of neighbouring rows that have step t.
  template <class Body>
  void for_runs(int t, const Body& body) const {
    const Index all = count(t);
    for (Index b = 0; b < all;) {
      if (!holds(t, b)) {
        ++b;
        continue;
      }
      const Index begin = b;
      while (b < all && holds(t, b)) ++b;
      body(begin, b - begin);
    }
  }

 private:
  const LstmProblem& p_;
};

template <class Real, class T>
Real wide(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<Real>(value);
  } else {
    return static_cast<Real>(static_cast<float>(value));
  }
}
template <class T, class Real>
T narrow(Real value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    return T::rounded(static_cast<float>(value));
  }
}

// `count` entries from element `offset` on, `stride` elements apart.
template <class Real>
void read_entries(DType dtype, const void* data, Index offset, Index stride, Index count, Real* to) {
  visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    const T* const from = static_cast<const T*>(data) + offset;
    for (Index k = 0; k < count; ++k) to[k] = wide<Real>(from[k * stride]);
  });
}
template <class Real>
void add_entries(DType dtype, const void* data, Index offset, Index count, Real* to) {
  visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    const T* const from = static_cast<const T*>(data) + offset;
    for (Index k = 0; k < count; ++k) to[k] += wide<Real>(from[k]);
  });
}
template <class Real>
void write_entries(DType dtype, const Real* from, Index count, void* data, Index offset) {
  visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    T* const to = static_cast<T*>(data) + offset;
    for (Index k = 0; k < count; ++k) to[k] = narrow<T>(from[k]);
  });
}
// Each entry becomes what dtype can hold.
template <class Real>
void round_entries(DType dtype, Real* entries, Index count) {
  if (dtype != DType::kFloat16 && dtype != DType::kBFloat16) return;
  visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    for (Index k = 0; k < count; ++k) entries[k] = wide<Real>(narrow<T>(entries[k]));
  });
}

// Masks of one cell.
class Masks {
 public:
  Masks(const LstmProblem& p, int layer, int direction)
      : seed_(draws_masks(p) ? *p.seed : 0), code_(static_cast<std::uint32_t>(layer * 8 + direction * 4)) {}

  // body(k, whether the word of entry first + k is below p 2^32) for k < count.
  template <class Body>
  void for_entries(MaskKind kind, double p, Index t, Index b, Index first, Index count,
                   const Body& body) const {
    const std::uint64_t threshold = philox_threshold(p);
    PhiloxWords words{};
    for (Index k = 0; k < count; ++k) {
      const Index unit = first + k;
      if (k == 0 || unit % 4 == 0) {
        words = philox({{static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(b),
                         static_cast<std::uint32_t>(unit / 4), code_ + static_cast<std::uint32_t>(kind)}},
                       seed_);
      }
      body(k, words.word[unit % 4] < threshold);
    }
  }

  // Entries become 0, or are divided by 1 - p.
  template <class Real>
  void drop(MaskKind kind, double p, Index t, Index b, Index first, Index count, Real* entries) const {
    const Real factor = static_cast<Real>(1 / (1 - p));
    for_entries(kind, p, t, b, first, count,
                [&](Index k, bool is_dropped) { entries[k] = is_dropped ? Real(0) : entries[k] * factor; });
  }

 private:
  std::uint64_t seed_;
  std::uint32_t code_;
};

// The share of the state before that zoneout keeps: body(k, m).
template <class Real, class Body>
void for_kept(const LstmProblem& p, const Masks& masks, MaskKind kind, Index t, Index b, Index first,
              Index count, const Body& body) {
  const double zoneout = kind == MaskKind::kHidden ? p.zoneout_hidden : p.zoneout_cell;
  if (p.training) {
    masks.for_entries(kind, zoneout, t, b, first, count,
                      [&](Index k, bool keeps) { body(k, Real(keeps ? 1 : 0)); });
  } else {
    for (Index k = 0; k < count; ++k) body(k, static_cast<Real>(zoneout));
  }
}

}  // namespace warpalign::detail::recurrent
