// One node's logits on the CPU path: the weights of its arcs, and after the lattice its gradient.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "transducer/cpu_batch.h"

namespace warpalign::detail::transducer {
inline namespace on_host {

// A row with S below this is written as 0: no entry of its gradient exceeds 2^-40 G.
inline constexpr double kDeadRow = 0x1p-40;

// The arc weights of an utterance's nodes. Logits have elements T.
template <class T>
class NodeWeights {
 public:
  using Real = typename Arithmetic<T>::Real;

  NodeWeights(const TransducerLattice& lattice, std::int32_t labels, bool log_probs,
              const Utterance& utterance, void* saved)
      : lattice_(lattice),
        labels_(labels),
        log_probs_(log_probs),
        utterance_(utterance),
        memory_(saved, utterance),
        family_(lattice, utterance),
        grid_(utterance.frames, utterance.states()) {}

  // Whether arcs have durations. Otherwise weigh() does not read duration logits.
  [[nodiscard]] bool timed() const { return lattice_.tdt && !utterance_.without_durations; }

  // Takes node (t, u) out of the lattice: none of its arcs can be taken.
  void close(std::int32_t t, std::int32_t u) const {
    const ArcTable& table = family_.table;
    Real* const place = memory_.slots + grid_.origin(t + u) + (grid_.by_state ? u : t);
    for (std::int32_t slot = 0; slot < table.arcs(); ++slot) {
      const bool exists = arc_end(table, slot, t, u, utterance_.frames, utterance_.labels).exists;
      place[slot * memory_.stride] = exists ? -std::numeric_limits<Real>::infinity() : Real(0);
    }
  }

  // Computes lse and arc weights of node (t, u) from logits x and duration logits z. Returns whether they
  // have a NaN or +inf.
  bool weigh(std::int32_t t, std::int32_t u, const T* x, const T* z) const {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const cpu::RowKernels<Real>& rows = Arithmetic<T>::rows(kernels());
    const ArcTable& table = family_.table;
    const double lse = log_probs_ ? 0 : rows.lse(x, labels_);
    const double duration_lse = log_probs_ || !timed() ? 0 : rows.lse(z, lattice_.durations);
    bool is_nan = std::isnan(lse) || std::isnan(duration_lse);
    memory_.lse[static_cast<std::int64_t>(t) * utterance_.states() + u] = static_cast<Real>(lse);
    // The log-probability of a column; -inf in a row that is all -inf.
    const auto score = [](const T* row, std::int32_t column, double sum) {
      // Arcs with a duration exist only if there are duration logits.
      // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
      return sum == -kInf ? -kInf : static_cast<double>(static_cast<Real>(row[column])) - sum;
    };
    Real* const place = memory_.slots + grid_.origin(t + u) + (grid_.by_state ? u : t);
    for (std::int32_t slot = 0; slot < table.arcs(); ++slot) {
      double weight = 0;
      if (arc_end(table, slot, t, u, utterance_.frames, utterance_.labels).exists) {
        const ArcTerm<double> term = family_.term(utterance_, slot, t, u);
        weight = term.constant;
        if (term.scored) {
          weight += score(x, table.is_label(slot) ? utterance_.targets[u] : table.column[slot], lse);
          if (table.duration[slot] >= 0) weight += score(z, table.duration[slot], duration_lse);
        }
        is_nan |= std::isnan(weight) || weight == kInf;
      }
      place[slot * memory_.stride] = static_cast<Real>(weight * kLog2E<double>);
    }
    return is_nan;
  }

 private:
  const TransducerLattice& lattice_;
  const std::int32_t labels_;
  const bool log_probs_;
  const Utterance utterance_;
  const Saved<Real> memory_;
  const Family family_;
  const Diagonals grid_;
};

// The gradient of one row of label or of duration logits.
template <class T>
class RowGradient {
 public:
  using Real = typename Arithmetic<T>::Real;

  RowGradient(double upstream, double clamp, bool log_probs)
      : upstream_(std::isnan(upstream)
                      ? kPlainNaN
                      : upstream),  // a NaN without payload, because half types are rounded by their bits
        clip_(clamp > 0 ? clamp : std::numeric_limits<double>::infinity()),
        log_probs_(log_probs) {}

  void clear() { columns_ = 0; }
  void add(std::int32_t column, double g) {
    for (int k = 0; k < columns_; ++k) {
      if (column_[k] == column) {
        g_[k] += g;
        return;
      }
    }
    column_[columns_] = column;
    g_[columns_++] = g;
  }
  void write(const T* x, T* out, std::int32_t columns, double lse, double scored) const {
    cpu::RowGradient<Real> row{};
    row.lse = static_cast<Real>(lse);
    row.scored = static_cast<Real>(scored);
    row.upstream = static_cast<Real>(upstream_);
    row.clip = static_cast<Real>(clip_);
    row.log_probs = log_probs_;
    row.columns = columns_;
    for (int k = 0; k < columns_; ++k) {
      row.column[k] = column_[k];
      row.g[k] = static_cast<Real>(g_[k]);
    }
    Arithmetic<T>::rows(kernels()).gradient(x, out, columns, row);
  }

 private:
  static constexpr double kPlainNaN = std::numeric_limits<double>::quiet_NaN();

  double upstream_;
  double clip_;
  bool log_probs_;
  int columns_ = 0;
  std::int32_t column_[kCpuColumns] = {};
  double g_[kCpuColumns] = {};
};

template <class T>
void fill_row(T* row, std::int32_t columns, bool with_nan) {
  using Real = typename Arithmetic<T>::Real;
  if (!row) return;
  if (!with_nan) {
    std::memset(row, 0, static_cast<std::size_t>(columns) * sizeof(T));
  } else if constexpr (std::is_same_v<T, double>) {
    std::fill(row, row + columns, std::numeric_limits<double>::quiet_NaN());
  } else {
    std::fill(row, row + columns, rounded_to<T>(std::numeric_limits<Real>::quiet_NaN()));
  }
}

// The gradients of an utterance's nodes. Posteriors are in saved memory.
template <class T>
class NodeGradients {
 public:
  using Real = typename Arithmetic<T>::Real;

  NodeGradients(const TransducerLattice& lattice, std::int32_t labels, bool log_probs,
                const Utterance& utterance, const void* saved, double upstream)
      : lattice_(lattice),
        labels_(labels),
        log_probs_(log_probs),
        utterance_(utterance),
        memory_(const_cast<void*>(saved), utterance),  // NOLINT: only read
        family_(lattice, utterance),
        grid_(std::max(utterance.frames, 1), utterance.states()),
        by_label_(upstream, lattice.clamp, log_probs),
        by_duration_(upstream, 0, log_probs) {}

  enum class Kind { kZero, kNaN, kLive };

  // Selects node (t, u) for write(). Only the logits of live nodes are needed.
  Kind seek(std::int32_t t, std::int32_t u) {
    const ArcTable& table = family_.table;
    const Real* const place = memory_.slots + grid_.origin(t + u) + (grid_.by_state ? u : t);
    by_label_.clear();
    by_duration_.clear();
    row_ = static_cast<std::int64_t>(t) * utterance_.states() + u;
    scored_ = 0;
    for (std::int32_t slot = 0; slot < table.arcs(); ++slot) {
      const bool is_label = table.is_label(slot);
      if ((is_label && u == utterance_.labels) || !family_.term(utterance_, slot, t, u).scored) continue;
      const double g =
          static_cast<double>(place[slot * memory_.stride]) * (is_label ? 1 + lattice_.fastemit : 1);
      scored_ += g;
      by_label_.add(is_label ? utterance_.targets[u] : table.column[slot], g);
      if (timed()) by_duration_.add(table.duration[slot], g);
    }
    if (std::isnan(place[0])) return kind_ = Kind::kNaN;
    const bool is_dead = std::is_same_v<T, double> ? scored_ == 0 : scored_ < kDeadRow;
    return kind_ = is_dead ? Kind::kZero : Kind::kLive;
  }

  // Writes the gradients with respect to logits x and duration logits z; out may be x. duration_out may be
  // null.
  void write(const T* x, T* out, const T* z, T* duration_out) const {
    if (kind_ != Kind::kLive) {
      fill_row(out, labels_, kind_ == Kind::kNaN);
      fill_row(duration_out, lattice_.durations, kind_ == Kind::kNaN);
      return;
    }
    by_label_.write(x, out, labels_, memory_.lse[row_], scored_);
    if (!timed()) {
      fill_row(duration_out, lattice_.durations, false);
      return;
    }
    const double lse = log_probs_ ? 0 : Arithmetic<T>::rows(kernels()).lse(z, lattice_.durations);
    by_duration_.write(z, duration_out, lattice_.durations, lse, scored_);
  }

 private:
  [[nodiscard]] bool timed() const { return lattice_.tdt && !utterance_.without_durations; }

  const TransducerLattice& lattice_;
  const std::int32_t labels_;
  const bool log_probs_;
  const Utterance utterance_;
  const Saved<Real> memory_;
  const Family family_;
  const Diagonals grid_;
  RowGradient<T> by_label_, by_duration_;
  Kind kind_ = Kind::kZero;
  std::int64_t row_ = 0;
  double scored_ = 0;
};

}  // namespace on_host
}  // namespace warpalign::detail::transducer
