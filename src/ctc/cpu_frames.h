// Frames of logits for the drivers of the CPU path: the normalisers, and the weights of a frame's slots.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ctc/cpu_batch.h"
#include "ctc/tuning.h"

namespace warpalign::detail::ctc {

// The normalisers of all utterances, `stride` doubles apart.
struct Normalizers {
  double* lse;
  double* others;
  std::int64_t stride;

  [[nodiscard]] double* lse_of(std::int32_t b) const { return lse + b * stride; }
  [[nodiscard]] double* others_of(std::int32_t b) const { return others + b * stride; }

  // For a call that saves none: the number of doubles of all utterances, and the pointers into them.
  static std::size_t doubles(const CtcProblem& p) {
    return static_cast<std::size_t>(p.batch) * p.frames * (p.star >= 0 ? 2 : 1);
  }
  static Normalizers within(const CtcProblem& p, double* memory) {
    return {memory, memory + p.frames, std::int64_t{p.frames} * (p.star >= 0 ? 2 : 1)};
  }
};

// An element of logits.
template <class T>
double number_of(T element) {
  if constexpr (std::is_same_v<T, double>) {
    return element;
  } else {
    return static_cast<float>(element);
  }
}

inline double log_add(double a, double b) {
  const double largest = std::max(a, b);
  if (!(largest > -kInfinity)) return a + b;  // -inf, or NaN
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

// The log-sum-exp of all columns but blank.
template <class T>
double others_of(const CtcProblem& p, const T* row) {
  const auto lse = Arithmetic<T>::rows().lse;
  const std::int32_t above = p.classes - p.blank - 1;
  const double low = p.blank > 0 ? lse(row, p.blank) : -kInfinity;
  const double high = above > 0 ? lse(row + p.blank + 1, above) : -kInfinity;
  return log_add(low, high);
}

inline bool has_normalizers(const CtcProblem& p) { return !p.log_probs || p.star >= 0; }

// Computes the normalisers of one frame. Returns whether it has a NaN or +inf.
template <class T>
bool normalize_frame(const CtcProblem& p, const Rows<T>& rows, std::int32_t b, std::int32_t t,
                     const Normalizers& to) {
  const T* const row = rows(b, t);
  double lse = 0;
  if (p.star >= 0) {
    const double others = others_of(p, row);
    to.others_of(b)[t] = others;
    lse = p.log_probs ? others : log_add(others, number_of(row[p.blank]));
  } else {
    lse = Arithmetic<T>::rows().lse(row, p.classes);
  }
  to.lse_of(b)[t] = lse;
  return !(lse < kInfinity);
}

// Computes the normalisers of all frames, by all threads. is_nan: (B,), zeros on entry; set to 1 for an
// utterance with a NaN or +inf. packed: C elements for each worker.
template <class T>
void normalize_frames(const CtcProblem& p, const Batch& batch, const Normalizers& to, std::int32_t* is_nan,
                      T* packed, const Execution& execution) {
  const std::int64_t elements = cpu_tuning(cpu::selected_isa()).worker_elements;
  if (!has_normalizers(p)) return;
  const std::int64_t chunk = std::clamp<std::int64_t>(elements / p.classes, 1, std::max(p.frames, 1));
  const std::int64_t chunks = (p.frames + chunk - 1) / chunk;
  const std::int64_t all = chunks * p.batch;
  if (all == 0) return;
  std::atomic<std::int64_t> next{0};
  const int workers = static_cast<int>(std::min<std::int64_t>(cpu::threads_of(execution), all));
  cpu::run_workers(execution, workers, [&](int worker) {
    const host::FlushToZero flush;
    const Rows<T> rows(p.logits.data, p.logits.stride, p.classes,
                       packed + static_cast<std::int64_t>(worker) * p.classes);
    for (std::int64_t task = next++; task < all; task = next++) {
      const Utterance u = batch[static_cast<int>(task / chunks)];
      const std::int64_t begin = task % chunks * chunk;
      const std::int64_t end = std::min<std::int64_t>(begin + chunk, u.frames);
      bool bad = false;
      for (std::int64_t t = begin; t < end; ++t) {
        bad |= normalize_frame(p, rows, u.index, static_cast<std::int32_t>(t), to);
      }
      if (bad) std::atomic_ref(is_nan[u.index]).store(1, std::memory_order_relaxed);
    }
  });
}

// A worker's memory for the gradient of a frame.
template <class T>
struct FrameMemory {
  using Real = typename Arithmetic<T>::Real;
  Real* dense;  // null if few of many columns have slots
  T* mended;

  FrameMemory(const CtcProblem& p, Arena& arena)
      : dense(arena.take<Real>(is_dense(p) ? p.classes : 0)),
        mended(arena.take<T>(is_dense(p) ? 0 : most_slots(p) + kCpuSlotPad)) {
    if (!is_dense(p)) dense = nullptr;
  }

  // Whether g is a dense array over all columns. The star's posterior is spread over every column.
  static bool is_dense(const CtcProblem& p) { return p.star >= 0 || p.classes / 8 <= most_slots(p); }
};

// The weights of the slots in an utterance's frames.
template <class T>
class Frames {
 public:
  Frames(const CtcProblem& p, const Utterance& u, const Lattice& lattice, const Normalizers& normalizers,
         const Rows<T>& rows)
      : p_(p),
        b_(u.index),
        lattice_(lattice),
        rows_(rows),
        lse_(normalizers.lse_of(u.index)),
        others_(normalizers.others_of(u.index)) {}

  // Writes the weights of frame t, and returns whether one of them is NaN or +inf. A star's weight is the
  // log-sum-exp of all classes but blank.
  bool weigh(std::int32_t t, const CpuWeights& to) const {
    const double star = lattice_.star() > 0 ? others_[t] - lse_of(t) : 0;
    return emit(t, star, to);
  }
  // The same as logarithms. A star's weight is that of the best class but blank.
  bool weigh_best(std::int32_t t, double* to) const {
    return emit(t, lattice_.star() > 0 ? best_of_others(t) : 0, {to, nullptr});
  }
  [[nodiscard]] double best_of_others(std::int32_t t) const {
    double best = -kInfinity;
    for (std::int32_t c = 0; c < p_.classes; ++c) {
      if (c == p_.blank) continue;
      const double w = weight_of(t, c);
      if (!(w < kInfinity)) return w;
      best = std::max(best, w);
    }
    return best;
  }
  // The weight w of one class.
  [[nodiscard]] double weight_of(std::int32_t t, std::int32_t c) const {
    const double prior = p_.prior ? read_real(p_.prior, p_.dtype, c) : 0;
    return number_of(rows_.element(b_, t, c)) - lse_of(t) - prior;
  }
  // The normaliser of frame t; 0 if all its logits are -inf, so that its weights are -inf.
  [[nodiscard]] double lse_of(std::int32_t t) const {
    return p_.log_probs || lse_[t] == -kInfinity ? 0 : lse_[t];
  }
  [[nodiscard]] double others_of(std::int32_t t) const { return lattice_.star() > 0 ? others_[t] : 0; }

 private:
  bool emit(std::int32_t t, double star, const CpuWeights& to) const {
    return Arithmetic<T>::rows().emissions({rows_(b_, t), lattice_.columns(), lattice_.priors(),
                                            lattice_.slots(), lattice_.star(), lse_of(t), star},
                                           to);
  }

  const CtcProblem& p_;
  const std::int32_t b_;
  const Lattice& lattice_;
  const Rows<T>& rows_;
  const double* const lse_;
  const double* const others_;
};

}  // namespace warpalign::detail::ctc
